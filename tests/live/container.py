"""The container without a container engine: its recipe is carried out, and run, in mount namespaces of this machine.

`build` carries out the COPY and RUN steps of the recipe's build stage, with this machine's Python and Java where the
base image would bring its own. `Image.command` is a process that sees what a container would: the root file system
read-only and without the clone, empty directories where the image declares volumes, the image's own environment, its
user, and, if asked, no network. Needs root on Linux; `possible` says.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dockerfile_parse import DockerfileParser

from tests.live.driving import ROOT

RECIPE = ROOT / "deploy" / "container" / "Containerfile"
UID = 10001

_MOUNTS = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /opt
mkdir /opt/python /opt/trimtab /opt/src /opt/given
mount --bind "$PYTHON_HOME" /opt/python
mount --bind "$IMAGE" /opt/trimtab
"""

_BUILD = """
mount --bind "$SOURCES" /opt/src
mount --bind "$SCRATCH" /tmp
cd /opt/src
"""

_CONTAINER = """
mount --bind "$GIVEN" /opt/given
mount --bind "$PASSWD" /etc/passwd
for each in /opt/python /opt/trimtab /opt/given /etc/passwd /opt /; do mount -o remount,bind,ro "$each"; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs tmpfs /var/lib
install -d -o $USER_ID -g $USER_ID /var/lib/trimtab
cd /var/lib/trimtab
test -z "$OFFLINE" || ip link set lo up
exec setpriv --pdeathsig KILL --reuid $USER_ID --regid $USER_ID --clear-groups --no-new-privs env -i "$@"
"""


def possible() -> bool:
    """Whether this machine lets us make mount and network namespaces."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "--net", "mount", "-t", "tmpfs", "tmpfs", "/opt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class Image:
    """The image that was built, and the folder that it sees, read-only, as /opt/given."""

    directory: Path

    @property
    def given(self) -> Path:
        return self.directory / "given"

    def command(
        self, *arguments: str, offline: bool, environment: dict[str, str] | None = None
    ) -> tuple[str, ...]:
        """A command line that runs these arguments as the image's user."""
        variables = {**_environment_of_the_recipe(), **(environment or {})}
        script = _with_settings(
            _MOUNTS + _CONTAINER,
            PYTHON_HOME=sys.base_prefix,
            IMAGE=self.directory / "trimtab",
            GIVEN=self.given,
            PASSWD=self.directory / "passwd",
            USER_ID=UID,
            OFFLINE="yes" if offline else "",
        )
        spaces = ("--mount", "--net") if offline else ("--mount",)
        assigned = (f"{name}={value}" for name, value in variables.items())
        return ("unshare", *spaces, "sh", "-c", script, "sh", *assigned, *arguments)

    def run(self, *arguments: str, offline: bool = True) -> "subprocess.CompletedProcess[bytes]":
        """Run to the end."""
        command = self.command(*arguments, offline=offline)
        return subprocess.run(command, capture_output=True, check=False, timeout=120)


def build(directory: Path) -> Image:
    """Carry out the recipe. Takes a minute or two: pyspark is built from its sources' archive."""
    for name in ("trimtab", "given", "sources", "scratch"):
        (directory / name).mkdir(parents=True)
    (directory / "scratch").chmod(0o1777)
    (directory / "passwd").write_text(
        Path("/etc/passwd").read_text() + f"trimtab:x:{UID}:{UID}::/var/lib/trimtab:/bin/sh\n"
    )
    build_steps = _stage(1)
    for value in (value for name, value in build_steps if name == "COPY"):
        *sources, target = value.split()
        for source in sources:
            _copy(ROOT / source, directory / "sources" / target)
    commands = "\n".join(value for name, value in build_steps if name == "RUN")
    script = _with_settings(
        _MOUNTS + _BUILD,
        PYTHON_HOME=sys.base_prefix,
        IMAGE=directory / "trimtab",
        SOURCES=directory / "sources",
        SCRATCH=directory / "scratch",
    )
    path = (
        'export PATH="/opt/python/bin:$PATH" LD_LIBRARY_PATH=/opt/python/lib\nunset PYTHONPATH VIRTUAL_ENV\n'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script + path + commands],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    _copy_the_entrypoint(directory / "trimtab")
    return Image(directory)


def health_check() -> list[str]:
    """The command of HEALTHCHECK."""
    (line,) = (value for name, value in _stage(2) if name == "HEALTHCHECK")
    return [str(word) for word in json.loads(line[line.index("[") :])]


def _copy_the_entrypoint(image: Path) -> None:
    for value in (value for name, value in _stage(2) if name == "COPY" and "--from" not in value):
        mode, source, target = value.split()
        assert (mode, target) == ("--chmod=755", "/opt/trimtab/bin/entrypoint")
        shutil.copyfile(ROOT / source, image / "bin" / "entrypoint")
        (image / "bin" / "entrypoint").chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def _stage(place: int) -> list[tuple[str, str]]:
    """Instructions of one stage of the recipe, counted from 0."""
    stages: list[list[tuple[str, str]]] = []
    with RECIPE.open("r+b") as file:
        for step in DockerfileParser(fileobj=file).structure:
            if step["instruction"] == "FROM":
                stages.append([])
            elif stages:
                stages[-1].append((step["instruction"], step["value"]))
    return stages[place]


def _environment_of_the_recipe() -> dict[str, str]:
    (line,) = (value for name, value in _stage(2) if name == "ENV")
    variables = dict(word.split("=", 1) for word in line.split())
    variables["PATH"] = variables["PATH"].replace("$PATH", "/usr/bin:/bin")
    return variables | {"LD_LIBRARY_PATH": "/opt/python/lib"}


def _with_settings(script: str, **settings: object) -> str:
    return "\n".join(f"{name}='{value}'" for name, value in settings.items()) + "\n" + script
