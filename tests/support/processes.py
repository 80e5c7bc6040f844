"""Drives the real command: `trimtab run` as a child process, and waiting for what it does.

`Child` is one cold process, as an operator starts it. `Warm` is a process that runs one command after another in the
same JVM, which saves the ten seconds of a cold start: for everything that is not about processes. What either logs is
part of every failure. `command` is for what needs neither Spark nor a process.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from streaming.cli import main
from streaming.process.closeable import Closeable
from streaming.process.deadline import Deadline
from streaming.process.exits import REFUSED

ROOT = Path(__file__).parents[2]
TRIMTAB = (sys.executable, "-c", "from streaming.cli import main; main(prog_name='trimtab')")
WARM = (sys.executable, "-m", "tests.support.warm")

PATIENCE_S = 480.0
"""How long a condition may take to come true on a machine that others use too; on an idle one it is a tenth."""
EXIT_S = 30.0
"""A stop takes no longer, whatever the query is doing."""
_POLL_S = 0.2
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""These processes live for seconds: the second compiler would cost more than it ever gains."""
_CLASSES = Path(sys.prefix) / ".classes.jsa"
"""Made by ``tests.live.classes``."""
_LOG_LINES_SHOWN = 40
_PAGE_BYTES, _TICKS_PER_S = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_SERVED_AT = re.compile(r"metrics and health at (http://[\w.:\[\]]+)")

Value = TypeVar("Value")


class Running(Protocol):
    """Something that may end before the condition waited for comes true."""

    def check(self) -> None:
        """Raise AssertionError with the end of its log if it has ended."""


def until(
    condition: Callable[[], Value],
    *,
    what: str,
    running: Iterable[Running] = (),
    timeout_s: float = PATIENCE_S,
) -> Value:
    """Wait for the first true value of a condition and return it; fails when what must run has ended."""
    deadline = Deadline(timeout_s)
    while True:
        value = condition()
        if value:
            return value
        for process in running:
            process.check()
        assert not deadline.is_over, f"waited {timeout_s:g} s for {what}"
        time.sleep(_POLL_S)


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do some work in a thread to the end of the block, where the event is set and waited for; its error is the block's."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(work, stop)
        try:
            yield
        finally:
            stop.set()
            done.result()


def command(*arguments: str, code: int = 0, given: bytes | str | None = None) -> Result:
    """Run `trimtab` in this process, because one of its own takes seconds to start; it has to end with ``code``."""
    done = CliRunner().invoke(main, arguments, input=given)
    assert done.exit_code == code, (arguments, done.output, done.exception)
    return done


@dataclass(slots=True)
class Patience:
    """One span of time for all that a test waits for, so that it fails by itself before pytest ends it."""

    span_s: float
    _deadline: Deadline = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = Deadline(self.span_s)

    def until(self, condition: Callable[[], Value], *, what: str, running: Iterable[Running] = ()) -> Value:
        """Like ``until``, for as long as is left of the span."""
        return until(
            condition,
            what=f"{what} ({self.span_s:g} s for all)",
            running=running,
            timeout_s=self._deadline.left_s,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page of the health server said."""

    status: int
    body: str


def ask(url: str) -> Answer:
    """The answer of a page; status 0 if nothing listens there."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  http on loopback
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode())
    except (urllib.error.URLError, OSError):
        return Answer(0, "")


class Serving(Running, Protocol):
    """Something that serves health."""

    @property
    def url(self) -> str:
        """The address where it serves health."""


def wait_until_unready(running: Serving, *, because: str) -> None:
    """Wait until it names the reason; it must be alive then."""
    url = running.url
    until(lambda: because in ask(f"{url}/readyz").body, what=f"unready: {because}", running=[running])
    assert ask(f"{url}/readyz").status == 503
    assert ask(f"{url}/healthz").status == 200


def is_ready(running: Serving) -> bool:
    return ask(f"{running.url}/readyz").status == 200


def samples(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The metrics page, by name and labels; empty if nothing listens there."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(ask(f"{url}/metrics").body)
        for sample in family.samples
    }


def query_failures(output: str) -> list[str]:
    """Log lines about failures of the query; those that only say that the machine was too busy do not count."""
    return [
        line
        for line in output.splitlines()
        if "the query failed" in line and "this machine was too busy" not in line
    ]


class Watched(Closeable):
    """A process that must not end by itself while something is waited for."""

    def check(self) -> None:
        """Raise AssertionError with the end of its log if it has ended."""
        raise NotImplementedError

    def until(self, condition: Callable[[], Value], what: str) -> Value:
        """Wait for the first true value of a condition and return it."""
        return until(condition, what=what, running=[self])


@dataclass(slots=True)
class Child(Watched):
    """A process in a session of its own (Spark's Python workers leave its group) that does not outlive the tests."""

    command: tuple[str, ...]
    log: Path
    is_short: bool = True
    """Whether it lives for seconds only, see ``QUICK_JVM``."""
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self.log.parent, is_short=self.is_short),
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """Its whole log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def url(self) -> str:
        """Where it serves metrics; waits until it says so."""
        return until(lambda: _served(self.output), what="the metrics' address", running=[self])

    def check(self) -> None:
        """Raise AssertionError if it has ended."""
        code = self.process.poll()
        assert code is None, f"ended with {code}; the end of {self.log}:\n{_end(self.output)}"

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:g} s; {_end(self.output)}") from None

    def terminate(self) -> int:
        """SIGTERM; returns the exit code. Fails when it takes longer than a stop may."""
        self.process.terminate()
        return self.wait(EXIT_S)

    def is_gone(self) -> bool:
        """Whether neither it nor any of its descendants is left."""
        return not members(self.process.pid)

    def close(self) -> None:
        """End what is left of it."""
        for process in members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a session."""

    pid: int
    name: str
    resident_bytes: int
    cpu_s: float
    """User and system time of its own."""


def state_of(pid: int) -> str:
    """The letter of a process's state (Linux): "T" is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def members(session: int) -> list[Member]:
    """The processes of a session that are not zombies (Linux)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (folder / "stat").read_text().rpartition(")")
            pages = int((folder / "statm").read_text().split()[1])
        except OSError:  # it ended while we looked
            continue
        state, _, _, its_session, *more = tail.split()
        if int(its_session) == session and state != "Z":
            cpu_s = sum(map(int, more[7:9])) / _TICKS_PER_S
            found.append(Member(int(folder.name), head.partition("(")[2], pages * _PAGE_BYTES, cpu_s))
    return found


class Warm:
    """A process that runs commands one after another in one JVM; started at the first, again if one ends it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._child: Child | None = None
        self._count = 0

    def start(self, *arguments: str) -> "WarmRun":
        """Begin `trimtab`, or with `-m` a module, with these arguments; the command before has to be over."""
        child = self._running_child()
        self._count += 1
        begin = len(child.output)
        order = self._directory / f"order-{self._count}.json"
        new = order.with_suffix(".new")
        new.write_text(json.dumps(arguments))
        new.rename(order)
        return WarmRun(child, order.with_suffix(".exit"), begin)

    @contextmanager
    def run(self, config: Path, *flags: str) -> Iterator["WarmRun"]:
        """`trimtab run` from the earliest event on, to the end of the block, where a stop ends it in order."""
        with self.start("run", "--config", str(config), "--from", "earliest", *flags) as run:
            yield run
            assert run.terminate() == 0, run.output

    def refused(self, config: Path, *flags: str, code: int = REFUSED) -> str:
        """What `trimtab run` said when it ended by itself with this code."""
        with self.start("run", "--config", str(config), *flags) as run:
            assert run.wait() == code, run.output
            assert "Traceback" not in run.output, run.output
            return run.output

    def _running_child(self) -> Child:
        if self._child is None or self._child.process.poll() is not None:
            self.close()
            self._directory.mkdir(parents=True, exist_ok=True)
            command = (*WARM, str(self._directory), str(self._count + 1))
            self._child = Child(command, self._directory / "warm.log")
        return self._child

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()


@dataclass(slots=True)
class WarmRun(Watched):
    """One command in the warm process."""

    child: Child
    exit: Path
    begin: int

    @property
    def output(self) -> str:
        """What was logged since it began."""
        return self.child.output[self.begin :]

    @property
    def url(self) -> str:
        """Where it serves metrics; waits until it says so."""
        return until(lambda: _served(self.output), what="the metrics' address", running=[self])

    def check(self) -> None:
        """Raise AssertionError if it is over."""
        self.child.check()
        assert not self.exit.exists(), f"ended with {self.exit.read_text()}: {_end(self.output)}"

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; returns the exit code."""
        until(
            self.exit.exists, what=f"its end; {_end(self.output)}", running=[self.child], timeout_s=timeout_s
        )
        return int(self.exit.read_text())

    def terminate(self) -> int:
        """SIGTERM; returns the exit code. Fails when it takes longer than a stop may."""
        assert self.url, "a signal before it is taken care of would end the whole process"
        self.child.process.terminate()
        return self.wait(EXIT_S)

    def close(self) -> None:
        """End it, for the next one to begin."""
        if self.child.process.poll() is None and not self.exit.exists():
            self.child.close()


def _served(message: str) -> str | None:
    found = _SERVED_AT.search(message)
    return None if found is None else found[1]


def _end(message: str) -> str:
    return "\n".join(message.splitlines()[-_LOG_LINES_SHOWN:])


def cold(config: Path, log: Path, *, build: Sequence[str] = TRIMTAB) -> Child:
    """`trimtab run` from the earliest event on, as a process of its own."""
    return Child((*build, "run", "--config", str(config), "--from", "earliest"), log)


def environment(directory: Path, *, is_short: bool = True) -> dict[str, str]:
    """Our environment without settings of trimtab; Spark's scratch files lie with the test's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    there = kept | {"PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(directory)}
    if not is_short:
        return there
    options = f"{QUICK_JVM} -XX:SharedArchiveFile={_CLASSES}" if _CLASSES.exists() else QUICK_JVM
    return there | {"JAVA_TOOL_OPTIONS": options}
