"""Exactly-once publishing on a real Kafka: kills, restarts, hand-over, and checkpoints that do not fit.

What counts is what a `read_committed` consumer sees.
"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from streaming.sinks import CheckpointMismatch, Fenced, PublishError
from streaming.sinks.kafka import EPOCH_HEADER, KafkaPublisher
from streaming.sinks.marker import UNNAMED, Checkpoint, RanWith, Seen
from streaming.sinks.outbox import OutboundRecord
from tests.live.checkpoints import at
from tests.live.driving import until

pytestmark = pytest.mark.live

QUERY = "11111111-1111-1111-1111-111111111111"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@dataclass(frozen=True)
class Setting:
    """Topics and a controller name of one test's own."""

    bootstrap: str
    name: str
    actions: str
    commits: str

    def publisher(
        self, timeout_s: float = 20.0, claim_wait_s: float = 5.0, ran_with: RanWith = UNNAMED
    ) -> KafkaPublisher:
        return KafkaPublisher(
            self.bootstrap,
            name=self.name,
            commits_topic=self.commits,
            timeout_s=timeout_s,
            claim_wait_s=claim_wait_s,
            ran_with=ran_with,
        )

    def batch(self, number: int, text: str = "batch", count: int = 3) -> list[OutboundRecord]:
        return [
            OutboundRecord(self.actions, "east-1", f"{text} {number}.{place}".encode(), number, place)
            for place in range(count)
        ]

    def create(self, topic: str) -> None:
        """One partition; that of the commits is compacted."""
        configs = {"cleanup.policy": "compact"} if topic == self.commits else {}
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            made = {topic: {"num_partitions": 1, "replication_factor": 1, "configs": configs}}
            admin.create_topics(made, wait_for_metadata=True)

    def visible(self) -> list[tuple[str, str]]:
        """(value, epoch) of every action that a read_committed consumer sees, up to the end of the log."""
        partition = TopicPartition(self.actions, 0)
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        consumer.assign([partition])
        seen = []
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            seen += [
                (record.value.decode(), dict(record.headers)[EPOCH_HEADER].decode())
                for record in consumer.poll(timeout_ms=200).get(partition, [])
            ]
        consumer.close()
        return seen

    def run(self, body: str) -> "subprocess.CompletedProcess[str]":
        """Run a controller in a process of its own, which may kill itself."""
        program = f"""
            import os, signal, sys
            from kafka import KafkaProducer
            from streaming.sinks.kafka import KafkaPublisher
            from streaming.sinks.outbox import OutboundRecord
            from tests.live.checkpoints import at
            publisher = KafkaPublisher({self.bootstrap!r}, name={self.name!r}, commits_topic={self.commits!r})
            def batch(number):
                values = [f"batch {{number}}.{{place}}".encode() for place in range(3)]
                return [OutboundRecord({self.actions!r}, "east-1", value, number, place)
                        for place, value in enumerate(values)]
            def die(*_):
                os.kill(os.getpid(), signal.SIGKILL)
        """
        source = textwrap.dedent(program) + textwrap.dedent(body)
        return subprocess.run(
            [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
        )


@pytest.fixture
def setting(kafka: LocalKafka) -> Setting:
    unique = uuid4().hex[:8]
    made = Setting(kafka.bootstrap, f"trimtab-{unique}", f"actions-{unique}", f"commits-{unique}")
    made.create(made.actions)
    made.create(made.commits)
    return made


def values(number: int, text: str = "batch") -> list[str]:
    return [f"{text} {number}.{place}" for place in range(3)]


def opened(setting: Setting, *, last_batch_id: int | None = None, **options: float) -> KafkaPublisher:
    publisher = setting.publisher(**options)
    publisher.open(at(None if last_batch_id is None else QUERY, last_batch_id))
    return publisher


def test_a_batch_is_published_in_its_total_order_whatever_the_order_it_was_collected_in(
    setting: Setting,
) -> None:
    with opened(setting) as publisher:
        assert publisher.publish(0, QUERY, list(reversed(setting.batch(0))))
    assert [value for value, _ in setting.visible()] == values(0)


def test_a_batch_that_is_already_out_is_skipped_even_when_collected_in_another_order(
    setting: Setting,
) -> None:
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        assert not publisher.publish(0, QUERY, list(reversed(setting.batch(0))))
    with opened(setting, last_batch_id=0) as publisher:
        assert not publisher.publish(0, QUERY, setting.batch(0))
    assert [value for value, _ in setting.visible()] == values(0)


def test_an_empty_batch_makes_no_transaction_and_leaves_a_gap(setting: Setting) -> None:
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        assert publisher.publish(1, QUERY, [])
        assert publisher.publish(2, QUERY, setting.batch(2))
    assert [value for value, _ in setting.visible()] == values(0) + values(2)


def test_the_epoch_header_rises_at_every_start(setting: Setting) -> None:
    began_s, epochs = int(time.time()), []
    for start in range(3):
        with setting.publisher() as publisher:
            query_id, newest = (None, None) if start == 0 else (QUERY, start - 1)
            epochs.append(publisher.open(at(query_id, newest)))
            publisher.publish(start, QUERY, setting.batch(start, count=1))
    assert epochs == sorted(set(epochs))
    assert epochs[0] >= began_s
    assert [epoch for _, epoch in setting.visible()] == [str(epoch) for epoch in epochs]


def test_the_epoch_rises_also_where_the_commits_topic_was_lost(setting: Setting) -> None:
    with setting.publisher() as publisher:
        before = publisher.open(at())
        publisher.publish(5, QUERY, setting.batch(5))
    with KafkaAdminClient(bootstrap_servers=setting.bootstrap) as admin:
        admin.delete_topics([setting.commits])
        until(lambda: setting.commits not in admin.list_topics(), what="the topic to be gone")
    setting.create(setting.commits)
    until(lambda: time.time() >= before + 1, what="the clock's next second")
    with setting.publisher() as publisher:
        assert publisher.open(at(QUERY, 5), adopt=True) > before
        assert publisher.publish(6, QUERY, setting.batch(6))
    assert [value for value, _ in setting.visible()] == values(5) + values(6)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
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


def test_a_re_run_with_other_contents_is_refused_and_adopt_leaves_it_as_it_was_published(
    setting: Setting,
) -> None:
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        with pytest.raises(CheckpointMismatch, match=r"published with other contents.*--adopt"):
            publisher.publish(0, QUERY, setting.batch(0, "other"))
        with pytest.raises(CheckpointMismatch, match="published with other contents"):
            publisher.publish(0, QUERY, [])
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 0), adopt=True)
        assert publisher.publish(0, QUERY, setting.batch(0, "other")) is Seen.OTHERWISE
        assert publisher.publish(1, QUERY, setting.batch(1)) is Seen.NEW
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_another_version_leaves_a_batch_as_it_was_published(setting: Setting) -> None:
    with setting.publisher(ran_with=RanWith(version="1", settings="s")) as publisher:
        publisher.open(at())
        publisher.publish(0, QUERY, setting.batch(0))
    with setting.publisher(ran_with=RanWith(version="2", settings="s")) as publisher:
        publisher.open(at(QUERY, 0))
        assert publisher.marker.ran_with == RanWith(version="1", settings="s")
        assert publisher.publish(0, QUERY, setting.batch(0)) is Seen.OUT
        assert publisher.publish(0, QUERY, setting.batch(0, "other")) is Seen.OTHERWISE
        assert publisher.publish(1, QUERY, setting.batch(1)) is Seen.NEW
        with pytest.raises(CheckpointMismatch, match="published with other contents"):
            publisher.publish(1, QUERY, setting.batch(1, "other"))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_a_batch_of_another_query_or_from_the_past_is_refused(setting: Setting) -> None:
    with opened(setting) as publisher:
        publisher.publish(5, QUERY, setting.batch(5))
        with pytest.raises(CheckpointMismatch, match="another query"):
            publisher.publish(6, "another", setting.batch(6))
        with pytest.raises(CheckpointMismatch, match="a newer batch is already out"):
            publisher.publish(4, QUERY, setting.batch(4))


@pytest.mark.parametrize(
    ("query_id", "last_batch_id", "explanation"),
    [
        (QUERY, 3, "older than what was published"),
        (QUERY, None, "older than what was published"),
        (None, None, "deleted or replaced"),
        ("another", 9, "belongs to another query"),
    ],
    ids=["rolled-back", "emptied", "deleted", "swapped"],
)
def test_a_checkpoint_that_does_not_fit_the_marker_is_refused_with_both_sides_and_the_remedies(
    setting: Setting, query_id: str | None, last_batch_id: int | None, explanation: str
) -> None:
    with opened(setting) as publisher:
        publisher.publish(5, QUERY, setting.batch(5))
    with pytest.raises(CheckpointMismatch, match=explanation) as refusal:
        setting.publisher().open(at(query_id, last_batch_id))
    assert f"query {QUERY}, batch 5" in str(refusal.value)
    assert "--fresh" in str(refusal.value)
    assert "--adopt" in str(refusal.value)


def test_batches_without_any_marker_are_refused(setting: Setting) -> None:
    with pytest.raises(CheckpointMismatch, match="no marker says which were published"):
        setting.publisher().open(at(QUERY, 12))


def test_a_start_before_anything_was_published_accepts_the_checkpoint(setting: Setting) -> None:
    opened(setting).close()
    with opened(setting, last_batch_id=4) as publisher:
        assert publisher.publish(5, QUERY, setting.batch(5))


def test_fresh_forgets_the_marker_and_accepts_a_new_query(setting: Setting) -> None:
    with opened(setting) as publisher:
        publisher.publish(5, QUERY, setting.batch(5))
    with setting.publisher() as publisher:
        publisher.open(at(), fresh=True)
        assert publisher.publish(0, "another", setting.batch(0))
        with pytest.raises(CheckpointMismatch):
            publisher.publish(6, QUERY, setting.batch(6))
    assert [value for value, _ in setting.visible()] == values(5) + values(0)


def test_a_query_given_up_by_fresh_is_over_also_before_its_successor_has_published(setting: Setting) -> None:
    with opened(setting) as publisher:
        publisher.publish(5, QUERY, setting.batch(5))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 5), fresh=True)
    for _ in range(2):
        with pytest.raises(CheckpointMismatch, match="a query that is over"):
            setting.publisher().open(at(QUERY, 5))
    with setting.publisher() as publisher:
        publisher.open(at("another", 0))
        with pytest.raises(CheckpointMismatch, match="another query"):
            publisher.publish(6, QUERY, setting.batch(6))
        assert publisher.publish(0, "another", setting.batch(0))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 5), adopt=True)
        assert publisher.publish(6, QUERY, setting.batch(6))
    assert [value for value, _ in setting.visible()] == values(5) + values(0) + values(6)


def test_a_refusal_that_is_known_before_the_start_disturbs_nobody(setting: Setting) -> None:
    with opened(setting) as running:
        running.publish(0, QUERY, setting.batch(0))
        with setting.publisher() as newcomer, pytest.raises(CheckpointMismatch, match="deleted or replaced"):
            newcomer.check(at())
        assert running.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_a_successor_compares_what_it_reads_when_nobody_else_can_publish_any_more(setting: Setting) -> None:
    planned = 0

    def read() -> Checkpoint:
        return Checkpoint(query_id=QUERY, last_batch_id=planned)

    with opened(setting) as first, setting.publisher() as second:
        first.publish(0, QUERY, setting.batch(0))
        second.check(read)
        planned = 1
        assert first.publish(1, QUERY, setting.batch(1)), "nobody is fenced by a look"
        second.open(read)
        assert second.publish(2, QUERY, setting.batch(2))
    assert [value for value, _ in setting.visible()] == values(0) + values(1) + values(2)


def test_a_superseded_controller_is_told_so_in_an_empty_batch_too(setting: Setting) -> None:
    with opened(setting) as first, setting.publisher() as second:
        first.publish(0, QUERY, setting.batch(0))
        first.ensure_owner()
        second.open(at(QUERY, 0))
        until(first.is_superseded, what="the claim to be readable")
        for batch_id, records in ((1, []), (0, setting.batch(0))):
            with pytest.raises(Fenced, match="taken over"):
                first.publish(batch_id, QUERY, records)
        with pytest.raises(Fenced, match="taken over"):
            first.ensure_owner()
        assert second.publish(1, QUERY, [])


def test_asking_whether_it_is_still_the_one_does_not_hold_a_batch_up(setting: Setting) -> None:
    with opened(setting) as publisher:
        took_s = []
        for batch_id in range(5):
            assert not publisher.is_superseded(), "a look leaves a fetch on its way"
            began_s = time.monotonic()
            publisher.publish(batch_id, QUERY, [])
            took_s.append(time.monotonic() - began_s)
    assert sorted(took_s)[2] < 0.2, took_s


def test_adopt_trusts_a_rolled_back_checkpoint_but_not_another_query(setting: Setting) -> None:
    with opened(setting) as publisher:
        publisher.publish(5, QUERY, setting.batch(5))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 3), adopt=True)
        with pytest.raises(CheckpointMismatch, match="another query"):
            publisher.publish(4, "another", setting.batch(4))
        assert publisher.publish(4, QUERY, setting.batch(4))


def test_an_idle_controller_notices_its_successor_and_can_publish_no_more(setting: Setting) -> None:
    with opened(setting) as first, setting.publisher() as second:
        first.publish(0, QUERY, setting.batch(0))
        assert not first.is_superseded()
        second.open(at(QUERY, 0))
        until(first.is_superseded, what="the claim to be read, for which a watch loop asks again and again")
        assert not second.is_superseded()
        with pytest.raises(Fenced, match="taken over"):
            first.publish(1, QUERY, setting.batch(1, "zombie"))
        with pytest.raises(Fenced):
            first.publish(1, QUERY, setting.batch(1, "zombie"))
        assert second.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_a_controller_fenced_in_the_middle_of_a_transaction_publishes_nothing_of_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(setting) as first, setting.publisher() as second:
        first.publish(0, QUERY, setting.batch(0))
        commit = KafkaProducer.commit_transaction

        def overtaken(producer: KafkaProducer) -> None:
            monkeypatch.undo()
            second.open(at(QUERY, 1))
            commit(producer)

        monkeypatch.setattr(KafkaProducer, "commit_transaction", overtaken)
        with pytest.raises(Fenced):
            first.publish(1, QUERY, setting.batch(1, "zombie"))
        assert second.publish(1, QUERY, setting.batch(1))
        assert second.publish(2, QUERY, setting.batch(2))
    assert [value for value, _ in setting.visible()] == values(0) + values(1) + values(2)


def test_a_newcomer_that_refuses_its_checkpoint_does_not_end_the_running_controller(
    setting: Setting,
) -> None:
    with opened(setting, claim_wait_s=0.2) as running:
        running.publish(0, QUERY, setting.batch(0))
        with pytest.raises(CheckpointMismatch):
            setting.publisher().open(at())
        assert not running.is_superseded()
        with pytest.raises(PublishError):
            running.publish(1, QUERY, setting.batch(1))
        assert running.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


def test_a_broker_restart_between_batches_needs_no_help_from_the_caller(
    kafka: LocalKafka, setting: Setting
) -> None:
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        kafka.restart()
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [value for value, _ in setting.visible()] == values(0) + values(1)


@pytest.mark.parametrize("moment", ["begin_transaction", "commit_transaction"])
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


def test_controllers_of_different_names_share_the_commits_topic_without_meeting(setting: Setting) -> None:
    other = Setting(setting.bootstrap, f"{setting.name}-other", setting.actions, setting.commits)
    with opened(setting) as one, opened(other) as two:
        one.publish(0, QUERY, setting.batch(0))
        two.publish(7, "another", setting.batch(7))
        assert not one.is_superseded()
        assert one.publish(1, QUERY, setting.batch(1))
    with opened(setting, last_batch_id=1) as one:
        assert not one.publish(1, QUERY, setting.batch(1))


def test_an_address_that_does_not_answer_is_a_publish_error_that_names_it() -> None:
    absent = KafkaPublisher("127.0.0.1:1", name="trimtab", commits_topic="commits", timeout_s=1.0)
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
