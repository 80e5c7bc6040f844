"""What a Prometheus and a Grafana of this machine have in common: a process on loopback that is ready over HTTP.

Invariants: a server binds loopback only and keeps its data in the directory it is given; on Linux none outlives the
process that started it.
"""

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from deploy.local.processes import end_of, spawn
from streaming.process.deadline import poll

STOP_TIMEOUT_S = 10.0
POLL_S = 0.05


class WatcherError(RuntimeError):
    """A server is not installed, did not start, or ended."""


class Watcher(ABC):
    """A server on loopback with its data and log in `directory`."""

    name: ClassVar[str]
    ready_path: ClassVar[str]
    ready_timeout_s: ClassVar[float]

    def __init__(self, directory: Path, *, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._directory = directory
        self._log = directory / f"{self.name.lower()}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Write the files that the server reads and return its command; raises WatcherError where it is not installed."""

    def _environment(self) -> dict[str, str]:
        """Variables it gets besides our own."""
        return {}

    def start(self) -> None:
        """Return when it is ready; raises WatcherError with the end of its log if it does not come up."""
        self._directory.mkdir(parents=True, exist_ok=True)
        command = self._prepare()
        self._claim()
        self._process = spawn(command, self._log, self._environment())
        self._wait_until_ready()

    def _claim(self) -> None:
        """Raise WatcherError if the port is taken: the process that has it would answer, and the server would seem ready."""
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", self._port))
        except OSError as error:
            raise WatcherError(
                f"{self.name} cannot be served on {self.url} ({error.strerror}): choose another port"
            ) from error

    def _wait_until_ready(self) -> None:
        if not poll(self._is_ready, timeout_s=self.ready_timeout_s, pause_s=POLL_S):
            raise WatcherError(
                f"{self.name} is not ready after {self.ready_timeout_s:g} s; {self._log_end()}"
            )

    def _is_ready(self) -> bool:
        self.check()
        try:
            with urllib.request.urlopen(f"{self.url}{self.ready_path}", timeout=1):  # noqa: S310  http on loopback
                return True
        except (urllib.error.URLError, OSError):
            return False

    def check(self) -> None:
        """Raise WatcherError with the end of its log if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise WatcherError(f"{self.name} ended with {self._process.returncode}; {self._log_end()}")

    def _log_end(self) -> str:
        return f"the end of its log {self._log}:\n{end_of(self._log)}"

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after 10 s."""
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGTERM)  # a group of its own: some programs are started by a script
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

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
