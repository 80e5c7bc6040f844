"""A real Prometheus as a process, without Docker, and what it has in common with other servers that are ready over HTTP.

`python -m deploy.local.prometheus` finds a Prometheus on the PATH or in the cache, or fetches one: it unpacks Debian's
package into the cache without installing it, so there is no root and no service that keeps running.

Invariants: a server binds loopback only and keeps its data in the directory it is given; on Linux none outlives the
process that started it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from deploy.local.java import APT_TIMEOUT_S
from deploy.local.processes import POLL_S, LocalError, Process, Server, claim
from streaming.process.deadline import poll

RULES = Path(__file__).parents[1] / "prometheus"
INSTALL = "sudo apt-get install --no-install-recommends prometheus prometheus-alertmanager"
"""The command for a person; other systems have packages of the same name, or the archives of prometheus.io."""


def find(program: str) -> Path | None:
    """`prometheus` or `promtool`, on the PATH or in the cache."""
    path = _find_on_path(program) or shutil.which(program, path=_unpack() / "usr" / "bin")
    return None if path is None else Path(path)


def ensure() -> Path:
    """The server, fetched if need be; raises LocalError with the command that installs it."""
    if find("prometheus") is None or find("promtool") is None:
        _fetch()
    server = find("prometheus")
    if server is None or find("promtool") is None:
        raise LocalError(f"Prometheus is not installed; on Debian and Ubuntu: {INSTALL}")
    return server


def _find_on_path(program: str) -> str | None:
    return shutil.which(program)


def _unpack() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "trimtab" / "prometheus"


def _fetch() -> None:
    """Unpack the distribution's package where apt-get knows one; apt-get says on standard error what goes wrong."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        return
    target = _unpack()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        if not _download(apt, directory) and os.geteuid() == 0:
            subprocess.run([apt, "update", "--quiet"], check=False, stdout=sys.stderr, timeout=APT_TIMEOUT_S)
            _download(apt, directory)
        unpacked = Path(directory) / "unpacked"
        for package in Path(directory).glob("*.deb"):
            subprocess.run(
                [dpkg, "--extract", str(package), str(unpacked)], check=True, timeout=APT_TIMEOUT_S
            )
        with suppress(OSError):  # nothing was downloaded, or another process was faster
            unpacked.rename(target)


def _download(apt: str, directory: str) -> bool:
    # not Alertmanager: Debian's reads its templates in /usr/share whatever its configuration says, so it has to be installed
    command = [apt, "--quiet", "download", "prometheus"]
    done = subprocess.run(command, check=False, cwd=directory, stdout=sys.stderr, timeout=APT_TIMEOUT_S)
    return done.returncode == 0


def configuration(target: str, *, interval_s: float, programs: Sequence[str] = ()) -> str:
    """A configuration that scrapes one controller, collectors and executors, and evaluates the rules of deploy/prometheus as often."""
    return f"""\
global:
  scrape_interval: {round(interval_s * 1000)}ms
  evaluation_interval: {round(interval_s * 1000)}ms
rule_files: ["{RULES}/*.rules.yml"]
scrape_configs:
  - job_name: trimtab
    static_configs:
      - targets: ["{target}"]
  - job_name: trimtab-programs
    static_configs:
      - targets: {json.dumps(list(programs))}
"""


class HttpServer(Server):
    """A server on loopback with its data and log in `directory`."""

    name: ClassVar[str]
    ready_path: ClassVar[str]
    ready_timeout_s: ClassVar[float]

    def __init__(self, directory: Path, *, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._directory = directory
        self._process = Process(self.name, (), directory / f"{self.name.lower()}.log")

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Write the files that the server reads and return its command; raises LocalError where it is not installed."""

    def _environment(self) -> dict[str, str]:
        """Variables it gets besides our own."""
        return {}

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._process.command = self._prepare()
        self._process.environment = {**os.environ, **self._environment()}
        try:
            claim(self._port)  # the process that has it would answer, and the server would seem ready
        except OSError as error:
            raise LocalError(
                f"{self.name} cannot be served on {self.url} ({error.strerror}): choose another port"
            ) from error
        self._process.launch()
        if not poll(self._is_ready, timeout_s=self.ready_timeout_s, pause_s=POLL_S):
            raise LocalError(
                f"{self.name} is not ready after {self.ready_timeout_s:g} s; {self._process.log_end()}"
            )

    def check(self) -> None:
        self._process.check()

    def stop(self) -> None:
        self._process.end()

    def _is_ready(self) -> bool:
        self.check()
        return is_ready(f"{self.url}{self.ready_path}")


def is_ready(url: str) -> bool:
    """Whether a page is served with a code of success."""
    try:
        with urllib.request.urlopen(url, timeout=1):  # noqa: S310  http on loopback
            return True
    except (urllib.error.URLError, OSError):
        return False


class Prometheus(HttpServer):
    """A server on loopback that watches one controller, collectors and executors, with its data and log in `directory`."""

    name = "Prometheus"
    ready_path = "/-/ready"
    ready_timeout_s = 30.0

    def __init__(
        self,
        directory: Path,
        *,
        target: str,
        port: int,
        programs: Sequence[str] = (),
        interval_s: float = 5.0,
    ) -> None:
        super().__init__(directory, port=port)
        self._configuration = configuration(target, interval_s=interval_s, programs=programs)

    def _prepare(self) -> list[str]:
        program = ensure()
        file = self._directory / "prometheus.yml"
        file.write_text(self._configuration, encoding="utf-8")
        options = {
            "config.file": file,
            "storage.tsdb.path": self._directory / "data",
            "web.listen-address": f"127.0.0.1:{self._port}",
        }
        return [str(program), *(f"--{name}={value}" for name, value in options.items())]


def main() -> int:
    """Return 0 once there is a Prometheus, fetched if need be; else 1, with the command printed."""
    try:
        print(ensure())
    except LocalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
