"""A person approves a proposal and drains a broker under a running controller; a replay of what it was given is the same."""

import json
from pathlib import Path

import pytest

from tests.live.driving import Warm, command, until
from tests.live.loads import played
from tests.live.operating import AHEAD, output_of, since
from tests.live.stage import Outputs, Stage

pytestmark = pytest.mark.live


def test_a_proposal_is_approved_a_broker_drained_and_a_replay_of_the_record_is_what_was_published(
    stage: Stage, warm: Warm, tmp_path: Path
) -> None:
    config = stage.settings(base=AHEAD, controller__approval="required")
    asked = ("--who", "maria", "--why=a test")
    stage.send(played(range(3)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, 3, running=[run])
        (waiting,) = json.loads(output_of(config, "actions", "list", "--pending", "-o", "json"))
        (proposal,) = map(json.loads, stage.values(stage.topics.actions_dry_run))
        assert (waiting["id"], waiting["cluster"]) == (proposal["id"], "east-1")
        assert (proposal["data"]["dry_run"], proposal["data"]["proposal"]) == (True, True)
        assert stage.values(stage.topics.actions) == []

        assert "abcdef is no open proposal" in output_of(config, "approve", "abcdef", *asked, code=2)
        assert "approved: " in output_of(config, "approve", waiting["id"][:8], *asked)
        stage.send(played(range(3, 4)))
        (value,) = stage.wait_for(stage.topics.actions, 1, running=[run])
        action = json.loads(value)
        assert action["id"] != proposal["id"]
        assert action["data"]["proposal_id"] == proposal["id"]
        assert (action["data"]["dry_run"], action["data"]["bundle"]) == (False, proposal["data"]["bundle"])

        text = output_of(config, "drain", "--cluster", "east-1", "--broker", "broker-1:8080", *asked)
        assert "drain of broker broker-1:8080: until it is ended" in text
        assert "nothing will move" not in text
        first = since(text)
        stage.send(played(range(first, first + 1)))
        drained = stage.wait_for(stage.topics.actions, 4, running=[run])[1:]
        moves = {json.loads(each)["data"]["bundle"]: json.loads(each)["data"] for each in drained}
        assert len(moves) == 3
        assert {(each["policy"], each["destination_broker"]) for each in moves.values()} == {
            ("drain", "broker-2:8080")
        }
        shown = json.loads(output_of(config, "maintenance", "list", "-o", "json"))
        assert [(each["what"], each["name"]) for each in shown] == [("drain of broker", "broker-1:8080")]
        status = until(
            lambda: "3 bundles left of 3" in (found := output_of(config, "status")) and found,
            what="the drain in the status",
            running=[run],
        )
        assert "required for unloads and splits" in status
        assert run.terminate() == 0
    record = tmp_path / "record.ndjson"
    command("record", "--config", str(config), "--until-now", str(record))
    replayed = command("replay", "--config", str(config), "--keep-open", str(record)).stdout_bytes
    topics = stage.topics
    values = [
        value
        for topic in (topics.actions, topics.actions_dry_run, topics.audit)
        for value in stage.values(topic)
    ]
    assert sorted(replayed.splitlines()) == sorted(values)
    assert Outputs.of(replayed.splitlines()).rounds == stage.published().rounds
