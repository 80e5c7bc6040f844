"""A standby hears the leader's beats, whatever happens to their topic meanwhile."""

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import pytest

from streaming.contract.beat import Beat, encode
from streaming.controller.standby import Election, Listener
from streaming.process.exits import Refused
from streaming.transport.side import TopicRecord

GOODBYE = Beat(
    name="main", instance="a:1", epoch=7, batch=3, at="then", version="1", session_s=10.0, is_leaving=True
)
PATIENCE_S = 20.0


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
        yield TopicRecord(key=b"main", value=encode(GOODBYE), timestamp=0, partition=0, offset=0, headers=[])

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


def test_a_goodbye_ends_the_wait_and_names_who_has_left() -> None:
    with listening(Topic(failing=0)) as listener:
        listener.wait(PATIENCE_S)
        assert listener.reason == "the leader a:1 has said goodbye"
        assert listener.leader == GOODBYE


def test_a_topic_that_cannot_be_read_is_named_and_read_again_by_a_connection_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streaming.controller.standby._AGAIN_S", 0.0)
    topic, connections = Topic(failing=2), threading.Semaphore(0)
    with listening(topic, connections.release) as listener:
        listener.wait(PATIENCE_S)
        assert listener.reason is not None
        assert listener.problem == ""
    assert all(connections.acquire(timeout=PATIENCE_S) for _ in range(3))
    assert topic.closed_count >= 2
