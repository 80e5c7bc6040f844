"""Exactly-once publishing on a real Kafka: order, kills, outages, batches of any size, and hand-over between controllers."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from streaming.contract.envelope import EPOCH_HEADER
from streaming.kafka.link import KafkaLink
from streaming.kafka.publisher import KafkaPublisher
from streaming.transport.errors import Fenced, PublishError
from streaming.transport.publishing import OutboundRecord
from tests.support.processes import ROOT, until
from tests.support.publisher_suite import (
    PATIENT,
    QUERY,
    PublisherSetting,
    PublisherSuite,
    opened,
    publish_until_it_succeeds,
    values,
)
from tests.support.stage import Follower, at

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Setting(PublisherSetting):
    """Topics and a controller name of one test's own."""

    bootstrap: str
    name: str
    actions: str
    commits: str

    def publisher(self, *, announces: bool = False, **options: Any) -> KafkaPublisher:
        announce_on = self.actions if announces else None
        return KafkaPublisher(
            KafkaLink(self.bootstrap),
            name=self.name,
            commits_topic=self.commits,
            announce_on=announce_on,
            **PATIENT | options,
        )

    def another(self) -> "Setting":
        return replace(self, name=f"{self.name}-other")

    def create(self, topic: str) -> None:
        """One partition; that of the commits is compacted."""
        configs = {"cleanup.policy": "compact"} if topic == self.commits else {}
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            made = {topic: {"num_partitions": 1, "replication_factor": 1, "configs": configs}}
            admin.create_topics(made, wait_for_metadata=True)

    def visible(self) -> list[tuple[str, str]]:
        follower = Follower(self.bootstrap, self.actions)
        found = [(each.value.decode(), dict(each.headers)[EPOCH_HEADER].decode()) for each in follower.read()]
        follower.close()
        return found

    def run(self, body: str) -> "subprocess.CompletedProcess[str]":
        """Run a controller in a process of its own, which may kill itself."""
        program = f"""
            import os, signal, sys
            from kafka import KafkaProducer
            from streaming.kafka.link import KafkaLink
            from streaming.kafka.publisher import KafkaPublisher
            from tests.support.publisher_suite import records
            from tests.support.stage import Follower, at
            publisher = KafkaPublisher(KafkaLink({self.bootstrap!r}), name={self.name!r}, commits_topic={self.commits!r})
            def batch(number):
                return records({self.actions!r}, number)
            def die(*_):
                os.kill(os.getpid(), signal.SIGKILL)
        """
        source = textwrap.dedent(program) + textwrap.dedent(body)
        return subprocess.run(
            [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def setting(kafka: LocalKafka) -> Setting:
    unique = uuid4().hex[:8]
    made = Setting(kafka.bootstrap, f"trimtab-{unique}", f"actions-{unique}", f"commits-{unique}")
    made.create(made.actions)
    made.create(made.commits)
    return made


class TestPublisher(PublisherSuite):
    """The same tests as on Pulsar."""


@pytest.mark.parametrize(
    "codec", [*(pytest.param(codec, marks=pytest.mark.slow) for codec in ("gzip", "snappy", "lz4")), "zstd"]
)
def test_a_broker_that_compresses_every_topic_changes_nothing(setting: Setting, codec: str):
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
    assert setting.seen() == values(0, 1)


KILLED = {
    "between flush and commit": (
        f"KafkaProducer.commit_transaction = die; publisher.publish(1, {QUERY!r}, batch(1))",
        1,
    ),
    "after the commit": ("die()", 0),
}


@pytest.mark.parametrize(("killed", "planned"), KILLED.values(), ids=KILLED)
def test_killed_around_the_commit_the_re_run_publishes_once(setting: Setting, killed: str, planned: int):
    ended = setting.run(f"""
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
        {killed}
    """)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with opened(setting, last_batch_id=planned) as publisher:
        assert bool(publisher.publish(planned, QUERY, setting.batch(planned))) == bool(planned)
        assert publisher.publish(planned + 1, QUERY, setting.batch(planned + 1))
    assert setting.seen() == values(*range(planned + 2))


def test_a_broker_restart_between_batches_needs_no_help(kafka: LocalKafka, setting: Setting):
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        kafka.restart()
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert setting.seen() == values(0, 1)


@pytest.mark.parametrize(
    "moment", [pytest.param("begin_transaction", marks=pytest.mark.slow), "commit_transaction"]
)
def test_while_the_broker_is_away_publishing_fails_in_time(
    kafka: LocalKafka, setting: Setting, monkeypatch: pytest.MonkeyPatch, moment: str
):
    with opened(setting, timeout_s=2.0) as publisher:
        publisher.publish(0, QUERY, setting.batch(0))
        # A lone broker killed before it has written the commit markers leaves the transaction hanging for good.
        while setting.seen() != values(0):
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
        publish_until_it_succeeds(publisher, 1, setting.batch(1))
        publisher.publish(2, QUERY, setting.batch(2))
    assert setting.seen() == values(0, 1, 2)


def test_a_commit_whose_answer_was_lost_is_not_repeated(setting: Setting, monkeypatch: pytest.MonkeyPatch):
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
    assert setting.seen() == values(0)


def test_an_address_that_does_not_answer_is_a_publish_error_that_names_it():
    absent = KafkaPublisher(KafkaLink("127.0.0.1:1"), name="trimtab", commits_topic="commits", timeout_s=1.0)
    with pytest.raises(PublishError, match=r"127\.0\.0\.1:1"):
        absent.open(at())


def test_a_record_larger_than_the_topic_allows_fails_the_batch_as_a_whole(setting: Setting):
    with opened(setting) as publisher:
        huge = OutboundRecord(setting.actions, "east-1", os.urandom(2 * 1024 * 1024), 0, 9)
        with pytest.raises(PublishError, match="message size too large"):
            publisher.publish(0, QUERY, [*setting.batch(0), huge])
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert setting.seen() == values(1)


def test_a_batch_that_takes_longer_than_any_wait_for_the_broker_goes_out_whole(setting: Setting):
    """The dead letters of a batch can be 176 MB: flushed at once they were never answered in time, however often."""
    value = os.urandom(50_000).hex().encode()
    batch = [OutboundRecord(setting.actions, "east-1", value, place=place) for place in range(2_000)]
    with opened(setting, timeout_s=2.0) as publisher:
        assert publisher.publish(0, QUERY, batch)
        assert not publisher.publish(0, QUERY, batch)
        assert publisher.publish(1, QUERY, setting.batch(1))
    assert [len(each) for each, _ in setting.visible()] == [100_000] * 2_000 + [len("batch 1.0")] * 3


def test_the_epoch_rises_also_where_the_commits_topic_was_lost(setting: Setting):
    with setting.publisher() as publisher:
        before = publisher.open(at())
        publisher.publish(5, QUERY, setting.batch(5))
    with KafkaAdminClient(bootstrap_servers=setting.bootstrap) as admin:
        admin.delete_topics([setting.commits])
        until(lambda: setting.commits not in admin.list_topics(), what="the topic to be gone")
    setting.create(setting.commits)
    until(lambda: time.time() >= before + 1, what="the clock's next second")
    with setting.publisher() as publisher:
        assert publisher.open(at(QUERY, 5), start_with="adopt") > before
        assert publisher.publish(6, QUERY, setting.batch(6))
    assert setting.seen() == values(5, 6)


def test_asking_whether_it_is_still_the_one_does_not_hold_a_batch_up(setting: Setting):
    with opened(setting) as publisher:
        took_s = []
        for batch_id in range(5):
            assert not publisher.is_superseded(), "a look leaves a fetch on its way"
            began_s = time.monotonic()
            publisher.publish(batch_id, QUERY, [])
            took_s.append(time.monotonic() - began_s)
    assert sorted(took_s)[2] < 0.2, took_s


def test_a_controller_fenced_in_a_transaction_publishes_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
):
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
    assert setting.seen() == values(0, 1, 2)
