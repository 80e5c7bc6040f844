"""Publishing each output once on a real Pulsar: kills, restarts, hand-over, and checkpoints that do not fit."""

import os
import random
import signal
from collections.abc import Iterator

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.pulsar.commits import Acknowledged, Producers
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.publisher import PulsarPublisher
from streaming.transport.errors import CheckpointMismatch, Fenced, PublishError
from streaming.transport.publishing import BatchState, OutboundRecord
from tests.live.checkpoints import at
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.publishing import ACTIONS, AUDIT, COMMITS, Setting, batch, values_of
from tests.live.pulsar.stage import messages
from tests.live.suites.publisher import QUERY, PublisherSuite, opened

pytestmark = pytest.mark.live


@pytest.fixture
def setting(pulsar: LocalPulsar) -> Iterator[Setting]:
    made = Setting(Lab(pulsar, bundles_count=1))
    yield made
    made.client.close()


class TestPublisher(PublisherSuite):
    """The same tests as on Kafka."""


def test_a_batch_is_published_in_order_with_its_epoch_and_once_however_often_it_is_run(
    setting: Setting,
) -> None:
    with opened(setting) as publisher:
        assert publisher.publish(0, QUERY, list(reversed(batch(0))))
        assert not publisher.publish(0, QUERY, batch(0))
        assert publisher.publish(1, QUERY, []), "nothing to note, a gap"
        assert publisher.publish(2, QUERY, batch(2))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 2))
        assert not publisher.publish(2, QUERY, batch(2))
        assert publisher.publish(3, QUERY, batch(3))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values_of(0, 2, 3)
    epochs = [epoch for _, epoch in setting.visible()]
    assert epochs == [epochs[0]] * 6 + [epochs[-1]] * 3
    assert epochs[0] < epochs[-1]


@pytest.mark.parametrize(
    ("killed", "out_count"),
    [
        pytest.param("on_commit(4, die)", 0, id="begun"),
        pytest.param("on_send(7, die)", 1, id="first-message", marks=pytest.mark.slow),
        pytest.param("on_send(10, die)", 4, id="between-topics"),
        pytest.param("on_send(12, die)", 6, id="last-message", marks=pytest.mark.slow),
        pytest.param("on_commit(5, die)", 6, id="finished", marks=pytest.mark.slow),
    ],
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
    with opened(setting, last_batch_id=1) as publisher:
        assert bool(publisher.publish(1, QUERY, list(reversed(batch(1))))) == (out_count < 6)
        assert publisher.publish(2, QUERY, batch(2))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values_of(0, 1, 2)


def test_a_batch_that_was_begun_is_not_gone_on_with_in_another_form(setting: Setting) -> None:
    process = setting.start(f"""
        on_send(2, die)
        publisher.open(at())
        publisher.publish(0, {QUERY!r}, batch(0))
    """)
    process.communicate(timeout=60)
    with opened(setting, last_batch_id=0) as publisher:
        with pytest.raises(CheckpointMismatch, match=r"published with other contents.*--adopt"):
            publisher.publish(0, QUERY, batch(0, "other"))
        with pytest.raises(CheckpointMismatch, match="published with other contents"):
            publisher.publish(0, QUERY, [])
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 0), start_with="adopt")
        assert publisher.publish(0, QUERY, batch(0, "other")) is BatchState.OTHERWISE
        assert publisher.publish(1, QUERY, batch(1)) is BatchState.NEW
    assert setting.seen(ACTIONS) == [*values_of(0)[:2], *values_of(1)], "left as it was published"


def test_a_controller_that_is_overtaken_in_the_middle_of_a_batch_is_fenced_and_nothing_is_out_twice(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(setting) as first, setting.publisher() as second:
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
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values_of(0, 1, 2)


@pytest.mark.slow
def test_a_controller_frozen_in_the_middle_of_a_batch_is_taken_over_from_and_ends_when_it_thaws(
    setting: Setting,
) -> None:
    frozen = setting.start(f"""
        from streaming.transport.errors import Fenced
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
        with opened(setting, last_batch_id=1) as publisher:
            assert publisher.publish(1, QUERY, batch(1)), "the rest of it"
            frozen.send_signal(signal.SIGCONT)
            assert frozen.wait(60) == 4, frozen.communicate()[0]
            assert publisher.publish(2, QUERY, batch(2))
    finally:
        frozen.kill()
        frozen.communicate()
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values_of(0, 1, 2)


def test_lists_of_eight_mib_fit_and_what_does_not_is_refused_with_the_remedy_before_anything_after_it_is_out(
    setting: Setting,
) -> None:
    chance = random.Random(1)  # noqa: S311  a test wants the same lists every time
    replicas = [f"{chance.randrange(100_000)}:{chance.randrange(100, 200)}" for _ in range(900_000)]
    lists = ",".join(replicas).encode()[: 8 * 1024 * 1024]
    assert len(lists) == 8 * 1024 * 1024
    with opened(setting) as publisher:
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
