"""Anti-affinity groups: namespaces that Pulsar spreads over brokers, so that one broker's death does not hit all.

An unload whose destination is ours must not gather them: it is held where the destination owns bundles of more other
namespaces of the group than the source does. Where Pulsar chooses the destination it spreads them itself. Failure
domains, by which Pulsar groups brokers for the same end, are not known here.

Source: Pulsar ``LoadManagerShared.shouldAntiAffinityNamespaceUnload``, which looks whether any broker is better; ours
looks at the one that was chosen.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from policies.shedding.contract import NOBODY
from state.engine.holds import Hold
from state.events import namespace_of
from state.facts import Facts
from state.pulsar.memory import Fleet
from state.pulsar.tables import Eligible


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """Who owns what of each anti-affinity group, as the round's unloads change it."""

    group_of: dict[str, str] = field(default_factory=dict)
    """Group of each namespace that is in one."""
    owned: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """Namespaces of a group of which a broker row owns a bundle."""

    @staticmethod
    def of(facts: Facts | None, table: Eligible, fleet: Fleet) -> "AntiAffinity":
        """The state before the round's first unload."""
        if facts is None or not facts.anti_affinity:
            return AntiAffinity()
        found = AntiAffinity({name: group for group, names in facts.anti_affinity.items() for name in names})
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

    def hold(self, table: Eligible, *, row: int, source: int, destination: int) -> Hold | None:
        """Why an unload of a bundle row would gather a group, if so."""
        namespace = namespace_of(table.view.bundles.names[row])
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
        there = len(self.owned[group, destination] - {namespace})
        if there <= here:
            return None
        return Hold(
            "anti-affinity",
            f"{table.view.brokers.names[destination]} owns bundles of {there} other namespaces of anti-affinity group {group}, "
            f"{source} of {here}",
        )

    def move(self, table: Eligible, *, row: int, destination: int) -> None:
        """Count an unload that is done; the source may own other bundles of the namespace, so it stays."""
        if destination != NOBODY:
            self.move_bundle(table.view.bundles.names[row], destination)

    def move_bundle(self, bundle: str, destination: int) -> None:
        """The same for a bundle by its name."""
        self._add(namespace_of(bundle), destination)
