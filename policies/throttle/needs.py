"""What copies need from each broker: the bytes to copy, and the lowest rate at which they ever end.

Kafka counts the traffic of *all* followers of a throttled partition against its leader's quota and holds back only those
that are not in sync. So the in-sync followers use the quota first, and a leader needs write rate times followers, new ones
included; a follower needs the write rate. Source: ``KafkaApis.sizeOfThrottledPartitions`` and
``ReplicaManager.shouldLeaderThrottle``. The rule of Kafka's manual, "above the write rate", is computed as well: its result is
too low from the second follower on.

A recovery needs what a reassignment does: the broker that is back is a follower that is not in sync. A move between disks follows its
own broker's log, so it needs the write rate. A broker copies as many replicas at once as it has threads for that, and those that
wait need nothing yet. Which of them run is not known, so the greatest write rates count.

While a partition has no leader, nothing is written to it and nothing of it is copied. It takes no quota until it has one, so
no minimum counts it, and ``without_leader`` names it. How much of it is left to copy stays unknown.

Kafka measures writes per topic only, so the write rate of a partition is the growth of its leader's log between two readings.
Retention and compaction make a log shrink; then nothing is known, except that an end offset that stood still means no writes at
all. A partition's rate is never taken from another partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.copies import LARGEST_NUMBER, NO_LEADER, REASSIGNMENT, UNKNOWN, Copies
from policies.throttle.roles import BrokerRole, by_role

ByRole = Mapping[BrokerRole, int | None]
"""A whole number for each role of each broker, leaders first, ids ascending; None where a part of the sum is unknown."""
_HALF_BITS = 31
_HALF = (1 << _HALF_BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A partition without a number that the plan needs."""

    partition: str
    lacks: tuple[str, ...]
    """Which of ``write_bytes_per_s`` and ``log_size_bytes`` are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What each broker needs: as the leader of what is copied to others, as a follower that fetches, and for its disks."""

    bytes_left: ByRole
    """What a leader has to send, a follower to receive, or a broker to copy between its disks."""
    min_bytes_per_s: ByRole
    """The rate must be above it. Of a leader: the sum of write rate times all followers over the partitions that it leads; of a
    follower: the sum of the write rates of the partitions that it fetches; of disks: of the replicas that are copied at once."""
    write_bytes_per_s: ByRole
    """The sum of the write rates alone: the minimum by the rule of Kafka's manual, which gives too little for leaders."""
    failover_safe_min_bytes_per_s: ByRole
    """For each source, what ``min_bytes_per_s`` would be if it led every moving partition that it is a source of. Partitions that have
    no leader now are counted, as far as their write rate is known. A follower's minimum is the same whoever leads."""
    lacking: tuple[Lack, ...]
    """Partitions with an unknown number, in order; empty when everything is known."""
    without_leader: tuple[str, ...]
    """Partitions without a leader, in order; no minimum includes what they need once they have one."""
    whole_logs_count: int
    """Added replicas for which it is not reported how much they have already: their whole log counts as left."""

    @property
    def total_bytes_left(self) -> int | None:
        """What is to be copied, at most the largest number Kafka has; None if some of it is unknown."""
        left = [size for role, size in self.bytes_left.items() if role.role != "leader"]
        known = [size for size in left if size is not None]
        return min(sum(known), LARGEST_NUMBER) if len(known) == len(left) else None

    @property
    def lacks_minimums(self) -> bool:
        """Whether a minimum is unknown, because a write rate is."""
        return None in self.min_bytes_per_s.values()

    @property
    def is_whole(self) -> bool:
        """Whether the minimums count every partition."""
        return not (self.without_leader or self.lacks_minimums)


def needs_of(
    copies: Copies, *, counts_whole_logs: bool = True, disk_threads: Mapping[int, int] = MappingProxyType({})
) -> Needs:
    """Add up the needs of all copies, in integer arithmetic without a limit.

    ``counts_whole_logs``: see ``bytes_left``. ``disk_threads``: replicas that a broker copies between its disks at once; where it is not
    known, all of them count.
    """
    between, rows = copies.is_between_brokers(), copies.destinations.rows
    fetched, fetchers = rows[between], copies.destinations.brokers[between]
    is_sent = copies.is_led() & copies.is_replicated()
    led, leaders = np.flatnonzero(is_sent), copies.leader[is_sent]
    rates = np.where(copies.is_led(), copies.write_bytes_per_s, 0)
    safe_rates = np.where(copies.write_bytes_per_s == UNKNOWN, rates, copies.write_bytes_per_s)
    followers = followers_of(copies)
    left = bytes_left(copies, counts_whole_logs=counts_whole_logs)
    left_to_fetch = left[between]
    has_leader = copies.is_led()[fetched]
    sources = copies.sources.of_rows(copies.is_replicated())
    disks = copies.destinations.brokers[~between]
    on_disk = _disk_minimums(disks, rates[rows[~between]], disk_threads)
    written = total_by_broker(fetchers, rates[fetched])
    return Needs(
        bytes_left=by_role(
            total_by_broker(copies.leader[fetched[has_leader]], left_to_fetch[has_leader]),
            total_by_broker(fetchers, left_to_fetch),
            total_by_broker(disks, left[~between]),
        ),
        min_bytes_per_s=by_role(total_by_broker(leaders, rates[led], times=followers[led]), written, on_disk),
        write_bytes_per_s=by_role(total_by_broker(leaders, rates[led]), written, on_disk),
        failover_safe_min_bytes_per_s=by_role(
            total_by_broker(sources.brokers, safe_rates[sources.rows], times=followers[sources.rows]),
            written,
            on_disk,
        ),
        lacking=_find_lacks(copies, left),
        without_leader=tuple(copies.name(row) for row in np.flatnonzero(~copies.is_led()).tolist()),
        whole_logs_count=int(
            np.count_nonzero(
                (copies.present_bytes == UNKNOWN) & (copies.missing_bytes == UNKNOWN) & ~_has_all(copies)
            )
        ),
    )


def known_needs_of(copies: Copies, *, disk_threads: Mapping[int, int] = MappingProxyType({})) -> Needs:
    """The needs of the partitions whose write rate is known; of their sizes what is known counts."""
    known = copies.take(copies.write_bytes_per_s != UNKNOWN)
    sizes = np.maximum(known.log_size_bytes, 0)
    return needs_of(replace(known, log_size_bytes=sizes), disk_threads=disk_threads)


def _disk_minimums(brokers: Ints, rates: Ints, threads: Mapping[int, int]) -> dict[int, int | None]:
    """By broker, the sum of the greatest rates of the replicas that it copies between its disks, as many as it copies at once."""
    order = np.lexsort((-rates, brokers))
    brokers, rates = brokers[order], rates[order]
    first = np.searchsorted(brokers, brokers)
    most = np.array([threads.get(broker, len(brokers)) for broker in brokers.tolist()], dtype=np.int64)
    unknown = np.isin(brokers, brokers[rates == UNKNOWN])
    counts = (np.arange(len(brokers)) - first < most) | unknown
    return total_by_broker(brokers[counts], rates[counts])


def capped_needs_of(copies: Copies, *, disk_threads: Mapping[int, int] = MappingProxyType({})) -> Needs:
    """The needs of copies that are watched: what a replica lacks is unknown where its broker did not say what it has.

    Each number is at most the largest that Kafka has: a greater one is as good as endless, and no rate reaches it.
    """
    needs = needs_of(copies, counts_whole_logs=False, disk_threads=disk_threads)
    return replace(
        needs,
        bytes_left=_cap(needs.bytes_left),
        min_bytes_per_s=_cap(needs.min_bytes_per_s),
        write_bytes_per_s=_cap(needs.write_bytes_per_s),
        failover_safe_min_bytes_per_s=_cap(needs.failover_safe_min_bytes_per_s),
    )


def _cap(values: ByRole) -> ByRole:
    return {role: None if value is None else min(value, LARGEST_NUMBER) for role, value in values.items()}


def followers_of(copies: Copies) -> Ints:
    """Followers of each partition while it is copied, those that a reassignment adds included, (n,)."""
    added = copies.of_kind(REASSIGNMENT)
    return copies.sources.counts(len(copies)) + added.counts(len(copies)) - 1


def partitions_of(copies: Copies, role: BrokerRole) -> list[tuple[str, int]]:
    """The partitions of which a role has something to do, each with what it adds to the minimum, the most first.

    A partition whose write rate is unknown is left out.
    """
    rows, times = rows_of(copies, role)
    needs = [
        (copies.name(row), rate * count)
        for row, rate, count in zip(
            rows.tolist(), copies.write_bytes_per_s[rows].tolist(), times.tolist(), strict=True
        )
        if rate != UNKNOWN
    ]
    return sorted(needs, key=lambda need: -need[1])


def rows_of(copies: Copies, role: BrokerRole) -> tuple[Ints, Ints]:
    """Rows of the partitions of which a role has something to do, and how many times what is written to each it needs, (r,) each."""
    if role.role == "leader":
        rows = np.flatnonzero((copies.leader == role.broker) & copies.is_replicated())
        return rows, followers_of(copies)[rows]
    to = copies.destinations
    rows = to.rows[(to.brokers == role.broker) & (copies.is_between_brokers() != role.is_disk)]
    return rows, np.ones(len(rows), dtype=np.int64)


def bytes_left(copies: Copies, *, counts_whole_logs: bool = True) -> Ints:
    """What each destination still has to get, (k,) in the order of ``copies.destinations``, or UNKNOWN.

    What it says that it lacks; of a reassignment also the leader's size less what the replica has, at least 0. In a recovery sizes
    say nothing, because retention has shortened the leader's log and not yet the replica's. 0 for a replica that is in sync or
    leads. Where it is not known: the whole log, which is the most that it can be, or UNKNOWN without ``counts_whole_logs``.
    """
    sizes = copies.log_size_bytes[copies.destinations.rows]
    is_told = (copies.present_bytes != UNKNOWN) & (copies.kind == REASSIGNMENT)
    there = np.where(is_told, copies.present_bytes, 0)
    left = np.where(sizes == UNKNOWN, UNKNOWN, np.maximum(sizes - there, 0))
    if not counts_whole_logs:
        left[~is_told] = UNKNOWN
    left = np.where(copies.missing_bytes == UNKNOWN, left, copies.missing_bytes)
    left[_has_all(copies)] = 0
    return left


def _has_all(copies: Copies) -> Bools:
    keys, leader = copies.destinations.keys, copies.leader[copies.destinations.rows]
    is_done = copies.in_sync.contains(keys) | (leader == copies.destinations.brokers)
    has_all: Bools = is_done & copies.is_between_brokers()
    return has_all


def total_by_broker(brokers: Ints, values: Ints, *, times: Ints | None = None) -> dict[int, int | None]:
    """Sum of ``values * times`` for each broker, ids ascending; None where one of its values is UNKNOWN.

    Shapes are equal. Exact for any int64: each half of a value is added up by itself and joined as a Python integer.
    """
    ids, place = np.unique(brokers, return_inverse=True)
    factor = np.ones(len(values), dtype=np.int64) if times is None else times
    known = np.where(values == UNKNOWN, 0, values)
    halves = np.zeros((2, len(ids)), dtype=np.int64)
    np.add.at(halves[0], place, (known >> _HALF_BITS) * factor)
    np.add.at(halves[1], place, (known & _HALF) * factor)
    lacking = np.bincount(place[values == UNKNOWN], minlength=len(ids)).tolist()
    return {
        broker: None if lacks else (high << _HALF_BITS) + low
        for broker, high, low, lacks in zip(ids.tolist(), *halves.tolist(), lacking, strict=True)
    }


def _find_lacks(copies: Copies, left: Ints) -> tuple[Lack, ...]:
    no_rate = copies.write_bytes_per_s == UNKNOWN
    no_size = np.zeros(len(copies), dtype=np.bool_)
    no_size[copies.destinations.rows[left == UNKNOWN]] = True
    return tuple(
        Lack(
            partition=copies.name(row),
            lacks=("write_bytes_per_s",) * bool(no_rate[row]) + ("log_size_bytes",) * bool(no_size[row]),
        )
        for row in np.flatnonzero(no_rate | no_size).tolist()
    )


MIN_INTERVAL_MS = 5000
"""Growth over less time is too inaccurate: measured over 1 to 2 s it is off by 2 to 4 %, over 5 s within 1 %."""
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogReading:
    """Logs of n partitions, each at the broker that led it then."""

    at_ms: int | Ints
    """When they were read: one moment for all, or one for each, (n,)."""
    leader: Ints
    """(n,), or ``NO_LEADER``."""
    log_size_bytes: Ints
    """Size on the leader, (n,), or UNKNOWN."""
    end_offset: Ints
    """(n,), or UNKNOWN."""


def write_rates(before: LogReading, after: LogReading) -> Ints:
    """Bytes/s written to each partition, rounded up, (n,), or UNKNOWN; rows of both readings are the same partitions.

    UNKNOWN where the readings are less than ``MIN_INTERVAL_MS`` apart, where another broker led (its log has its own
    segments), where the log shrank, or where a size is unknown.
    """
    elapsed_ms = np.broadcast_to(np.subtract(after.at_ms, before.at_ms), after.leader.shape)
    is_apart = elapsed_ms >= MIN_INTERVAL_MS
    sizes, sizes_before = after.log_size_bytes, before.log_size_bytes
    is_known = (sizes_before != UNKNOWN) & (sizes != UNKNOWN) & (sizes >= sizes_before)
    # rounded up, and in two parts, because growth times 1,000 may not fit into an int64
    whole, rest = np.divmod(np.where(is_known, sizes - sizes_before, 0), np.where(is_apart, elapsed_ms, 1))
    rates: Ints = whole * _MS_PER_S + -(-rest * _MS_PER_S // np.where(is_apart, elapsed_ms, 1))
    rates[~is_known | ~is_apart | (before.leader != after.leader)] = UNKNOWN
    stood_still = (before.end_offset == after.end_offset) & (after.end_offset != UNKNOWN)
    rates[stood_still & is_apart] = 0
    rates[after.leader == NO_LEADER] = UNKNOWN
    return rates
