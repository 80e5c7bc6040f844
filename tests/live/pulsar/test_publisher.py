"""Publishing each output once on a real Pulsar: kills, outages, hand-over, and checkpoints that do not fit."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest

from deploy.local.pulsar import LocalPulsar, StandalonePulsar
from streaming.contract.envelope import EPOCH_HEADER
from streaming.pulsar.commits import Deliveries, Producers
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.log import PartitionReader
from streaming.pulsar.positions import Position
from streaming.pulsar.publisher import PulsarPublisher
from streaming.settings import PulsarTopics
from streaming.transport.errors import CheckpointMismatch, Fenced, PublishError
from streaming.transport.publishing import BatchState, OutboundRecord
from tests.support.processes import ROOT
from tests.support.publisher_suite import (
    PATIENT,
    QUERY,
    PublisherSetting,
    PublisherSuite,
    opened,
    publish_until_it_succeeds,
    records,
    values,
)
from tests.support.pulsar import Lab, connected, messages
from tests.support.stage import at

pytestmark = pytest.mark.live


ACTIONS, AUDIT, COMMITS = "trimtab.actions", "trimtab.audit", "trimtab.commits"


@dataclass
class Setting(PublisherSetting):
    """A namespace with a controller's topics."""

    lab: Lab
    name: str = field(default_factory=lambda: f"trimtab-{uuid4().hex[:8]}")
    actions: str = ACTIONS

    def __post_init__(self) -> None:
        """Topics come into being when they are used, deduplicated by their namespace."""
        self.lab.post(f"namespaces/{self.lab.namespace}/deduplication", True)
        place = PulsarTopics(admin_url=self.lab.pulsar.admin_url, namespace=self.lab.namespace)
        self.link = PulsarLink(self.lab.pulsar.service_url, "output", place)
        self.client = connected(self.lab.pulsar)

    def publisher(self, *, announces: bool = False, **options: Any) -> PulsarPublisher:
        announce_on = ACTIONS if announces else None
        return PulsarPublisher(
            self.link, name=self.name, commits_topic=COMMITS, announce_on=announce_on, **PATIENT | options
        )

    def another(self) -> "Setting":
        return replace(self, name=f"{self.name}-other")

    def seen(self, topic: str = ACTIONS) -> list[str]:
        """Values of all messages of an output, in order."""
        return [message.value.decode() for message in messages(self.client, self.link.full_name(topic))]

    def visible(self) -> list[tuple[str, str]]:
        found = messages(self.client, self.link.full_name(ACTIONS))
        return [(message.value.decode(), dict(message.headers)[EPOCH_HEADER].decode()) for message in found]

    def start(self, body: str) -> "subprocess.Popen[str]":
        """A controller in a process of its own; `at` is what is called after each message that is out."""
        program = f"""
            import os, signal, sys
            from streaming.pulsar.link import PulsarLink
            from streaming.settings import PulsarTopics
            from streaming.pulsar.publisher import PulsarPublisher
            from streaming.pulsar.commits import Producers
            from tests.support.publisher_suite import PATIENT, QUERY, PublisherSetting, PublisherSuite, opened, publish_until_it_succeeds, records, values
            from tests.support.stage import at
            place = PulsarTopics(admin_url={self.lab.pulsar.admin_url!r}, namespace={self.lab.namespace!r})
            link = PulsarLink({self.lab.pulsar.service_url!r}, "output", place)
            publisher = PulsarPublisher(link, name={self.name!r}, commits_topic={COMMITS!r})
            def batch(number):
                return [*records({ACTIONS!r}, number), *records({AUDIT!r}, number)]
            def die(*_):
                os.kill(os.getpid(), signal.SIGKILL)
            plain_send, plain_commit = Producers.send, Producers.commit
            sent_count, commits_count = 0, 0
            def on_send(count, act):
                def send(self, *arguments, **named):
                    global sent_count
                    plain_send(self, *arguments, **named)
                    named["sent"].wait(timeout_s=20)
                    sent_count += 1
                    if sent_count == count:
                        act()
                Producers.send = send
            def on_commit(count, act):
                def commit(self, *arguments):
                    global commits_count
                    plain_commit(self, *arguments)
                    commits_count += 1
                    if commits_count == count:
                        act()
                Producers.commit = commit
        """
        source = textwrap.dedent(program) + textwrap.dedent(body)
        return subprocess.Popen(
            [sys.executable, "-c", source],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def batch(number: int, text: str = "batch") -> list[OutboundRecord]:
    return [*records(ACTIONS, number, text), *records(AUDIT, number, text)]


@pytest.fixture
def setting(pulsar: LocalPulsar) -> Iterator[Setting]:
    made = Setting(Lab(pulsar, bundles_count=1))
    yield made
    made.client.close()


class TestPublisher(PublisherSuite):
    """The same tests as on Kafka."""


def test_a_batch_is_published_in_order_with_its_epoch_and_once(setting: Setting):
    with opened(setting) as publisher:
        assert publisher.publish(0, QUERY, list(reversed(batch(0))))
        assert not publisher.publish(0, QUERY, batch(0))
        assert publisher.publish(1, QUERY, []), "nothing to note, a gap"
        assert publisher.publish(2, QUERY, batch(2))
    with setting.publisher() as publisher:
        publisher.open(at(QUERY, 2))
        assert not publisher.publish(2, QUERY, batch(2))
        assert publisher.publish(3, QUERY, batch(3))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 2, 3)
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
def test_killed_in_a_batch_its_re_run_publishes_what_is_missing(
    setting: Setting, killed: str, out_count: int
):
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
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 1, 2)


def test_a_batch_that_was_begun_is_not_gone_on_with_in_another_form(setting: Setting):
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
    assert setting.seen(ACTIONS) == [*values(0)[:2], *values(1)], "left as it was published"


def test_a_controller_that_is_overtaken_in_a_batch_is_fenced(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
):
    with opened(setting) as first, setting.publisher() as second:
        first.publish(0, QUERY, batch(0))
        plain = Producers.send

        def overtaken(self: Producers, *arguments: str | bytes, sent: Deliveries, **named: int) -> None:
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
def test_a_controller_frozen_in_the_middle_of_a_batch_ends_when_it_thaws(setting: Setting):
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
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 1, 2)


def test_lists_of_eight_mib_fit_and_what_does_not_is_refused_with_the_remedy(setting: Setting):
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


def test_an_address_that_does_not_answer_is_a_publish_error_that_names_it(setting: Setting):
    absent = PulsarLink("pulsar://127.0.0.1:1", "output", setting.link.place)
    publisher = PulsarPublisher(absent, name="trimtab", commits_topic=COMMITS, timeout_s=1.0)
    with pytest.raises(PublishError, match=r"127\.0\.0\.1:1.*output\.url"):
        publisher.open(at())


MESSAGES = 3_000
"""More messages than a reader fetches in advance."""
TIMEOUT_S = 10.0
"""A publisher's timeout: what a busy machine needs to open one, and hardly more, because two attempts wait for it in vain."""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandalonePulsar]:
    """A Pulsar that may be stopped."""
    with StandalonePulsar(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.mark.slow
def test_a_restart_between_batches_needs_no_help_from_the_caller(standalone: StandalonePulsar):
    setting = Setting(Lab(standalone, bundles_count=1))
    with opened(setting) as publisher:
        publisher.publish(0, QUERY, batch(0))
        standalone.restart()
        assert publisher.publish(1, QUERY, batch(1))
    assert setting.seen(ACTIONS) == setting.seen(AUDIT) == values(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", [1, 2, 4, 6])
def test_a_broker_killed_in_a_batch_is_a_failure_in_time(
    standalone: StandalonePulsar, monkeypatch: pytest.MonkeyPatch, killed_at: int
):
    setting = Setting(Lab(standalone, bundles_count=1))
    with opened(setting, timeout_s=TIMEOUT_S) as publisher:
        publisher.publish(0, QUERY, batch(0))
        plain, count = Producers.send, 0

        def in_the_dark(self: Producers, *arguments: str | bytes, sent: Deliveries, **named: int) -> None:
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
        publish_until_it_succeeds(publisher, 1, batch(1))
        assert not publisher.is_superseded()
        assert publisher.publish(2, QUERY, batch(2))
    setting.client.close()
    again = Setting(setting.lab, name=setting.name)
    assert again.seen(ACTIONS) == again.seen(AUDIT) == values(0, 1, 2)
    again.client.close()


@pytest.mark.slow
def test_the_rest_of_a_batch_comes_when_a_broker_is_back(standalone: StandalonePulsar):
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
