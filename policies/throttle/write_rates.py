"""Write rate of each partition, from the growth of its log between two readings, because Kafka measures it per topic only.

A rate is the growth of the leader's log in bytes. Retention and compaction make a log shrink; then nothing is known, except that
an end offset that stood still means no writes at all. A partition's rate is never taken from another partition.
"""

from dataclasses import dataclass

import numpy as np

from policies.columns import Ints
from policies.throttle.moves import NO_LEADER, UNKNOWN

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
    rates = _per_second(
        _growth(before.log_size_bytes, after.log_size_bytes), np.where(is_apart, elapsed_ms, 1)
    )
    rates[~is_apart | (before.leader != after.leader)] = UNKNOWN
    stood_still = (before.end_offset == after.end_offset) & (after.end_offset != UNKNOWN)
    rates[stood_still & is_apart] = 0
    rates[after.leader == NO_LEADER] = UNKNOWN
    return rates


def _growth(before: Ints, after: Ints) -> Ints:
    """Growth, (n,), or UNKNOWN where a size is unknown or the log shrank."""
    known = (before != UNKNOWN) & (after != UNKNOWN) & (after >= before)
    return np.where(known, after - before, UNKNOWN)


def _per_second(growth: Ints, elapsed_ms: Ints) -> Ints:
    """Growth a second, rounded up, (n,); in two parts, because growth times 1,000 may not fit into an int64."""
    whole, rest = np.divmod(growth, elapsed_ms)
    rates = whole * _MS_PER_S + -(-rest * _MS_PER_S // elapsed_ms)
    return np.where(growth == UNKNOWN, UNKNOWN, rates)
