"""Publishing each output once on a real Pulsar: kills, restarts, hand-over, and checkpoints that do not fit."""

import os
import random
import signal
from collections.abc import Iterator

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.ports.marker import BatchState
from streaming.ports.outbox import OutboundRecord
from streaming.ports.publishing import CheckpointMismatch, Fenced, PublishError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.producers import Acknowledged, Producers
from streaming.pulsar.publisher import PulsarPublisher
from tests.live.checkpoints import at
from tests.live.driving import until
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.publishing import ACTIONS, AUDIT, COMMITS, QUERY, Setting, batch, values
from tests.live.pulsar.stage import messages

pytestmark = pytest.mark.live


@pytest.fixture
def setting(pulsar: LocalPulsar) -> Iterator[Setting]:
    made = Setting(Lab(pulsar, bundles_count=1))
    yield made
    made.client.close()


def test_a_batch_is_published_in_order_with_its_epoch_and_once_however_often_it_is_run(
    setting: Setting,
) -> None:
    with setting.opened() as publisher:
        assert publisher.publish(0, QUERY, list(reversed(batch(0))))
        assert not publisher.publish(0, QUERY, batch(0))
        assert publisher.publish(1, QUERY, []), "nothing to note, a gap"
        assert publisher.publish(2, QUERY, batch(2))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 2))
        assert not publisher.publish(2, QUERY, batch(2))
        assert publisher.publish(3, QUERY, batch(3))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 2, 3)
    epochs = setting.epochs()
    assert epochs == [epochs[0]] * 6 + [epochs[-1]] * 3
    assert epochs[0] < epochs[-1]


@pytest.mark.parametrize(
    ("killed", "out_count"),
    [
        ("on_commit(4, die)", 0),
        ("on_send(7, die)", 1),
        ("on_send(10, die)", 4),
        ("on_send(12, die)", 6),
        ("on_commit(5, die)", 6),
    ],
    ids=["begun", "first-message", "between-topics", "last-message", "finished"],
)
def test_killed_at_any_moment_of_a_batch_its_re_run_publishes_what_is_missing_and_no_more(
    setting: Setting, killed: str, out_count: int
) -> None:
    process = setting.start(f"""
        {killed}
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
        publisher.publish(1, {QUERY!r}, batch(1))
    """)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, output
    out = setting.seen(ACTIONS) + setting.seen(AUDIT)
    assert len(out) == 6 + out_count, "what is out is a beginning of the batch"
    with setting.opened(last_batch_id=1) as publisher:
        assert bool(publisher.publish(1, QUERY, list(reversed(batch(1))))) == (out_count < 6)
        assert publisher.publish(2, QUERY, batch(2))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 1, 2)


def test_a_batch_that_was_begun_is_not_gone_on_with_in_another_form(setting: Setting) -> None:
    process = setting.start(f"""
        on_send(2, die)
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
    """)
    process.communicate(timeout=60)
    with setting.opened(last_batch_id=0) as publisher:
        with pytest.raises(CheckpointMismatch, match=r"published with other contents.*--adopt"):
            publisher.publish(0, QUERY, batch(0, "other"))
        with pytest.raises(CheckpointMismatch, match="published with other contents"):
            publisher.publish(0, QUERY, [])
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 0), adopt=True)
        assert publisher.publish(0, QUERY, batch(0, "other")) is BatchState.OTHERWISE
        assert publisher.publish(1, QUERY, batch(1)) is BatchState.NEW
    assert setting.seen(ACTIONS) == [*values(0)[:2], *values(1)], "left as it was published"


def test_a_checkpoint_that_does_not_fit_is_refused_fresh_starts_over_and_adopt_trusts_it(
    setting: Setting,
) -> None:
    with pytest.raises(CheckpointMismatch, match="no marker says which were published"):
        setting.publisher().open(at(QUERY, 12))
    with setting.opened() as publisher:
        publisher.publish(5, QUERY, batch(5))
    for query_id, last_batch_id, explanation in (
        (QUERY, 3, "older than what was published"),
        (QUERY, None, "older than what was published"),
        (None, None, "deleted or replaced"),
        ("another", 9, "belongs to another query"),
    ):
        with pytest.raises(CheckpointMismatch, match=rf"{explanation}.*batch 5.*--fresh.*--adopt"):
            setting.publisher().open(at(query_id, last_batch_id))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 3), adopt=True)
        with pytest.raises(CheckpointMismatch, match="another query"):
            publisher.publish(4, "another", batch(4))
        assert publisher.publish(5, QUERY, batch(5)), "published again, as adopt says"
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 5), fresh=True)
    with setting.publisher() as publisher:
        with pytest.raises(CheckpointMismatch, match="a query that is over"):
            publisher.check(at(QUERY, 5))
        publisher.open(at())
        assert publisher.publish(0, "another", batch(0)), "ids that begin anew are not taken for duplicates"
        with pytest.raises(CheckpointMismatch):
            publisher.publish(6, QUERY, batch(6))
    assert setting.seen() == values(5, 5, 0)


def test_a_successor_ends_an_idle_controller_which_can_publish_no_more(setting: Setting) -> None:
    with setting.opened() as first, setting.publisher() as second:
        first.publish(0, QUERY, batch(0))
        assert not first.is_superseded()
        second.check(at(QUERY, 0))
        first.ensure_owner()
        second.open(at(QUERY, 0))
        for records in ([], batch(1)):
            with pytest.raises(Fenced, match="taken over"):
                first.publish(1, QUERY, records)
        until(first.is_superseded, what="the first controller to notice")
        assert not second.is_superseded()
        for _ in range(2):
            with pytest.raises(Fenced, match="taken over"):
                first.publish(1, QUERY, batch(1, "zombie"))
        assert second.publish(1, QUERY, batch(1))
    assert setting.seen() == values(0, 1)


def test_a_controller_that_is_overtaken_in_the_middle_of_a_batch_is_fenced_and_nothing_is_out_twice(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with setting.opened() as first, setting.publisher() as second:
        first.publish(0, QUERY, batch(0))
        plain = Producers.send

        def overtaken(self: Producers, *arguments: str | bytes, sent: Acknowledged, **named: int) -> None:
            plain(self, *arguments, sent=sent, **named)  # type: ignore[arg-type]
            monkeypatch.undo()
            second.open(at(QUERY, 1))

        monkeypatch.setattr(Producers, "send", overtaken)
        with pytest.raises(Fenced):
            first.publish(1, QUERY, batch(1))
        second.publish(1, QUERY, batch(1))
        assert second.publish(2, QUERY, batch(2))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 1, 2)


@pytest.mark.slow
def test_a_controller_frozen_in_the_middle_of_a_batch_is_taken_over_from_and_ends_when_it_thaws(
    setting: Setting,
) -> None:
    frozen = setting.start(f"""
        from streaming.ports.publishing import Fenced
        def freeze():
            os.kill(os.getpid(), signal.SIGSTOP)
        on_send(8, freeze)
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
        try:
            publisher.publish(1, {QUERY!r}, batch(1))
        except Fenced:
            sys.exit(4)
    """)
    try:
        _, status = os.waitpid(frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), frozen.communicate()[0]
        with setting.opened(last_batch_id=1) as publisher:
            assert publisher.publish(1, QUERY, batch(1)), "the rest of it"
            frozen.send_signal(signal.SIGCONT)
            assert frozen.wait(60) == 4, frozen.communicate()[0]
            assert publisher.publish(2, QUERY, batch(2))
    finally:
        frozen.kill()
        frozen.communicate()
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 1, 2)


def test_a_newcomer_that_refuses_its_checkpoint_does_not_end_the_running_controller(
    setting: Setting,
) -> None:
    with setting.opened(claim_wait_s=0.2) as running:
        running.publish(0, QUERY, batch(0))
        with pytest.raises(CheckpointMismatch):
            setting.publisher().open(at())
        assert not running.is_superseded()
        with pytest.raises(PublishError):
            running.publish(1, QUERY, batch(1))
        assert running.publish(1, QUERY, batch(1))
    assert setting.seen() == values(0, 1)


def test_controllers_of_different_names_share_the_outputs_without_meeting(setting: Setting) -> None:
    other = Setting(setting.lab)
    with setting.opened() as one, other.opened() as two:
        one.publish(0, QUERY, batch(0))
        two.publish(7, "another", batch(7))
        assert one.publish(1, QUERY, batch(1))
        assert not one.is_superseded()
        assert not two.is_superseded()
    assert setting.seen() == values(0, 7, 1)
    other.client.close()


def test_lists_of_eight_mib_fit_and_what_does_not_is_refused_with_the_remedy_before_anything_after_it_is_out(
    setting: Setting,
) -> None:
    chance = random.Random(1)  # noqa: S311  a test wants the same lists every time
    replicas = [f"{chance.randrange(100_000)}:{chance.randrange(100, 200)}" for _ in range(900_000)]
    lists = ",".join(replicas).encode()[: 8 * 1024 * 1024]
    assert len(lists) == 8 * 1024 * 1024
    with setting.opened() as publisher:
        assert publisher.publish(0, QUERY, [OutboundRecord(ACTIONS, "east-1", lists, 0, 0)])
        incompressible = OutboundRecord(ACTIONS, "east-1", os.urandom(6 * 1024 * 1024), 1, 1)
        with pytest.raises(PublishError, match="Raise maxMessageSize"):
            publisher.publish(1, QUERY, [*batch(1), incompressible])
    sizes = [len(message.value) for message in messages(setting.client, setting.link.full_name(ACTIONS))]
    assert sizes[0] == len(lists)
    assert max(sizes[1:], default=0) < 100
    assert setting.seen(AUDIT) == []


def test_an_address_that_does_not_answer_is_a_publish_error_that_names_it(setting: Setting) -> None:
    absent = PulsarLink("pulsar://127.0.0.1:1", "output", setting.link.place)
    publisher = PulsarPublisher(absent, name="trimtab", commits_topic=COMMITS, timeout_s=1.0)
    with pytest.raises(PublishError, match=r"127\.0\.0\.1:1.*output\.url"):
        publisher.open(at())
