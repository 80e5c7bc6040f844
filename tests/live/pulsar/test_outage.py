"""Pulsar goes away in the middle of a batch and comes back: what is out stays, what is missing follows, nothing twice."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from deploy.local.pulsar import StandalonePulsar
from streaming.pulsar.commits import Acknowledged, Producers
from streaming.pulsar.log import PartitionReader
from streaming.pulsar.positions import Position
from streaming.pulsar.publisher import PulsarPublisher
from streaming.transport.errors import PublishError
from tests.live.pulsar.lab import Lab, connected
from tests.live.pulsar.publishing import ACTIONS, AUDIT, Setting, batch, values_of
from tests.live.suites.publisher import QUERY, opened

pytestmark = [pytest.mark.live, pytest.mark.slow]

MESSAGES = 3_000
"""More messages than a reader fetches in advance."""
TIMEOUT_S = 10.0
"""A publisher's timeout: what a busy machine needs to open one, and hardly more, because two attempts wait for it in vain."""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandalonePulsar]:
    """A Pulsar that may be stopped."""
    with StandalonePulsar(tmp_path_factory.mktemp("standalone")) as running:
        yield running


def publish_until_it_succeeds(publisher: PulsarPublisher, number: int) -> None:
    """The caller's part: the same batch again after every PublishError; each attempt waits for the broker."""
    failures = []
    for _ in range(20):
        try:
            publisher.publish(number, QUERY, batch(number))
        except PublishError as error:
            failures.append(error)
        else:
            return
    raise ExceptionGroup("the broker is back, but no attempt succeeded", failures)


def test_a_restart_between_batches_needs_no_help_from_the_caller(standalone: StandalonePulsar) -> None:
    setting = Setting(Lab(standalone, bundles_count=1))
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, batch(0))
        standalone.restart()
        assert publisher.publish(1, QUERY, batch(1))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values_of(0, 1)


@pytest.mark.parametrize("killed_at", [1, 2, 4, 6])
def test_killed_in_the_middle_of_a_batch_publishing_fails_in_time_and_goes_on_where_it_was(
    standalone: StandalonePulsar, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    setting = Setting(Lab(standalone, bundles_count=1))
    with opened(setting, timeout_s=TIMEOUT_S) as publisher:
        publisher.publish(0, QUERY, batch(0))
        plain, count = Producers.send, 0

        def in_the_dark(self: Producers, *arguments: str | bytes, sent: Acknowledged, **named: int) -> None:
            nonlocal count
            count += 1
            if count == killed_at:
                standalone.kill()
            plain(self, *arguments, sent=sent, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Producers, "send", in_the_dark)
        with pytest.raises(PublishError, match="batch 1"):
            publisher.publish(1, QUERY, batch(1))
        with pytest.raises(PublishError):
            publisher.publish(1, QUERY, batch(1))
        monkeypatch.undo()
        standalone.start()
        publish_until_it_succeeds(publisher, 1)
        assert not publisher.is_superseded()
        assert publisher.publish(2, QUERY, batch(2))
    setting.client.close()
    again = Setting(setting.lab, name=setting.name)
    assert again.seen(ACTIONS) == again.seen(AUDIT) == values_of(0, 1, 2)
    again.client.close()


def test_killed_while_a_batch_is_read_the_rest_of_it_comes_when_it_is_back(
    standalone: StandalonePulsar,
) -> None:
    lab = Lab(standalone, bundles_count=1)
    topic = f"persistent://{lab.namespace}/read"
    with closing(connected(standalone)) as client:
        producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        first = producer.send(b"0")
        for number in range(1, MESSAGES - 1):
            producer.send_async(f"{number}".encode(), None)
        last = producer.send(f"{MESSAGES - 1}".encode())
        start, end = Position(first.ledger_id(), -1), Position(last.ledger_id(), last.entry_id())
        found = PartitionReader(client, topic).read(start, end, fail_on_data_loss=True)
        before = [next(found).value for _ in range(10)]
        standalone.kill()
        standalone.start()
        after = [message.value for message in found]
    assert before + after == [f"{number}".encode() for number in range(MESSAGES)]
