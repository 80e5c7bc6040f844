"""Hand-over between controllers on a real Kafka: epochs, successors, and checkpoints that do not fit the marker."""

import time

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from deploy.local.kafka import LocalKafka
from streaming.ports.marker import Checkpoint
from streaming.ports.publishing import CheckpointMismatch, Fenced, PublishError
from tests.live.checkpoints import at
from tests.live.driving import until
from tests.live.publishing import QUERY, Setting, opened, setting_on, values

pytestmark = pytest.mark.live


@pytest.fixture
def setting(kafka: LocalKafka) -> Setting:
    return setting_on(kafka.bootstrap)


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


def test_controllers_of_different_names_share_the_commits_topic_without_meeting(setting: Setting) -> None:
    other = Setting(setting.bootstrap, f"{setting.name}-other", setting.actions, setting.commits)
    with opened(setting) as one, opened(other) as two:
        one.publish(0, QUERY, setting.batch(0))
        two.publish(7, "another", setting.batch(7))
        assert not one.is_superseded()
        assert one.publish(1, QUERY, setting.batch(1))
    with opened(setting, last_batch_id=1) as one:
        assert not one.publish(1, QUERY, setting.batch(1))
