"""Runs the shedding policy of a round for each group of brokers separately, and puts its plans together.

Invariants: with one group the policy sees the whole view, and its plan is the round's. With several groups it sees, for each
group, only the brokers of that group, and the memory of these brokers, whether they reported or not. No unload crosses a group,
because the policy sees no broker outside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policies.columns import Ints
from policies.placement import LEAST_RESOURCE_USAGE, find_placement
from policies.shedding.contract import ADMITTED, POSTPONED, REFUSED, Examined, Proposal, SheddingPlan
from policies.shedding.view import NOBODY, RoundView
from policies.splitting.plan import Proposals
from policies.splitting.relief import relief
from state.engine.holds import Hold
from state.pulsar import policy_memory
from state.pulsar.memory import Fleet
from state.pulsar.tables import Eligible
from state.settings import PulsarSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """What the policy wants for one group."""

    group: int
    brokers: Ints
    """Broker rows of the whole view."""
    bundles: Ints
    """Bundle rows of the whole view."""
    view: RoundView
    proposal: Proposal[Any]
    plan: SheddingPlan
    """The proposal's plan, with the destinations of the placement."""


@dataclass(frozen=True, slots=True, eq=False)
class Shed:
    """What the policy wants for all groups."""

    parts: tuple[Part, ...]
    plan: SheddingPlan
    """The plan of all parts, in rows of the whole view."""
    groups: Ints
    """Group of each row of ``plan.examined``."""

    def proposals(self) -> Proposals:
        """Bundles that alone overload their broker within their group."""
        found = [relief(part.view, part.plan) for part in self.parts]
        if len(found) == 1:
            return found[0]
        rows = np.concatenate([part.bundles[each.rows] for part, each in zip(self.parts, found, strict=True)])
        order = np.argsort(rows, kind="stable")
        return Proposals(
            rows=rows[order],
            triggers=np.concatenate([each.triggers for each in found])[order],
            boundaries_counts=np.concatenate([each.boundaries_counts for each in found])[order],
            means_per_s=np.concatenate([each.means_per_s for each in found])[order],
        )


def shed(table: Eligible, fleet: Fleet, pulsar: PulsarSettings, *, has_apart: bool = False) -> Shed:
    """What the policy wants for each group with a broker in the view, the default group first; for that one if there is none.

    The rules that it sees for a group count what it wants for those before.

    While brokers are under maintenance or drained (``has_apart``), Pulsar may not choose destinations: it does not know of that.
    """
    policy, settings = pulsar.policy, pulsar.of_policy(pulsar.policy)
    numbers = np.unique(table.broker_groups).tolist() or [0]
    placement = find_placement(pulsar.placement)
    if placement is None and has_apart:
        placement = LEAST_RESOURCE_USAGE
    if len(numbers) > 1 and table.view.rules is not None:
        table = replace(table, view=replace(table.view, rules=table.view.rules.draft()))
    memories = policy_memory.recall(fleet.policies, policy, table.groups, numbers)
    parts = []
    for number, memory in zip(numbers, memories, strict=True):
        brokers, bundles, view = _rows(table, number, is_all=len(numbers) == 1)
        proposal = policy.plan(view, memory, settings)
        plan = proposal.plan
        if placement is not None:
            plan = placement.place(view, plan, pulsar.overloaded_ratio)
        if len(numbers) > 1 and view.rules is not None:
            for row, destination in zip(
                plan.unload_rows.tolist(), plan.unload_destinations.tolist(), strict=True
            ):
                view.rules.take(row, destination)
        parts.append(
            Part(group=number, brokers=brokers, bundles=bundles, view=view, proposal=proposal, plan=plan)
        )
    plan = parts[0].plan if len(parts) == 1 else _merge(parts)
    groups = np.concatenate([np.full(len(part.plan.examined), part.group) for part in parts])
    return Shed(tuple(parts), plan, groups)


def _rows(table: Eligible, group: int, *, is_all: bool) -> tuple[Ints, Ints, RoundView]:
    view = table.view
    if is_all:
        return np.arange(len(view.brokers)), np.arange(len(view.bundles)), view
    brokers = np.flatnonzero(table.broker_groups == group)
    part, bundles = view.part(brokers)
    return brokers, bundles, part


def settle(
    shed_: Shed, table: Eligible, fleet: Fleet, pulsar: PulsarSettings, holds: Mapping[int, Hold]
) -> None:
    """Give ``fleet`` what the policy remembers, now that it is known which unloads happen; ``holds`` by bundle row."""
    after = {part.group: pulsar.policy.settle(part.proposal, _fates(part, holds)) for part in shed_.parts}
    fleet.policies = policy_memory.remember(fleet.policies, pulsar.policy, table.groups, after)


def _fates(part: Part, holds: Mapping[int, Hold]) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """What became of each unload of the proposal; one that the placement took back is refused."""
    placed = set(part.plan.unload_rows.tolist())
    fates = []
    for row in part.proposal.plan.unload_rows.tolist():
        hold = holds.get(int(part.bundles[row]))
        if row not in placed or (hold is not None and not hold.passes):
            fates.append(REFUSED)
        else:
            fates.append(ADMITTED if hold is None or hold.spends else POSTPONED)
    return np.array(fates, dtype=np.int8)


def _merge(parts: Sequence[Part]) -> SheddingPlan:
    """The plans one after the other, in rows of the whole view. One policy made them all, so their outcomes and triggers agree."""
    plans = [part.plan for part in parts]
    starts = np.cumsum([0, *(len(plan.examined) for plan in plans)])[:-1].tolist()
    placed = [plan for plan in plans if len(plan.unload_rows)]
    return SheddingPlan(
        examined=_merge_examined(parts),
        unload_rows=np.concatenate([part.bundles[part.plan.unload_rows] for part in parts]),
        unload_destinations=np.concatenate([_brokers(part, part.plan.unload_destinations) for part in parts]),
        unload_examined=np.concatenate(
            [plan.unload_examined + start for plan, start in zip(plans, starts, strict=True)]
        ),
        unload_for=np.concatenate([part.bundles[part.plan.unload_for] for part in parts]),
        unload_evidence={
            name: np.concatenate([plan.unload_evidence[name] for plan in placed])
            for name in (placed[0].unload_evidence if placed else ())
        },
        tried_rows=np.concatenate([part.bundles[part.plan.tried_rows] for part in parts]),
        tried_outcomes=np.concatenate([plan.tried_outcomes for plan in plans]),
        tried_examined=np.concatenate(
            [plan.tried_examined + start for plan, start in zip(plans, starts, strict=True)]
        ),
    )


def _merge_examined(parts: Sequence[Part]) -> Examined:
    all_examined = [part.plan.examined for part in parts]
    seen = [each for each in all_examined if len(each)]
    first = all_examined[0]
    return Examined(
        high=np.concatenate([_brokers(part, part.plan.examined.high) for part in parts]),
        low=np.concatenate([_brokers(part, part.plan.examined.low) for part in parts]),
        outcome=np.concatenate([each.outcome for each in all_examined]),
        outcomes=first.outcomes,
        trigger=np.concatenate([each.trigger for each in all_examined]),
        triggers=first.triggers,
        evidence={
            name: np.concatenate([each.evidence[name] for each in seen])
            for name in (seen[0].evidence if seen else ())
        },
    )


def _brokers(part: Part, rows: Ints) -> Ints:
    """Broker rows of the whole view; NOBODY stays NOBODY."""
    return np.where(rows == NOBODY, NOBODY, part.brokers[rows])
