"""Groups of brokers and namespaces: the isolation policies of a cluster, and the default group of all the rest.

A broker belongs to the first policy (by name) that names its host as primary, a namespace to the first policy that names it. It is
the same in Pulsar, where brokers without a policy are shared by the namespaces without one. A bundle at a broker of another group,
such as one that failed over to a secondary broker, is left to Pulsar: no unload of ours crosses a group.

Source: Pulsar ``NamespaceIsolationPolicyImpl`` and ``SimpleResourceAllocationPolicies`` of 4.2. The difference: here a
broker that is primary in two policies belongs to the first one only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from policies.columns import Bools, Ints
from state.engine.patterns import compile_pattern
from state.facts import Facts, Isolation
from state.pulsar.memory import Fleet

DEFAULT = 0
"""Number of the default group."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one cluster; without isolation policies there is only one."""

    isolation: tuple[Isolation, ...] = ()

    @staticmethod
    def of(facts: Facts | None) -> "Groups":
        """The groups that are in force with ``facts``."""
        return Groups() if facts is None else Groups(tuple(facts.isolation))

    @property
    def is_one(self) -> bool:
        """Whether nothing is isolated."""
        return not self.isolation

    def name_of(self, group: int) -> str | None:
        """Name of a group's policy; None for the default group."""
        return None if group == DEFAULT else self.isolation[group - 1].name

    def key_of(self, group: int) -> str:
        """The key of a group's memory; empty for the default group."""
        return self.name_of(group) or ""

    def names_of(self, brokers: Sequence[str]) -> list[str | None]:
        """Policy of each broker id's group; None for the default group."""
        return [self.name_of(group) for group in self.of_brokers(brokers).tolist()]

    def of_brokers(self, brokers: Sequence[str]) -> Ints:
        """Group of each broker id."""
        if self.is_one:
            return np.full(len(brokers), DEFAULT, dtype=np.int64)
        patterns = [policy.primary for policy in self.isolation]
        return _first_matches(map(host_of, brokers), patterns)

    def of_namespaces(self, namespaces: Sequence[str]) -> Ints:
        """Group of each namespace."""
        return _first_matches(namespaces, [policy.namespaces for policy in self.isolation])

    def foreign(self, fleet: Fleet, count: int) -> Bools:
        """Which of the fleet's leading ``count`` bundles are at a broker of another group than their own, (count,)."""
        if self.is_one:
            return np.zeros(count, dtype=np.bool_)
        own = self.of_namespaces(fleet.namespaces)[fleet.namespace[:count]]
        foreign: Bools = own != self.of_brokers(fleet.brokers)[fleet.owner[:count]]
        return foreign

    def split_by_broker(self, values: Mapping[str, ValueT]) -> dict[int, dict[str, ValueT]]:
        """``values`` by broker, split up by the group of the broker."""
        if self.is_one:
            return {DEFAULT: dict(values)}
        found: dict[int, dict[str, ValueT]] = {}
        for group, (name, value) in zip(self.of_brokers(list(values)).tolist(), values.items(), strict=True):
            found.setdefault(group, {})[name] = value
        return found


def host_of(broker: str) -> str:
    """The host of a broker id ``host:port``; the whole id where it has no port."""
    host, colon, port = broker.rpartition(":")
    return host if colon and port.isdigit() else broker


def _first_matches(names: Iterable[str], patterns: Sequence[Sequence[str]]) -> Ints:
    matchers = [list(map(compile_pattern, each)) for each in patterns]
    return np.array(
        [
            next(
                (
                    group
                    for group, each in enumerate(matchers, start=1)
                    if any(pattern.fullmatch(name) for pattern in each)
                ),
                DEFAULT,
            )
            for name in names
        ],
        dtype=np.int64,
    )
