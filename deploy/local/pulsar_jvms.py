"""The JVMs of a local Pulsar: started one after the other, ended in the opposite order, each with a log of its own.

Invariants: what is started here is ended by its process id, and on Linux does not outlive this process; a process
that does not come up is reported with the end of its log.
"""

import atexit
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local import pulsar_settings as settings
from deploy.local.processes import LOCKS, LOGGING, end_of, spawn
from streaming.process.deadline import poll
from streaming.spark.jars import ensure, find_java

PULSAR_LOCK = LOCKS / "pulsar.lock"
NEWEST_PULSAR_LOCK = PULSAR_LOCK.with_name("pulsar-4.2.lock")
"""The newest release that the live tests run on."""
READY_TIMEOUT_S = 120.0
"""Three brokers need 15 s on two idle cores."""
STOP_TIMEOUT_S = 30.0
"""Standalone stops in 6 s; what has not ended after this long is killed."""
POLL_S = 0.1
ATTEMPTS_MAX = 3
"""Ports are found free and bound later, so another process may be faster; three times in a row is not chance."""


class LocalPulsarError(RuntimeError):
    """A process did not start, or is not in the state that was asked for."""


@dataclass(slots=True)
class Process:
    """One JVM: what it is called, how it is started, where it logs and, while it runs, its process."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        if self.running():
            raise LocalPulsarError(f"{self.name} (log {self.log}) is already running")
        self.process = spawn(self.command, self.log)

    def check(self) -> None:
        if self.process is not None and not self.running():
            raise LocalPulsarError(
                f"{self.name} ended with {self.process.returncode}; the end of {self.log}:\n{end_of(self.log)}"
            )

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait; SIGKILL after 30 s. Returns at once if it does not run."""
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
        self.process = None


class Local:
    """Processes in one directory that start one after the other and end in the opposite order."""

    def __init__(self, directory: Path, *, lock: Path = PULSAR_LOCK) -> None:
        """`lock` names the jars, and so the version of Pulsar."""
        self.directory = directory.absolute()
        self._lock = lock
        self.processes: dict[str, Process] = {}

    def start(self) -> None:
        """Start everything and wait for it. Raises LocalPulsarError with the end of a log if something does not come up."""
        if any(process.running() for process in self.processes.values()):
            raise LocalPulsarError(f"the Pulsar in {self.directory} is already running: stop it first")
        atexit.register(self.kill)
        if self.processes:
            self._start_or_kill()
            return
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / "log4j2.xml").write_text(LOGGING, encoding="utf-8")
            self.configure()
            try:
                self._start_or_kill()
            except LocalPulsarError:
                if attempt == ATTEMPTS_MAX or not self._has_lost_port():
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop everything in order: brokers, bookie, ZooKeeper. Returns at once if nothing runs."""
        for group in reversed(list(self.groups())):
            with ThreadPoolExecutor(max_workers=len(group)) as pool:
                list(pool.map(lambda process: process.end(signal.SIGTERM), group))
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """End everything at once, as a power cut would: SIGKILL."""
        for process in self.processes.values():
            if process.process is not None:
                process.process.kill()
        for process in self.processes.values():
            process.end(signal.SIGKILL)
        atexit.unregister(self.kill)

    def restart(self) -> None:
        """Stop and start on the same ports with the same data."""
        self.stop()
        self.start()

    def check(self) -> None:
        """Raise LocalPulsarError with the end of its log if a process that was started has ended by itself."""
        for process in self.processes.values():
            process.check()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def configure(self) -> None:
        """Choose ports, write the settings and fill `processes`."""
        raise NotImplementedError

    def start_all(self) -> None:
        raise NotImplementedError

    def groups(self) -> Iterable[list[Process]]:
        """The processes in the order of starting; those of a group end together."""
        raise NotImplementedError

    def _start_or_kill(self) -> None:
        try:
            self.start_all()
        except BaseException:
            self.kill()
            raise

    def process(self, name: str, main: str, *arguments: str, heap_mb: int, direct_mb: int) -> Process:
        memory = settings.heap(heap_mb=heap_mb, direct_mb=direct_mb)
        return Process(name, [*self._java, *memory, main, *arguments], self.directory / f"{name}.log")

    def write(self, name: str, values: Mapping[str, object]) -> str:
        file = self.directory / name
        file.write_text(settings.properties(values), encoding="utf-8")
        return str(file)

    @cached_property
    def _java(self) -> list[str]:
        jars = os.pathsep.join(str(jar) for jar in ensure(self._lock))
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        return [str(find_java()), *settings.JVM, logging, "-cp", jars]

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        def is_done() -> bool:
            self.check()
            return condition()

        if not poll(is_done, timeout_s=READY_TIMEOUT_S, pause_s=POLL_S):
            logs = "\n".join(f"{each.log}:\n{end_of(each.log)}" for each in self.processes.values())
            raise LocalPulsarError(f"{what} is not ready after {READY_TIMEOUT_S:.0f} s:\n{logs}")

    def _has_lost_port(self) -> bool:
        return any("Address already in use" in end_of(each.log) for each in self.processes.values())
