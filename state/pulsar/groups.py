"""Groups of brokers and namespaces, from the isolation policies of a cluster; and what the shedding policies remember of each.

All the rest is in the default group. A broker belongs to the first policy (by name) that names its host as primary, a namespace
to the first policy that names it. It is the same in Pulsar, where brokers without a policy are shared by the namespaces without
one. A bundle at a broker of another group, such as one that failed over to a secondary broker, is left to Pulsar: no unload of
ours crosses a group. The policies name hosts and namespaces by regular expressions. RE2 matches them in a time linear in the name
whatever the pattern, because it has no look-around and no back-references; a pattern outside its language is refused when it is
decoded. Pulsar's own patterns are Java's, which has both, but they are almost never used.

What a shedding policy remembers is by policy, field of its memory, and broker or group; which fields are by broker and which by
group follows from the declaration of the policy. A broker is in one group at a time, so a value of a broker is a value of
(policy, group, broker), and is dropped when the broker changes its group.

Source: Pulsar ``NamespaceIsolationPolicyImpl`` and ``SimpleResourceAllocationPolicies`` of 4.2. The difference: here a broker
that is primary in two policies belongs to the first one only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import re2

from policies.columns import Bools, Ints
from policies.shedding.contract import vars_of
from policies.shedding.registry import AnyPolicy, find_policy
from state.facts import Facts, Isolation
from state.pulsar.memory import Fleet, PolicyMemory

MAX_PATTERN_CHARACTERS = 10_000
_CACHED_COUNT = 1024
_MEMORY_BYTES = 1 << 20
"""Most memory of one compiled pattern."""


class BadPattern(ValueError):
    """A pattern that is refused; the message says why."""


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False  # they are raised
    return options


@lru_cache(_CACHED_COUNT)
def compile_pattern(pattern: str) -> Any:
    """The pattern, with a method ``fullmatch``. Raises ``BadPattern``."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise BadPattern(f"it has {len(pattern)} characters, at most {MAX_PATTERN_CHARACTERS} are taken")
    try:
        return re2.compile(pattern, _options())
    except re2.error as error:
        message = error.args[0] if error.args else error
        raise BadPattern(
            message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        ) from error


DEFAULT = 0
"""Number of the default group."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one cluster; without isolation policies there is only one."""

    isolation: tuple[Isolation, ...] = ()

    @staticmethod
    def from_facts(facts: Facts | None) -> "Groups":
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
        groups = self.of_namespaces(fleet.namespaces)[fleet.namespace[:count]]
        foreign: Bools = groups != self.of_brokers(fleet.brokers)[fleet.owner[:count]]
        return foreign

    def split_by_broker(self, values: Mapping[str, ValueT]) -> dict[int, dict[str, ValueT]]:
        """``values`` by broker, split up by the group of the broker."""
        if self.is_one:
            return {DEFAULT: dict(values)}
        by_group: dict[int, dict[str, ValueT]] = {}
        for group, (name, value) in zip(self.of_brokers(list(values)).tolist(), values.items(), strict=True):
            by_group.setdefault(group, {})[name] = value
        return by_group


def host_of(broker: str) -> str:
    """The host of a broker id ``host:port``; the whole id where it has no port."""
    host, colon, port = broker.rpartition(":")
    return host if colon and port.isdigit() else broker


def _first_matches(names: Iterable[str], patterns: Sequence[Sequence[str]]) -> Ints:
    matchers = [list(map(compile_pattern, of_group)) for of_group in patterns]
    return np.array(
        [
            next(
                (
                    group
                    for group, of_group in enumerate(matchers, start=1)
                    if any(pattern.fullmatch(name) for pattern in of_group)
                ),
                DEFAULT,
            )
            for name in names
        ],
        dtype=np.int64,
    )


def recall_policy(
    memory: PolicyMemory, policy: AnyPolicy, groups: Groups, numbers: Sequence[int]
) -> list[Any]:
    """What the policy remembers of each of these groups."""
    kept = memory.get(policy.name, {})
    by_broker = {name: groups.split_by_broker(kept.get(name, {})) for name in policy.broker_fields}
    return [
        policy.memory(
            **{name: values.get(number, {}) for name, values in by_broker.items()},
            **{
                name: kept[name][groups.key_of(number)]
                for name in policy.group_fields
                if groups.key_of(number) in kept.get(name, {})
            },
        )
        for number in numbers
    ]


def remember_policy(
    memory: PolicyMemory, policy: AnyPolicy, groups: Groups, after: Mapping[int, Any]
) -> PolicyMemory:
    """The memory with what the policy now remembers about these groups; groups that did not run keep theirs."""
    kept, new = memory.get(policy.name, {}), {number: vars_of(value) for number, value in after.items()}
    merged: dict[str, dict[str, Any]] = {}
    for name in policy.broker_fields:
        before = groups.split_by_broker(kept.get(name, {})) if not groups.is_one else {}
        idle = [values for number, values in before.items() if number not in after]
        merged[name] = dict(
            chain.from_iterable(values.items() for values in (*idle, *(t[name] for t in new.values())))
        )
    for name in policy.group_fields:
        now = {groups.key_of(number): values[name] for number, values in new.items()}
        merged[name] = {**kept.get(name, {}), **now}
    return {policy.name: merged}


def keep_policy(memory: PolicyMemory, policy: AnyPolicy) -> PolicyMemory:
    """The memory of the policy in force; a policy that is switched on again begins anew."""
    return {policy.name: memory[policy.name]} if policy.name in memory else {}


def remembered_brokers(memory: PolicyMemory) -> list[str]:
    """Every broker that some policy remembers something about, ascending."""
    return sorted(
        set().union(
            *(kept[name] for policy, kept in _known_policies(memory) for name in policy.broker_fields)
        )
    )


def keep_brokers(memory: PolicyMemory, keeps: Callable[[str], bool]) -> PolicyMemory:
    """The memory without brokers that are not to be kept."""
    return {
        policy.name: {
            name: {key: value for key, value in values.items() if keeps(key)}
            if name in policy.broker_fields
            else values
            for name, values in kept.items()
        }
        for policy, kept in _known_policies(memory)
    }


def forget_moved_brokers(memory: PolicyMemory, before: Groups, after: Groups) -> PolicyMemory:
    """The memory after a change of isolation policies: a broker that changes its group begins anew, and so does a new group."""
    names = remembered_brokers(memory)
    was, is_ = before.names_of(names), after.names_of(names)
    moved = {name for name, old, new in zip(names, was, is_, strict=True) if old != new}
    stays = {after.key_of(number) for number in range(len(after.isolation) + 1)}
    kept = keep_brokers(memory, lambda name: name not in moved)
    for policy, fields in _known_policies(kept):
        for name in policy.group_fields:
            fields[name] = {key: value for key, value in fields[name].items() if key in stays}
    return kept


def _known_policies(memory: PolicyMemory) -> list[tuple[AnyPolicy, dict[str, dict[str, Any]]]]:
    """What is remembered of policies that still exist."""
    return [(policy, kept) for name, kept in memory.items() if (policy := find_policy(name)) is not None]
