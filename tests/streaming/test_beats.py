"""A controller's beats are written again and again, whatever happens to their topic."""

import logging
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event

import msgspec
import pytest

from streaming.contract.beat import Beat, Role, Unreadable, decode, encode
from streaming.controller.beats import Beats, Duty
from streaming.process.deadline import poll
from streaming.transport.errors import NoTopic, PublishError

BEAT = Beat(name="main", instance="a:1", epoch=7, batch=3, at="then", version="1", session_s=10.0)
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


def test_a_beat_reads_back_as_it_was_and_anything_else_is_named() -> None:
    assert decode(encode(BEAT)) == BEAT
    with pytest.raises(Unreadable, match="no beat"):
        decode(b"{}")


def test_the_first_beat_is_written_at_once_under_the_controllers_name() -> None:
    sink = Sink()
    with Beats(connecting(sink), lambda: BEAT, every_s=3600):
        assert sink.has_flushed.wait(PATIENCE_S)
    last = msgspec.structs.replace(BEAT, is_leaving=True)
    assert sink.sent == [("main", encode(BEAT)), ("main", encode(last))]
    assert sink.is_closed


def test_nothing_is_said_before_there_is_something_to_say() -> None:
    sink = Sink()
    with Beats(connecting(sink), lambda: None, every_s=0.0):
        pass
    assert sink.sent == []


def test_what_has_changed_is_said_at_once() -> None:
    sink, duty = Sink(), Duty(name="main", session_s=10.0, is_alive=lambda: True)
    with Beats(connecting(sink), duty.beat, every_s=3600) as beats:
        duty.stand_by("no checkpoint")
        beats.beat_now()
        assert sink.next_beat().problem == "no checkpoint"
        duty.lead(8, lambda: 5)
        beats.beat_now()
        said = sink.next_beat("leader")
    assert (said.epoch, said.batch, said.problem, said.is_leaving) == (8, 5, "", False)
    last = decode(sink.sent[-1][1])
    assert isinstance(last, Beat)
    assert (last.role, last.epoch, last.is_leaving) == ("leader", 8, True)


def test_a_process_that_was_superseded_says_no_goodbye_which_would_call_a_standby() -> None:
    sink, duty = Sink(), Duty(name="main", session_s=10.0, is_alive=lambda: True)
    duty.lead(8, lambda: 5)
    with Beats(connecting(sink), duty.beat, every_s=3600):
        assert not sink.next_beat("leader").is_leaving
        duty.be_silent()
    assert len(sink.sent) == 1


def test_a_process_that_is_not_alive_is_silent_so_that_a_standby_takes_over() -> None:
    duty = Duty(name="main", session_s=10.0, is_alive=lambda: False)
    duty.lead(8, lambda: 5)
    assert duty.beat() is None


@pytest.mark.parametrize(
    "trouble",
    [NoTopic("there is no topic"), PublishError("no answer"), OSError("a bug"), Sink(PublishError("full"))],
)
def test_beats_that_cannot_be_written_are_named_once_and_written_again_by_a_connection_made_anew(
    caplog: pytest.LogCaptureFixture, trouble: Sink | Exception
) -> None:
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


def test_why_no_beats_are_written_is_known_as_long_as_it_is_so() -> None:
    sound, may_recover = Sink(), Event()

    def connect() -> Sink:
        if may_recover.is_set():
            return sound
        raise PublishError("a permission is missing")

    with Beats(connect, lambda: BEAT, every_s=0.05) as beats:
        assert poll(lambda: "a permission is missing" in beats.problem, timeout_s=PATIENCE_S, pause_s=0.01)
        may_recover.set()
        assert poll(lambda: not beats.problem, timeout_s=PATIENCE_S, pause_s=0.01)
