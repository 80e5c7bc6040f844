"""A controller that is frozen, taken over from, and goes on: it ends, and its successor is not affected."""

import pytest

from streaming.process.exits import FENCED
from tests.live.crashing import RECORDS_PER_BATCH, start_dying
from tests.live.driving import Warm, query_failures, until
from tests.live.dying import POINTS
from tests.live.freezing_run import is_frozen, thaw
from tests.live.loads import RECORDED_SETTINGS, recording
from tests.live.stage import Stage, replayed

pytestmark = pytest.mark.live

FREEZING = "tests.live.freezing_run"
BATCH = 2
FIRST_COUNT = 5 * RECORDS_PER_BATCH
"""Records sent before the restart of the successor."""


def take_over_from_frozen(stage: Stage, warm: Warm, point: str) -> None:
    """Freeze at the point, take over, let the frozen one go on; then stop the successor and start again."""
    events = recording()
    config = stage.settings(base=RECORDED_SETTINGS, spark__max_records_per_trigger_count=RECORDS_PER_BATCH)
    arguments = ("run", "--config", str(config), "--from", "earliest")
    begun = replayed(config, events[:FIRST_COUNT])
    stage.send(events[:FIRST_COUNT])
    with start_dying(stage, config, [f"{point}:{BATCH}"], program=FREEZING) as frozen:
        until(lambda: is_frozen(frozen), what=f"the freeze {point}", running=[frozen])
        before = len(stage.values(stage.topics.audit))
        with warm.start(*arguments) as successor:
            stage.wait_for(stage.topics.audit, before + 1, running=[successor])
            thaw(frozen)
            assert frozen.wait() == FENCED, frozen.output
            stage.wait_for_outputs(begun, running=[successor])
            assert successor.terminate() == 0
            assert not query_failures(successor.output)
    stage.send(events[FIRST_COUNT:])
    wanted = replayed(config, events)
    with warm.start(*arguments) as again:
        stage.wait_for_outputs(wanted, running=[again])
        assert again.terminate() == 0
        assert not query_failures(again.output)
    assert stage.published() == wanted


def test_frozen_between_the_two_commits_a_controller_that_goes_on_does_not_harm_its_successors_checkpoint(
    stage: Stage, warm: Warm
) -> None:
    take_over_from_frozen(stage, warm, "after-publish")


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_frozen_at_any_step_of_a_batch_a_controller_that_goes_on_does_not_harm_its_successors_checkpoint(
    stage: Stage, warm: Warm, point: str
) -> None:
    take_over_from_frozen(stage, warm, point)
