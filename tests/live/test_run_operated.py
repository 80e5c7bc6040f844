"""Operators' commands against a running controller: what they write is obeyed, and what it decided can be asked for."""

import json
import math
import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from state.outputs import canonical
from state.outputs.actions import ROUND_TYPE
from streaming.cli import request
from streaming.cli.published import Round
from streaming.process.exits import NOT_ACKNOWLEDGED, REFUSED, UNREACHABLE, WRONG_USE, NotReached
from tests.streaming.summaries import CONTROL, ROUND
from tests.support.loads import played
from tests.support.operating import AHEAD, operate, output_of, since
from tests.support.processes import TRIMTAB, Child, Warm, samples
from tests.support.stage import Stage, assert_replayed_alike

pytestmark = pytest.mark.live


def test_a_proposal_is_approved_a_broker_drained_and_replayed_alike(stage: Stage, warm: Warm):
    config = stage.settings(base=AHEAD, controller__approval="required")
    asked = ("--who", "maria", "--why=a test")
    stage.send(played(range(3)))
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 3, running=[run])
        (waiting,) = json.loads(output_of(config, "actions", "list", "--pending", "-o", "json"))
        (proposal,) = map(json.loads, stage.values(stage.topics.actions_dry_run))
        assert (waiting["id"], waiting["cluster"]) == (proposal["id"], "east-1")
        assert (proposal["data"]["dry_run"], proposal["data"]["proposal"]) == (True, True)
        assert stage.values(stage.topics.actions) == []

        assert "abcdef is no open proposal" in output_of(config, "approve", "abcdef", *asked, code=8)
        assert "approved: " in output_of(config, "approve", waiting["id"][:8], *asked)
        stage.send(played(range(3, 4)))
        (value,) = stage.wait_for(stage.topics.actions, 1, running=[run])
        action = json.loads(value)
        assert action["id"] != proposal["id"]
        assert action["data"]["proposal_id"] == proposal["id"]
        assert (action["data"]["dry_run"], action["data"]["bundle"]) == (False, proposal["data"]["bundle"])

        text = output_of(config, "drain", "--cluster", "east-1", "--broker", "broker-1:8080", *asked)
        assert "drain of broker-1:8080: until it is ended" in text
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
        assert [list(each["drained_brokers"]) for each in shown] == [["broker-1:8080"]]
        status = run.until(
            lambda: "3 bundles left of 3" in (found := output_of(config, "status")) and found,
            "the drain in the status",
        )
        assert "required for unloads and splits" in status
    assert_replayed_alike(stage, config)


def test_a_cluster_is_operated_by_commands_and_can_be_asked_about(stage: Stage, warm: Warm):
    operate(stage, warm)


def test_a_kafka_clusters_policy_is_changed_by_its_own_settings_and_rounds(stage: Stage):
    """The audit topic shows which system a cluster has: the Kafka cluster's rounds are 10 s long, the Pulsar cluster's an hour."""
    base = "[kafka.rounds]\nlength_s = 10\nlateness_s = 5\n[pulsar.rounds]\nlength_s = 3600\n"
    config = stage.settings(base=base)
    stage.send([summary_of("moving", "kafka"), summary_of("resting", "pulsar")], to=stage.topics.audit)
    asked = ("--who", "maria", "--why=a test", "kafka.throttle.floor_bytes_per_s=5000000")
    both = ("--cluster", "moving", "--cluster", "resting")
    refused = output_of(config, "policy", "set", *both, *asked, code=WRONG_USE)
    assert "resting is a Pulsar cluster, and kafka.* does nothing there" in refused
    assert stage.values(stage.topics.control) == []
    moving = output_of(config, "policy", "set", "--cluster", "moving", *asked)
    resting = output_of(config, "pause", "--cluster", "resting", "--why=a test")
    assert "  kafka.throttle.floor_bytes_per_s: " in moving
    assert " -> 5000000" in moving
    begins = datetime.fromisoformat(re.search(r"begins at (\S+Z)", moving)[1])  # type: ignore[index]
    assert begins - datetime.now(UTC) < timedelta(seconds=30)
    assert re.search(r"begins at \S+T\d\d:00:00Z", resting)
    shown = output_of(config, "policy", "show", "--cluster", "moving")
    assert "kafka.throttle.floor_bytes_per_s = 5000000" in shown
    text = output_of(config, "policy", "unset", "--cluster", "moving", "--why=over", "kafka.throttle")
    assert "kafka.throttle.floor_bytes_per_s: 5000000 -> " in text


def summary_of(cluster: str, system: str) -> bytes:
    """The part of a round's summary that shows the cluster's system."""
    event = {"id": "a", "source": "/trimtab/t", "type": "trimtab.round.v1", "cluster": cluster}
    return json.dumps({**event, "data": {"system": system}}).encode()


def test_a_cluster_that_is_forgotten_leaves_neither_state_nor_series(stage: Stage, warm: Warm):
    config = stage.settings()
    stage.send(played(range(2)))
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
        run.until(lambda: number(run.url, "trimtab_clusters") == 1, "the cluster's series")
        run.until(lambda: number(run.url, "trimtab_state_rows") > 0, "the cluster's state")
        text = output_of(
            config, "forget", "--cluster", "east-1", "--force", "--who", "ann", "--why=dismantled"
        )
        assert "forgotten: all that is remembered of the cluster; at once if the cluster is silent" in text
        run.until(lambda: number(run.url, "trimtab_clusters") == 0, "no series of it")
        assert not any("east-1" in dict(labels).values() for _, labels in samples(run.url))
        run.until(lambda: number(run.url, "trimtab_state_rows") == 0, "no state of it")


def test_a_command_that_waits_says_which_round_obeys_it(stage: Stage):
    config = stage.settings()
    stage.create_topics()
    log = config.with_suffix(".waiting")
    asked = ("pause", "--cluster", "east-1", "--force", "--why=the sale", "--wait", "--config", str(config))
    with Child((*TRIMTAB, *asked), log) as waiting:
        waiting.until(lambda: stage.values(stage.topics.control), "the event")
        written = json.loads(stage.values(stage.topics.control)[0])["id"]
        stage.send([of_control("another"), of_control(written)], to=stage.topics.audit)
        assert waiting.wait() == 0
    assert "east-1: obeyed since round 7, which ended at 1970-01-01T00:08:00Z\n" in log.read_text()


def interrupted(*_: object, **__: object) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def unreached(*_: object, **__: object) -> None:
    raise NotReached("no broker answers.")


def test_a_command_that_waits_says_by_its_code_that_nobody_obeys(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "_PATIENCE_S", 1.0)
    config = stage.settings()
    stage.create_topics()
    asked = ("pause", "--cluster", "east-1", "--force", "--why=the sale", "--wait")
    text = output_of(config, *asked, code=NOT_ACKNOWLEDGED)
    assert "paused: no -> yes" in text
    assert "no round obeys it yet: east-1" in text
    assert len(stage.values(stage.topics.control)) == 1, "it was written all the same"
    with monkeypatch.context() as patched:
        patched.setattr(request, "search_rounds", interrupted)
        text = output_of(config, *asked, code=NOT_ACKNOWLEDGED)
        assert "stopped waiting, but it is written: the next round obeys it" in text
        patched.setattr(request, "search_rounds", unreached)
        text = output_of(config, *asked, code=UNREACHABLE)
        assert "no broker answers. It is written all the same: the next round obeys it" in text
    with monkeypatch.context() as patched:
        problem = round_of_control("x", problem="no such key")
        patched.setattr(request, "acknowledging_rounds", lambda *_: {"east-1": problem})
        assert "refuses the settings: no such key" in output_of(config, *asked, code=REFUSED)


def round_of_control(event_id: str, *, problem: str | None = None) -> Round:
    """A round that names a control event."""
    control = msgspec.structs.replace(CONTROL, id=event_id, problem=problem)
    return Round(
        id="0" * 32,
        source="/trimtab/t",
        type=ROUND_TYPE,
        cluster="east-1",
        data=msgspec.structs.replace(ROUND, control=control),
    )


def of_control(event_id: str) -> bytes:
    return canonical(round_of_control(event_id))


def number(url: str, name: str) -> float:
    """One sample without labels; NaN where there is none yet."""
    return samples(url).get((name, frozenset()), math.nan)
