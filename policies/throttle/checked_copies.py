"""What is copied, as somebody reported it or asked for it, checked and sorted into ``Copies``.

The columns are checked once, here; the code after this trusts them. Rows are sorted by topic and partition, so nothing
depends on the order they came in. The *sources* of a partition are its current replicas without those that Kafka is adding
already: one of them leads. Source: KIP-455, where the replicas of a running reassignment are the old and the new ones together.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.copies import LARGEST_NUMBER, NO_LEADER, RECOVERY, UNKNOWN, Copies
from policies.throttle.replicas import LARGEST_BROKER, ReplicaSet, flat_keys, key_of

LARGEST_PARTITION = (1 << 31) - 1
TOPIC_PATTERN = r"[A-Za-z0-9._-]{1,249}"
"""A name that Kafka allows for a topic, except ``.`` and ``..``."""
_TOPIC = re.compile(TOPIC_PATTERN)


class BadCopy(ValueError):
    """A partition's row cannot be right; the message names it, what is wrong and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyColumns:
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
    recovering: Sequence[Sequence[int]] | None = None
    """Replicas from before that fetch what they missed, or will once their broker is back."""
    between_disks: Sequence[Sequence[int]] | None = None
    """Replicas that their broker copies from one of its disks to another."""
    min_in_sync: Sequence[int | None] | None = None
    """``min.insync.replicas`` of the topic."""
    present_bytes: Sequence[Mapping[int, int]] | None = None
    """Size of the log on each destination by broker; the size is unknown for a replica that is not in it."""
    missing_bytes: Sequence[Mapping[int, int]] | None = None
    """What each replica that recovers lacks, by broker, as far as it is known."""

    def take(self, places: Sequence[int]) -> "CopyColumns":
        """Only the partitions at ``places``, in that order."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {
            name: None if column is None else [column[place] for place in places]
            for name, column in columns.items()
        }
        return CopyColumns(**taken)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reassignment:
    """Checked columns."""

    copies: Copies
    without_data_movement: tuple[str, ...]
    """Partitions that only reorder or lose replicas: nothing is copied, so nothing is throttled; in order."""


def read_copies(columns: CopyColumns) -> Reassignment:
    """Check and sort. Raises ``BadCopy`` for the first row, by topic and partition, that cannot be right."""
    topics, topic = _topics(columns.topics)
    partition = _to_integers(columns.partitions, "partition")
    order = np.lexsort((partition, topic))
    sorted_ = _SortedColumns(columns, order, topics, topic[order], partition[order])
    sorted_.refuse_names()
    current, adding, target = (sorted_.replicas(kind) for kind in ("current", "adding", "target"))
    sources = current - adding
    sorted_.refuse_sets(current, adding, target, sources)
    in_sync, recovering, between_disks = (
        sorted_.replicas(kind) for kind in ("in_sync", "recovering", "between_disks")
    )
    sorted_.refuse_strangers("recovering", recovering - sources)
    sorted_.refuse_strangers("between_disks", between_disks - current)
    destinations, kind = _sorted_copies(target - sources, recovering - in_sync, between_disks)
    copies = Copies(
        topics=topics,
        topic=sorted_.topic,
        partition=sorted_.partition,
        sources=sources,
        adding=adding,
        destinations=destinations,
        kind=kind,
        target=target,
        in_sync=in_sync,
        min_in_sync=sorted_.numbers("min_in_sync"),
        leader=sorted_.leaders(current | adding),
        write_bytes_per_s=sorted_.numbers("write_bytes_per_s"),
        log_size_bytes=sorted_.numbers("log_size_bytes"),
        present_bytes=_at_destinations(columns.present_bytes, order, destinations),
        missing_bytes=np.where(
            kind == RECOVERY, _at_destinations(columns.missing_bytes, order, destinations), UNKNOWN
        ),
    )
    is_copied = destinations.counts(len(copies)) > 0
    return Reassignment(
        copies=copies.take(is_copied),
        without_data_movement=tuple(copies.name(row) for row in np.flatnonzero(~is_copied).tolist()),
    )


def _sorted_copies(*kinds: ReplicaSet) -> tuple[ReplicaSet, Ints]:
    """The destinations of all kinds, ascending, and the kind of each."""
    keys = np.concatenate([replicas.keys for replicas in kinds])
    kind = np.repeat(np.arange(len(kinds)), [len(replicas.keys) for replicas in kinds])
    order = np.argsort(keys, kind="stable")
    return ReplicaSet(keys[order]), kind[order]


def _topics(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    topics = tuple(sorted(set(names)))
    for name in topics:
        if not _TOPIC.fullmatch(name) or name in {".", ".."}:
            raise BadCopy(f"{name[:300]!r} is no topic name: Kafka allows 1 to 249 of A-Z a-z 0-9 . _ -")
    places = {name: place for place, name in enumerate(topics)}
    return topics, np.fromiter(map(places.__getitem__, names), dtype=np.int64, count=len(names))


def _to_integers(values: Sequence[int], what: str) -> Ints:
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except OverflowError as error:
        raise BadCopy(f"a {what} is above {LARGEST_NUMBER}, the largest number Kafka holds") from error


@dataclass(frozen=True, slots=True, eq=False)
class _SortedColumns:
    """The columns in order, with the checks that name the row they refuse."""

    columns: CopyColumns
    order: Ints
    topics: tuple[str, ...]
    topic: Ints
    partition: Ints

    def refuse(self, rows: Bools, why: Callable[[int], str]) -> None:
        """Raise for the first row that is true; ``why`` gets its place in the columns."""
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            name = f"{self.topics[int(self.topic[row])]}-{int(self.partition[row])}"
            raise BadCopy(f"{name}: {why(int(self.order[row]))}")

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
        given: Sequence[Sequence[int]] | None = getattr(self.columns, kind)
        if given is None:
            return ReplicaSet(np.zeros(0, dtype=np.int64))
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

    def refuse_strangers(self, kind: str, strangers: ReplicaSet) -> None:
        """Refuse a copy to a replica that the partition does not have."""
        given: Sequence[Sequence[int]] = getattr(self.columns, kind) or ()
        self.refuse(
            strangers.counts(len(self.partition)) > 0,
            lambda at: (
                f"{_KEYS[kind]} is {list(given[at])}, which are not all among current_replicas {list(self.columns.current[at])}"
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
        given: Sequence[int | None] | None = getattr(self.columns, kind)
        if given is None:
            return np.full(len(self.order), UNKNOWN, dtype=np.int64)
        is_known = np.ones(len(given), dtype=np.bool_)
        if None in given:
            is_known = np.array([value is not None for value in given], dtype=np.bool_)
        values = [value for value in given if value is not None]
        numbers = np.full(len(given), UNKNOWN, dtype=np.int64)
        try:
            numbers[is_known] = values
        except OverflowError:
            is_outside = np.array([value is not None and abs(value) > LARGEST_NUMBER for value in given])
            self.refuse(
                is_outside[self.order],
                lambda _: f"{kind} is outside 0 to {LARGEST_NUMBER}, the largest number Kafka holds",
            )
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
    "recovering": "recovering",
    "between_disks": "between_disks",
}
"""Name of each kind of replicas in error messages."""


def _at_destinations(
    given: Sequence[Mapping[int, int]] | None, order: Ints, destinations: ReplicaSet
) -> Ints:
    if given is None:
        return np.full(len(destinations.keys), UNKNOWN, dtype=np.int64)
    places = order[destinations.rows].tolist()
    sizes = (
        given[place].get(broker, UNKNOWN)
        for place, broker in zip(places, destinations.brokers.tolist(), strict=True)
    )
    return np.fromiter(sizes, dtype=np.int64, count=len(places))
