"""A controller is killed or frozen at every interesting point, or comes back with other settings: each output is seen once, as in replay."""

import signal

import pytest

from streaming.process.exits import FENCED
from tests.support.controllers import (
    BATCHES_COUNT,
    RECORDS_PER_BATCH,
    change_settings_at,
    crash_through,
    is_frozen,
    misbehaving,
    signalled,
)
from tests.support.loads import RECORDED_SETTINGS, recording
from tests.support.misbehaving import POINTS
from tests.support.processes import Warm, query_failures
from tests.support.stage import Stage, replayed

pytestmark = pytest.mark.live


@pytest.mark.timeout(1200)
def test_killed_between_the_two_commits_each_action_is_seen_once(stage: Stage):
    wanted = crash_through(stage, ["after-publish:3"])
    assert stage.published() == wanted
    assert len(set(stage.epochs(stage.topics.audit))) == 2, "each start has its own"
    assert "batch 3 was published before the restart: skipped" in (stage.directory / "run.log").read_text()


@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point_of_several_batches_each_action_is_seen_once(stage: Stage, point: str):
    points = [f"{point}:{batch}" for batch in (0, 2, 3, BATCHES_COUNT - 2)]
    wanted = crash_through(stage, points)
    assert stage.published() == wanted


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_killed_at_every_point_of_one_batch_each_action_is_seen_once(stage: Stage):
    wanted = crash_through(stage, [f"{point}:2" for point in POINTS])
    assert stage.published() == wanted


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
    with misbehaving(stage, config, "freezes", [f"{point}:{BATCH}"]) as frozen:
        frozen.until(lambda: is_frozen(frozen), f"the freeze {point}")
        before = len(stage.values(stage.topics.audit))
        with warm.start(*arguments) as successor:
            stage.wait_for(stage.topics.audit, before + 1, running=[successor])
            signalled(frozen, signal.SIGCONT)
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


def test_frozen_between_the_commits_it_does_not_harm_its_successor(stage: Stage, warm: Warm):
    take_over_from_frozen(stage, warm, "after-publish")


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_frozen_at_any_step_it_does_not_harm_its_successor(stage: Stage, warm: Warm, point: str):
    take_over_from_frozen(stage, warm, point)


def test_a_batch_that_is_out_is_run_with_its_own_settings_the_next_with_new_ones(stage: Stage, warm: Warm):
    changed = change_settings_at(stage, warm, "after-publish:3")
    assert "batch 3 was published before: it runs once more with its old settings" in changed.output
    assert "batch 3 was published before the restart: skipped" in changed.output
    assert len(changed.acting) == len(changed.out)


@pytest.mark.slow
def test_a_batch_that_is_planned_and_not_out_runs_with_the_new_settings(stage: Stage, warm: Warm):
    changed = change_settings_at(stage, warm, "before-publish:3")
    assert "with its old settings" not in changed.output
    assert len(changed.acting) == len(changed.out)
    assert stage.values(stage.topics.actions) == changed.actions, "who restarts into a dry-run is obeyed"
