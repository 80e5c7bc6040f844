"""Settings changed between the publishing of a batch and Spark's commit of it: no person is needed, nothing is out twice."""

import pytest

from tests.live.changing import change_settings_at
from tests.live.driving import Warm
from tests.live.stage import Stage

pytestmark = pytest.mark.live


def test_a_batch_that_is_out_is_run_with_its_own_settings_and_the_next_with_the_new_ones(
    stage: Stage, warm: Warm
) -> None:
    changed = change_settings_at(stage, warm, "after-publish:3")
    assert "batch 3 was published before: it runs once more with its old settings" in changed.output
    assert "batch 3 was published before the restart: skipped" in changed.output
    assert len(changed.acting) == len(changed.out)


@pytest.mark.slow
def test_a_batch_that_is_planned_and_not_out_runs_with_the_new_settings(stage: Stage, warm: Warm) -> None:
    changed = change_settings_at(stage, warm, "before-publish:3")
    assert "with its old settings" not in changed.output
    assert len(changed.acting) == len(changed.out)
    assert stage.values(stage.topics.actions) == changed.actions, "who restarts into a dry-run is obeyed"
