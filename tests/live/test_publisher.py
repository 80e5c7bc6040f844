"""Exactly-once publishing on a real Kafka: order, kills, outages, and batches of any size."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from streaming.kafka.link import Link
from streaming.kafka.publisher import KafkaPublisher
from streaming.transport.errors import PublishError
from streaming.transport.publishing import OutboundRecord
from tests.live.checkpoints import at
from tests.live.publishing import Setting, setting_on
from tests.live.suites.publisher import QUERY, PublisherSuite, opened, values

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def setting(kafka: LocalKafka) -> Setting:
    return setting_on(kafka.bootstrap)


class TestPublisher(PublisherSuite):
    """The same tests as on Pulsar."""


@pytest.mark.parametrize(
    "codec", [*(pytest.param(codec, marks=pytest.mark.slow) for codec in ("gzip", "snappy", "lz4")), "zstd"]
)
def test_a_broker_that_compresses_every_topic_changes_nothing(setting: Setting, codec: str) -> None:
    compressed = {
        ConfigResource(ConfigResourceType.TOPIC, topic, configs={"compression.type": codec})
        for topic in (setting.actions, setting.commits)
    }
    with KafkaAdminClient(bootstrap_servers=setting.bootstrap) as admin:
        admin.alter_configs(compressed)
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
    with opened(setting, last_batch_id=0) as publisher:
        assert not publisher.publish(0, QUERY, setting.batch(0))
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_killed_between_flush_and_commit_nothing_is_seen_and_the_re_run_publishes_once(
    setting: Setting,
) -> None:
    ended = setting.run(f"""
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
        KafkaProducer.commit_transaction = die
        publisher.publish(1, {QUERY!r}, batch(1))
    """)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with opened(setting, last_batch_id=1) as publisher:
        assert publisher.publish(1, QUERY, setting.batch(1))
        assert publisher.publish(2, QUERY, setting.batch(2))
    assert [value for value, _ in setting.visible()] == values(0) + values(1) + values(2)


def test_killed_after_the_commit_the_re_run_is_skipped(setting: Setting) -> None:
    ended = setting.run(f"""
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
        die()
    """)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with opened(setting, last_batch_id=0) as publisher:
        assert not publisher.publish(0, QUERY, setting.batch(0))
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_a_broker_restart_between_batches_needs_no_help_from_the_caller(
    kafka: LocalKafka, setting: Setting
) -> None:
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        kafka.restart()
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


@pytest.mark.parametrize(
    "moment", [pytest.param("begin_transaction", marks=pytest.mark.slow), "commit_transaction"]
)
def test_while_the_broker_is_away_publishing_fails_in_time_and_goes_on_afterwards(
    kafka: LocalKafka, setting: Setting, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with opened(setting, timeout_s=2.0) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        # A lone broker killed before it has written the commit markers leaves the transaction hanging for good.
        while [value for value, _ in setting.visible()] != values(0):
            pass
        proceed = getattr(KafkaProducer, moment)

        def in_the_dark(producer: KafkaProducer) -> None:
            kafka.kill()
            proceed(producer)

        monkeypatch.setattr(KafkaProducer, moment, in_the_dark)
        for _ in range(2):
            with pytest.raises(PublishError, match=r"batch 1|markers"):
                publisher.publish(1, QUERY, setting.batch(1))
        monkeypatch.undo()
        kafka.start()
        publish_until_it_succeeds(publisher, setting, batch_id=1)
        publisher.publish(2, QUERY, setting.batch(2))
    assert [value for value, _ in setting.visible()] == values(0) + values(1) + values(2)


def publish_until_it_succeeds(publisher: KafkaPublisher, setting: Setting, *, batch_id: int) -> None:
    """The caller's part: the same batch again after every PublishError; each attempt waits for the broker."""
    failures = []
    for _ in range(10):
        try:
            publisher.publish(batch_id, QUERY, setting.batch(batch_id))
        except PublishError as error:
            failures.append(error)
        else:
            return
    raise ExceptionGroup("the broker is back, but no attempt succeeded", failures)


def test_a_commit_whose_answer_was_lost_is_recognized_and_not_repeated(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(setting, timeout_s=2.0) as publisher:
        commit = KafkaProducer.commit_transaction

        def answer_is_lost(producer: KafkaProducer) -> None:
            commit(producer)
            threading.Event().wait()

        monkeypatch.setattr(KafkaProducer, "commit_transaction", answer_is_lost)
        with pytest.raises(PublishError, match="commit: no answer"):
            publisher.publish(0, QUERY, setting.batch(0))
        monkeypatch.undo()
        assert not publisher.publish(0, QUERY, setting.batch(0))
    assert [value for value, _ in setting.visible()] == values(0)


def test_an_address_that_does_not_answer_is_a_publish_error_that_names_it() -> None:
    absent = KafkaPublisher(Link("127.0.0.1:1"), name="trimtab", commits_topic="commits", timeout_s=1.0)
    with pytest.raises(PublishError, match=r"127\.0\.0\.1:1"):
        absent.open(at())


def test_a_record_larger_than_the_topic_allows_fails_the_batch_as_a_whole(setting: Setting) -> None:
    with opened(setting) as publisher:
        huge = OutboundRecord(setting.actions, "east-1", os.urandom(2 * 1024 * 1024), 0, 9)
        with pytest.raises(PublishError, match="MessageSizeTooLarge"):
            publisher.publish(0, QUERY, [*setting.batch(0), huge])
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(1)


def test_a_batch_that_takes_longer_than_any_wait_for_the_broker_goes_out_whole(setting: Setting) -> None:
    """The dead letters of a batch can be 176 MB: flushed at once they were never answered in time, however often."""
    value = os.urandom(50_000).hex().encode()
    batch = [OutboundRecord(setting.actions, "east-1", value, place=place) for place in range(2_000)]
    with opened(setting, timeout_s=2.0) as publisher:
        assert publisher.publish(0, QUERY, batch)
        assert not publisher.publish(0, QUERY, batch)
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [len(each) for each, _ in setting.visible()] == [100_000] * 2_000 + [len("batch 1.0")] * 3
