"""`trimtab run` with either side on either system: what `trimtab replay` decides is published, once, whatever happens to topics and brokers.

Where topics are unloaded, one of the input's partitions has records; the others, like the control topic, stay empty, and Pulsar drops
an empty ledger whenever it loads a topic.
"""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pytest

from deploy.local.kafka import LocalKafka
from deploy.local.pulsar import LocalPulsar
from streaming.process.exits import FENCED, REFUSED
from streaming.pulsar.log import PartitionLogs
from streaming.systems import publisher_of
from tests.support.controllers import (
    BATCHES_COUNT,
    RECORDS_PER_BATCH,
    change_settings_at,
    crash_through,
    leads,
    pair,
    rounds,
    standing,
    stands_by,
)
from tests.support.loads import START_S, closing, leaning, played, said
from tests.support.misbehaving import PULSAR_POINTS
from tests.support.processes import Warm, until
from tests.support.pulsar import Lab, PulsarStage
from tests.support.stage import assert_replayed_alike, at, newest_start, replayed

pytestmark = pytest.mark.live


@pytest.fixture
def on_pulsar(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage with both sides on Pulsar."""
    made = PulsarStage.of(Lab(pulsar), tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(1200)
def test_killed_when_a_first_message_is_out_each_action_is_seen_once(on_pulsar: PulsarStage, warm: Warm):
    wanted = crash_through(
        on_pulsar, ["first-message:1"], records_per_batch=2 * RECORDS_PER_BATCH, successor=warm
    )
    assert on_pulsar.published() == wanted
    assert len(set(on_pulsar.epochs(on_pulsar.topics.audit))) == 2, "each start has its own"


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_from_pulsar_to_kafka(pulsar: LocalPulsar, kafka: LocalKafka, warm: Warm, tmp_path: Path):
    stage = PulsarStage.of(Lab(pulsar), tmp_path, bootstrap=kafka.bootstrap, on_pulsar=["input"])
    config = stage.settings()
    wanted = replayed(config, played(range(8)))
    assert wanted.actions_count > 0
    stage.send(played(range(8)))
    with warm.run(config) as run:
        stage.wait_for_outputs(wanted, running=[run])
    assert stage.published() == wanted
    assert stage.rejected() == []
    stage.close()


@pytest.mark.timeout(1200)
def test_from_kafka_to_pulsar_and_a_successor(
    pulsar: LocalPulsar, kafka: LocalKafka, warm: Warm, tmp_path: Path
):
    stage = PulsarStage.of(Lab(pulsar), tmp_path, bootstrap=kafka.bootstrap, on_pulsar=["output"])
    config = stage.settings()
    wanted = replayed(config, played(range(6)))
    assert wanted.actions_count == 2
    stage.send(played(range(6)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(wanted, running=[run])
        successor = publisher_of(stage.loaded())
        query_id = json.loads((newest_start(stage.checkpoint) / "metadata").read_text())["id"]
        successor.open(at(query_id, 10**6))
        assert run.wait() == FENCED, run.output
        assert "another controller" in run.output
        successor.close()
    assert stage.published() == wanted
    assert stage.rejected() == []

    shutil.rmtree(stage.checkpoint)
    said = warm.refused(config)
    assert f"its checkpoint is not at {stage.checkpoint} (deleted, replaced by a new one" in said
    stage.close()


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_a_batch_that_is_begun_is_finished_with_its_own_settings(on_pulsar: PulsarStage, warm: Warm):
    changed = change_settings_at(on_pulsar, warm, "first-message:3")
    assert "batch 3 was published before: it runs once more with its old settings" in changed.output
    assert len(changed.acting) >= len(changed.out)


@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize("point", PULSAR_POINTS)
def test_killed_at_a_point_of_several_batches_each_action_is_seen_once(on_pulsar: PulsarStage, point: str):
    points = [f"{point}:{batch}" for batch in (0, 2, 3, BATCHES_COUNT - 2)]
    wanted = crash_through(on_pulsar, points)
    assert on_pulsar.published() == wanted


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_leadership_is_given_up_and_lost_and_nothing_is_lost_repeated_or_altered(on_pulsar: PulsarStage):
    stage = on_pulsar
    with ExitStack() as stack:
        one, other = pair(stage, stack)
        stage.send(played(range(2)))
        rounds(stage, 2, one, other)
        assert one.terminate() == 0
        one = standing(stage, stack, "again")
        until(lambda: leads(other) and stands_by(one), what="both to have changed", running=[one, other])
        stage.send(played(range(2, 4)))
        rounds(stage, 4, one, other)
        other.process.send_signal(signal.SIGKILL)
        one.until(lambda: leads(one), "the first one to lead again")
        stage.send(played(range(4, 6)))
        rounds(stage, 6, one)
        third = standing(stage, stack, "third")
        until(lambda: stands_by(third), what="a third one to stand by", running=[one, third])
        assert one.terminate() == 0
        until(lambda: leads(third), what="the third one to lead", running=[third])
        stage.send(played(range(6, 8)))
        rounds(stage, 8, third)
        assert third.terminate() == 0
    assert stage.published() == replayed(stage.directory / "trimtab.toml", played(range(8)))
    assert len(set(stage.epochs(stage.topics.audit))) == 4


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
    with warm.run(config) as run:
        for number in (1, 2):
            stage.send(parts[number - 1])
            stage.wait_for_outputs(replayed(config, chain(*parts[:number])), running=[run])
            disturb()
        stage.send(parts[2])
        stage.wait_for_outputs(replayed(config, chain(*parts[:3])), running=[run])
    disturb()
    with warm.run(config) as run:
        stage.send(parts[3])
        wanted = replayed(config, chain(*parts))
        assert wanted.actions_count > 0
        stage.wait_for_outputs(wanted, running=[run])
    assert stage.published() == wanted
    assert stage.rejected() == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_topic_may_be_unloaded_while_partitions_are_empty(stage: PulsarStage, warm: Warm):
    lab = stage.lab
    decide_through(stage, warm, lambda: lab.put(f"namespaces/{lab.namespace}/unload"), clusters=("east-1",))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_input_that_was_taken_away_unread_is_passed_over_when_told_to(stage: PulsarStage, warm: Warm):
    config, lab = stage.settings(), stage.lab
    before, gone, after = played(range(3)), played(range(3, 5)), played(range(5, 8))
    stage.send(before)
    with warm.run(config) as run:
        stage.wait_for_outputs(replayed(config, before), running=[run])
    stage.send(gone)
    until(lambda: truncated(stage, lab), what="nothing to be left of the input")
    said = warm.refused(config)
    assert "was trimmed" in said
    assert "--skip-lost" in said

    wanted = replayed(config, [*before, *after])
    with warm.run(config, "--skip-lost") as run:
        stage.send(after)
        stage.wait_for(stage.topics.audit, wanted.rounds_count + 1, running=[run])
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
    lab.put(f"namespaces/{lab.namespace}/unload")
    logs = PartitionLogs(lab.admin, subscription="trimtab")
    found = [logs.log(each) for each in logs.partitions(stage.full_name(stage.topics.input))]
    return not any(ledger.entries for log in found for ledger in log.ledgers)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("clusters", [("east-1",), tuple(f"c-{number}" for number in range(12))])
def test_all_brokers_may_be_restarted(
    stage: PulsarStage, warm: Warm, pulsar: LocalPulsar, clusters: tuple[str, ...]
):
    """With twelve clusters every partition has records."""

    def restart_all() -> None:
        for number in range(1, len(pulsar.broker_ids) + 1):
            pulsar.stop_broker(number)
            pulsar.start_broker(number)

    decide_through(stage, warm, restart_all, clusters=clusters)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("what", ["input", "control", "actions", "audit", "deduplication"])
def test_what_is_deleted_or_switched_off_meanwhile_is_noticed(stage: PulsarStage, warm: Warm, what: str):
    """A client that is connected to a deleted topic makes Pulsar create it again, without its settings."""
    config, lab = stage.settings(), stage.lab
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


@pytest.mark.slow
def test_a_replay_of_the_record_repeats_garbage_and_a_pause(on_pulsar: PulsarStage, warm: Warm):
    stage = on_pulsar
    config = stage.settings()
    stage.send([said(paused=True, time_s=START_S)], to=stage.topics.control)
    good = leaning(4)[0]
    with warm.run(config) as run:
        stage.send(played(range(4)))
        stage.wait_for(stage.topics.audit, 4, running=[run])
        stage.send([said(paused=False, time_s=START_S)], to=stage.topics.control)
        for key, value in ((b"east-1", b"not json"), (b"east-1", b""), (None, good), (b"west-1", good)):
            stage.send_raw(key, value)
        stage.send([*leaning(4), closing(4)])
        stage.wait_for(stage.topics.audit, 5, running=[run])
        stage.send(played(range(5, 9)))
        stage.wait_for(stage.topics.audit, 9, running=[run])
        stage.wait_for(stage.topics.dead_letter, 4, running=[run])
    assert stage.published().actions_count > 0
    assert_replayed_alike(stage, config)
