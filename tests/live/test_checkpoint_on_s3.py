"""A checkpoint on a real S3-compatible object store: conditional writes keep its promises, and controllers take over on it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.spark.jars import ensure
from tests.deploy.go_programs import GoProgram
from tests.live.driving import ROOT, TRIMTAB, Child
from tests.live.loads import closing, leaning, played
from tests.live.promising import ROUNDS
from tests.live.stage import QUICK, Stage, replayed
from tests.support.object_store import KEYS, S3_LOCK, ObjectStore

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1800)]  # the first run fetches 690 MB

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
    """As docs/scaling.md has it: the jars in a directory on the class path, and where the store is."""
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
    command = [sys.executable, "-m", "tests.live.promising", location, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=PROCESS_S)
    assert done.returncode == 0, done.stderr[-5000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_it_keeps_what_a_checkpoint_needs_and_of_those_who_make_a_file_at_once_one_alone_has_it(
    conf: dict[str, str],
) -> None:
    said = promises_of(f"s3a://{KEEPS}/promises", conf)
    assert said == {"refused": None, "left": [], "winners": [[True]] * ROUNDS}


def test_without_conditional_writes_it_is_refused_with_the_remedy(conf: dict[str, str]) -> None:
    said = promises_of(f"s3a://{LACKS}/promises", conf)
    assert "cannot create a file on the condition that it does not exist" in said["refused"]
    assert "Conditional Writes Unavailable" in said["refused"]
    assert "docs/scaling.md" in said["refused"]
    assert said["left"] == []


def test_a_controller_that_is_killed_is_replaced_by_one_that_goes_on_from_the_object_store(
    stage: Stage, store: ObjectStore, conf: dict[str, str]
) -> None:
    config = stage.settings(
        base=f"{QUICK}\n[spark.extra]\n{extra(conf)}",
        spark__checkpoint=f"s3a://{KEEPS}/{stage.name}/checkpoint",
    )
    run = (*TRIMTAB, "run", "--config", str(config), "--from", "earliest")
    wanted = replayed(config, played(range(6)))
    assert wanted.actions_count == 2, "the third and the sixth hit fire"

    with Child(run, stage.directory / "first.log") as first:
        for number in range(2):  # the second batch begins once the memory of the first is in the store
            stage.send(played([number]))
            stage.wait_for(stage.topics.audit, number + 1, running=[first, store])
        first.close()  # SIGKILL to it and all its children
    stage.send([*played(range(2, 5)), *leaning(5), closing(5)])
    with Child(run, stage.directory / "second.log") as second:
        stage.wait_for_outputs(wanted, running=[second, store])
        assert second.terminate() == 0
    assert stage.published() == wanted
    assert stage.epochs(stage.topics.audit)[0] < stage.epochs(stage.topics.audit)[-1]


def extra(conf: dict[str, str]) -> str:
    return "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in conf.items())
