"""The control topic on Pulsar: a reader of a cluster's newest event reads it compacted, the controller reads all events."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.operators.control_topic import ControlTopic
from streaming.pulsar.log import PartitionLogs, PartitionReader
from streaming.systems import control_of
from tests.live.driving import until
from tests.live.pulsar.commanding import Commander
from tests.live.pulsar.lab import CLUSTER, Lab
from tests.live.pulsar.stage import PulsarStage

pytestmark = pytest.mark.live

EVENTS_COUNT = 20


@pytest.fixture
def stage(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    made = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield made
    made.close()


def test_executors_and_commands_read_the_control_topic_compacted_and_the_controller_sees_every_event(
    pulsar: LocalPulsar, stage: PulsarStage
) -> None:
    commander, settings = Commander(stage, pulsar), stage.loaded()
    for number in range(EVENTS_COUNT):
        commander.control(paused=True, who="ops", why=str(number))
    stage.flush()
    compact(stage)
    commander.control(paused=False, who="ops", why="after")
    stage.flush()

    reasons = [json.loads(record.value or b"")["data"]["why"] for record in ControlTopic(settings).read()]
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
    assert stage.lab is not None
    admin = stage.lab.admin
    path = f"/admin/v2/persistent/{stage.lab.namespace}/{stage.topics.control}/compaction"
    admin.call("PUT", path)
    until(lambda: json.loads(admin.get(path))["status"] == "SUCCESS", what="the compaction's end")


def as_the_controller_reads(stage: PulsarStage) -> list[bytes]:
    assert stage.lab is not None
    logs = PartitionLogs(stage.lab.admin, subscription="trimtab")
    (partition,) = logs.partitions(stage.full_name(stage.topics.control))
    log = logs.log(partition)
    reader = PartitionReader(stage._client, partition)
    found = [message.value for message in reader.read(log.first, log.last, fail_on_data_loss=True)]
    reader.close()
    return found
