"""Reading a topic, whichever system it is on: the record, the reader, and how far the partitions have been read."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from streaming.contract.skipped import SkippedRange

Begin = Literal["earliest", "latest"] | int
"""Where reading begins; a number is milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far one partition has been read."""

    topic: str
    partition: int
    """0 for a topic without partitions."""
    log: str
    """Name of the partition's log at its broker: on Kafka the topic's."""
    at: str


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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far all partitions have been read."""

    places: list[Place] = field(default_factory=list)
    planned_ms: int = 0
    """When the batch was planned, by the driver's clock."""

    def by_partition(self) -> dict[tuple[str, int], Place]:
        """The places by topic and partition."""
        return {(place.topic, place.partition): place for place in self.places}


def order_of(at: str) -> tuple[int, ...]:
    """The numbers by which places of one partition are compared."""
    return tuple(map(int, at.split(":")))


def is_past(ranges: Sequence[SkippedRange], places: Sequence[Place]) -> bool:
    """Whether reading is past every gap."""
    at = {(place.topic, place.partition): place.at for place in places}
    return all(
        each.where not in at
        or (at[each.where] != each.read_until and order_of(at[each.where]) >= order_of(each.goes_on_from))
        for each in ranges
    )
