"""Numbers of many partitions by topic and partition, remembered between rounds and found again by column."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.moves import BROKER_BITS, Moves

MISSING = -1
"""Place of a partition that is not in the table."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionTable:
    """n partitions ascending by topic and partition, with k numbers each."""

    topics: tuple[str, ...]
    """Names, ascending, each once."""
    columns: Ints
    """Place in ``topics``, partition, and the numbers, (n, 2 + k)."""

    @classmethod
    def empty(cls, numbers_count: int) -> "PartitionTable":
        """A table without partitions, with so many numbers for each."""
        return cls((), np.zeros((0, 2 + numbers_count), dtype=np.int64))

    @classmethod
    def of(cls, moves: Moves, numbers: Ints, kept: Bools) -> "PartitionTable":
        """A table with ``numbers``, (len(moves), k), of the rows that are true in ``kept``."""
        columns = np.column_stack([moves.topic, moves.partition, numbers])[kept]
        used, place = np.unique(columns[:, 0], return_inverse=True)
        columns[:, 0] = place
        return cls(tuple(moves.topics[each] for each in used.tolist()), columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PartitionTable)
            and self.topics == other.topics
            and np.array_equal(self.columns, other.columns)
        )

    __hash__ = None  # type: ignore[assignment]

    def take(self, kept: Bools) -> "PartitionTable":
        """The rows that are true in ``kept``, (n,)."""
        return self if kept.all() else PartitionTable(self.topics, self.columns[kept])

    def places_of(self, moves: Moves) -> Ints:
        """Row of each partition that moves, or ``MISSING``, (len(moves),)."""
        topic = places_in({name: place for place, name in enumerate(self.topics)}, moves.topics)[moves.topic]
        wanted = partition_keys(topic, moves.partition)
        own = partition_keys(self.columns[:, 0], self.columns[:, 1])
        return find_places(own, wanted)


def places_in(places: Mapping[str, int], names: tuple[str, ...]) -> Ints:
    """Place of each name, or ``MISSING``, shape of ``names``."""
    return np.array([places.get(name, MISSING) for name in names], dtype=np.int64)


def partition_keys(topic: Ints, partition: Ints) -> Ints:
    """One integer for each partition, shapes equal; below 0 where the topic is ``MISSING``."""
    found: Ints = (topic << BROKER_BITS) | partition
    return found


def find_places(keys: Ints, wanted: Ints) -> Ints:
    """Place in ``keys``, which ascend, of each wanted key, or ``MISSING``, shape of ``wanted``."""
    if not len(keys):
        return np.full(len(wanted), MISSING, dtype=np.int64)
    places = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, MISSING)
