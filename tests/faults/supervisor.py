"""Keeps a program running as systemd or Kubernetes would, by the documented exit codes.

After code 4 (superseded) nothing is started; 2 and 5 need a person, which is a problem unless a fault asked for them; after
everything else, a kill included, the program is started again after a second.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from streaming.process.exits import FENCED, REFUSED, WRONG_USE
from tests.support.processes import TRIMTAB, Child, ask, members

Part = Literal["all", "driver", "jvm", "worker"]

_LOOK_S = 0.2
_RESTART_S = 1.0
_TAIL_LINES = 15
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
"""A child dies with the thread that started it, so this thread lives as long as we do."""


class Supervisor(threading.Thread):
    """Processes of one program; usually one, more while one takes over from another."""

    def __init__(self, program: str, arguments: Sequence[str], directory: Path) -> None:
        super().__init__(name=f"supervisor-{program}", daemon=True)
        self.problems: list[str] = []
        self.restarts_count = 0
        self.expects_refusal = False
        self.refusals_count = 0
        self._program = program
        self._command = (*TRIMTAB, *arguments)
        self._directory = directory
        self._children: list[Child] = []
        self._started_count = 0
        self._lock = threading.RLock()
        self._over = threading.Event()

    def start_one(self) -> Child:
        """Start one more process."""
        with self._lock:
            self._started_count += 1
            log = self._directory / f"{self._program}-{self._started_count}.log"
            child = _spawner.submit(Child, self._command, log).result()
            self._children.append(child)
            return child

    @property
    def newest(self) -> Child | None:
        """The living process that was started last."""
        with self._lock:
            return self._children[-1] if self._children else None

    @property
    def children(self) -> list[Child]:
        """The living processes, in the order they were started."""
        with self._lock:
            return list(self._children)

    @contextmanager
    def hands_off(self) -> Iterator[None]:
        """Processes that end inside the block are looked at after it."""
        with self._lock:
            yield

    def stop_all(self) -> None:
        """Send SIGTERM to every process, and wait; none is started again because of it. To be used inside ``hands_off``."""
        for child in list(self._children):
            child.process.terminate()
        for child in list(self._children):
            child.wait()
            child.close()
            self._children.remove(child)

    def send(self, signal_: signal.Signals, part: Part, child: Child | None = None) -> int:
        """Send a signal to the processes of a child, by default the newest; returns how many there were."""
        chosen = child or self.newest
        found = [] if chosen is None else _pids(chosen, part)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal_)
        return len(found)

    def is_ready(self) -> bool:
        """Whether the newest process says that it is ready."""
        child = self.newest
        if child is None or "metrics and health at" not in child.output:
            return False
        return ask(f"{child.url}/readyz").status == 200

    def run(self) -> None:
        """Watch the processes until ``end``."""
        while not self._over.wait(_LOOK_S):
            with self._lock:
                for child in list(self._children):
                    code = child.process.poll()
                    if code is not None:
                        child.close()
                        self._children.remove(child)
                        self._ended(child, code)

    def end(self) -> list[str]:
        """Stop all processes; returns what was wrong with them."""
        self._over.set()
        self.join()
        with self._lock:
            for child in list(self._children):
                child.process.terminate()
            for child in list(self._children):
                code = child.wait(60)
                stopped_early = code == -signal.SIGTERM and not child.output  # it did not listen yet
                if code != 0 and not stopped_early:
                    self.problems.append(f"a {self._program} stopped with {code}: {_tail(child)}")
                child.close()
            self._children.clear()
        return self.problems

    def _ended(self, child: Child, code: int) -> None:
        if code == FENCED:
            if not self._children:
                self.problems.append(f"{self._program}: superseded, and no process is left: {_tail(child)}")
        elif code in {REFUSED, WRONG_USE}:
            self.refusals_count += 1
            if not self.expects_refusal:
                self.problems.append(
                    f"{self._program}: ended with {code}, which a person has to fix: {_tail(child)}"
                )
        else:
            self.restarts_count += 1
            time.sleep(_RESTART_S)
            self.start_one()


def _pids(child: Child, part: Part) -> list[int]:
    driver = child.process.pid
    found = members(driver)
    if part == "driver":
        return [each.pid for each in found if each.pid == driver]
    if part == "jvm":
        return [each.pid for each in found if each.name == "java"]
    if part == "worker":
        return [each.pid for each in found if each.pid != driver and each.name != "java"]
    return [each.pid for each in found]


def _tail(child: Child) -> str:
    return " | ".join(child.output.splitlines()[-_TAIL_LINES:])[-1500:]
