"""A checkpoint on a real HDFS and a real S3-compatible object store: both keep its promises, and controllers take over on them.

Run as a program with a URL and Spark's configuration (`NAME=VALUE…`) this says what a store does, as JSON: a file system's jars come
with the start of a JVM.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.spark.files import Files, UnsafeStore, require_promises
from streaming.spark.jars import ensure
from tests.support.hdfs import LocalHdfs
from tests.support.loads import closing, leaning, played
from tests.support.object_store import KEYS, S3_LOCK, ObjectStore
from tests.support.processes import ROOT, cold
from tests.support.programs import GoProgram
from tests.support.stage import QUICK, Stage, replayed

pytestmark = pytest.mark.live


RACERS, ROUNDS = 8, 40
PATIENCE_S = 60.0


def main(location: str, conf: dict[str, str]) -> None:
    """Check the promises, and if they are kept let threads race for files."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in conf.items():
        builder = builder.config(name, value)
    files = Files(builder.getOrCreate(), location)
    try:
        require_promises(files)
    except UnsafeStore as error:
        said: dict[str, object] = {"refused": str(error), "left": files.names()}
    else:
        said = {"refused": None, "left": files.names()}
        said["winners"] = [race(files, number) for number in range(ROUNDS)]
    sys.stdout.write(f"{json.dumps(said)}\n")


def race(files: Files, number: int) -> list[bool]:
    """Let threads make a file at the same moment; for each one that made it, whether the file has what this one wrote."""
    claim, together = f"start-{number}/claim", Barrier(RACERS)

    def make(racer: int) -> int | None:
        together.wait(PATIENCE_S)
        try:
            files.write_new(claim, b"%d" % racer)
        except FileExistsError:
            return None
        return racer

    with ThreadPoolExecutor(RACERS) as pool:
        winners = [racer for racer in pool.map(make, range(RACERS)) if racer is not None]
    return [files.read(claim) == b"%d" % racer for racer in winners]


def assert_replaced(stage: Stage, config: Path) -> None:
    """A controller that is killed is replaced by one that goes on from its checkpoint."""
    with cold(config, stage.directory / "first.log") as first:
        for number in range(2):  # the second batch begins once the memory of the first is in the store
            stage.send(played([number]))
            stage.wait_for(stage.topics.audit, number + 1, running=[first])
        first.close()  # SIGKILL to it and all its children
    began = re.search(r"acts ends after (\S+Z)", (stage.directory / "first.log").read_text())
    assert began, "a checkpoint there cannot be prepared, so nothing acts, and the hits go on being counted"
    wanted = replayed(config, played(range(6)), "--started", began[1])
    stage.send([*played(range(2, 5)), *leaning(5), closing(5)])
    with cold(config, stage.directory / "second.log") as second:
        stage.wait_for_outputs(wanted, running=[second])
        assert second.terminate() == 0
    assert stage.published() == wanted
    assert stage.epochs(stage.topics.audit)[0] < stage.epochs(stage.topics.audit)[-1]


@pytest.mark.slow
def test_a_controller_that_is_killed_is_replaced_on_hdfs(stage: Stage, hdfs: LocalHdfs):
    assert_replaced(stage, stage.settings(spark__checkpoint=f"{hdfs.url}/{stage.name}/checkpoint"))


VERSITYGW = GoProgram(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw",
    "v1.8.0",
    "a checkpoint in an object store is NOT tested",
)
KEEPS, LACKS = "keeps", "lacks"
PROCESS_S = 240


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A store with two buckets; clients are told that one of them knows no conditional writes."""
    directory = tmp_path_factory.mktemp("s3")
    with ObjectStore(directory, program=VERSITYGW.need(), buckets=[KEEPS, LACKS]) as running:
        yield running


@pytest.fixture(scope="module")
def conf(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """As docs/run/scaling.md has it: the jars in a directory on the class path, and where the store is."""
    jars = tmp_path_factory.mktemp("jars")
    for jar in ensure(S3_LOCK):
        (jars / jar.name).symlink_to(jar)
    return {
        "spark.driver.extraClassPath": f"{jars}/*",
        f"spark.hadoop.fs.s3a.bucket.{LACKS}.create.conditional.enabled": "false",
        **store.spark_conf,
    }


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def promises_of(location: str, conf: dict[str, str]) -> dict[str, Any]:
    given = [f"{name}={value}" for name, value in conf.items()]
    command = [sys.executable, "-m", "tests.live.test_checkpoint_stores", location, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=PROCESS_S)
    assert done.returncode == 0, done.stderr[-5000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.slow
def test_hdfs_keeps_what_a_checkpoint_needs(tmp_path: Path, hdfs: LocalHdfs):
    said = promises_of(f"{hdfs.url}/{tmp_path.name}", {})
    assert said == {"refused": None, "left": [], "winners": [[True]] * ROUNDS}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_of_those_who_make_a_file_at_once_one_alone_has_it(conf: dict[str, str]):
    said = promises_of(f"s3a://{KEEPS}/promises", conf)
    assert said == {"refused": None, "left": [], "winners": [[True]] * ROUNDS}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_conditional_writes_it_is_refused_with_the_remedy(conf: dict[str, str]):
    said = promises_of(f"s3a://{LACKS}/promises", conf)
    assert "cannot create a file on the condition that it does not exist" in said["refused"]
    assert "Conditional Writes Unavailable" in said["refused"]
    assert "docs/run/scaling.md" in said["refused"]
    assert said["left"] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_controller_that_is_killed_is_replaced_on_an_object_store(stage: Stage, conf: dict[str, str]):
    extra = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in conf.items())
    location = f"s3a://{KEEPS}/{stage.name}/checkpoint"
    assert_replaced(
        stage, stage.settings(base=f"{QUICK}\n[spark.extra]\n{extra}", spark__checkpoint=location)
    )


if __name__ == "__main__":
    main(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:]))
