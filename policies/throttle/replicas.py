"""Replicas of many partitions as one sorted column: unions and differences over 100,000 partitions are one pass each.

A replica is a partition's row and a broker's id in one integer. Source of the width: Kafka broker ids are int32, from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from policies.columns import Bools, Ints

BROKER_BITS = 31
LARGEST_BROKER = (1 << BROKER_BITS) - 1
"""Largest broker id that Kafka's int32 holds."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaSet:
    """Brokers of each row, as a set; k replicas."""

    keys: Ints
    """``row << 31 | broker``, ascending, each once, (k,)."""

    @property
    def rows(self) -> Ints:
        """Row of each replica, ascending, (k,)."""
        return self.keys >> BROKER_BITS

    @property
    def brokers(self) -> Ints:
        """Broker of each replica, ascending within a row, (k,)."""
        return self.keys & LARGEST_BROKER

    def counts(self, rows_count: int) -> Ints:
        """Replicas of each row, (rows_count,)."""
        return np.bincount(self.rows, minlength=rows_count)

    def contains(self, keys: Ints) -> Bools:
        """Whether each key is a replica here, shape of ``keys``."""
        if len(self.keys) == 0:
            return np.zeros(keys.shape, dtype=np.bool_)
        places = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        is_here: Bools = self.keys[places] == keys
        return is_here

    def __or__(self, other: "ReplicaSet") -> "ReplicaSet":
        more = other - self
        return (
            ReplicaSet(np.sort(np.concatenate([self.keys, more.keys]), kind="stable"))
            if len(more.keys)
            else self
        )

    def __sub__(self, other: "ReplicaSet") -> "ReplicaSet":
        return ReplicaSet(self.keys[~other.contains(self.keys)]) if len(other.keys) else self

    def __and__(self, other: "ReplicaSet") -> "ReplicaSet":
        return ReplicaSet(self.keys[other.contains(self.keys)])

    def of_rows(self, kept: Bools) -> "ReplicaSet":
        """The replicas of the rows that are true in ``kept``, (n,)."""
        return ReplicaSet(self.keys[kept[self.rows]])

    def take(self, kept: Bools) -> "ReplicaSet":
        """The same, with the rows numbered anew from 0."""
        left = self.of_rows(kept)
        return ReplicaSet(key_of((np.cumsum(kept) - 1)[left.rows], left.brokers))


def key_of(rows: Ints, brokers: Ints) -> Ints:
    """One integer for each pair, shapes equal."""
    return (rows << BROKER_BITS) | brokers


def flat_keys(brokers: Sequence[Sequence[int]]) -> Ints:
    """The key of every replica as given, repetitions and order included."""
    counts = np.fromiter(map(len, brokers), dtype=np.int64, count=len(brokers))
    flat = np.fromiter(chain.from_iterable(brokers), dtype=np.int64, count=int(counts.sum()))
    return key_of(np.repeat(np.arange(len(brokers)), counts), flat)
