"""Anti-affinity groups: namespaces that Pulsar spreads over brokers, so that one broker's death does not hit all.

An unload whose destination we choose must not gather them. It is held if the brokers of the destination's failure domain own
bundles of more other namespaces of the group than the brokers of the source's domain. If the domains are the same, or have equally
many, it is held if the destination itself has more than the source. Brokers without a domain form one together, as in Pulsar.
Where Pulsar chooses the destination, it spreads them itself.

Source: Pulsar ``LoadManagerShared.filterAntiAffinityGroupOwnedBrokers``, which looks for the best domain and then for the best broker;
here only the broker that was chosen is checked. Pulsar obeys domains only with ``failureDomainsEnabled``; here they count wherever
they are declared.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from policies.shedding.view import NOBODY
from state.engine.holds import Hold
from state.events import namespace_of
from state.facts import Facts
from state.pulsar.memory import Fleet
from state.pulsar.moves import Move
from state.pulsar.tables import Eligible


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """Which broker has which namespaces of each anti-affinity group, as the round's unloads change it."""

    group_of: dict[str, str] = field(default_factory=dict)
    """Group of each namespace that is in one."""
    owned: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """By group and broker row, the namespaces of the group of which the broker owns a bundle."""
    domains: dict[str, str] = field(default_factory=dict)
    """Failure domain of each broker that is in one."""

    @staticmethod
    def of(facts: Facts | None, table: Eligible, fleet: Fleet) -> "AntiAffinity":
        """The state before the round's first unload."""
        if facts is None or not facts.anti_affinity:
            return AntiAffinity()
        found = AntiAffinity(
            group_of={name: group for group, names in facts.anti_affinity.items() for name in names},
            domains={broker: name for name, brokers in facts.failure_domains.items() for broker in brokers},
        )
        bundles = table.view.bundles
        owner = np.repeat(np.arange(len(table.view.brokers)), np.diff(bundles.starts))
        rows = np.unique(np.column_stack([owner, fleet.namespace[table.fleet_rows]]), axis=0)
        for broker, row in rows.tolist():
            found._add(fleet.namespaces[row], broker)
        return found

    def _add(self, namespace: str, broker: int) -> None:
        group = self.group_of.get(namespace)
        if group is not None:
            self.owned[group, broker].add(namespace)

    def hold(self, table: Eligible, move: Move) -> Hold | None:
        """Why an unload would gather a group, if so."""
        _, source, destination = move
        namespace = namespace_of(table.view.bundles.names[move.row])
        group = self.group_of.get(namespace)
        if group is None or destination == NOBODY:
            return None
        here = len(self.owned[group, source] - {namespace})
        return self._hold(table, namespace, group, table.view.brokers.names[source], here, destination)

    def drain_hold(
        self, table: Eligible, namespace: str, *, source: str, here: Iterable[str], destination: int
    ) -> Hold | None:
        """The same for a bundle of a broker that takes no part, with bundles of the namespaces ``here``."""
        group = self.group_of.get(namespace)
        if group is None:
            return None
        count = sum(self.group_of.get(each) == group for each in here if each != namespace)
        return self._hold(table, namespace, group, source, count, destination)

    def _hold(
        self, table: Eligible, namespace: str, group: str, source: str, here: int, destination: int
    ) -> Hold | None:
        """``here`` counts the other namespaces of the group at ``source``."""
        brokers = table.view.brokers.names
        there, target = len(self.owned[group, destination] - {namespace}), brokers[destination]
        if self._domain_of(source) != self._domain_of(target):
            apart = [len(self.owned[group, row] - {namespace}) for row in range(len(brokers))]
            there_all = self._sum(brokers, apart, like=target)
            here_all = self._sum(brokers, apart, like=source) + (0 if source in brokers else here)
            if there_all < here_all:
                return None
            if there_all > here_all:
                return Hold(
                    "anti-affinity",
                    f"brokers of {self._domain_name(target)} own bundles of {there_all} other namespaces of anti-affinity group "
                    f"{group}, those of {self._domain_name(source)} of {here_all}",
                )
        if there <= here:
            return None
        return Hold(
            "anti-affinity",
            f"{target} owns bundles of {there} other namespaces of anti-affinity group {group}, {source} of {here}",
        )

    def _domain_of(self, broker: str) -> str:
        """Failure domain of a broker; empty if it is in none."""
        return self.domains.get(broker, "")

    def _domain_name(self, broker: str) -> str:
        return f"failure domain {self.domains[broker]}" if broker in self.domains else "no failure domain"

    def _sum(self, brokers: Sequence[str], counts: Sequence[int], *, like: str) -> int:
        """Sum of ``counts`` over the brokers in the domain of ``like``."""
        domain = self._domain_of(like)
        return sum(
            count for broker, count in zip(brokers, counts, strict=True) if self._domain_of(broker) == domain
        )

    def draft(self) -> "AntiAffinity":
        """A copy, to be changed by unloads that may not happen after all."""
        owned = defaultdict(set, {place: set(names) for place, names in self.owned.items()})
        return replace(self, owned=owned)

    def move(self, bundle: str, destination: int) -> None:
        """Count an unload that happens; the source may own other bundles of the namespace, so the namespace also stays there."""
        if destination != NOBODY:
            self._add(namespace_of(bundle), destination)
