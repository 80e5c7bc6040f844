"""Facts of a cluster besides its load: which of Pulsar's own balancers are on, and the rules for where bundles may be."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Executor

from streaming.collector.own_topics import OwnTopics, read_own_topics
from streaming.contract.messages import IsolationPolicyFacts, PulsarBrokerFacts, PulsarClusterData
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError


def read_facts(
    admin: PulsarAdmin, pool: Executor, own: OwnTopics, *, pulsar_cluster: str, brokers: Sequence[str]
) -> PulsarClusterData:
    """Read all facts anew; a broker that cannot be asked is unknown, any other failure raises ``AdminError``."""
    configurations = pool.map(lambda broker: _configuration(admin, broker), brokers)
    namespaces = [each for found in pool.map(admin.namespaces, admin.tenants()) for each in found]
    groups: dict[str, list[str]] = defaultdict(list)
    for namespace, group in zip(
        namespaces, pool.map(lambda each: _group(admin, each), namespaces), strict=True
    ):
        if group is not None:
            groups[group].append(namespace)
    return PulsarClusterData(
        pulsar_cluster=pulsar_cluster,
        brokers=dict(zip(brokers, configurations, strict=True)),
        isolation_policies={
            name: IsolationPolicyFacts(
                namespaces=policy.namespaces, primary=policy.primary, secondary=policy.secondary
            )
            for name, policy in sorted(admin.isolation_policies(pulsar_cluster).items())
        },
        anti_affinity_groups={group: sorted(groups[group]) for group in sorted(groups)},
        failure_domains=admin.failure_domains(pulsar_cluster),
        own_topics=read_own_topics(admin, pool, own),
    )


def _configuration(admin: PulsarAdmin, broker: str) -> PulsarBrokerFacts:
    try:
        found = admin.configuration(broker)
    except AdminError:
        return PulsarBrokerFacts()
    return PulsarBrokerFacts(
        load_manager=found.load_manager,
        shedding_enabled=found.sheds,
        auto_split_enabled=found.splits,
        split_algorithms=found.split_algorithms,
    )


def _group(admin: PulsarAdmin, namespace: str) -> str | None:
    """The namespace's anti-affinity group; None also if it has been deleted since it was listed."""
    try:
        return admin.anti_affinity_group(namespace)
    except AdminError as error:
        if error.failure != "not-found":
            raise
        return None
