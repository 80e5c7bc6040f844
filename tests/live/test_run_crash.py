"""`kill -9` at every interesting point: a `read_committed` consumer sees what it sees without a kill, once."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.live.driving import Child
from tests.live.dying import POINTS
from tests.live.loads import RECORDED_SETTINGS, recording
from tests.live.stage import Outputs, Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

KILLED = -9
RECORDS_PER_BATCH = 60
BATCHES_COUNT = 7


def start_dying(stage: Stage, config: Path, points: Sequence[str]) -> Child:
    """`trimtab run` that dies at the first of these points it comes to and has not died at before."""
    flags = stage.directory / "flags"
    flags.mkdir(exist_ok=True)
    command = (sys.executable, "-m", "tests.live.dying", str(flags), ",".join(points))
    return Child(
        (*command, "run", "--config", str(config), "--from", "earliest"), stage.directory / "run.log"
    )


def crash_through(stage: Stage, points: Sequence[str]) -> Outputs:
    """Run the recording to its end, dying at each point on the way; returns what replay makes of it."""
    config = stage.settings(base=RECORDED_SETTINGS, spark__max_records_per_trigger_count=RECORDS_PER_BATCH)
    wanted = replayed(config, recording())
    stage.send(recording())
    for _ in points:
        with start_dying(stage, config, points) as run:
            assert run.wait() == KILLED, run.said
    with start_dying(stage, config, points) as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert {flag.name for flag in (stage.directory / "flags").iterdir()} == {
        point.replace(":", "-") for point in points
    }
    return wanted


def test_killed_between_the_two_commits_every_action_is_seen_once_as_in_replay(stage: Stage) -> None:
    wanted = crash_through(stage, ["after-publish:3"])
    assert stage.published() == wanted
    assert sorted(set(stage.epochs(stage.topics.audit))) == [1, 2]
    assert "batch 3 was published before the restart: skipped" in (stage.directory / "run.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_one_point_of_several_batches_every_action_is_seen_once_as_in_replay(
    stage: Stage, point: str
) -> None:
    points = [f"{point}:{batch}" for batch in (0, 2, 3, BATCHES_COUNT - 2)]
    wanted = crash_through(stage, points)
    assert stage.published() == wanted


@pytest.mark.slow
def test_killed_at_every_point_of_the_same_batch_every_action_is_seen_once_as_in_replay(stage: Stage) -> None:
    wanted = crash_through(stage, [f"{point}:2" for point in POINTS])
    assert stage.published() == wanted
