"""Facts of a Pulsar cluster besides its load: other balancers, isolation, anti-affinity, restricted splits, own topics."""

import math
from collections.abc import Mapping

import numpy as np

from state.facts import SPLIT_ALGORITHM, Facts, Isolation
from state.pulsar.groups import BadPattern, compile_pattern
from streaming.contract.kafka import BadReport
from streaming.contract.messages import (
    SHOWN_CHARACTERS,
    PulsarClusterData,
    Traffic,
)
from streaming.contract.pulsar_report import RATES, check_lengths, check_traffic


def facts_of(found: PulsarClusterData) -> Facts:
    """The facts of a cluster. Raises ``BadReport`` and ``Refusal``."""
    check_lengths("broker", found.brokers)
    check_lengths("isolation policy", found.isolation_policies)
    check_lengths("anti-affinity group", found.anti_affinity_groups)
    check_lengths("bundle", found.own_topics)
    check_lengths("failure domain", found.failure_domains)
    for name, policy in found.isolation_policies.items():
        for pattern in (*policy.namespaces, *policy.primary):
            _check_pattern(name, pattern)
    brokers = sorted(found.brokers.items())
    return Facts(
        shedding_brokers=[name for name, broker in brokers if broker.shedding_enabled],
        splitting_brokers=[name for name, broker in brokers if broker.auto_split_enabled],
        unknown_brokers=[
            name for name, broker in brokers if None in (broker.shedding_enabled, broker.auto_split_enabled)
        ],
        isolation=[
            Isolation(name, policy.namespaces, policy.primary)
            for name, policy in sorted(found.isolation_policies.items())
        ],
        anti_affinity={
            group: sorted(found.anti_affinity_groups[group]) for group in sorted(found.anti_affinity_groups)
        },
        restricted_brokers=[
            name
            for name, broker in brokers
            if broker.split_algorithms is not None and SPLIT_ALGORITHM not in broker.split_algorithms
        ],
        failure_domains={name: sorted(found.failure_domains[name]) for name in sorted(found.failure_domains)},
        own_topics={bundle: _sums(bundle, found.own_topics[bundle]) for bundle in sorted(found.own_topics)},
    )


def _sums(bundle: str, topics: Mapping[str, Traffic]) -> tuple[float, float]:
    """Messages/s and bytes/s of some topics, in + out."""
    rates = np.array([[getattr(each, name) or 0.0 for name in RATES] for each in topics.values()])
    rates = rates.reshape(-1, len(RATES))
    if len(rates):
        check_traffic(rates, [f"a topic of {bundle}"] * len(rates))
    return math.fsum(rates[:, :2].ravel().tolist()), math.fsum(rates[:, 2:].ravel().tolist())


def _check_pattern(policy: str, pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        raise BadReport(
            f"isolation policy {policy[:SHOWN_CHARACTERS]!r} has the regular expression {pattern[:SHOWN_CHARACTERS]!r}, which RE2 does not "
            f"understand ({error}): write it without look-around and back-references"
        ) from error
