"""Where trimtab's own topics are on the cluster that is collected from, and what they carry.

They are recognized by their names in the namespaces of the settings, whichever controller they belong to. It is not checked
whether the settings' Pulsar is the collected cluster: if it is another one, there are no such topics here.
"""

import re
from collections import defaultdict
from concurrent.futures import Executor
from dataclasses import dataclass
from urllib.parse import quote

from policies.splitting.positions import position_of
from streaming.contract.messages import Traffic
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings

_PARTITION = re.compile(r"-partition-\d+$")


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """How to tell trimtab's topics on Pulsar from others."""

    namespaces: frozenset[str]
    names: frozenset[str]
    commits: str
    """What the names of the controllers' own topics begin with."""

    @staticmethod
    def of(settings: Settings) -> "OwnTopics":
        """Those of the settings; without a namespace if everything is on Kafka."""
        links = (input_on_pulsar(settings), output_on_pulsar(settings))
        return OwnTopics(
            namespaces=frozenset(link.place.namespace for link in links if link is not None),
            names=frozenset(settings.topics.all),
            commits=f"{settings.topics.commits}-",
        )

    def holds(self, topic: str) -> bool:
        """Whether a topic of one of the namespaces, by its full name, is trimtab's."""
        name = _PARTITION.sub("", topic.rpartition("/")[2])
        return name in self.names or name.startswith(self.commits)


def read_own_topics(admin: PulsarAdmin, pool: Executor, own: OwnTopics) -> dict[str, dict[str, Traffic]]:
    """Traffic by bundle and topic. A topic that no broker serves is left out. Raises ``AdminError``."""
    found: dict[str, dict[str, Traffic]] = defaultdict(dict)
    for namespace in sorted(own.namespaces):
        topics = [topic for topic in _topics(admin, namespace) if own.holds(topic)]
        bundles = admin.bundles(namespace) if topics else []
        for topic, traffic in zip(topics, pool.map(lambda each: _traffic(admin, each), topics), strict=True):
            bundle = next(each for each in bundles if each.range.contains(position_of(topic)))
            if traffic is not None:
                found[str(bundle)][topic] = traffic
    return dict(sorted(found.items()))


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
