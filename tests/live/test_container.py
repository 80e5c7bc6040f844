"""What the container holds runs from a read-only file system, as a user without rights, and fetches nothing."""

import json
import subprocess
import warnings
from pathlib import Path

import pytest

from deploy.local.processes import free_ports
from tests.live.container import Image, build, health_check, possible
from tests.live.driving import TRIMTAB, Child, until
from tests.live.loads import RECORDED_SETTINGS, RECORDINGS, recording
from tests.live.stage import Stage, replayed
from tests.live.standalone import Standalone

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


def test_nothing_but_the_volumes_can_be_written_and_nobody_is_root(image: Image) -> None:
    for path in ("/etc/x", "/opt/trimtab/x", "/opt/given/x", "/x"):
        assert image.run("touch", path).returncode != 0, path
    assert image.run("touch", "/tmp/x", "/var/lib/trimtab/x").returncode == 0  # noqa: S108  in the container
    assert image.run("id", "-u").stdout.strip() == b"10001"


def test_commands_work_without_a_network(image: Image) -> None:
    message = image.run("entrypoint", "--version").stdout.decode()
    assert message.startswith("trimtab, version "), message
    shown = image.run("entrypoint", "config", "--format", "json")
    assert json.loads(shown.stdout)["spark.jars_dir"]["value"] == "/opt/trimtab/jars", shown.stderr


def test_a_recording_is_decided_as_from_the_clone(image: Image) -> None:
    given = ("replay", "--config", f"/opt/given/{CONFIG}", f"/opt/given/{RECORDING}")
    inside = image.run("entrypoint", *given)
    assert inside.returncode == 0, inside.stderr
    here = [*TRIMTAB, "replay", "--config", str(RECORDINGS / CONFIG), str(RECORDINGS / RECORDING)]
    assert inside.stdout == subprocess.run(here, capture_output=True, check=True).stdout


def test_no_tool_of_developers_and_no_declared_package_is_missing(image: Image) -> None:
    assert image.run("python", "-m", "pip", "check").returncode == 0
    assert image.run("python", "-c", "import pytest").returncode != 0


def test_the_controller_runs_on_it_is_healthy_and_ends_when_asked(image: Image, stage: Stage) -> None:
    config = stage.settings(
        base=RECORDED_SETTINGS,
        file="outside.toml",
        spark__checkpoint="checkpoint",
        spark__driver_memory="512m",
        metrics__port=(port := free_ports(1)[0]),
    )
    wanted = replayed(config, recording())
    (image.given / "trimtab.toml").write_text(config.read_text())
    stage.send(recording())
    run = ("entrypoint", "run", "--config", "/opt/given/trimtab.toml", "--from", "earliest")
    with Child(image.command(*run, offline=False), stage.directory / "run.log") as child:
        stage.wait_for_outputs(wanted, running=[child])
        check = image.command(
            *health_check(), offline=False, environment={"TRIMTAB_METRICS__PORT": str(port)}
        )
        until(
            lambda: subprocess.run(check, check=False, capture_output=True).returncode == 0,
            what="the health check",
            running=[child],
        )
        assert child.terminate() == 0
    assert stage.published() == wanted
    assert "fetching" not in child.output


def test_it_is_an_executor_when_spark_on_kubernetes_asks_for_one(image: Image, tmp_path: Path) -> None:
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
            until(lambda: "a session" in running.output, what="the driver", running=[running])
            with Child(executor, tmp_path / "executor.log") as worker:
                until(lambda: "sum " in running.output, what="the driver's job", running=[worker])
                assert running.wait() == 0, running.output
    assert f"sum {sum(range(100)) + 100 * 9464}" in running.output
