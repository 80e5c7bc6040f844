"""The real `trimtab` as a child process: `topics create` once, then `run` or another command until it is told to stop.

What it logs goes to a file; when it ends by itself, the end of that file is in the error. It runs in a session
of its own, because Ctrl-C is only for the demo, and because Spark's Python workers leave the process group but never the
session. On Linux it does not outlive the demo.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from streaming.process.deadline import poll

ROOT = Path(__file__).parents[3]
SETTINGS = Path(__file__).with_name("demo.toml")
METRICS_PORT = 9464
"""The default of `metrics.port`; if another process uses it, a free one is taken."""
_READY_TIMEOUT_S = 180.0
"""Spark needs about 10 s on two idle cores."""
_READY_POLL_S = 0.2
STOP_TIMEOUT_S = 10.0
"""A batch in progress is finished in well under a second; what takes longer is killed, so that Ctrl-C feels prompt."""
_TOPICS_TIMEOUT_S = 120.0
LEFTOVERS_TIMEOUT_S = 2.0
"""How long Spark's JVM and Python workers may take to end after the process that started them."""
POLL_S = 0.05
LOG_LINES_SHOWN = 15

_COMMAND = (sys.executable, "-c", "from streaming.cli import main; main(prog_name='trimtab')")
_PORTS = range(15_000, 30_000)
"""Below the ephemeral range, which clients of this very demo draw from."""


class ChildError(RuntimeError):
    """trimtab ended by itself, or did not do what it was asked."""


class Trimtab:
    """A `trimtab` command against the Kafka at `bootstrap`, with its log and checkpoint in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        bootstrap: str,
        metrics_port: int,
        settings: Path = SETTINGS,
        command: Sequence[str] = ("run",),
        log: str | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._command = tuple(command)
        self._settings = str(settings)
        usual = "trimtab.log" if self._command == ("run",) else f"{self._command[0]}.log"
        self._log = directory / (log or usual)
        self._directory = directory
        self._url = f"http://127.0.0.1:{metrics_port}"
        self._process: subprocess.Popen[bytes] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
        self._environment = kept | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "SPARK_LOCAL_DIRS": str(directory),
            "TMPDIR": str(directory),  # what a killed process leaves goes with the directory
            "TRIMTAB_INPUT__URL": f"kafka://{bootstrap}",
            "TRIMTAB_METRICS__PORT": str(metrics_port),
            "TRIMTAB_METRICS__COLLECTOR_PORT": str(metrics_port),
            "TRIMTAB_METRICS__EXECUTOR_PORT": str(metrics_port),
            "TRIMTAB_SPARK__CHECKPOINT": str(directory / "checkpoint"),
            **environment,
        }

    @property
    def metrics_url(self) -> str:
        """Where Prometheus would scrape it."""
        return f"{self._url}/metrics"

    def create_topics(self) -> None:
        """Run `trimtab topics create`; raises ChildError with the end of its log."""
        with self._log.open("ab") as log:
            done = subprocess.run(
                [*_COMMAND, "topics", "create", "--config", self._settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
                check=False,
                timeout=_TOPICS_TIMEOUT_S,
            )
        if done.returncode != 0:
            raise ChildError(self._note_end("trimtab topics create", done.returncode))

    def start(self) -> None:
        """Start the command; returns at once. Call it from a thread that stays: if the thread ends, the child is killed."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*prefix, *_COMMAND, *self._command, "--config", self._settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until `/readyz` says that it is ready. Raises ChildError with the end of its log if it ends, or takes too long."""

        def is_ready() -> bool:
            self.check()
            return self._is_ready()

        if not poll(is_ready, timeout_s=_READY_TIMEOUT_S, pause_s=_READY_POLL_S):
            raise ChildError(f"trimtab is not ready after {_READY_TIMEOUT_S:g} s; {self._log_end()}")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/readyz", timeout=1):  # noqa: S310  http on loopback
                return True
        except (urllib.error.URLError, OSError):
            return False

    def check(self) -> None:
        """Raise ChildError with the end of its log if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise ChildError(self._note_end(f"trimtab {' '.join(self._command)}", self._process.returncode))

    def kill(self) -> None:
        """End it as the loss of its machine would: SIGKILL to every process of its session."""
        if self._process is None:
            return
        session = self._process.pid
        for member in members(session):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after 10 s; no process of its session is left (without `/proc`: of its process group)."""
        if self._process is None:
            return
        session = self._process.pid
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        if self._process.poll() is not None:
            _wait_until_empty(session)
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
        for member in members(session):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)
        _wait_until_empty(session)
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _note_end(self, what: str, code: int) -> str:
        return f"{what} ended with {code}; {self._log_end()}"

    def _log_end(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return f"the end of its log {self._log}:\n" + "\n".join(lines)


def members(session: int) -> list[int]:
    """Processes of a session that have not ended (Linux; elsewhere none are found)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            _, _, behind_name = (folder / "stat").read_text().rpartition(")")
        except OSError:  # it ended while we looked
            continue
        state, _, _, its_session = behind_name.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(int(folder.name))
    return found


def _wait_until_empty(session: int) -> None:
    """Wait up to ``LEFTOVERS_TIMEOUT_S`` until the session has no process."""
    poll(lambda: not members(session), timeout_s=LEFTOVERS_TIMEOUT_S, pause_s=POLL_S)


def free_metrics_port() -> int:
    """The usual port of the metrics page, or another one that nothing on loopback has bound at this moment."""
    port = METRICS_PORT
    while not _is_free(port):
        port = secrets.choice(_PORTS)
    return port


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False
