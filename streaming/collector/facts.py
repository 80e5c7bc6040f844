"""Facts of a Pulsar cluster besides its load.

They are: which of Pulsar's own balancers are on, the rules for where bundles may be, where trimtab's own topics are and what they
carry, and which load manager each broker runs.

trimtab's topics are recognized by their names in the namespaces of the settings, whichever controller they belong to. It is not
checked whether the settings' Pulsar is the collected cluster: if it is another one, there are no such topics here.

A cluster is switched from one load manager to the other by its dynamic configuration, all brokers at once, or by restarts, one
broker after the other. So every sweep asks one broker for its manager, and also each broker whose load cannot be read.
"""

import logging
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from policies.splitting.ranges import position_of
from streaming.collector.metrics import CollectorMetrics
from streaming.contract.messages import IsolationPolicyFacts, PulsarBrokerFacts, PulsarClusterData, Traffic
from streaming.pulsar.admin import EXTENSIBLE, BrokerConfiguration, PulsarAdmin
from streaming.pulsar.http import AdminError
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings

_LOG = logging.getLogger(__name__)
_PARTITION = re.compile(r"-partition-\d+$")


@dataclass(frozen=True, slots=True)
class TrimtabTopics:
    """How to tell trimtab's topics on Pulsar from others."""

    namespaces: frozenset[str]
    names: frozenset[str]
    commits: str
    """What the names of the controllers' own topics begin with."""

    @staticmethod
    def from_settings(settings: Settings) -> "TrimtabTopics":
        """Those of the settings; without a namespace if everything is on Kafka."""
        links = (input_on_pulsar(settings), output_on_pulsar(settings))
        return TrimtabTopics(
            namespaces=frozenset(link.place.namespace for link in links if link is not None),
            names=frozenset(settings.topics.all),
            commits=f"{settings.topics.commits}-",
        )

    def holds(self, topic: str) -> bool:
        """Whether a topic of one of the namespaces, by its full name, is trimtab's."""
        name = _PARTITION.sub("", topic.rpartition("/")[2])
        return name in self.names or name.startswith(self.commits)


def read_trimtab_topics(
    admin: PulsarAdmin, pool: Executor, trimtab_topics: TrimtabTopics
) -> dict[str, dict[str, Traffic]]:
    """Traffic by bundle and topic. A topic that no broker serves is left out. Raises ``AdminError``."""
    by_bundle: dict[str, dict[str, Traffic]] = defaultdict(dict)
    for namespace in sorted(trimtab_topics.namespaces):
        topics = [topic for topic in _topics(admin, namespace) if trimtab_topics.holds(topic)]
        bundles = admin.bundles(namespace) if topics else []
        for topic, traffic in zip(
            topics, pool.map(lambda topic: _traffic(admin, topic), topics), strict=True
        ):
            bundle = next(bundle for bundle in bundles if bundle.range.contains(position_of(topic)))
            if traffic is not None:
                by_bundle[str(bundle)][topic] = traffic
    return dict(sorted(by_bundle.items()))


def _topics(admin: PulsarAdmin, namespace: str) -> list[str]:
    """Names of the namespace's topics; empty if the cluster has no such namespace."""
    try:
        return sorted(admin.read(f"/admin/v2/persistent/{quote(namespace)}", list[str]))
    except AdminError as error:
        if error.failure != "not-found":
            raise
        return []


def _traffic(admin: PulsarAdmin, topic: str) -> Traffic | None:
    path = quote(topic.removeprefix("persistent://"))
    try:
        return admin.read(f"/admin/v2/persistent/{path}/stats", Traffic)
    except AdminError:
        return None


def read_facts(
    admin: PulsarAdmin,
    pool: Executor,
    trimtab_topics: TrimtabTopics,
    *,
    pulsar_cluster: str,
    brokers: Sequence[str],
) -> PulsarClusterData:
    """Read all facts anew; a broker that cannot be asked is unknown, any other failure raises ``AdminError``."""
    configurations = pool.map(lambda broker: _configuration(admin, broker), brokers)
    namespaces = [
        namespace for of_tenant in pool.map(admin.namespaces, admin.tenants()) for namespace in of_tenant
    ]
    groups: dict[str, list[str]] = defaultdict(list)
    for namespace, group in zip(
        namespaces, pool.map(lambda namespace: _group(admin, namespace), namespaces), strict=True
    ):
        if group is not None:
            groups[group].append(namespace)
    return PulsarClusterData(
        pulsar_cluster=pulsar_cluster,
        brokers=dict(zip(brokers, configurations, strict=True)),
        isolation_policies=msgspec.convert(
            dict(sorted(admin.isolation_policies(pulsar_cluster).items())),
            dict[str, IsolationPolicyFacts],
            from_attributes=True,
        ),
        anti_affinity_groups={group: sorted(groups[group]) for group in sorted(groups)},
        failure_domains=admin.failure_domains(pulsar_cluster),
        trimtab_topics=read_trimtab_topics(admin, pool, trimtab_topics),
    )


def _configuration(admin: PulsarAdmin, broker: str) -> PulsarBrokerFacts:
    try:
        configuration = admin.configuration(broker)
    except AdminError:
        return PulsarBrokerFacts()
    return PulsarBrokerFacts(
        load_manager=configuration.load_manager,
        shedding_enabled=configuration.sheds,
        auto_split_enabled=configuration.splits,
        split_algorithms=configuration.split_algorithms,
    )


def _group(admin: PulsarAdmin, namespace: str) -> str | None:
    """The namespace's anti-affinity group; None also if it has been deleted since it was listed."""
    try:
        return admin.anti_affinity_group(namespace)
    except AdminError as error:
        if error.failure != "not-found":
            raise
        return None


_NO_REPORTS = {
    "NoopLoadManager": "makes no load reports",
    "SimpleLoadManagerImpl": "makes load reports of an obsolete form",
}


class WrongLoadManager(Exception):
    """The cluster's load manager makes no reports a collector could read; the text says which and what to do."""


def require_reports(configuration: BrokerConfiguration, *, cluster: str) -> None:
    """Raises ``WrongLoadManager`` for a load manager that is known to make no full reports."""
    why = _NO_REPORTS.get(configuration.load_manager)
    if why is not None:
        raise WrongLoadManager(
            f"cluster {cluster}: its brokers run {configuration.load_manager}, which {why}. There is nothing to collect: set "
            "loadManagerClassName=org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl or "
            "…loadbalance.extensions.ExtensibleLoadManagerImpl at every broker, with loadBalancerSheddingEnabled=false "
            "and loadBalancerAutoBundleSplitEnabled=false"
        )


class LoadManagers:
    """The load managers of one cluster's brokers. Thread-safe."""

    def __init__(self, admin: PulsarAdmin, metrics: CollectorMetrics, *, cluster: str, first: str) -> None:
        """``first`` is what one broker answered at the start; it counts for each broker that has not answered otherwise."""
        self._admin = admin
        self._metrics = metrics
        self._cluster = cluster
        self._common = first
        self._managers: dict[str, str] = {}
        self._next = -1
        self._due: set[str] = set()
        self._has_changed = False
        self._lock = threading.Lock()

    def manager(self, broker: str) -> str:
        """Class of a broker's load manager, without the package."""
        with self._lock:
            return self._managers.get(broker, self._common)

    def is_extensible(self, broker: str) -> bool:
        """Whether a broker publishes its load instead of answering with a report."""
        return self.manager(broker) == EXTENSIBLE

    def begin_sweep(self, brokers: Sequence[str]) -> None:
        """Choose the brokers to ask in this sweep: one, the next one each time, or all after one has changed."""
        with self._lock:
            self._next += 1
            self._due = (
                set(brokers)
                if self._has_changed
                else {brokers[self._next % len(brokers)]}
                if brokers
                else set()
            )
            self._has_changed = False
        self._metrics.show_load_managers(Counter(map(self.manager, brokers)))

    def ask_if_due(self, broker: str) -> None:
        """Ask a broker for its manager if it is due in this sweep."""
        with self._lock:
            is_due = broker in self._due
            self._due.discard(broker)
        if is_due:
            self.ask(broker)

    def ask(self, broker: str) -> bool:
        """Ask a broker for its manager; returns whether it is another than before. False if the broker does not answer."""
        try:
            manager = self._admin.configuration(broker).load_manager
        except AdminError:
            return False
        return self._note(broker, manager)

    def note(self, managers: Mapping[str, str | None]) -> None:
        """Note the managers that brokers reported; None: not reported."""
        for broker, manager in managers.items():
            if manager is not None:
                self._note(broker, manager)

    def _note(self, broker: str, manager: str) -> bool:
        before = self.manager(broker)
        if not manager or manager == before:
            return False
        with self._lock:
            self._managers[broker] = manager
            self._has_changed = True
        _LOG.warning(
            "the load manager of %s has changed: broker %s runs %s now, and ran %s before",
            self._cluster,
            broker,
            manager,
            before,
        )
        return True
