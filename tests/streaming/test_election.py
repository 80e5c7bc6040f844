"""Beats: they are written whatever happens to their topic, a standby hears them, and tries to lead after real silence or a goodbye."""

import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest

from streaming.contract.beat import Beat, Role, Unreadable, decode, encode
from streaming.controller.beats import Beats, ProcessState
from streaming.controller.standby import Election, Listener
from streaming.process.deadline import poll
from streaming.process.exits import Refused
from streaming.transport.errors import NoTopic, PublishError
from streaming.transport.side import TopicRecord
from tests.streaming.records import BEAT, beat_on_topic

SESSION_S = 10.0


def leader(**fields: Any) -> bytes:
    return encode(msgspec.structs.replace(BEAT, **fields))


def standby(instance: str, **fields: Any) -> bytes:
    usual = {"instance": instance, "epoch": 0, "batch": None, "role": "standby"}
    return encode(msgspec.structs.replace(BEAT, **usual | fields))


def election(instance: str = "b:1", session_s: float = SESSION_S) -> Election:
    return Election(name="main", instance=instance, session_s=session_s)


def read(heard: Election, seconds: range | list[float], *records: bytes) -> None:
    """Read the topic at each of these seconds; the first read finds the records."""
    for record in records:
        heard.receive(record)
    for at_s in seconds:
        heard.note_read(float(at_s))


GOODBYE = leader(is_leaving=True)
SILENT = "the leader a:1 was not heard for 10.0 s"
LEFT = "the leader a:1 has said goodbye"


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        # at which seconds the topic is read to its end, and the records that the first of these reads finds
        pytest.param([([], [GOODBYE])], None, id="nothing is tried before the topic was read to its end"),
        pytest.param([(range(10), [])], None, id="where nobody has led it waits a session"),
        pytest.param([(range(11), [])], "no leader was heard for 10.0 s", id="and then tries"),
        pytest.param([([*range(3), 3600], [leader()])], None, id="it was frozen: no silence of the leader"),
        pytest.param([(range(30), [leader(session_s=30.0)])], None, id="a longer session of the leader"),
        pytest.param([(range(31), [leader(session_s=30.0)])], SILENT.replace("10", "30"), id="is over"),
        pytest.param([([0], [leader(), GOODBYE])], LEFT, id="a goodbye is followed at once"),
        pytest.param(
            [([0], [leader(), GOODBYE]), ([1], [leader(epoch=8), GOODBYE])],
            None,
            id="not if a newer one leads",
        ),
    ],
)
def test_a_standby_tries_after_real_silence_or_a_goodbye(
    reads: list[tuple[list[int], list[bytes]]], reason: str | None
):
    heard = election()
    for seconds, records in reads:
        read(heard, seconds, *records)
    assert heard.reason() == reason


def test_an_outage_is_not_silence_and_the_leader_has_a_session_after_it():
    heard = election()
    read(heard, range(9), leader())
    heard.note_failure()
    read(heard, [600.0, *range(601, 610)])
    assert heard.reason() is None
    read(heard, [610.0])
    assert heard.reason() == SILENT


@pytest.mark.parametrize("gone", [{"problem": "no checkpoint"}, {"is_leaving": True}])
def test_a_standby_that_could_not_lead_or_has_left_is_not_waited_for(gone: dict[str, object]):
    heard = election("c:1")
    read(heard, [0.0], GOODBYE, standby("b:1"), standby("b:1", **gone))
    assert heard.reason() is not None


def test_a_leader_heard_within_the_session_is_left_alone_and_a_silent_one_followed():
    heard = election()
    read(heard, range(10), leader())
    assert heard.reason() is None
    heard.note_read(10.0)
    assert heard.reason() == "the leader a:1 was not heard for 10.0 s"
    heard.receive(leader())
    heard.note_read(11.0)
    assert heard.reason() is None


def test_a_predecessor_that_goes_on_beating_does_not_hide_the_silence_of_the_leader():
    heard = election()
    read(heard, [0.0], leader(epoch=8))
    for at_s in range(1, 11):
        read(heard, [float(at_s)], leader(epoch=7))
    assert heard.reason() == "the leader a:1 was not heard for 10.0 s"


def test_of_several_standbys_the_first_by_name_tries_and_the_next_one_leaves_it_a_session():
    first, second = election("b:1"), election("c:1")
    for at_s in range(11):
        read(first, [float(at_s)], *([leader()] if at_s == 0 else []), standby("c:1"))
        read(second, [float(at_s)], *([leader()] if at_s == 0 else []), standby("b:1"))
    assert first.reason() is not None
    assert second.reason() is None
    for at_s in range(11, 19):
        read(second, [float(at_s)], standby("b:1"))
    assert second.reason() is None
    read(second, [20.0])
    assert second.reason() is not None, "the first standby had a whole session and did not take over"


def test_what_is_no_beat_and_what_other_controllers_say_is_passed_over():
    heard = election()
    other = leader(is_leaving=True).replace(b'"main"', b'"other"')
    read(heard, [0.0], leader(), b"{}", other)
    heard.receive(None)
    assert heard.reason() is None
    assert heard.leader.epoch == 7


PATIENCE_S = 20.0


class Sink:
    """A sink that raises ``error`` at each flush and keeps what it gets."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.is_closed = False
        self.has_flushed = Event()
        self._error = error
        self._beats: SimpleQueue[Beat] = SimpleQueue()

    def send(self, key: str, value: bytes) -> None:
        self.sent.append((key, value))
        said = decode(value)
        assert isinstance(said, Beat)
        self._beats.put(said)

    def next_beat(self, role: Role = "standby") -> Beat:
        """Wait for a beat of this role."""
        while (found := self._beats.get(timeout=PATIENCE_S)).role != role:
            pass
        return found

    def flush(self) -> None:
        self.has_flushed.set()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.is_closed = True


def connecting(*answers: Sink | Exception) -> Callable[[], Sink]:
    """A function that gives these answers to connections in order, the last one again and again."""
    waiting: Iterator[Sink | Exception] = iter(answers)
    newest: list[Sink | Exception] = []

    def connect() -> Sink:
        newest.append(next(waiting, newest[-1] if newest else answers[-1]))
        answer = newest[-1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return connect


def test_a_beat_reads_back_as_it_was_and_anything_else_is_named():
    assert decode(encode(BEAT)) == BEAT
    with pytest.raises(Unreadable, match="no beat"):
        decode(b"{}")


def test_the_first_beat_is_written_at_once_under_the_controllers_name():
    sink = Sink()
    with Beats(connecting(sink), lambda: BEAT, every_s=3600):
        assert sink.has_flushed.wait(PATIENCE_S)
    last = msgspec.structs.replace(BEAT, is_leaving=True)
    assert sink.sent == [("main", encode(BEAT)), ("main", encode(last))]
    assert sink.is_closed


def test_nothing_is_said_before_there_is_something_to_say():
    sink = Sink()
    with Beats(connecting(sink), lambda: None, every_s=0.0):
        pass
    assert sink.sent == []


def test_what_has_changed_is_said_at_once():
    sink, duty = Sink(), ProcessState(name="main", session_s=10.0, is_alive=lambda: True)
    with Beats(connecting(sink), duty.beat, every_s=3600) as beats:
        duty.stand_by("no checkpoint")
        beats.beat_now()
        assert sink.next_beat().problem == "no checkpoint"
        duty.lead(8, lambda: 5)
        beats.beat_now()
        said = sink.next_beat("leader")
    assert (said.epoch, said.batch, said.problem, said.is_leaving) == (8, 5, "", False)
    last = decode(sink.sent[-1][1])
    assert (last.role, last.epoch, last.is_leaving) == ("leader", 8, True)


def test_a_process_that_was_superseded_says_no_goodbye_which_would_call_a_standby():
    sink, duty = Sink(), ProcessState(name="main", session_s=10.0, is_alive=lambda: True)
    duty.lead(8, lambda: 5)
    with Beats(connecting(sink), duty.beat, every_s=3600):
        assert not sink.next_beat("leader").is_leaving
        duty.be_silent()
    assert len(sink.sent) == 1


def test_a_process_that_is_not_alive_is_silent_so_that_a_standby_takes_over():
    duty = ProcessState(name="main", session_s=10.0, is_alive=lambda: False)
    duty.lead(8, lambda: 5)
    assert duty.beat() is None


@pytest.mark.parametrize(
    "trouble",
    [NoTopic("there is no topic"), PublishError("no answer"), OSError("a bug"), Sink(PublishError("full"))],
)
def test_beats_that_cannot_be_written_are_named_once_and_go_out_by_a_new_connection(
    caplog: pytest.LogCaptureFixture, trouble: Sink | Exception
):
    sound = Sink()
    with (
        caplog.at_level(logging.INFO),
        Beats(connecting(trouble, trouble, sound), lambda: BEAT, every_s=3600, again_s=0),
    ):
        assert sound.has_flushed.wait(PATIENCE_S)
    assert sound.sent[0] == ("main", encode(BEAT))
    if isinstance(trouble, Sink):
        assert trouble.is_closed
    texts = [record.message for record in caplog.records]
    named = [text for text in texts if "no beats are written" in text]
    assert len(named) == (0 if isinstance(trouble, OSError) else 1)


def test_why_no_beats_are_written_is_known_as_long_as_it_is_so():
    sound, may_recover = Sink(), Event()

    def connect() -> Sink:
        if may_recover.is_set():
            return sound
        raise PublishError("a permission is missing")

    with Beats(connect, lambda: BEAT, every_s=0.05) as beats:
        assert poll(lambda: "a permission is missing" in beats.problem, timeout_s=PATIENCE_S, pause_s=0.01)
        may_recover.set()
        assert poll(lambda: not beats.problem, timeout_s=PATIENCE_S, pause_s=0.01)


class Topic:
    """A beats topic whose first ``failing`` reads fail; then it has a goodbye."""

    partitions_count = 1

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.closed_count = 0

    def read_to_end(self) -> Iterator[TopicRecord]:
        if self.failing:
            self.failing -= 1
            raise Refused("Kafka does not answer")
        yield beat_on_topic(decode(GOODBYE))

    def follow(self) -> Iterator[TopicRecord]:
        raise AssertionError("a standby reads to the end only")

    def close(self) -> None:
        self.closed_count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def listening(topic: Topic, connected: Callable[[], None] = lambda: None) -> Listener:
    def connect() -> Topic:
        connected()
        return topic

    election = Election(name="main", instance="b:1", session_s=10.0)
    return Listener(connect, election, session_s=10.0)


def test_a_goodbye_ends_the_wait_and_names_who_has_left():
    with listening(Topic(failing=0)) as listener:
        listener.wait(PATIENCE_S)
        assert listener.reason == "the leader a:1 has said goodbye"
        assert encode(listener.leader) == GOODBYE


def test_a_topic_that_cannot_be_read_is_named_and_read_by_a_new_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("streaming.controller.standby._AGAIN_S", 0.0)
    topic, connections = Topic(failing=2), threading.Semaphore(0)
    with listening(topic, connections.release) as listener:
        listener.wait(PATIENCE_S)
        assert listener.reason is not None
        assert listener.problem == ""
    assert all(connections.acquire(timeout=PATIENCE_S) for _ in range(3))
    assert topic.closed_count >= 2
