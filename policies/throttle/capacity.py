"""What networks and disks carry, as somebody declared it, and what that leaves for copies.

A declared network caps a rate, and leaves it room where its use is measured too. A broker's other traffic is its whole traffic less
the rate of the throttle in force, which is the most that replication of the copied partitions takes. Before there is one, any part of the
traffic may be copies: then it takes no cap away, and leaves as much room as if none of it were. While all copies are planned, only what
in-sync followers of their partitions fetch is replication of them. Traffic above the capacity is
subtracted once more, so that an overloaded broker comes down. The use of disks is not measured: what is declared is for copies.
Source: kafka-kit's autothrottle; its share is a share of what is left, ours one of the capacity.

A copy that needs more than a broker of it is declared to carry never ends under any throttle. It is left without one, so that all others
get theirs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from policies.bounds import check_bounds
from policies.columns import Bools
from policies.throttle.copies import LARGEST_NUMBER, UNKNOWN, Copies
from policies.throttle.lists import ThrottledLists, difference, entries_of, lists_of
from policies.throttle.needs import Needs, rows_of, total_by_broker
from policies.throttle.rates import NO_CAPS, Caps, Violation, ceil_ratio, fraction_of
from policies.throttle.roles import BrokerRole

_Rate = Annotated[int, Ge(1), Le(LARGEST_NUMBER), "1 or more, or unset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCapacity:
    """What one broker's network and disks carry; unset falls back to the default of ``[kafka.capacity]``."""

    network_bytes_per_s: _Rate | None = None
    """Bytes per second in each direction; unset = the default."""
    disk_bytes_per_s: _Rate | None = None
    """Bytes per second for moves between its disks; unset = the default."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCapacitySettings:
    """Declared capacity: caps the throttle, and with measured usage lets it use what is free."""

    network_bytes_per_s: _Rate | None = None
    """Bytes per second a broker's network carries in each direction; unset = not declared, then nothing is capped."""
    disk_bytes_per_s: _Rate | None = None
    """Bytes per second that moves between the disks of one broker may use, and get; unset = they get what they need."""
    brokers: Mapping[str, BrokerCapacity] = field(default_factory=dict)
    """The same for single brokers, by broker id."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def network_of(self, broker: int) -> int | None:
        """Bytes per second of one broker's network; None: not declared."""
        return self.brokers.get(str(broker), self).network_bytes_per_s or self.network_bytes_per_s

    def disk_of(self, broker: int) -> int | None:
        """Bytes per second for moves between one broker's disks; None: not declared."""
        return self.brokers.get(str(broker), self).disk_bytes_per_s or self.disk_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUse:
    """Traffic of one broker; None: not measured."""

    in_bytes_per_s: int | None = None
    out_bytes_per_s: int | None = None


def limits_of(
    roles: Iterable[BrokerRole],
    *,
    capacity: KafkaCapacitySettings,
    share_ratio: float,
    use: Mapping[int, NetworkUse],
    rates_in_force: Mapping[BrokerRole, int],
) -> tuple[Caps, Caps]:
    """Cap and room of each role, at least 1 byte/s each; neither if no capacity is declared, no room without measured use.

    ``rates_in_force``: the most that replication of the copied partitions may take of the measured use.
    """
    caps: dict[BrokerRole, int] = {}
    rooms: dict[BrokerRole, int] = {}
    for role in roles:
        if role.is_disk:
            for_copies = capacity.disk_of(role.broker)
            if for_copies is not None:
                caps[role] = rooms[role] = for_copies
            continue
        declared = capacity.network_of(role.broker)
        if declared is None:
            continue
        most = ceil_ratio(declared, fraction_of(share_ratio))
        used, rate = _used_bytes_per_s(role, use), rates_in_force.get(role)
        caps[role] = max(most, 1)
        if used is not None:
            other, over = max(used - (rate or 0), 0), max(used - declared, 0)
            rooms[role] = max(most - other - over, 1)
            if rate is not None:
                caps[role] = rooms[role]
    return (Caps(roles=caps), Caps(roles=rooms)) if caps else (NO_CAPS, NO_CAPS)


def replicated_now(copies: Copies) -> dict[BrokerRole, int]:
    """What leaders send to the in-sync followers of partitions of which no copy has begun, as far as it is known."""
    followers = np.maximum(copies.in_sync.counts(len(copies)) - 1, 0)
    is_known = copies.is_led() & (copies.write_bytes_per_s != UNKNOWN)
    leaders, rates = copies.leader[is_known], copies.write_bytes_per_s[is_known]
    sent = total_by_broker(leaders, rates, times=followers[is_known])
    return {BrokerRole("leader", broker): total or 0 for broker, total in sent.items()}


def _used_bytes_per_s(role: BrokerRole, use: Mapping[int, NetworkUse]) -> int | None:
    """Leaders send, followers receive."""
    found = use.get(role.broker)
    if found is None:
        return None
    return found.out_bytes_per_s if role.role == "leader" else found.in_bytes_per_s


def too_small(needs: Needs, caps: Caps) -> tuple[Violation, ...]:
    """The roles whose minimum reaches their own cap: no rate lets what they copy end."""
    return tuple(
        Violation(role=role, rate_bytes_per_s=cap, min_bytes_per_s=minimum)
        for role, minimum in needs.min_bytes_per_s.items()
        if minimum is not None and (cap := caps.cap_of(role)) is not None and minimum >= cap
    )


def fits(
    copies: Copies,
    violations: Iterable[Violation],
    *,
    added: ThrottledLists,
    rates: Mapping[BrokerRole, int],
    headroom_ratio: float,
) -> Bools:
    """Which partitions can be paced, (n,): of those without a throttle the ones that need most go, until the rest has its headroom.

    What is on our lists (``added``), or has one of our ``rates`` for a disk, stays: a minute's traffic takes no throttle off.
    """
    kept = np.ones(len(copies), dtype=np.bool_)
    for violation in violations:
        rows, times = rows_of(copies, violation.role)
        needed = np.zeros(len(copies))
        needed[rows] = kept[rows] * times * np.maximum(copies.write_bytes_per_s[rows], 0.0)
        involved = needed > 0
        joining = np.flatnonzero(involved)
        if not violation.role.is_disk:
            joining = joining[_is_joining(copies.take(involved), added)]
        elif violation.role in rates:
            continue
        largest_first = joining[np.argsort(-needed[joining], kind="stable")]
        most = violation.rate_bytes_per_s / (1 + headroom_ratio)
        rest = needed.sum() - np.cumsum(needed[largest_first])
        kept[largest_first[: np.count_nonzero(rest > most) + 1]] = False
    return kept


def _is_joining(copies: Copies, added: ThrottledLists) -> Bools:
    """Which partitions have a follower that is not on our lists, (n,)."""
    missing = difference(lists_of(copies), added).follower
    joining = {(topic, partition) for topic, text in missing.items() for partition, _ in entries_of(text)}
    at = zip(copies.topic.tolist(), copies.partition.tolist(), strict=True)
    return np.array([(copies.topics[topic], partition) in joining for topic, partition in at], dtype=np.bool_)
