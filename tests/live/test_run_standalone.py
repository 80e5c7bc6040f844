"""Beyond one machine: a standalone Spark cluster decides as one process does, whatever of it is killed."""

import os
import signal
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

import pytest

from tests.support.loads import played
from tests.support.processes import Child, cold
from tests.support.stage import QUICK, Outputs, Stage, replayed
from tests.support.standalone import SETTINGS, Standalone

pytestmark = pytest.mark.live

CLUSTERS = tuple(f"east-{number}" for number in range(1, 13))
"""Enough keys that each of the four partitions of the state, and so each worker, has some."""
PARTITIONS_COUNT = 4


def fleet(rounds_count: int) -> list[bytes]:
    """All clusters lean to one side; their events are interleaved, as they are on a topic."""
    each = (played(range(rounds_count), cluster=cluster) for cluster in CLUSTERS)
    return [value for value in chain.from_iterable(zip_longest(*each)) if value is not None]


def settings_of(stage: Stage, spark: Standalone, *, records_per_trigger: int) -> Path:
    return stage.settings(
        base=QUICK + SETTINGS,
        spark__master=spark.url,
        spark__shuffle_partitions=PARTITIONS_COUNT,
        spark__max_records_per_trigger_count=records_per_trigger,
        spark__driver_memory="512m",
    )


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Standalone]:
    """A master and two workers."""
    with Standalone(tmp_path) as running:
        yield running


def start(stage: Stage, config: Path, name: str) -> Child:
    return cold(config, stage.directory / f"{name}.log")


def expected(config: Path, events: list[bytes]) -> Outputs:
    """What `trimtab replay` makes of it, which must be something in every cluster."""
    wanted = replayed(config, events)
    assert set(wanted.actions) == set(CLUSTERS)
    return wanted


@pytest.mark.slow
def test_two_workers_decide_many_clusters_as_replay_does(stage: Stage, spark: Standalone):
    config, events = settings_of(stage, spark, records_per_trigger=2000), fleet(4)
    wanted = expected(config, events)
    stage.send(events)
    with start(stage, config, "run") as run:
        stage.wait_for_outputs(wanted, running=[run, *spark.workers])
        assert spark.is_deciding_everywhere()
        assert run.terminate() == 0
    assert stage.published() == wanted
    assert stage.rejected() == []


@pytest.mark.slow
def test_an_executor_and_then_the_driver_are_killed_and_nothing_is_lost(stage: Stage, spark: Standalone):
    config, events = settings_of(stage, spark, records_per_trigger=40), fleet(12)
    wanted = expected(config, events)
    thirds = wanted.rounds_count // 3
    stage.send(events)
    with start(stage, config, "first") as first:
        stage.wait_for(stage.topics.audit, thirds, running=[first])
        assert spark.is_deciding_everywhere()
        killed = spark.kill_executor(0)
        first.until(
            lambda: (now := spark.executors()[0]) is not None and now.pid != killed,
            "another executor on the first worker",
        )
        stage.wait_for(stage.topics.audit, 2 * thirds, running=[first])
        os.kill(first.process.pid, signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
    assert len(stage.values(stage.topics.audit)) < wanted.rounds_count, (
        "the driver died too late: nothing was left"
    )
    with start(stage, config, "second") as second:
        stage.wait_for_outputs(wanted, running=[second])
        assert second.terminate() == 0
    assert stage.published() == wanted
    assert len(set(stage.epochs(stage.topics.audit))) == 2, "each start has its own"
