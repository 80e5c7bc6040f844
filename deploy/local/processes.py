"""What every local server needs: free ports, processes that do not outlive us, and JVMs that make up a cluster.

Invariants: on Linux no process started here outlives this one, even when this one is killed; a process that does not come
up is reported with the end of its log. A port that is free now may be taken when a process binds it; a cluster then
chooses again. Nothing here knows Kafka or Pulsar.
"""

import atexit
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType, TracebackType
from typing import ClassVar, NamedTuple, Self, TypeVar

from streaming.process.deadline import poll
from streaming.process.stop_signals import stopped_by_signals
from streaming.spark.jars import ensure, find_java

LOCKS = Path(__file__).with_name("locks")
"""The jars of every server; ``streaming.spark.jars`` fetches them."""
LOG_LINES_SHOWN = 30
STOP_TIMEOUT_S = 30.0
"""A Pulsar in one process stops in 6 s; what has not ended after this long is killed."""
POLL_S = 0.05
ATTEMPTS_MAX = 3
"""Ports are found free and bound later, so another process may be faster; three times in a row is not chance."""

_PORTS = range(15_000, 30_000)
"""Below the kernel's ephemeral range. A client that reconnects to a broker that is down, on an ephemeral port of
loopback, can be given that very port as its own, connect to itself, and keep the broker from binding it again."""

_LOGGING = """\
<Configuration status="WARN"><Appenders><Console name="out">
<PatternLayout pattern="%d{ISO8601} %p %m (%c{1})%n%throwable"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
"""Log4j 2: everything to standard output."""

_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-process")
"""Starts every process: a parent-death signal comes when the *thread* that forked ends, and this one stays."""
_SPAWN_TIMEOUT_S = 60.0


class LocalError(RuntimeError):
    """Something on this machine is not installed, did not start, ended by itself, or is not in the state that was asked for."""


def free_ports(count: int) -> list[int]:
    """Return distinct ports that nothing on loopback has bound at this moment."""
    ports: set[int] = set()
    while len(ports) < count:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)


def claim(port: int) -> None:
    """Raise OSError if a server could not listen on this port of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


LOOPBACK = "127.0.0.1"


class Machine(NamedTuple):
    """Where a broker runs: an address, and the command that starts another one there, if it is not this machine."""

    address: str = LOOPBACK
    prefix: tuple[str, ...] = ()


def answers(port: int, host: str = LOOPBACK) -> bool:
    """Whether something accepts connections there."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


@dataclass(slots=True)
class Process:
    """A process in a session of its own (Ctrl-C is for us, not for it) that is killed when we die (Linux)."""

    name: str
    command: Sequence[str]
    log: Path
    """What it prints."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    process: subprocess.Popen[bytes] | None = None
    """Set while it runs, and after it has ended by itself."""

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        """Start it and return at once."""
        if self.running():
            raise LocalError(f"{self.name} (log {self.log}) is already running")
        self.process = _spawner.submit(self._spawn).result(timeout=_SPAWN_TIMEOUT_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*prefix, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                env=self.environment,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise LocalError with the end of its log if it has ended by itself."""
        if self.process is not None and not self.running():
            raise LocalError(f"{self.name} ended with {self.process.returncode}; {self.log_end()}")

    def log_end(self) -> str:
        """The last lines that it printed, and where."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return f"the end of {self.log}:\n" + "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to its group (some programs are started by a script), and SIGKILL after 30 s. Returns when it has ended."""
        process, self.process = self.process, None
        if process is None:
            return
        for signal_ in (number, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, signal_)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
                return


class Server(ABC):
    """What is started and stopped; a context manager that does both."""

    @abstractmethod
    def start(self) -> None:
        """Return when it is ready. Raises LocalError with the end of a log if it does not come up."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it in order. Returns at once if it does not run."""

    @abstractmethod
    def check(self) -> None:
        """Raise LocalError with the end of its log if it has ended by itself."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()


ServerT = TypeVar("ServerT", bound=Server)


class JavaCluster(Server):
    """JVMs in one directory that start one after the other and end in the opposite order.

    Ports are chosen once, at the first `start`, and kept by every later one. Not for several threads at once.
    """

    system: ClassVar[str]
    options: ClassVar[tuple[str, ...]]
    """Of every JVM."""
    ready_timeout_s: ClassVar[float]

    def __init__(self, directory: Path, *, lock: Path) -> None:
        """`lock` names the jars, and so the version."""
        self.directory = directory.absolute()
        self._lock = lock
        self.processes: dict[str, Process] = {}

    @abstractmethod
    def configure(self) -> None:
        """Choose ports, write the settings and fill `processes`."""

    @abstractmethod
    def start_all(self) -> None:
        """Start all processes and wait for them."""

    @abstractmethod
    def groups(self) -> Iterable[list[Process]]:
        """The processes in the order of starting; those of a group end together."""

    def start(self) -> None:
        if any(process.running() for process in self.processes.values()):
            raise LocalError(f"the {self.system} in {self.directory} is already running: stop it first")
        atexit.register(self.kill)
        if self.processes:
            self._start_or_kill()
            return
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / "log4j2.xml").write_text(_LOGGING, encoding="utf-8")
            self.configure()
            try:
                self._start_or_kill()
            except LocalError:
                if attempt == ATTEMPTS_MAX or not self._has_lost_port():
                    raise
            else:
                return

    def stop(self) -> None:
        for group in reversed(list(self.groups())):
            with ThreadPoolExecutor(max_workers=len(group)) as pool:
                list(pool.map(Process.end, group))
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
        for process in self.processes.values():
            process.check()

    def process(self, name: str, *arguments: str, options: Sequence[str] = ()) -> Process:
        """A JVM that is not started yet; `arguments` begin with the main class."""
        return Process(name, [*self.java, *options, *arguments], self.directory / f"{name}.log")

    def write(self, name: str, settings: Mapping[str, object]) -> str:
        """Write a settings file, one key a line, and return its path."""
        file = self.directory / name
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return str(file)

    @cached_property
    def java(self) -> list[str]:
        """The command of every JVM up to the main class."""
        jars = os.pathsep.join(map(str, ensure(self._lock)))
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        return [str(find_java()), *self.options, logging, "-cp", jars]

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; raises LocalError with the ends of all logs if it takes too long."""

        def is_done() -> bool:
            self.check()
            return condition()

        if not poll(is_done, timeout_s=self.ready_timeout_s, pause_s=POLL_S):
            logs = "\n".join(process.log_end() for process in self.processes.values())
            raise LocalError(f"{what} is not ready after {self.ready_timeout_s:.0f} s:\n{logs}")

    def _start_or_kill(self) -> None:
        try:
            self.start_all()
        except BaseException:
            self.kill()
            raise

    def _has_lost_port(self) -> bool:
        return any("Address already in use" in process.log_end() for process in self.processes.values())


def run_until_stopped(
    directory: Path | None, server_in: Callable[[Path], ServerT], show: Callable[[ServerT], str]
) -> None:
    """Run a server until SIGINT or SIGTERM comes, in a directory or a temporary one; what ``show`` says is printed once."""
    stop = threading.Event()
    place = nullcontext(directory) if directory else tempfile.TemporaryDirectory(prefix="trimtab-local-")
    with stopped_by_signals(lambda _: stop.set()), place as chosen, server_in(Path(chosen)) as server:
        print(show(server), flush=True)
        while not stop.wait(timeout=1):
            server.check()


def interrupt_once() -> None:
    """From here on the first SIGINT or SIGTERM raises KeyboardInterrupt; more of them do not disturb the cleaning up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
