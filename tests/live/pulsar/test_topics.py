"""trimtab's topics on Pulsar: making and checking them, the control topic compacted, and what programs may rely on."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pulsar as pulsar_client
import pytest

from deploy.local.pulsar import LocalPulsar, StandalonePulsar
from streaming.cli.control import read_control
from streaming.executor.memory import control_of
from streaming.process.exits import REFUSED
from streaming.pulsar.log import PartitionLogs, PartitionReader, partitions_count
from streaming.settings import Settings, TopicNames
from streaming.systems import validate_all
from streaming.transport.errors import StartError
from tests.support.ports_suite import PortsSuite
from tests.support.processes import command, until
from tests.support.pulsar import CLUSTER, Lab, PulsarStage
from tests.support.pulsar_programs import Commander

pytestmark = pytest.mark.live


@pytest.fixture
def bare(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage without topics."""
    made = PulsarStage("", "bare", tmp_path, lab=Lab(pulsar, bundles_count=1))
    yield made
    made.close()


INACTIVE = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 3600}


def create(stage: PulsarStage, *, code: int = 0) -> dict[str, str]:
    """What `trimtab topics create` says of each topic by its short name; under "" what differs."""
    message = {"": ""}
    for line in command("topics", "create", "--config", str(stage.settings()), code=code).output.splitlines():
        topic, _, outcome = line.rpartition(": ")
        name = topic.rpartition("/")[2].partition(".bare")[0]
        if outcome in {
            "created",
            "already right",
            "differs",
            "deduplication switched on",
            "deletion while idle switched off",
        }:
            message[name] = outcome
        else:
            message[""] += line
    return message


def test_topics_are_made_once_and_what_exists_is_told_what_it_lacks(bare: PulsarStage):
    lab = bare.lab
    settings = bare.loaded()
    with pytest.raises(
        StartError, match=r"(?s)topics missing.*trimtab\.input.*trimtab\.commits.*topics create"
    ):
        validate_all(settings)
    names = asdict(TopicNames()).values()
    assert create(bare) == {"": "", **dict.fromkeys(names, "created")}
    assert create(bare) == {"": "", **dict.fromkeys(names, "already right")}
    assert validate_all(settings) == []

    audit = f"persistent/{lab.namespace}/{bare.topics.audit}"
    lab.post(f"{audit}/inactiveTopicPolicies", {**INACTIVE, "deleteWhileInactive": True})
    (warning,) = until(lambda: validate_all(settings), what="the policy to be in force")
    assert f"{bare.topics.audit}: deleteWhileInactive is true" in warning
    assert create(bare)["trimtab.audit"] == "deletion while idle switched off"
    assert validate_all(settings) == []

    actions = f"persistent/{lab.namespace}/{bare.topics.actions}"
    lab.post(f"{actions}/deduplicationEnabled", False)
    lab.post(f"{actions}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 10})
    refused = until(lambda: refusal(bare), what="the policies to be in force")
    assert f"topic persistent://{lab.namespace}/{bare.topics.actions}: deduplication is off" in refused
    assert "trimtab topics create" in refused
    assert "retention" not in refused, "that is a warning"

    message = create(bare, code=REFUSED)
    assert message["trimtab.actions"] == "deduplication switched on"
    assert "retention is 5 minutes, 10 MiB" in message[""]
    assert (
        f"set-retention persistent://{lab.namespace}/{bare.topics.actions} --time 10080m --size -1"
        in message[""]
    )
    (warning,) = validate_all(settings)
    assert "retention is 5 minutes" in warning


def refusal(stage: PulsarStage) -> str:
    """Why a start is refused; empty if it is not."""
    try:
        validate_all(stage.loaded())
    except StartError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_pulsar_with_its_defaults_deletes_idle_topics_and_none_of_trimtabs(tmp_path: Path):
    quick = {
        "brokerDeleteInactiveTopicsFrequencySeconds": 1,
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": 1,
    }
    with StandalonePulsar(tmp_path / "pulsar", extra=quick) as pulsar:
        stage = PulsarStage("", "idle", tmp_path, lab=Lab(pulsar, bundles_count=1))
        lab = stage.lab
        create(stage)
        for _ in range(2):
            lab.put(f"persistent/{lab.namespace}/somebody-elses")
            until(
                lambda: partitions_count(lab.admin, f"persistent://{lab.namespace}/somebody-elses") is None,
                what="an idle topic to be deleted",
            )
        assert validate_all(stage.loaded()) == []
        stage.close()


EVENTS_COUNT = 20


@pytest.fixture
def stage(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    made = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield made
    made.close()


def test_only_the_controller_sees_every_control_event(pulsar: LocalPulsar, stage: PulsarStage):
    commander, settings = Commander(stage, pulsar), stage.loaded()
    for number in range(EVENTS_COUNT):
        commander.control(paused=True, who="ops", why=str(number))
    stage.flush()
    compact(stage)
    commander.control(paused=False, who="ops", why="after")
    stage.flush()

    reasons = [json.loads(record.value or b"")["data"]["why"] for record in read_control(settings)]
    assert reasons == [str(EVENTS_COUNT - 1), "after"]
    with control_of(settings, cluster=CLUSTER, system="pulsar") as control:
        newest = control.newest()
    assert newest is not None
    assert (newest.paused, newest.why) == (False, "after")
    assert [json.loads(value)["data"]["why"] for value in as_the_controller_reads(stage)] == [
        *map(str, range(EVENTS_COUNT)),
        "after",
    ]


def compact(stage: PulsarStage) -> None:
    """Compact the topic, as the broker does by itself above the topic's threshold."""
    admin = stage.lab.admin
    path = f"/admin/v2/persistent/{stage.lab.namespace}/{stage.topics.control}/compaction"
    admin.call("PUT", path)
    until(lambda: json.loads(admin.get(path))["status"] == "SUCCESS", what="the compaction's end")


def as_the_controller_reads(stage: PulsarStage) -> list[bytes]:
    logs = PartitionLogs(stage.lab.admin, subscription="trimtab")
    (partition,) = logs.partitions(stage.full_name(stage.topics.control))
    log = logs.log(partition)
    reader = PartitionReader(stage.client, partition)
    found = [message.value for message in reader.read(log.first, log.last, fail_on_data_loss=True)]
    reader.close()
    return found


def test_a_reader_that_begins_after_a_producers_batch_gets_nothing_of_it(stage: PulsarStage):
    logs, topic = PartitionLogs(stage.lab.admin, subscription="none"), stage.full_name(stage.topics.control)
    _send_batch(stage.client, topic, [b"a0", b"a1"])
    middle = logs.log(topic).last
    _send_batch(stage.client, topic, [b"b0", b"b1"])
    reader = PartitionReader(stage.client, topic)
    found = reader.read(middle, logs.log(topic).last, fail_on_data_loss=True)
    assert [message.value for message in found] == [b"b0", b"b1"]
    reader.close()


def _send_batch(client: pulsar_client.Client, topic: str, messages: list[bytes]) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for message in messages:
        producer.send_async(message, None)
    producer.flush()
    producer.close()


@pytest.fixture
def settings(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[Settings]:
    stage = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield stage.loaded()
    stage.close()


class TestPorts(PortsSuite):
    """The same tests as on Kafka."""
