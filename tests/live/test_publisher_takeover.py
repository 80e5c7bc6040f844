"""Hand-over between controllers on a real Kafka: epochs, successors, and checkpoints that do not fit the marker."""

import time

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from deploy.local.kafka import LocalKafka
from streaming.transport.errors import Fenced
from tests.live.checkpoints import at
from tests.live.driving import until
from tests.live.publishing import Setting, setting_on
from tests.live.suites.publisher import QUERY, opened, values

pytestmark = pytest.mark.live


@pytest.fixture
def setting(kafka: LocalKafka) -> Setting:
    return setting_on(kafka.bootstrap)


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
        assert publisher.open(at(QUERY, 5), start_with="adopt") > before
        assert publisher.publish(6, QUERY, setting.batch(6))
    assert [value for value, _ in setting.visible()] == values(5) + values(6)


def test_asking_whether_it_is_still_the_one_does_not_hold_a_batch_up(setting: Setting) -> None:
    with opened(setting) as publisher:
        took_s = []
        for batch_id in range(5):
            assert not publisher.is_superseded(), "a look leaves a fetch on its way"
            began_s = time.monotonic()
            publisher.publish(batch_id, QUERY, [])
            took_s.append(time.monotonic() - began_s)
    assert sorted(took_s)[2] < 0.2, took_s


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
