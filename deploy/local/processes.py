"""What every local server needs: free ports, processes that do not outlive us, and one way to log.

Invariant: on Linux no process started here outlives this one, even when this one is killed. Nothing here knows Kafka or
Pulsar. A port that is free now may be taken when a process binds it; whoever needs it then has to choose again.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType

LOCKS = Path(__file__).with_name("locks")
"""The jars of every server; ``streaming.spark.jars`` fetches them."""
LOG_LINES_SHOWN = 30

LOGGING = """\
<Configuration status="WARN"><Appenders><Console name="out">
<PatternLayout pattern="%d{ISO8601} %p %m (%c{1})%n%throwable"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
"""Log4j 2: everything to standard output."""

_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-process")
"""Starts every process: a parent-death signal comes when the *thread* that forked ends, and this one stays."""
_SPAWN_TIMEOUT_S = 60.0


def spawn(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own (Ctrl-C is for us, not for it) that is killed when we die (Linux).

    ``environment`` is added to our own.
    """
    setpriv = shutil.which("setpriv")
    prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                env={**os.environ, **(environment or {})},
            )

    return _spawner.submit(start).result(timeout=_SPAWN_TIMEOUT_S)


def answers(port: int) -> bool:
    """Whether something on loopback accepts connections there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def end_of(log: Path) -> str:
    """The last lines of a log; empty where there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-LOG_LINES_SHOWN:])


def interrupt_once() -> None:
    """From here on the first SIGINT or SIGTERM raises KeyboardInterrupt; more of them do not disturb the cleaning up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


_PORTS = range(15_000, 30_000)
"""Below the kernel's ephemeral range. A client that reconnects to a broker that is down, on an ephemeral port of
loopback, can be given that very port as its own, connect to itself, and keep the broker from binding it again."""


def free_ports(count: int) -> list[int]:
    """Return distinct ports that nothing on loopback has bound at this moment."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)
