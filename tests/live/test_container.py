"""What the container holds runs from a read-only file system, as a user without rights, and fetches nothing.

There is no container engine here: the recipe is carried out, and run, in mount namespaces of this machine, with its own Python and Java
where the base image would bring them. That needs root on Linux; `possible` says.
"""

import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from deploy.local.processes import free_ports
from tests.support.loads import RECORDED_SETTINGS, RECORDINGS, recording
from tests.support.processes import ROOT, TRIMTAB, Child, until
from tests.support.stage import Stage, remember_from_ever, replayed
from tests.support.standalone import Standalone

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


pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1200)]

RECORDING = "pulsar-3-brokers.ndjson.gz"
CONFIG = "pulsar-3-brokers.toml"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Built once by the recipe's own commands."""
    if not possible():
        text = (
            "this machine allows no mount namespaces (root on Linux is needed): the container is NOT tested"
        )
        warnings.warn(text, stacklevel=1)
        pytest.skip(text)
    made = build(tmp_path_factory.mktemp("image"))
    for name in (RECORDING, CONFIG):
        (made.given / name).write_bytes((RECORDINGS / name).read_bytes())
    return made


def test_nothing_but_the_volumes_can_be_written_and_nobody_is_root(image: Image):
    for path in ("/etc/x", "/opt/trimtab/x", "/opt/given/x", "/x"):
        assert image.run("touch", path).returncode != 0, path
    assert image.run("touch", "/tmp/x", "/var/lib/trimtab/x").returncode == 0  # noqa: S108  in the container
    assert image.run("id", "-u").stdout.strip() == b"10001"


def test_commands_work_without_a_network(image: Image):
    message = image.run("entrypoint", "--version").stdout.decode()
    assert message.startswith("trimtab, version "), message
    shown = image.run("entrypoint", "config", "--format", "json")
    assert json.loads(shown.stdout)["spark.jars_dir"]["value"] == "/opt/trimtab/jars", shown.stderr


def test_a_recording_is_decided_as_from_the_clone(image: Image):
    given = ("replay", "--config", f"/opt/given/{CONFIG}", f"/opt/given/{RECORDING}")
    inside = image.run("entrypoint", *given)
    assert inside.returncode == 0, inside.stderr
    here = [*TRIMTAB, "replay", "--config", str(RECORDINGS / CONFIG), str(RECORDINGS / RECORDING)]
    assert inside.stdout == subprocess.run(here, capture_output=True, check=True).stdout


def test_no_tool_of_developers_and_no_declared_package_is_missing(image: Image):
    assert image.run("python", "-m", "pip", "check").returncode == 0
    assert image.run("python", "-c", "import pytest").returncode != 0


def test_the_controller_runs_on_it_is_healthy_and_ends_when_asked(image: Image, stage: Stage):
    config = stage.settings(
        base=RECORDED_SETTINGS,
        file="outside.toml",
        spark__checkpoint="checkpoint",
        spark__driver_memory="512m",
        metrics__port=(port := free_ports(1)[0]),
    )
    wanted = replayed(config, recording())
    (image.given / "trimtab.toml").write_text(config.read_text())
    remember_from_ever(config, image.given / "checkpoint")
    stage.send(recording())
    start = "cp -r /opt/given/checkpoint . && exec entrypoint run --config /opt/given/trimtab.toml --from earliest"
    run = ("sh", "-c", start)
    with Child(image.command(*run, offline=False), stage.directory / "run.log") as child:
        stage.wait_for_outputs(wanted, running=[child])
        check = image.command(
            *health_check(), offline=False, environment={"TRIMTAB_METRICS__PORT": str(port)}
        )
        child.until(
            lambda: subprocess.run(check, check=False, capture_output=True).returncode == 0,
            "the health check",
        )
        assert child.terminate() == 0
    assert stage.published() == wanted
    assert "fetching" not in child.output


def test_it_is_an_executor_when_spark_on_kubernetes_asks_for_one(image: Image, tmp_path: Path):
    """Spark's pod gives the word and the variables; a driver beside it sends the work. There is no Kubernetes here."""
    port = free_ports(1)[0]
    driver_program = (
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.master('{{url}}').config('spark.driver.port', '{port}')"
        ".config('spark.driver.host', '127.0.0.1').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print('a session', flush=True)\n"
        "numbers = spark.sparkContext.parallelize(range(100), 4)\n"
        "from streaming.settings import Settings\n"
        "print('sum', numbers.map(lambda each: each + Settings().metrics.port).sum())\n"
    )
    asked = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "asked-for",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "trimtab-exec-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": f"-Dspark.driver.port={port}",
        "SPARK_JAVA_OPT_1": "-Dtrimtab.words=two words",
    }
    with Standalone(tmp_path, workers_count=0) as master:
        program = driver_program.format(url=master.url)
        local = {"SPARK_LOCAL_IP": "127.0.0.1"}
        driver = image.command("python", "-c", program, offline=False, environment=local)
        executor = image.command("entrypoint", "executor", offline=False, environment={**local, **asked})
        with Child(driver, tmp_path / "driver.log") as running:
            running.until(lambda: "a session" in running.output, "the driver")
            with Child(executor, tmp_path / "executor.log") as worker:
                until(lambda: "sum " in running.output, what="the driver's job", running=[worker])
                assert running.wait() == 0, running.output
    assert f"sum {sum(range(100)) + 100 * 9464}" in running.output


def possible() -> bool:
    """Whether this machine lets us make mount and network namespaces."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "--net", "mount", "-t", "tmpfs", "tmpfs", "/opt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


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
