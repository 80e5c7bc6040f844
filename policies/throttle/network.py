"""What the network leaves for a throttle: a cap where a capacity is declared, room where its use is measured too.

A broker's other traffic is its whole traffic less the rate of the throttle in force, which is the most that replication of
the moving partitions takes. Traffic above the capacity is subtracted once more, so that an overloaded broker comes down.
Source: kafka-kit's autothrottle; its share is a share of what is left, ours one of the capacity.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.throttle.rates import NO_CAPS, BrokerRole, Caps, ceil_ratio, fraction_of
from policies.throttle.settings import NetworkCapacitySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUse:
    """Traffic of one broker; None: not measured."""

    in_bytes_per_s: int | None = None
    out_bytes_per_s: int | None = None


def network_limits(
    roles: Iterable[BrokerRole],
    *,
    capacity: NetworkCapacitySettings,
    share_ratio: float,
    use: Mapping[int, NetworkUse],
    rates_in_force: Mapping[BrokerRole, int],
) -> tuple[Caps, Caps]:
    """Cap and room of each role, at least 1 byte/s each; neither if no capacity is declared, no room without measured use."""
    caps: dict[BrokerRole, int] = {}
    rooms: dict[BrokerRole, int] = {}
    for role in roles:
        declared = capacity.of(role.broker)
        if declared is None:
            continue
        most = ceil_ratio(declared, fraction_of(share_ratio))
        used = _used_bytes_per_s(role, use)
        if used is None:
            caps[role] = max(most, 1)
        else:
            other, over = max(used - rates_in_force.get(role, 0), 0), max(used - declared, 0)
            caps[role] = rooms[role] = max(most - other - over, 1)
    return (Caps(roles=caps), Caps(roles=rooms)) if caps else (NO_CAPS, NO_CAPS)


def _used_bytes_per_s(role: BrokerRole, use: Mapping[int, NetworkUse]) -> int | None:
    """Leaders send, followers receive."""
    found = use.get(role.broker)
    if found is None:
        return None
    return found.out_bytes_per_s if role.role == "leader" else found.in_bytes_per_s
