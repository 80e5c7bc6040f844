"""Makes sure that there is Java 17 or newer, for `make`: installs it where that is possible, else prints the command.

It installs only as root on Debian and its relatives, with the system's own apt-get. It changes no JAVA_HOME: one that
points to an older Java is reported.
"""

import os
import shutil
import subprocess
import sys

from streaming.spark.jars import JavaError, find_java

_COMMANDS = """\
  Debian, Ubuntu   sudo apt-get install --yes openjdk-17-jre-headless   (newer releases: default-jre-headless)
  Fedora           sudo dnf install --assumeyes java-latest-openjdk-headless
  macOS            brew install openjdk && export JAVA_HOME="$(brew --prefix openjdk)"
"""

_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""Tried in this order: Debian 12 has 17, Debian 13 only newer ones."""
APT_TIMEOUT_S = 900.0
"""Limit for one command of a package manager, on a slow line."""


def _install() -> bool:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0 or os.environ.get("JAVA_HOME"):
        return False
    subprocess.run([apt, "update", "--quiet"], check=False, stdout=sys.stderr, timeout=APT_TIMEOUT_S)
    return any(_find_installed(apt, package) for package in _PACKAGES)


def _find_installed(apt: str, package: str) -> bool:
    command = [apt, "install", "--yes", "--quiet", "--no-install-recommends", package]
    print(f"installing {package}", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, check=False, stdout=sys.stderr, env=environment, timeout=APT_TIMEOUT_S)
    return done.returncode == 0


def main() -> int:
    """Return 0 once a Java that is new enough is found, installed if need be; else 1, with the commands printed."""
    try:
        find_java()
    except JavaError as error:
        print(error, file=sys.stderr)
    else:
        return 0
    if _install():
        print(f"Java: {find_java()}", file=sys.stderr)
        return 0
    print(f"Install Java, then run make again:\n{_COMMANDS}", file=sys.stderr, end="")
    return 1


if __name__ == "__main__":
    sys.exit(main())
