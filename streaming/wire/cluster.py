"""``trimtab.pulsar.cluster.v1``: what a collector finds out about a Pulsar cluster besides its load."""

import msgspec

from streaming.wire.messages import Envelope


class PulsarBrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker is configured to do by itself; null: it could not be asked."""

    load_manager: str | None = None
    """Class name without its package."""
    shedding_enabled: bool | None = None
    """Whether Pulsar's own shedding is on there. Pulsar: ``loadBalancerSheddingEnabled``."""
    auto_split_enabled: bool | None = None
    """Whether Pulsar's own splitting is on there. Pulsar: ``loadBalancerAutoBundleSplitEnabled``."""


class IsolationPolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One of Pulsar's namespace isolation policies; all are regular expressions that must match whole names."""

    namespaces: list[str]
    """Namespaces it is about."""
    primary: list[str]
    """Hosts of the brokers they belong on."""
    secondary: list[str]
    """Hosts of the brokers they may use when too few primary ones are left."""


class PulsarClusterData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.pulsar.cluster.v1`: replaces what the one before it said."""

    pulsar_cluster: str
    """Pulsar's own name of the cluster."""
    brokers: dict[str, PulsarBrokerFacts]
    """By broker id."""
    isolation_policies: dict[str, IsolationPolicyFacts]
    """By name; empty where there are none."""
    anti_affinity_groups: dict[str, list[str]]
    """Namespaces of each group, ascending. Pulsar spreads them over brokers and failure domains."""


class PulsarClusterMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.cluster.v1"):
    """Who else balances a Pulsar cluster, and what must stay where; the subject is `cluster`."""

    data: PulsarClusterData
