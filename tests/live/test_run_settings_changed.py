"""Settings changed between the publishing of a batch and Spark's commit of it: no person is needed, nothing is out twice."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.live.crashing import KILLED, RECORDS_PER_BATCH, start_dying
from tests.live.driving import Warm
from tests.live.loads import RECORDED_SETTINGS, recording
from tests.live.stage import Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def rounds_by_mode(values: list[bytes]) -> Mapping[str, list[int]]:
    """Rounds of the summaries, in order, by the mode they were decided in."""
    found: dict[str, list[int]] = {}
    for value in values:
        data = json.loads(value)["data"]
        found.setdefault(data["mode"], []).append(data["round"])
    return found


def configs(stage: Stage) -> tuple[Path, Path]:
    """Settings to begin with, and others."""
    batches = {"spark__max_records_per_trigger_count": RECORDS_PER_BATCH}
    return (
        stage.settings(base=RECORDED_SETTINGS, **batches),
        stage.settings(base=RECORDED_SETTINGS, file="shown.toml", controller__mode="dry-run", **batches),
    )


def test_a_batch_that_is_out_is_run_with_its_own_settings_and_the_next_with_the_new_ones(
    stage: Stage, warm: Warm
) -> None:
    acting, showing = configs(stage)
    stage.send(recording())
    wanted = replayed(acting, recording())
    with start_dying(stage, acting, ["after-publish:3"]) as run:
        assert run.wait() == KILLED, run.said
    out = stage.values(stage.topics.audit)
    with warm.start("run", "--config", str(showing), "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, wanted.rounds_count, running=[run])
        assert run.terminate() == 0
        assert "batch 3 is out: it runs once more with the settings of then" in run.said
        assert "batch 3 was published before the restart: skipped" in run.said
        assert "the query failed" not in run.said
    found = rounds_by_mode(stage.values(stage.topics.audit))
    assert stage.values(stage.topics.audit)[: len(out)] == out
    assert found == {"act": rounds_by_mode(out)["act"], "dry-run": found["dry-run"]}
    assert found["act"] + found["dry-run"] == [
        json.loads(each)["data"]["round"] for each in wanted.rounds["lab"]
    ]


@pytest.mark.slow
def test_a_batch_that_is_planned_and_not_out_runs_with_the_new_settings(stage: Stage, warm: Warm) -> None:
    acting, showing = configs(stage)
    stage.send(recording())
    wanted = replayed(acting, recording())
    with start_dying(stage, acting, ["before-publish:3"]) as run:
        assert run.wait() == KILLED, run.said
    out = stage.values(stage.topics.audit)
    actions = stage.values(stage.topics.actions)
    with warm.start("run", "--config", str(showing), "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, wanted.rounds_count, running=[run])
        assert run.terminate() == 0
        assert "settings of then" not in run.said
    found = rounds_by_mode(stage.values(stage.topics.audit))
    assert len(found["act"]) == len(out)
    assert found["act"] + found["dry-run"] == [
        json.loads(each)["data"]["round"] for each in wanted.rounds["lab"]
    ]
    assert stage.values(stage.topics.actions) == actions, "who restarts into a dry-run is obeyed"
