"""What the shedding policies remember between rounds: by policy, field of its memory, and broker or group.

Which fields are by broker and which by group follows from the declaration of the policy. A broker is in one group at a
time, so a value of a broker is a value of (policy, group, broker): ``forget_moved`` drops it when the broker changes its
group.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from policies.shedding.contract import vars_of
from policies.shedding.registry import AnyPolicy, find_policy
from state.pulsar.groups import Groups
from state.pulsar.memory import PolicyMemory


def recall(memory: PolicyMemory, policy: AnyPolicy, groups: Groups, numbers: Sequence[int]) -> list[Any]:
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


def remember(
    memory: PolicyMemory, policy: AnyPolicy, groups: Groups, after: Mapping[int, Any]
) -> PolicyMemory:
    """The memory with what the policy now remembers about these groups; groups that did not run keep theirs."""
    kept, new = memory.get(policy.name, {}), {number: vars_of(each) for number, each in after.items()}
    found: dict[str, dict[str, Any]] = {}
    for name in policy.broker_fields:
        before = groups.split_by_broker(kept.get(name, {})) if not groups.is_one else {}
        others = [values for number, values in before.items() if number not in after]
        found[name] = dict(
            chain.from_iterable(each.items() for each in (*others, *(t[name] for t in new.values())))
        )
    for name in policy.group_fields:
        now = {groups.key_of(number): values[name] for number, values in new.items()}
        found[name] = {**kept.get(name, {}), **now}
    return {policy.name: found}


def of_policy(memory: PolicyMemory, policy: AnyPolicy) -> PolicyMemory:
    """The memory of the policy in force; a policy that is switched on again begins anew."""
    return {policy.name: memory[policy.name]} if policy.name in memory else {}


def brokers_of(memory: PolicyMemory) -> list[str]:
    """Every broker that some policy remembers something about, ascending."""
    return sorted(
        set().union(
            *(kept[name] for policy, kept in _known_policies(memory) for name in policy.broker_fields)
        )
    )


def only(memory: PolicyMemory, keeps: Callable[[str], bool]) -> PolicyMemory:
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


def forget_moved(memory: PolicyMemory, before: Groups, after: Groups) -> PolicyMemory:
    """The memory after a change of isolation policies: a broker that changes its group begins anew, and so does a new group."""
    names = brokers_of(memory)
    was, is_ = before.names_of(names), after.names_of(names)
    moved = {name for name, old, new in zip(names, was, is_, strict=True) if old != new}
    stays = {after.key_of(number) for number in range(len(after.isolation) + 1)}
    kept = only(memory, lambda name: name not in moved)
    for policy, fields in _known_policies(kept):
        for name in policy.group_fields:
            fields[name] = {key: value for key, value in fields[name].items() if key in stays}
    return kept


def _known_policies(memory: PolicyMemory) -> list[tuple[AnyPolicy, dict[str, dict[str, Any]]]]:
    """What is remembered of policies that still exist."""
    return [(policy, kept) for name, kept in memory.items() if (policy := find_policy(name)) is not None]
