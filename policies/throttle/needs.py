"""What a move needs from each broker: the bytes to move, and the lowest rate at which it ever ends.

Kafka counts the traffic of *all* followers of a throttled partition against its leader's quota and holds back only those
that are not in sync. So the in-sync followers use the quota first, and a leader needs write rate times followers, new ones
included; a follower needs the write rate. Source: ``KafkaApis.sizeOfThrottledPartitions`` and
``ReplicaManager.shouldLeaderThrottle``. The rule of Kafka's manual, "above the write rate", is computed as well: its result is
too low from the second follower on.

While a partition has no leader, nothing is written to it and nothing of it is copied. It takes no quota until it has one, so
no minimum counts it, and ``without_leader`` names it. How much of it is left to copy stays unknown.

Kafka measures writes per topic only, so the write rate of a partition is the growth of its leader's log between two readings.
Retention and compaction make a log shrink; then nothing is known, except that an end offset that stood still means no writes at
all. A partition's rate is never taken from another partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.moves import LARGEST_NUMBER, NO_LEADER, UNKNOWN, Moves
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
    """What each broker needs, as a leader if it now leads a moving partition, and as a follower if it gains one."""

    bytes_left: ByRole
    """What a leader has to send, or a follower to receive."""
    min_bytes_per_s: ByRole
    """The rate must be above it. Of a leader: the sum of write rate times all followers over the partitions that it leads; of a
    follower: the sum of the write rates of the partitions that it gains."""
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
        """What all followers have to receive, at most the largest number Kafka has; None if some of it is unknown."""
        left = [size for role, size in self.bytes_left.items() if role.role == "follower"]
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


def needs_of(moves: Moves, *, counts_whole_logs: bool = True) -> Needs:
    """Add up the needs of all moves, in integer arithmetic without a limit.

    ``counts_whole_logs``: see ``bytes_left``.
    """
    is_led = moves.is_led()
    led, leaders = np.flatnonzero(is_led), moves.leader[is_led]
    rates = np.where(is_led, moves.write_bytes_per_s, 0)
    safe_rates = np.where(moves.write_bytes_per_s == UNKNOWN, rates, moves.write_bytes_per_s)
    followers = followers_of(moves)
    left = bytes_left(moves, counts_whole_logs=counts_whole_logs)
    is_sent = is_led[moves.added.rows]
    sources = moves.sources.rows
    written = total_by_broker(moves.added.brokers, rates[moves.added.rows])
    return Needs(
        bytes_left=by_role(
            total_by_broker(moves.leader[moves.added.rows[is_sent]], left[is_sent]),
            total_by_broker(moves.added.brokers, left),
        ),
        min_bytes_per_s=by_role(total_by_broker(leaders, rates[led], times=followers[led]), written),
        write_bytes_per_s=by_role(total_by_broker(leaders, rates[led]), written),
        failover_safe_min_bytes_per_s=by_role(
            total_by_broker(moves.sources.brokers, safe_rates[sources], times=followers[sources]), written
        ),
        lacking=_find_lacks(moves, left),
        without_leader=tuple(moves.name(row) for row in np.flatnonzero(~is_led).tolist()),
        whole_logs_count=int(np.count_nonzero((moves.present_bytes == UNKNOWN) & ~_has_all(moves))),
    )


def capped_needs_of(moves: Moves) -> Needs:
    """The needs of a move that is watched: what a replica lacks is unknown where its broker did not say what it has.

    Each number is at most the largest that Kafka has: a greater one is as good as endless, and no rate reaches it.
    """
    needs = needs_of(moves, counts_whole_logs=False)
    return replace(
        needs,
        bytes_left=_cap(needs.bytes_left),
        min_bytes_per_s=_cap(needs.min_bytes_per_s),
        write_bytes_per_s=_cap(needs.write_bytes_per_s),
        failover_safe_min_bytes_per_s=_cap(needs.failover_safe_min_bytes_per_s),
    )


def _cap(values: ByRole) -> ByRole:
    return {role: None if value is None else min(value, LARGEST_NUMBER) for role, value in values.items()}


def followers_of(moves: Moves) -> Ints:
    """Followers of each partition while it moves, the added ones included, (n,)."""
    return moves.sources.counts(len(moves)) + moves.added.counts(len(moves)) - 1


def bytes_left(moves: Moves, *, counts_whole_logs: bool = True) -> Ints:
    """What each added replica still has to receive, (k,) in the order of ``moves.added``, or UNKNOWN.

    The leader's size less what the replica has, at least 0; 0 for a replica that is in sync or leads. Where it is not known
    what the replica has: the whole log, which is the most that it can be, or UNKNOWN without ``counts_whole_logs``.
    """
    rows = moves.added.rows
    sizes = moves.log_size_bytes[rows]
    left = np.where(sizes == UNKNOWN, UNKNOWN, np.maximum(sizes - np.maximum(moves.present_bytes, 0), 0))
    if not counts_whole_logs:
        left[moves.present_bytes == UNKNOWN] = UNKNOWN
    left[_has_all(moves)] = 0
    return left


def _has_all(moves: Moves) -> Bools:
    has_all: Bools = moves.in_sync.contains(moves.added.keys) | (
        moves.leader[moves.added.rows] == moves.added.brokers
    )
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


def _find_lacks(moves: Moves, left: Ints) -> tuple[Lack, ...]:
    no_rate = moves.write_bytes_per_s == UNKNOWN
    no_size = np.zeros(len(moves), dtype=np.bool_)
    no_size[moves.added.rows[left == UNKNOWN]] = True
    return tuple(
        Lack(
            partition=moves.name(row),
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
