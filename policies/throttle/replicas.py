"""Sets of replicas of many partitions as one sorted column.

A replica is a partition's row and a broker's id in one integer, so that unions and differences over 100,000 partitions are
one pass each. Source of the width: Kafka broker ids are int32, from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np

from policies.snapshot import Ints
from policies.usage import Bools

BROKER_BITS = 31
LARGEST_BROKER = (1 << BROKER_BITS) - 1
"""Largest broker id that Kafka's int32 holds."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaSet:
    """Brokers of each row, as a set; k replicas."""

    keys: Ints
    """``row << 31 | broker``, ascending, each once, (k,)."""

    @classmethod
    def of(cls, brokers: Sequence[Sequence[int]]) -> Self:
        """A row for each sequence; ids must be from 0 to ``LARGEST_BROKER``."""
        return cls(np.unique(flat_keys(brokers)))

    @property
    def rows(self) -> Ints:
        """Row of each replica, ascending, (k,)."""
        found: Ints = self.keys >> BROKER_BITS
        return found

    @property
    def brokers(self) -> Ints:
        """Broker of each replica, ascending within a row, (k,)."""
        found: Ints = self.keys & LARGEST_BROKER
        return found

    def counts(self, rows_count: int) -> Ints:
        """Replicas of each row, (rows_count,)."""
        return np.bincount(self.rows, minlength=rows_count)

    def contains(self, keys: Ints) -> Bools:
        """Whether each key is a replica here, shape of ``keys``."""
        return np.isin(keys, self.keys)

    def __or__(self, other: "ReplicaSet") -> "ReplicaSet":
        return ReplicaSet(np.union1d(self.keys, other.keys))

    def __sub__(self, other: "ReplicaSet") -> "ReplicaSet":
        return ReplicaSet(np.setdiff1d(self.keys, other.keys, assume_unique=True))

    def only(self, rows: Ints) -> "ReplicaSet":
        """The replicas of ``rows`` (ascending), which are numbered anew from 0."""
        kept = self.keys[np.isin(self.rows, rows)]
        return ReplicaSet(key_of(np.searchsorted(rows, kept >> BROKER_BITS), kept & LARGEST_BROKER))


def key_of(rows: Ints, brokers: Ints) -> Ints:
    """One integer for each pair, shapes equal."""
    found: Ints = (rows << BROKER_BITS) | brokers
    return found


def flat_keys(brokers: Sequence[Sequence[int]]) -> Ints:
    """The key of every replica as given, repetitions and order included."""
    counts = np.fromiter(map(len, brokers), dtype=np.int64, count=len(brokers))
    flat = np.fromiter(chain.from_iterable(brokers), dtype=np.int64, count=int(counts.sum()))
    return key_of(np.repeat(np.arange(len(brokers)), counts), flat)
