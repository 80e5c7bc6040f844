"""A real Prometheus as a process, without Docker: `python -m deploy.local.prometheus` makes sure of one.

It is found on the PATH, or in the cache, where `fetch` unpacks Debian's package without installing it: no root, no
service that keeps running.

Invariants: a server binds loopback only and keeps its data in the directory it is given; on Linux none outlives the
process that started it.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["INSTALL", "Prometheus", "PrometheusError", "ensure", "find"]

RULES = Path(__file__).parents[1] / "prometheus"
INSTALL = "sudo apt-get install --no-install-recommends prometheus"
"""The command for a person; other systems have packages of the same name, or the archives of prometheus.io."""
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
LOG_LINES_SHOWN = 15


class PrometheusError(RuntimeError):
    """There is no Prometheus, or it did not start."""


def find(program: str) -> Path | None:
    """`prometheus` or `promtool`, on the PATH or in the cache."""
    found = _on_path(program) or shutil.which(program, path=_unpacked() / "usr" / "bin")
    return None if found is None else Path(found)


def ensure() -> Path:
    """The server, fetched if need be; raises PrometheusError with the command that installs it."""
    if find("prometheus") is None or find("promtool") is None:
        _fetch()
    found = find("prometheus")
    if found is None or find("promtool") is None:
        raise PrometheusError(f"Prometheus is not installed; on Debian and Ubuntu: {INSTALL}")
    return found


def _on_path(program: str) -> str | None:
    return shutil.which(program)


def _unpacked() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "trimtab" / "prometheus"


def _fetch() -> None:
    """Unpack the distribution's package where apt-get knows one; apt-get says on standard error what goes wrong."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        return
    target = _unpacked()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        if not _download(apt, directory) and os.geteuid() == 0:
            subprocess.run([apt, "update", "--quiet"], check=False, stdout=sys.stderr)
            _download(apt, directory)
        for package in Path(directory).glob("*.deb"):
            unpacked = Path(directory) / "unpacked"
            subprocess.run([dpkg, "--extract", str(package), str(unpacked)], check=True)
            with suppress(OSError):  # another process was faster
                unpacked.rename(target)


def _download(apt: str, directory: str) -> bool:
    command = [apt, "--quiet", "download", "prometheus"]
    return subprocess.run(command, check=False, cwd=directory, stdout=sys.stderr).returncode == 0


def configuration(target: str, *, interval_s: float) -> str:
    """A configuration that scrapes one controller and evaluates the rules of deploy/prometheus as often."""
    return f"""\
global:
  scrape_interval: {round(interval_s * 1000)}ms
  evaluation_interval: {round(interval_s * 1000)}ms
rule_files: ["{RULES}/*.rules.yml"]
scrape_configs:
  - job_name: trimtab
    static_configs:
      - targets: ["{target}"]
"""


class Prometheus:
    """A server on loopback that watches one controller, with its data and log in `directory`."""

    def __init__(self, directory: Path, *, target: str, port: int, interval_s: float = 5.0) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._directory = directory
        self._configuration = configuration(target, interval_s=interval_s)
        self._log = directory / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it is ready; raises PrometheusError with the end of its log when it does not get so far."""
        program = ensure()
        self._claim()
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / "prometheus.yml"
        file.write_text(self._configuration, encoding="utf-8")
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        options = {
            "config.file": file,
            "storage.tsdb.path": self._directory / "data",
            "web.listen-address": f"127.0.0.1:{self._port}",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*prefix, str(program), *(f"--{name}={value}" for name, value in options.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._wait_until_ready()

    def _claim(self) -> None:
        """Whoever has the port would answer in its place, and seem to be ready."""
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", self._port))
        except OSError as error:
            raise PrometheusError(
                f"Prometheus cannot be served on {self.url} ({error.strerror}): choose another port"
            ) from error

    def _wait_until_ready(self) -> None:
        until_s = time.monotonic() + READY_TIMEOUT_S
        while not self._is_ready():
            self.check()
            if time.monotonic() > until_s:
                raise PrometheusError(
                    f"Prometheus is not ready after {READY_TIMEOUT_S:g} s; {self._log_end()}"
                )
            time.sleep(POLL_S)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1):  # noqa: S310  http on loopback
                return True
        except (urllib.error.URLError, OSError):
            return False

    def check(self) -> None:
        """Raise PrometheusError with the end of its log if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise PrometheusError(f"Prometheus ended with {self._process.returncode}; {self._log_end()}")

    def _log_end(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return f"the end of its log {self._log}:\n" + "\n".join(lines)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after 10 s."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

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


def main() -> int:
    """Return 0 once there is a Prometheus, fetched if need be; else 1, with the command printed."""
    try:
        print(ensure())
    except PrometheusError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
