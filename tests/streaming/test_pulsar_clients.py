"""Topics on Pulsar: answers to messages under way, producers made anew, positions in a log, and what a topic is made with."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import Mock

import pulsar
import pytest

from streaming.process.exits import Refused
from streaming.pulsar import clients as clients_of_pulsar
from streaming.pulsar import side as pulsar_side
from streaming.pulsar.commits import Deliveries, NotSent
from streaming.pulsar.http import AdminError, Failure
from streaming.pulsar.link import PulsarLink, input_on_pulsar
from streaming.pulsar.positions import DataLoss, Ledger, Log, Position, pack
from streaming.pulsar.side import PulsarEvents, explain_errors
from streaming.pulsar.topics import _Retention, specs_of
from streaming.settings import PulsarTopics, Settings
from streaming.settings.load import compose
from streaming.settings.sections import TopicNames
from streaming.systems import is_outage
from streaming.transport.errors import PublishError

LINK = PulsarLink("pulsar://a:1", "input", PulsarTopics())
MISSING = (
    "; create the namespace by `pulsar-admin namespaces create ops/trimtab`, or set input.pulsar.namespace"
)
DEFAULT = "; the address is the default of input.pulsar.admin_url"


@dataclass(slots=True)
class Client:
    """A client that is its own producer and gives ``answer`` to each message."""

    answer: pulsar.Result | None
    """None: it never answers."""
    sent: list[bytes] = field(default_factory=list)
    is_closed: bool = False

    def create_producer(self, *_: object, **__: object) -> "Client":
        return self

    def send_async(
        self, value: bytes, sent: Callable[[pulsar.Result, pulsar.MessageId | None], None], **_: object
    ) -> None:
        self.sent.append(value)
        if self.answer is not None:
            sent(self.answer, None)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """Clients that the next connections get, in order."""
    waiting: list[Client] = []
    monkeypatch.setattr(clients_of_pulsar, "connect", lambda *_, **__: waiting.pop(0))
    monkeypatch.setattr(pulsar_side, "_FLUSH_S", 0.05)
    return waiting


@pytest.mark.parametrize("answer", [pulsar.Result.Timeout, None])
def test_after_a_flush_that_failed_or_was_never_answered_events_go_out_with_a_client_made_anew(
    clients: list[Client], answer: pulsar.Result | None
):
    broken, sound = Client(answer), Client(pulsar.Result.Ok)
    clients += [broken, sound]
    events = PulsarEvents(LINK, "trimtab.input")
    events.send("c", b"lost")
    with pytest.raises(PublishError, match="events were not written") as raised:
        events.flush()
    assert is_outage(raised.value)
    assert broken.is_closed
    events.send("c", b"written")
    events.flush()
    assert (broken.sent, sound.sent) == ([b"lost"], [b"written"])
    events.close()
    assert sound.is_closed


def test_what_was_lost_with_a_client_is_told_at_the_flush(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pulsar_side, "WINDOW", 1)
    clients += [Client(None), Client(pulsar.Result.Ok)]
    events = PulsarEvents(LINK, "trimtab.input")
    events.send("c", b"first")
    with pytest.raises(PublishError, match="could not be sent"):
        events.send("c", b"second")
    events.send("c", b"third")
    with pytest.raises(PublishError, match="no answer within"):
        events.flush()
    events.flush()


def test_who_follows_a_topic_is_told_once_that_the_brokers_are_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    silent = Mock()
    silent.read_next.side_effect = [*[pulsar.Timeout()] * 4, pulsar.ConnectError("the end of the test")]
    away, back = pulsar.ConnectError("nothing listens"), None
    monkeypatch.setattr(pulsar_side, "require_answer", Mock(side_effect=[away, away, back, away]))
    monkeypatch.setattr(pulsar_side, "_SILENCE_S", 1e-9)
    reader = object.__new__(pulsar_side.PulsarTopicReader)
    reader._link, reader._topic, reader._readers = LINK, "t", [silent]
    with pytest.raises(Refused):
        list(reader.follow())
    said = "no broker of Pulsar answers: nothing listens. Waiting until they answer"
    assert caplog.messages == [said] * 2


NEW = pulsar.MessageId(-1, 5, 0, -1)
REPEATED = pulsar.MessageId(-1, -1, -1, -1)


def under_way(count: int) -> Deliveries:
    sent = Deliveries()
    for _ in range(count):
        sent.sending()
    return sent


def test_a_message_the_broker_had_already_is_not_counted_as_new():
    sent = under_way(3)
    for id_ in (NEW, REPEATED, NEW):
        sent.answer(pulsar.Result.Ok, id_)
    sent.wait(timeout_s=1.0)
    assert sent.new_count == 2


def test_waiting_ends_as_soon_as_few_enough_are_under_way_also_from_another_thread():
    sent = under_way(3)
    threading.Timer(0.01, lambda: sent.answer(pulsar.Result.Ok, NEW)).start()
    sent.wait(timeout_s=30.0, most=2)
    assert sent.new_count == 1


def test_the_first_failure_is_raised_however_many_others_went_well():
    sent = under_way(3)
    for result in (pulsar.Result.Ok, pulsar.Result.ProducerFenced, pulsar.Result.AlreadyClosed):
        sent.answer(result, NEW)
    for _ in range(2):
        with pytest.raises(NotSent, match="ProducerFenced") as raised:
            sent.wait(timeout_s=1.0)
        assert raised.value.result == pulsar.Result.ProducerFenced


def test_an_answer_that_does_not_come_is_a_failure_of_its_own():
    with pytest.raises(NotSent, match=r"no answer within 0\.01 s") as raised:
        under_way(1).wait(timeout_s=0.01)
    assert raised.value.result is None


TOPIC = "persistent://ops/trimtab/trimtab.actions"


def link() -> PulsarLink:
    found = input_on_pulsar(
        compose({"input": {"url": "pulsar://mq:6650", "pulsar": {"admin_url": "http://mq:8080"}}})
    )
    assert found is not None
    return found


def test_brokers_that_do_not_answer_are_named_with_the_settings():
    with (
        pytest.raises(Refused, match=r"pulsar://mq:6650 .*Check that the address is right .input.url"),
        explain_errors(link(), TOPIC, "consume"),
    ):
        raise pulsar.ConnectError


@pytest.mark.parametrize(
    ("failure", "answer", "url", "said"),
    [
        ("not-found", "Namespace not found", PulsarTopics().admin_url, MISSING),
        ("not-found", "Namespace does not exist", PulsarTopics().admin_url, MISSING),
        ("not-found", "Topic not found", PulsarTopics().admin_url, None),
        ("unreachable", "nothing listens", PulsarTopics().admin_url, DEFAULT),
        ("unreachable", "nothing listens", "http://mq:8080", None),
    ],
)
def test_what_the_admin_api_lacks_is_told_with_the_setting(
    failure: Failure, answer: str, url: str, said: str | None
):
    at_default = PulsarLink("pulsar://a:1", "input", PulsarTopics(admin_url=url, namespace="ops/trimtab"))
    with pytest.raises(AdminError) as raised, at_default.admin():
        raise AdminError(failure, call="PUT", answer=answer)
    assert str(raised.value).count("input.pulsar") == (said is not None)
    assert str(raised.value).endswith(said or "")


def test_ctrl_c_is_no_error_of_pulsar_though_its_client_makes_it_one():
    with pytest.raises(KeyboardInterrupt), explain_errors(link(), TOPIC, "consume"):
        raise pulsar.Interrupted


@pytest.mark.parametrize(
    ("kept", "needed", "covers"),
    [
        ((-1, -1), (-1, -1), True),
        ((-1, -1), (1440, 100), True),
        ((1440, -1), (1440, -1), True),
        ((1439, -1), (1440, -1), False),
        ((-1, 100), (-1, -1), False),
        ((0, 0), (1440, -1), False),
    ],
)
def test_a_retention_covers_another_by_both_limits(
    kept: tuple[int, int], needed: tuple[int, int], *, covers: bool
):
    assert _Retention(*kept).covers(_Retention(*needed)) is covers


def test_outputs_are_deduplicated_and_each_topic_is_made_in_the_namespace_of_its_side():
    link = PulsarLink("pulsar://a:1", "output", PulsarTopics(namespace="ops/t"))
    names = TopicNames()
    written = frozenset(names.all) - {names.input, names.control}
    specs = specs_of(link, Settings(), written, input_partitions=4)
    assert {spec.name.rpartition("/")[2]: spec.is_deduplicated for spec in specs} == {
        "trimtab.actions": True,
        "trimtab.actions.dry-run": True,
        "trimtab.audit": True,
        "trimtab.dead-letter": True,
        "trimtab.executor.kafka": False,
        "trimtab.commits-trimtab": False,
        "trimtab.beats": False,
    }
    assert all(spec.is_single and spec.name.startswith("persistent://ops/t/") for spec in specs)

    specs = specs_of(link, Settings(), frozenset(names.all), input_partitions=4)
    assert len(specs) == 9
    assert [spec.partitions for spec in specs if spec.name.endswith("trimtab.input")] == [4]


LOG = Log([Ledger(5, 3), Ledger(7, 0), Ledger(9, 4), Ledger(12, 0)])
"""Three entries, an empty ledger, four entries, and a new one nothing was written to yet."""


@pytest.mark.parametrize(
    ("start", "most", "end"),
    [
        ("5:-1", None, "9:3"),
        ("5:-1", 1, "5:0"),
        ("5:-1", 3, "5:2"),
        ("5:-1", 4, "9:0"),
        ("5:1", 2, "9:0"),
        ("5:2", 100, "9:3"),
        ("9:3", 1, "9:3"),
        ("12:-1", None, "12:-1"),
        ("7:-1", 2, "9:1"),
    ],
)
def test_a_batch_ends_with_a_whole_entry_that_is_there(start: str, most: int | None, end: str):
    assert str(LOG.advance(Position.parse(start), most)) == end


def test_the_whole_of_a_log_is_from_before_its_first_entry_to_its_last():
    assert (str(LOG.first), str(LOG.last)) == ("5:-1", "9:3")
    empty = Log([Ledger(4, 0)])
    assert empty.first == empty.last == Position(4, -1)


@pytest.mark.parametrize(
    ("start", "message"), [("4:9", "was trimmed"), ("13:0", "made anew"), ("6:0", "made anew")]
)
def test_a_position_whose_ledger_is_gone_is_lost_data(start: str, message: str):
    with pytest.raises(DataLoss, match=message):
        LOG.require(Position.parse(start), "persistent://t/n/x")
    LOG.require(Position.parse("9:3"), "persistent://t/n/x")


def test_packed_places_rise_along_the_log_and_never_wrap_around():
    places = [(Position(1, 0), -1), (Position(1, 1), 0), (Position(1, 1), 9), (Position(2, 0), -1)]
    packed = [pack(position, batch) for position, batch in places]
    assert packed == sorted(set(packed))
    assert pack(Position(2**29 - 1, 2**24 - 1), 1023) == 2**63 - 1
    for position, batch in ((Position(1, 2**24), 0), (Position(1, 0), 1024)):
        with pytest.raises(OverflowError, match="does not fit"):
            pack(position, batch)


def test_what_is_no_position_is_named():
    with pytest.raises(ValueError, match="'x:1' is no position"):
        Position.parse("x:1")


EMPTIED = Position(4, -1)
"""The beginning of a ledger that is not in ``LOG``."""


@pytest.mark.parametrize("acknowledged", ["4:-1", "5:-1"])
def test_a_ledger_that_was_empty_and_is_gone_loses_nothing(acknowledged: str):
    log = Log(LOG.ledgers, written=Position(9, 3), acknowledged=Position.parse(acknowledged))
    log.require(EMPTIED, "persistent://t/n/x")
    assert str(log.advance(EMPTIED, 1)) == "5:0"
    empty = Log([Ledger(6, 0)], written=Position(6, -1), acknowledged=Position(6, -1))
    empty.require(EMPTIED, "persistent://t/n/x")
    assert empty.advance(EMPTIED, None) == EMPTIED, "without entries there is no batch"


@pytest.mark.parametrize(
    ("written", "acknowledged", "message"),
    [
        ("9:3", None, "somebody removed the subscription"),
        ("9:3", "4:2", "was trimmed"),
        ("9:3", "9:1", "was trimmed"),
        ("4:2", "4:-1", "was trimmed"),
    ],
)
def test_a_ledger_that_may_have_held_unread_data_is_lost(
    written: str, acknowledged: str | None, message: str
):
    moved = None if acknowledged is None else Position.parse(acknowledged)
    log = Log(LOG.ledgers, written=Position.parse(written), acknowledged=moved)
    with pytest.raises(DataLoss, match=message):
        log.require(EMPTIED, "persistent://t/n/x")
    assert log.nearest(EMPTIED) == log.first, (
        "a reader that accepts the loss goes on at the first position that is left"
    )
    assert log.nearest(Position(9, 1)) == Position(9, 1)


def test_ids_of_ledgers_beyond_29_bits_are_packed_and_ordered_within_each_range():
    edge = 2**29
    log = Log([Ledger(edge - 1, 2), Ledger(edge, 3), Ledger(2**40 + 1, 1)])
    start, ranges = log.first, []
    while (end := log.advance(start, None)) != start:
        ranges.append(str(end))
        start = end
    assert ranges == [f"{edge - 1}:1", f"{edge}:2", f"{2**40 + 1}:0"]
    assert pack(Position(edge, 0), -1) < pack(Position(edge, 2), -1) < pack(Position(edge + 5, 0), -1)
