"""What is known about a Pulsar cluster besides its load: which other balancers are on, and which bundles must stay where.

Only values; their consequences are in ``state.pulsar.groups`` and ``state.pulsar.holds``.
"""

import msgspec

SPLIT_ALGORITHM = "specified_positions_divide"
"""Pulsar's algorithm that cuts a bundle at given positions: the only one that our actions ask for."""


class Isolation(msgspec.Struct, frozen=True, array_like=True):
    """A namespace isolation policy: regular expressions that must match whole names.

    Pulsar's secondary brokers, to which namespaces fail over when too few primary ones are left, are not part of it.
    """

    name: str
    namespaces: list[str]
    primary: list[str]
    """Hosts of its brokers."""


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """The newest facts that a collector found; every list is ascending."""

    shedding_brokers: list[str]
    """Brokers at which Pulsar's own shedding is on."""
    splitting_brokers: list[str]
    """Brokers at which Pulsar's own splitting of bundles is on."""
    unknown_brokers: list[str]
    """Brokers that could not be asked about one of the two."""
    isolation: list[Isolation]
    """Isolation policies, ascending by name."""
    anti_affinity: dict[str, list[str]]
    """Namespaces of each anti-affinity group."""
    restricted_brokers: list[str] = []
    """Brokers that refuse to split a bundle at given positions."""
    trimtab_topics: dict[str, tuple[float, float]] = {}
    """Messages/s and bytes/s, in + out, of this program's own topics by the bundle they are in."""
    failure_domains: dict[str, list[str]] = {}
    """Brokers of each failure domain."""
