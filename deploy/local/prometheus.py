"""A real Prometheus as a process, without Docker: `python -m deploy.local.prometheus` finds or fetches one.

It is found on the PATH, or in the cache, where `fetch` unpacks Debian's package without installing it: no root, no
service that keeps running.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from deploy.local.java import APT_TIMEOUT_S
from deploy.local.watching import Watcher, WatcherError

RULES = Path(__file__).parents[1] / "prometheus"
INSTALL = "sudo apt-get install --no-install-recommends prometheus prometheus-alertmanager"
"""The command for a person; other systems have packages of the same name, or the archives of prometheus.io."""


def find(program: str) -> Path | None:
    """`prometheus` or `promtool`, on the PATH or in the cache."""
    found = _find_on_path(program) or shutil.which(program, path=_unpack() / "usr" / "bin")
    return None if found is None else Path(found)


def ensure() -> Path:
    """The server, fetched if need be; raises WatcherError with the command that installs it."""
    if find("prometheus") is None or find("promtool") is None:
        _fetch()
    found = find("prometheus")
    if found is None or find("promtool") is None:
        raise WatcherError(f"Prometheus is not installed; on Debian and Ubuntu: {INSTALL}")
    return found


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
    command = [apt, "--quiet", "download", "prometheus", "prometheus-alertmanager"]
    done = subprocess.run(command, check=False, cwd=directory, stdout=sys.stderr, timeout=APT_TIMEOUT_S)
    return done.returncode == 0


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


class Prometheus(Watcher):
    """A server on loopback that watches one controller, with its data and log in `directory`."""

    name = "Prometheus"
    ready_path = "/-/ready"
    ready_timeout_s = 30.0

    def __init__(self, directory: Path, *, target: str, port: int, interval_s: float = 5.0) -> None:
        super().__init__(directory, port=port)
        self._configuration = configuration(target, interval_s=interval_s)

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
    except WatcherError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
