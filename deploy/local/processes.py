"""What every local server needs: processes that do not outlive us, and one way to log.

Invariant: on Linux no process started here outlives this one, even when this one is killed. Nothing here knows Kafka or
Pulsar.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType

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
