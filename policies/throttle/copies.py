"""Every copy that Kafka makes, as columns: of which partition, to which broker, of which kind, and how much of it is there.

There are three kinds. A *reassignment* adds replicas. In a *recovery* a broker that was away fetches what its replicas missed. A move
between *disks* makes a second copy of a replica beside the first one, on the same broker. The kind decides only which setting carries
the rate.

A copy is *broken* where its destination is not alive, or where nothing is left to copy from: the partition has no live leader,
and none of its in-sync sources, which alone may lead, is alive. A source that the move removes breaks nothing. A recovery whose
broker is still away is no broken copy: it is *planned*, and begins when the broker is back. One that had begun is broken.
"""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.replicas import ReplicaSet

CopyKind = Literal["reassignment", "recovery", "disk"]
KINDS: tuple[CopyKind, ...] = ("reassignment", "recovery", "disk")
REASSIGNMENT, RECOVERY, DISK = range(len(KINDS))
"""Places in ``KINDS``."""

UNKNOWN = -1
"""A rate or size that was not measured; it never counts as 0."""
NO_LEADER = -1
"""Kafka's own id for the leader of a partition that has none."""
LARGEST_NUMBER = (1 << 63) - 1
"""Largest value of Kafka's int64: sizes, offsets and rates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copies:
    """Partitions of which something is copied; n rows ascending by topic and partition, k copies."""

    topics: tuple[str, ...]
    """Names, ascending, each once."""
    topic: Ints
    """Index into ``topics``, (n,)."""
    partition: Ints
    """(n,)."""
    sources: ReplicaSet
    """Replicas from before a reassignment."""
    adding: ReplicaSet
    """Those that Kafka adds already; a reassignment's other destinations are planned."""
    destinations: ReplicaSet
    """Where each copy goes, at least one in every row. A replica that recovers and changes its disk is in it twice."""
    kind: Ints
    """Place in ``KINDS`` of each copy, (k,) in the order of ``destinations``."""
    target: ReplicaSet
    """Replicas in the end; sources that are not in it are removed."""
    in_sync: ReplicaSet
    """In-sync replicas; empty where not known."""
    min_in_sync: Ints
    """In-sync replicas without which nothing can be written, (n,), or UNKNOWN."""
    leader: Ints
    """Live leader or ``NO_LEADER``, (n,)."""
    write_bytes_per_s: Ints
    """(n,), or UNKNOWN."""
    log_size_bytes: Ints
    """Of the leader, (n,), or UNKNOWN."""
    present_bytes: Ints
    """What each destination has already, (k,), or UNKNOWN."""
    missing_bytes: Ints
    """What each destination lacks by its offsets, (k,), or UNKNOWN: then the sizes tell, but not of a recovery."""

    def __len__(self) -> int:
        return len(self.partition)

    def name(self, row: int) -> str:
        """``topic-partition``, as Kafka writes it."""
        return f"{self.topics[int(self.topic[row])]}-{int(self.partition[row])}"

    def names(self) -> list[str]:
        """All of them, in order."""
        return [
            f"{self.topics[topic]}-{partition}"
            for topic, partition in zip(self.topic.tolist(), self.partition.tolist(), strict=True)
        ]

    def is_led(self) -> Bools:
        """Whether a partition has a leader, (n,)."""
        is_led: Bools = self.leader != NO_LEADER
        return is_led

    def is_between_brokers(self) -> Bools:
        """Whether a copy goes from one broker to another, (k,); the others go from disk to disk."""
        is_between: Bools = self.kind != DISK
        return is_between

    def is_replicated(self) -> Bools:
        """Whether anything of a partition goes from one broker to another, (n,)."""
        is_replicated = np.zeros(len(self), dtype=np.bool_)
        is_replicated[self.destinations.rows[self.is_between_brokers()]] = True
        return is_replicated

    def is_under_min_isr(self) -> Bools:
        """Whether a partition has fewer in-sync replicas than producers ask for, as far as both are known, (n,)."""
        in_sync = self.in_sync.counts(len(self))
        is_under: Bools = (in_sync > 0) & (in_sync < self.min_in_sync)
        return is_under

    def of_kind(self, kind: int) -> ReplicaSet:
        """The destinations of one kind of copy."""
        return ReplicaSet(self.destinations.keys[self.kind == kind])

    def brokers(self) -> set[int]:
        """Every broker that takes part."""
        return {*self.sources.brokers.tolist(), *self.destinations.brokers.tolist()}

    def fingerprint(self) -> str | None:
        """What is reassigned where, and nothing that changes while it runs: 16 hex digits of SHA-256; None: nothing is reassigned."""
        is_moved = self.of_kind(REASSIGNMENT).counts(len(self)) > 0
        if not is_moved.any():
            return None
        moved = self.take(is_moved)
        used, topic = np.unique(moved.topic, return_inverse=True)
        digest = sha256("\n".join(self.topics[place] for place in used.tolist()).encode())
        for column in (topic, moved.partition, moved.sources.keys, moved.target.keys):
            digest.update(len(column).to_bytes(8, "little"))
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def take(self, kept: Bools) -> "Copies":
        """Only the rows that are true in ``kept``, (n,)."""
        return self if kept.all() else self._take(kept, kept[self.destinations.rows])

    def take_copies(self, kept: Bools) -> "Copies":
        """Only the copies that are true in ``kept``, (k,), and the rows that have any left."""
        if kept.all():
            return self
        rows = np.zeros(len(self), dtype=np.bool_)
        rows[self.destinations.rows[kept]] = True
        return self._take(rows, kept)

    def _take(self, rows: Bools, copies: Bools) -> "Copies":
        return Copies(
            topics=self.topics,
            topic=self.topic[rows],
            partition=self.partition[rows],
            sources=self.sources.take(rows),
            adding=self.adding.take(rows),
            destinations=ReplicaSet(self.destinations.keys[copies]).take(rows),
            kind=self.kind[copies],
            target=self.target.take(rows),
            in_sync=self.in_sync.take(rows),
            min_in_sync=self.min_in_sync[rows],
            leader=self.leader[rows],
            write_bytes_per_s=self.write_bytes_per_s[rows],
            log_size_bytes=self.log_size_bytes[rows],
            present_bytes=self.present_bytes[copies],
            missing_bytes=self.missing_bytes[copies],
        )


PartitionsByBroker = dict[int, list[str]]
"""Names of partitions by the broker they wait for, both ascending."""


def broken_copies(
    copies: Copies, down: Collection[int], *, begun: Collection[int] = ()
) -> PartitionsByBroker:
    """The partitions whose copies wait for a broker in ``down``; of moves between disks none does.

    A recovery on a broker in ``begun`` is one that had begun before its broker went away again.
    """
    if not down:
        return {}
    has_source = copies.is_led() & ~np.isin(copies.leader, list(down))
    in_sync = copies.sources & copies.in_sync
    without_in_sync = in_sync.counts(len(copies)) == 0  # not reported: any source may have all of it
    sources = in_sync | copies.sources.of_rows(without_in_sync)
    has_source[sources.rows[~_is_down(sources, down)]] = True
    without_source = sources.of_rows(~has_source & copies.is_replicated())
    recovering = copies.of_kind(RECOVERY)
    ended = ReplicaSet(recovering.keys[_is_down(recovering, begun)])
    return _names(copies, copies.of_kind(REASSIGNMENT) | ended | without_source, down)


def kept_replicas_down(copies: Copies, down: Collection[int]) -> PartitionsByBroker:
    """The partitions with a replica on a broker in ``down`` that their reassignment keeps; one that will recover is none."""
    if not down:
        return {}
    moved = copies.of_kind(REASSIGNMENT)
    kept = (copies.sources & copies.target) - copies.of_kind(RECOVERY)
    return _names(copies, kept.of_rows(moved.counts(len(copies)) > 0), down)


def _is_down(replicas: ReplicaSet, down: Collection[int]) -> Bools:
    return np.isin(replicas.brokers, list(down))


def _names(copies: Copies, replicas: ReplicaSet, down: Collection[int]) -> PartitionsByBroker:
    names: PartitionsByBroker = {}
    is_down = _is_down(replicas, down)
    for row, broker in zip(replicas.rows[is_down].tolist(), replicas.brokers[is_down].tolist(), strict=True):
        names.setdefault(broker, []).append(copies.name(row))
    return dict(sorted(names.items()))
