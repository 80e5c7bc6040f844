"""A reassignment as columns: which partition gains which replica, its leader, its write rate and the size of its log.

The columns are checked once, here; the code after this trusts them. Rows are sorted by topic and partition, so nothing
depends on the order they came in. The *sources* of a partition are its current replicas without those that Kafka is adding
already; replicas of the target that are no sources are *added*. Source: KIP-455, where the replicas of a running
reassignment are the old and the new ones together.

A replica is a partition's row and a broker's id in one integer, so that unions and differences over 100,000 partitions are
one pass each. Source of the width: Kafka broker ids are int32, from 0.

A copy is *broken* where its destination is not alive, or where nothing is left to copy from: the partition has no live leader,
and none of its in-sync sources, which alone may lead, is alive. A source that the move removes breaks nothing.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import chain
from typing import Any

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

    def take(self, kept: Bools) -> "ReplicaSet":
        """The replicas of the rows that are true in ``kept``, (n,), which are numbered anew from 0."""
        rows = self.rows
        left = kept[rows]
        places = np.cumsum(kept) - 1
        return ReplicaSet(key_of(places[rows[left]], self.brokers[left]))


def key_of(rows: Ints, brokers: Ints) -> Ints:
    """One integer for each pair, shapes equal."""
    return (rows << BROKER_BITS) | brokers


def flat_keys(brokers: Sequence[Sequence[int]]) -> Ints:
    """The key of every replica as given, repetitions and order included."""
    counts = np.fromiter(map(len, brokers), dtype=np.int64, count=len(brokers))
    flat = np.fromiter(chain.from_iterable(brokers), dtype=np.int64, count=int(counts.sum()))
    return key_of(np.repeat(np.arange(len(brokers)), counts), flat)


UNKNOWN = -1
"""A rate or size that was not measured; it never counts as 0."""
NO_LEADER = -1
"""Kafka's own id for the leader of a partition that has none."""
LARGEST_NUMBER = (1 << 63) - 1
"""Largest value of Kafka's int64: sizes, offsets and rates."""
LARGEST_PARTITION = (1 << 31) - 1
TOPIC_PATTERN = r"[A-Za-z0-9._-]{1,249}"
"""A name that Kafka allows for a topic, except ``.`` and ``..``."""
_TOPIC = re.compile(TOPIC_PATTERN)


class BadMove(ValueError):
    """A partition's row cannot be right; the message names it, what is wrong and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveColumns:
    """What is known of n partitions, as given, in any order; None is unknown."""

    topics: Sequence[str]
    partitions: Sequence[int]
    current: Sequence[Sequence[int]]
    """Replicas now, those that Kafka is adding already included."""
    adding: Sequence[Sequence[int]]
    """Replicas that Kafka is adding already; empty where nothing moves yet."""
    target: Sequence[Sequence[int]]
    """Replicas after the move."""
    leaders: Sequence[int]
    """Live leader; ``NO_LEADER`` where there is none."""
    write_bytes_per_s: Sequence[int | None]
    """Bytes/s that producers write."""
    log_size_bytes: Sequence[int | None]
    """Size of the leader's log."""
    in_sync: Sequence[Sequence[int]] | None = None
    """In-sync replicas; None: not known, and no added replica counts as in sync."""
    present_bytes: Sequence[Mapping[int, int]] | None = None
    """Size of the log on each added replica by broker; the size is unknown for a replica that is not in it."""

    def take(self, places: Sequence[int]) -> "MoveColumns":
        """Only the partitions at ``places``, in that order."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {
            name: None if column is None else [column[place] for place in places]
            for name, column in columns.items()
        }
        return MoveColumns(**taken)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """Partitions that gain a replica; n rows ascending by topic and partition, k added replicas."""

    topics: tuple[str, ...]
    """Names, ascending, each once."""
    topic: Ints
    """Index into ``topics``, (n,)."""
    partition: Ints
    """(n,)."""
    sources: ReplicaSet
    """Replicas from before the move."""
    added: ReplicaSet
    """Replicas that the move adds; at least one in every row."""
    target: ReplicaSet
    """Replicas after the move; sources that are not in it are removed."""
    in_sync: ReplicaSet
    """In-sync replicas; empty where not known."""
    leader: Ints
    """Live leader or ``NO_LEADER``, (n,)."""
    write_bytes_per_s: Ints
    """(n,), or UNKNOWN."""
    log_size_bytes: Ints
    """(n,), or UNKNOWN."""
    present_bytes: Ints
    """What each added replica has already, (k,) in the order of ``added``, or UNKNOWN."""

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

    def fingerprint(self) -> str:
        """What moves where, and nothing that changes while it runs: 16 hex digits of SHA-256."""
        used, topic = np.unique(self.topic, return_inverse=True)
        digest = sha256("\n".join(self.topics[place] for place in used.tolist()).encode())
        for column in (topic, self.partition, self.sources.keys, self.target.keys):
            digest.update(len(column).to_bytes(8, "little"))
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def take(self, kept: Bools) -> "Moves":
        """Only the rows that are true in ``kept``, (n,)."""
        if kept.all():
            return self
        return Moves(
            topics=self.topics,
            topic=self.topic[kept],
            partition=self.partition[kept],
            sources=self.sources.take(kept),
            added=self.added.take(kept),
            target=self.target.take(kept),
            in_sync=self.in_sync.take(kept),
            leader=self.leader[kept],
            write_bytes_per_s=self.write_bytes_per_s[kept],
            log_size_bytes=self.log_size_bytes[kept],
            present_bytes=self.present_bytes[kept[self.added.rows]],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reassignment:
    """A checked reassignment."""

    moves: Moves
    without_data_movement: tuple[str, ...]
    """Partitions that only reorder or lose replicas: nothing is copied, so nothing is throttled; in order."""


def read_moves(columns: MoveColumns) -> Reassignment:
    """Check and sort. Raises ``BadMove`` for the first row, by topic and partition, that cannot be right."""
    topics, topic = _topics(columns.topics)
    partition = _to_integers(columns.partitions, "partition")
    order = np.lexsort((partition, topic))
    sorted_ = _SortedColumns(columns, order, topics, topic[order], partition[order])
    sorted_.refuse_names()
    current, adding, target = (sorted_.replicas(kind) for kind in ("current", "adding", "target"))
    sources = current - adding
    sorted_.refuse_sets(current, adding, target, sources)
    added = target - sources
    moves = Moves(
        topics=topics,
        topic=sorted_.topic,
        partition=sorted_.partition,
        sources=sources,
        added=added,
        target=target,
        in_sync=ReplicaSet(np.zeros(0, dtype=np.int64))
        if columns.in_sync is None
        else sorted_.replicas("in_sync"),
        leader=sorted_.leaders(current | adding),
        write_bytes_per_s=sorted_.numbers("write_bytes_per_s"),
        log_size_bytes=sorted_.numbers("log_size_bytes"),
        present_bytes=_present_bytes_of(columns.present_bytes, order, added),
    )
    gains = added.counts(len(moves)) > 0
    return Reassignment(
        moves=moves.take(gains),
        without_data_movement=tuple(moves.name(row) for row in np.flatnonzero(~gains).tolist()),
    )


def _topics(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    topics = tuple(sorted(set(names)))
    for name in topics:
        if not _TOPIC.fullmatch(name) or name in {".", ".."}:
            raise BadMove(f"{name[:300]!r} is no topic name: Kafka allows 1 to 249 of A-Z a-z 0-9 . _ -")
    places = {name: place for place, name in enumerate(topics)}
    return topics, np.fromiter(map(places.__getitem__, names), dtype=np.int64, count=len(names))


def _to_integers(values: Sequence[int], what: str) -> Ints:
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except OverflowError as error:
        raise BadMove(f"a {what} is above {LARGEST_NUMBER}, the largest number Kafka holds") from error


@dataclass(frozen=True, slots=True, eq=False)
class _SortedColumns:
    """The columns in order, with the checks that name the row they refuse."""

    columns: MoveColumns
    order: Ints
    topics: tuple[str, ...]
    topic: Ints
    partition: Ints

    def refuse(self, rows: Bools, why: Callable[[int], str]) -> None:
        """Raise for the first row that is true; ``why`` gets its place in the columns."""
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            name = f"{self.topics[int(self.topic[row])]}-{int(self.partition[row])}"
            raise BadMove(f"{name}: {why(int(self.order[row]))}")

    def refuse_names(self) -> None:
        self.refuse(
            (self.partition < 0) | (self.partition > LARGEST_PARTITION),
            lambda place: f"partition is {self.columns.partitions[place]}; expected 0 to {LARGEST_PARTITION}",
        )
        again = np.zeros(len(self.partition), dtype=np.bool_)
        again[1:] = (np.diff(self.topic) == 0) & (np.diff(self.partition) == 0)
        self.refuse(again, lambda _: "given twice; give each partition once")

    def replicas(self, kind: str) -> ReplicaSet:
        """Replicas of one kind; each id possible and given once."""
        given: Sequence[Sequence[int]] = getattr(self.columns, kind)
        flat = list(chain.from_iterable(given))
        if flat and (min(flat) < 0 or max(flat) > LARGEST_BROKER):
            bad = np.array(
                [any(not 0 <= broker <= LARGEST_BROKER for broker in given[at]) for at in self.order.tolist()]
            )
            self.refuse(
                bad, lambda at: f"{_KEYS[kind]} is {list(given[at])}; a broker id is 0 to {LARGEST_BROKER}"
            )
        keys = np.sort(flat_keys([given[at] for at in self.order.tolist()]), kind="stable")
        again = np.zeros(len(given), dtype=np.bool_)
        again[(keys[1:] >> 31)[np.diff(keys) == 0]] = True
        self.refuse(again, lambda at: f"{_KEYS[kind]} is {list(given[at])}; give each broker once")
        return ReplicaSet(keys)

    def refuse_sets(
        self, current: ReplicaSet, adding: ReplicaSet, target: ReplicaSet, sources: ReplicaSet
    ) -> None:
        """Refuse kinds of replicas that do not fit together."""
        count = len(self.partition)
        for kind, replicas in (("current", current), ("target", target)):
            self.refuse(replicas.counts(count) == 0, lambda _, kind=kind: f"{_KEYS[kind]} is empty")  # type: ignore[misc]
        self.refuse(
            sources.counts(count) == 0,
            lambda at: (
                f"all of current_replicas {list(self.columns.current[at])} are being added; one must be a source"
            ),
        )
        self.refuse(
            (adding - target).counts(count) > 0,
            lambda at: (
                f"already being reassigned: Kafka is adding {list(self.columns.adding[at])}, and target_replicas "
                f"{list(self.columns.target[at])} leaves some of them out; cancel that move first, or keep its targets"
            ),
        )

    def leaders(self, current: ReplicaSet) -> Ints:
        """The live leaders, (n,)."""
        leader = _to_integers(self.columns.leaders, "leader")[self.order]
        rows = np.arange(len(leader))
        led = leader != NO_LEADER
        possible = (leader >= 0) & (leader <= LARGEST_BROKER)
        strange = led & ~(possible & current.contains(key_of(rows, np.where(possible, leader, 0))))
        self.refuse(
            strange,
            lambda at: (
                f"leader is {self.columns.leaders[at]}, which is not among current_replicas "
                f"{list(self.columns.current[at])}"
            ),
        )
        return leader

    def numbers(self, kind: str) -> Ints:
        """Rates or sizes in order, (n,)."""
        given: Sequence[int | None] = getattr(self.columns, kind)
        is_known = np.ones(len(given), dtype=np.bool_)
        if None in given:
            is_known = np.array([value is not None for value in given], dtype=np.bool_)
        values = [value for value in given if value is not None]
        numbers = np.full(len(given), UNKNOWN, dtype=np.int64)
        try:
            numbers[is_known] = values
        except OverflowError as error:
            raise BadMove(f"a {kind} is above {LARGEST_NUMBER}, the largest number Kafka holds") from error
        self.refuse(
            ((numbers < 0) & is_known)[self.order],
            lambda at: f"{kind} is {given[at]}; expected 0 or more, or null for unknown",
        )
        return numbers[self.order]


_KEYS = {
    "current": "current_replicas",
    "adding": "in_progress_adding_replicas",
    "target": "target_replicas",
    "in_sync": "isr",
}
"""Name of each kind of replicas in error messages."""


def _present_bytes_of(given: Sequence[Mapping[int, int]] | None, order: Ints, added: ReplicaSet) -> Ints:
    if given is None:
        return np.full(len(added.keys), UNKNOWN, dtype=np.int64)
    places = order[added.rows].tolist()
    sizes = (
        given[place].get(broker, UNKNOWN)
        for place, broker in zip(places, added.brokers.tolist(), strict=True)
    )
    return np.fromiter(sizes, dtype=np.int64, count=len(places))


PartitionsByBroker = dict[int, list[str]]
"""Names of partitions by the broker they wait for, both ascending."""


def broken_copies(moves: Moves, down: Collection[int]) -> PartitionsByBroker:
    """The partitions whose copies wait for a broker in ``down``."""
    if not down:
        return {}
    has_source = moves.is_led() & ~np.isin(moves.leader, list(down))
    in_sync = moves.sources - (moves.sources - moves.in_sync)
    without_in_sync = in_sync.counts(len(moves)) == 0  # not reported: any source may have all of it
    sources = in_sync | _of_rows(moves.sources, without_in_sync)
    has_source[sources.rows[~_is_down(sources, down)]] = True
    return _names(moves, moves.added | _of_rows(sources, ~has_source), down)


def kept_replicas_down(moves: Moves, down: Collection[int]) -> PartitionsByBroker:
    """The partitions with a replica on a broker in ``down`` that they keep."""
    return _names(moves, moves.sources - (moves.sources - moves.target), down) if down else {}


def _is_down(replicas: ReplicaSet, down: Collection[int]) -> Bools:
    return np.isin(replicas.brokers, list(down))


def _of_rows(replicas: ReplicaSet, rows: Bools) -> ReplicaSet:
    return ReplicaSet(replicas.keys[rows[replicas.rows]])


def _names(moves: Moves, replicas: ReplicaSet, down: Collection[int]) -> PartitionsByBroker:
    names: PartitionsByBroker = {}
    is_down = _is_down(replicas, down)
    for row, broker in zip(replicas.rows[is_down].tolist(), replicas.brokers[is_down].tolist(), strict=True):
        names.setdefault(broker, []).append(moves.name(row))
    return dict(sorted(names.items()))
