"""How far the partitions of topics have been read, wherever that was noted."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streaming.contract.encode import SkippedRange


@dataclass(frozen=True, slots=True)
class Place:
    """How far one partition has been read."""

    topic: str
    partition: int
    """0 for a topic without partitions."""
    log: str
    """Name of the partition's log at its broker: on Kafka the topic's."""
    at: str


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
