"""Topics are unloaded and brokers restarted, under a running controller and between two of its starts: nothing is lost.

One of the input's partitions has records; the others, like the control topic, stay empty, and Pulsar drops an empty
ledger whenever it loads a topic.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.process.exits import REFUSED
from streaming.pulsar.log import PartitionLogs
from tests.live.driving import Warm, until
from tests.live.loads import played
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.stage import replayed

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1200)]

PARTITIONS = 4
ROUNDS = 4
"""Rounds decided between two disturbances; two of them act."""


@pytest.fixture
def stage(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    made = PulsarStage.of(Lab(pulsar), tmp_path, input_partitions=PARTITIONS)
    yield made
    made.close()


def decide_through(
    stage: PulsarStage, warm: Warm, disturb: Callable[[], None], *, clusters: tuple[str, ...]
) -> None:
    """Play rounds before, between and after the disturbances of the topics: with a controller running, and with none."""
    config = stage.settings()
    parts: list[list[bytes]] = [
        [event for cluster in clusters for event in played(range(at, at + ROUNDS), cluster=cluster)]
        for at in range(0, 4 * ROUNDS, ROUNDS)
    ]
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        for number in (1, 2):
            stage.send(parts[number - 1])
            stage.wait_for_outputs(replayed(config, chain(*parts[:number])), running=[run])
            disturb()
        stage.send(parts[2])
        stage.wait_for_outputs(replayed(config, chain(*parts[:3])), running=[run])
        assert run.terminate() == 0, run.output
    disturb()
    with warm.start("run", "--config", str(config)) as run:
        stage.send(parts[3])
        wanted = replayed(config, chain(*parts))
        assert wanted.actions_count > 0
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0, run.output
    assert stage.published() == wanted
    assert stage.rejected() == []


def test_every_topic_may_be_unloaded_while_partitions_and_the_control_topic_are_empty(
    stage: PulsarStage, warm: Warm
) -> None:
    lab = stage.lab
    assert lab is not None
    decide_through(
        stage, warm, lambda: lab.put(f"namespaces/{lab.namespace}/unload", None), clusters=("east-1",)
    )


def test_input_that_was_taken_away_unread_is_refused_and_passed_over_when_told_to(
    stage: PulsarStage, warm: Warm
) -> None:
    config, lab = stage.settings(), stage.lab
    assert lab is not None
    before, gone, after = played(range(3)), played(range(3, 5)), played(range(5, 8))
    stage.send(before)
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(replayed(config, before), running=[run])
        assert run.terminate() == 0, run.output
    stage.send(gone)
    until(lambda: truncated(stage, lab), what="nothing to be left of the input")
    with warm.start("run", "--config", str(config)) as run:
        assert run.wait() == REFUSED, run.output
        assert "was trimmed" in run.output
        assert "--skip-lost" in run.output

    wanted = replayed(config, [*before, *after])
    with warm.start("run", "--config", str(config), "--skip-lost") as run:
        stage.send(after)
        stage.wait_for(stage.topics.audit, wanted.rounds_count + 1, running=[run])
        assert run.terminate() == 0, run.output
    assert stage.published() == wanted
    (message,) = [
        event
        for event in map(json.loads, stage.values(stage.topics.audit))
        if event["type"] == "trimtab.input-skipped.v1"
    ]
    assert {each["records_count"] for each in message["data"]["ranges"]} == {None}


def truncated(stage: PulsarStage, lab: Lab) -> bool:
    """Delete what the input holds; the newest ledger of a partition goes when it is loaded again."""
    lab.delete(f"persistent/{lab.namespace}/{stage.topics.input}/truncate")
    lab.put(f"namespaces/{lab.namespace}/unload", None)
    logs = PartitionLogs(lab.admin, subscription="trimtab")
    found = [logs.log(each) for each in logs.partitions(stage.full_name(stage.topics.input))]
    return not any(ledger.entries for log in found for ledger in log.ledgers)


@pytest.mark.parametrize("clusters", [("east-1",), tuple(f"c-{number}" for number in range(12))])
def test_all_brokers_may_be_restarted_one_after_another(
    stage: PulsarStage, warm: Warm, pulsar: LocalPulsar, clusters: tuple[str, ...]
) -> None:
    """With twelve clusters every partition has records."""

    def restart_all() -> None:
        for number in range(1, len(pulsar.broker_ids) + 1):
            pulsar.stop_broker(number)
            pulsar.start_broker(number)

    decide_through(stage, warm, restart_all, clusters=clusters)


@pytest.mark.parametrize("what", ["input", "control", "actions", "audit", "deduplication"])
def test_what_is_deleted_or_switched_off_under_a_running_controller_is_noticed(
    stage: PulsarStage, warm: Warm, what: str
) -> None:
    """A client that is connected to a deleted topic makes Pulsar create it again, without its settings."""
    config, lab = stage.settings(), stage.lab
    assert lab is not None
    stage.send(played(range(3)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(replayed(config, played(range(3))), running=[run])
        stage.close()
        if what == "deduplication":
            lab.post(f"persistent/{lab.namespace}/{stage.topics.actions}/deduplicationEnabled", False)
        elif what == "input":
            lab.delete(f"persistent/{lab.namespace}/{stage.topics.input}/partitions?force=true")
        else:
            lab.delete(f"persistent/{lab.namespace}/{getattr(stage.topics, what)}?force=true")
        assert run.wait() == REFUSED, run.output
        signs = ("topics missing", "deduplication is off", "was trimmed", "somebody removed the subscription")
        assert any(sign in run.output for sign in signs), run.output
