"""`kill -9` at every interesting point: a `read_committed` consumer sees what it sees without a kill, once."""

import pytest

from tests.live.crashing import BATCHES_COUNT, crash_through
from tests.live.dying import POINTS
from tests.live.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]


def test_killed_between_the_two_commits_every_action_is_seen_once_as_in_replay(stage: Stage) -> None:
    wanted = crash_through(stage, ["after-publish:3"])
    assert stage.published() == wanted
    assert len(set(stage.epochs(stage.topics.audit))) == 2, "each start has its own"
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
