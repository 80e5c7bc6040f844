"""A `trimtab run` that dies at a point of a batch, and goes on with other settings: what comes of it."""

import json
from dataclasses import dataclass

from tests.live.crashing import DYING, KILLED, RECORDS_PER_BATCH, start_dying
from tests.live.driving import Warm, query_failures
from tests.live.loads import RECORDED_CLUSTER, RECORDED_SETTINGS, recording
from tests.live.stage import Stage, replayed


@dataclass(frozen=True, slots=True)
class Changed:
    """Summaries and actions that were out when it died, the rounds published in each mode, and the output."""

    out: list[bytes]
    actions: list[bytes]
    acting: list[int]
    showing: list[int]
    output: str


def change_settings_at(stage: Stage, warm: Warm, point: str, *, program: str = DYING) -> Changed:
    """Die at the point in mode act; then go on to the end of the recording in a dry-run. Each round must be there, once."""
    batches = {"spark__max_records_per_trigger_count": RECORDS_PER_BATCH}
    acting = stage.settings(base=RECORDED_SETTINGS, **batches)
    showing = stage.settings(base=RECORDED_SETTINGS, file="shown.toml", controller__mode="dry-run", **batches)
    stage.send(recording())
    wanted = replayed(acting, recording())
    with start_dying(stage, acting, [point], program=program) as run:
        assert run.wait() == KILLED, run.output
    out, actions = stage.values(stage.topics.audit), stage.values(stage.topics.actions)
    with warm.start("run", "--config", str(showing), "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, wanted.rounds_count, running=[run])
        assert run.terminate() == 0, run.output
        assert not query_failures(run.output)
    summaries = stage.values(stage.topics.audit)
    assert summaries[: len(out)] == out
    rounds = [json.loads(value)["data"] for value in summaries]
    numbers = [json.loads(value)["data"]["round"] for value in wanted.rounds[RECORDED_CLUSTER]]
    assert [each["round"] for each in rounds] == numbers, "each once"
    by_mode = {
        mode: [each["round"] for each in rounds if each["mode"] == mode] for mode in ("act", "dry-run")
    }
    assert by_mode["act"] + by_mode["dry-run"] == numbers
    return Changed(out, actions, by_mode["act"], by_mode["dry-run"], run.output)
