"""The ports on a real Pulsar."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pulsar as pulsar_client
import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.pulsar.link import input_on_pulsar
from streaming.pulsar.log import PartitionLogs
from streaming.settings import Settings
from streaming.systems import input_reader, input_topic
from streaming.transport.side import Place
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.suites.ports import PortsSuite, values

pytestmark = pytest.mark.live


@pytest.fixture
def settings(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[Settings]:
    stage = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield stage.loaded()
    stage.close()


class TestPorts(PortsSuite):
    """The same tests as on Kafka."""

    def test_reading_after_a_place_gives_nothing_of_its_batch_again(self, settings: Settings) -> None:
        link = input_on_pulsar(settings)
        assert link is not None
        topic = input_topic(settings, settings.topics.input)
        with closing(link.client(timeout_s=20)) as client, link.admin() as admin:
            logs = PartitionLogs(admin, subscription="none")
            _send_batch(client, topic, [b"a0", b"a1"])
            middle = logs.log(topic).last
            _send_batch(client, topic, [b"b0", b"b1"])
            end = logs.log(topic).last
        for done, wanted in ((middle, [b"b0", b"b1"]), (end, [])):
            place = Place(topic, 0, topic, str(done))
            with input_reader(settings, settings.topics.input, begin=place) as reader:
                assert values(reader) == wanted


def _send_batch(client: pulsar_client.Client, topic: str, messages: list[bytes]) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for message in messages:
        producer.send_async(message, None)
    producer.flush()
    producer.close()
