"""Reading a topic for a person, whichever system it is on: the record and the reader."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from streaming.ports.places import Place

Begin = Literal["earliest", "latest"] | int
"""Where reading begins; a number is milliseconds since the epoch."""


class NoAnswer(Exception):
    """Brokers did not answer a question about a log, or refused it; the error of their client is its cause.

    ``passes`` says whether a later try may succeed: the brokers did not answer, rather than refuse.
    """

    def __init__(self, text: str, *, passes: bool) -> None:
        super().__init__(text)
        self.passes = passes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A record; ``offset`` rises along its partition, ``timestamp`` is when it was appended, in ms since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int
    offset: int
    headers: Sequence[tuple[str, bytes]]


class Reader(AbstractContextManager["Reader"], Protocol):
    """Partitions of one topic; each partition's records come in its order. Raises ``exits.Refused``."""

    @property
    def partitions_count(self) -> int:
        """How many partitions the topic has, whether or not they are read here."""

    def read_to_end(self) -> Iterator[TopicRecord]:
        """The records up to the end of the topic at the time of the call."""

    def read_until(self, place: Place) -> Iterator[TopicRecord]:
        """The records up to a place; only for a reader of that one partition."""

    def follow(self) -> Iterator[TopicRecord]:
        """The records from here on, for ever."""

    def close(self) -> None:
        """Close the connections."""
