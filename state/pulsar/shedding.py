"""Runs the shedding policy of a round for each group of brokers separately, and turns its plan into the round's actions.

With one group the policy sees the whole view, and its plan is the round's. With several groups it sees, for each group, only the
brokers of that group, and the memory of these brokers, whether they reported or not. No unload crosses a group, because the
policy sees no broker outside it. Every number in the sentence that an action gives as its reason is part of the action's
evidence.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from policies.columns import Bools, Ints
from policies.placement import LEAST_RESOURCE_USAGE, PLACEMENTS, find_placement
from policies.shedding.contract import (
    ADMITTED,
    POSTPONED,
    REFUSED,
    Examined,
    Proposal,
    SheddingPlan,
)
from policies.shedding.rules import Rules
from policies.shedding.view import NOBODY, RoundView
from policies.splitting.plan import Proposals
from policies.splitting.relief import relief
from state.closing import Hold
from state.outputs import Unload
from state.pulsar import groups
from state.pulsar.admission import (
    PROPOSED,
    Admission,
    After,
    Evidence,
    Move,
    bundle_traffic,
    name_of,
    traffic_in,
)
from state.pulsar.view import PolicyView, RoundContext
from state.pulsar.wording import shadow_note


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

    def proposals(self, stays: Bools) -> Proposals:
        """Bundles that put their broker above the average of their group and fit no other; those that ``stay`` are passed over."""
        by_part = [relief(part.view, part.plan, stays[part.bundles]) for part in self.parts]
        if len(by_part) == 1:
            return by_part[0]
        rows = np.concatenate(
            [part.bundles[proposals.rows] for part, proposals in zip(self.parts, by_part, strict=True)]
        )
        order = np.argsort(rows, kind="stable")
        columns = {
            column.name: np.concatenate([getattr(proposals, column.name) for proposals in by_part])[order]
            for column in fields(Proposals)
            if column.name not in ("rows", "barred", "has_counted")
        }
        barred = {
            int(part.bundles[row]): detail
            for part, proposals in zip(self.parts, by_part, strict=True)
            for row, detail in proposals.barred.items()
        }
        has_counted = any(proposals.has_counted for proposals in by_part)
        return Proposals(rows=rows[order], barred=barred, has_counted=has_counted, **columns)


def shed(context: RoundContext, table: PolicyView) -> Shed:
    """What the policy wants for each group with a broker in the view, the default group first; for that one if there is none.

    The rules that it sees for a group count what it wants for those before. While brokers are under maintenance or drained, Pulsar may
    not choose destinations: it does not know of that.
    """
    pulsar, whole = context.pulsar, table.view
    policy, settings = pulsar.policy, pulsar.section_of(pulsar.policy)
    numbers = np.unique(table.broker_groups).tolist() or [groups.DEFAULT]
    placement = find_placement(pulsar.placement)
    if placement is None and context.closing.overlay.apart:
        placement = LEAST_RESOURCE_USAGE
    if len(numbers) > 1 and whole.rules is not None:
        whole = replace(whole, rules=whole.rules.draft())
    memories = groups.recall_policy(context.fleet.policies, policy, context.groups, numbers)
    parts = []
    for number, memory in zip(numbers, memories, strict=True):
        brokers = np.flatnonzero(table.broker_groups == number)
        view, bundles = (whole, np.arange(len(whole.bundles))) if len(numbers) == 1 else whole.part(brokers)
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
    groups_of_rows = np.concatenate([np.full(len(part.plan.examined), part.group) for part in parts])
    return Shed(tuple(parts), plan, groups_of_rows)


def settle(context: RoundContext, wanted: Shed, holds: Mapping[int, Hold]) -> None:
    """Give the fleet what the policy remembers, now that it is known which unloads happen; ``holds`` by bundle row."""
    fleet, policy = context.fleet, context.pulsar.policy
    after = {part.group: policy.settle(part.proposal, _fates(part, holds)) for part in wanted.parts}
    fleet.policies = groups.remember_policy(fleet.policies, policy, context.groups, after)


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
        unload_swap_group=np.concatenate([part.bundles[part.plan.unload_swap_group] for part in parts]),
        unload_evidence={
            name: np.concatenate([plan.unload_evidence[name] for plan in placed])
            for name in (placed[0].unload_evidence if placed else ())
        },
        tried_rows=np.concatenate([part.bundles[part.plan.tried_rows] for part in parts]),
        tried_outcomes=np.concatenate([plan.tried_outcomes for plan in plans]),
        tried_examined=np.concatenate(
            [plan.tried_examined + start for plan, start in zip(plans, starts, strict=True)]
        ),
        barred={
            int(part.bundles[row]): int(part.brokers[broker])
            for part in parts
            for row, broker in part.plan.barred.items()
        },
    )


def _merge_examined(parts: Sequence[Part]) -> Examined:
    all_examined = [part.plan.examined for part in parts]
    seen = [examined for examined in all_examined if len(examined)]
    first = all_examined[0]
    return Examined(
        high=np.concatenate([_brokers(part, part.plan.examined.high) for part in parts]),
        low=np.concatenate([_brokers(part, part.plan.examined.low) for part in parts]),
        outcome=np.concatenate([examined.outcome for examined in all_examined]),
        outcomes=first.outcomes,
        trigger=np.concatenate([examined.trigger for examined in all_examined]),
        triggers=first.triggers,
        evidence={
            name: np.concatenate([examined.evidence[name] for examined in seen])
            for name in (seen[0].evidence if seen else ())
        },
    )


def _brokers(part: Part, rows: Ints) -> Ints:
    """Broker rows of the whole view; NOBODY stays NOBODY."""
    return np.where(rows == NOBODY, NOBODY, part.brokers[rows])


@dataclass(slots=True)
class Admitted:
    """Actions of a round in the policy's order, and why the other wanted ones were held (by bundle row)."""

    unloads: list[Unload] = field(default_factory=list)
    proposals: list[Unload] = field(default_factory=list)
    """Unloads that wait for approval."""
    holds: dict[int, Hold] = field(default_factory=dict)


def admit(
    admission: Admission,
    plan: SheddingPlan,
    *,
    split_rows: Collection[int],
    before_moves: Mapping[int, Hold] = {},
    done_rows: Collection[int] = (),
) -> Admitted:
    """Let the unloads of the plan happen in its order, as far as they may.

    ``split_rows`` are bundles that are split in this round, ``done_rows`` those whose approved unload goes out already. The policy's unloads
    from a broker of ``before_moves`` are held. An unload that has to be approved is proposed and spends nothing. The unloads of a swap
    happen together or not at all.
    """
    desk = _Desk(admission, plan, split_rows, before_moves)
    for _, places in groupby(range(len(plan.unload_rows)), key=plan.unload_swap_group.tolist().__getitem__):
        wanted = [desk.wanted(place) for place in places]
        desk.decide([unload for unload in wanted if unload.move.row not in done_rows])
    desk.name_barred()
    return desk.admitted


class _Wanted(NamedTuple):
    """An unload of the plan: its place there, its row of ``examined``, and what moves."""

    place: int
    by: int
    bundle: str
    move: Move


class _Desk:
    """Decides on the plan's unloads one after the other, and on those of a swap together."""

    def __init__(
        self,
        admission: Admission,
        plan: SheddingPlan,
        split_rows: Collection[int],
        before_moves: Mapping[int, Hold],
    ) -> None:
        self._admission, self._plan = admission, plan
        self._split_rows, self._before_moves = split_rows, before_moves
        self._view = admission.table.view
        self._proposing, self._after_proposals = admission.rules.draft(), After(admission.table.loads)
        self._sources = self._view.bundles.owners_of(plan.unload_rows)
        self.admitted = Admitted()

    def wanted(self, place: int) -> _Wanted:
        """The unload at a place of the plan."""
        plan, row = self._plan, int(self._plan.unload_rows[place])
        return _Wanted(
            place=place,
            by=int(plan.unload_examined[place]),
            bundle=self._view.bundles.names[row],
            move=Move(row, int(self._sources[place]), int(plan.unload_destinations[place])),
        )

    def decide(self, swapped: Sequence[_Wanted]) -> None:
        """Decide on unloads that happen together or not at all; mostly it is only one."""
        waits = any(self._admission.needs_approval("unloads", wanted.move.row) for wanted in swapped)
        rules = self._proposing if waits else self._admission.rules
        if len(swapped) > 1 and self._hold_all(swapped, rules.draft(), waits=waits):
            return
        for wanted in swapped:
            hold = self._hold(wanted, rules, waits=waits)
            if hold is not None:
                self.admitted.holds[wanted.move.row] = hold
            else:
                self._let_go(wanted, waits=waits)

    def name_barred(self) -> None:
        """Name the rule that keeps a bundle where the policy would choose it were it not for the rules."""
        rules, holds = self._admission.rules, self.admitted.holds
        for row, broker in self._plan.barred.items():
            forbidden = rules.keeps(row) or rules.bars(row, broker)
            if forbidden is not None:
                holds.setdefault(row, Hold(forbidden.rule, forbidden.detail))

    def _hold_all(self, swapped: Sequence[_Wanted], rules: Rules, *, waits: bool) -> bool:
        """Hold all unloads of a swap if one of them is held; returns whether that is so."""
        for held in swapped:
            hold = self._hold(held, rules, waits=waits)
            if hold is None:
                continue
            for wanted in swapped:
                detail = hold.detail if wanted is held else f"swapped with {held.bundle}: {hold.detail}"
                self.admitted.holds[wanted.move.row] = replace(hold, detail=detail)
            return True
        return False

    def _hold(self, wanted: _Wanted, rules: Rules, *, waits: bool) -> Hold | None:
        return self._before_moves.get(wanted.move.source) or self._admission.hold(
            wanted.move, split_rows=self._split_rows, is_proposed=waits, rules=rules
        )

    def _let_go(self, wanted: _Wanted, *, waits: bool) -> None:
        """Let an unload happen, as an action or as a proposal."""
        asking = self._admission.asking
        if waits and asking is not None:
            self.admitted.proposals.append(asking.propose(self._unload(wanted, self._after_proposals)))
            self.admitted.holds[wanted.move.row] = PROPOSED
        else:
            self._proposing.gather(wanted.move.row, wanted.move.destination)
            self.admitted.unloads.append(self._unload(wanted, self._admission.after))

    def _unload(self, wanted: _Wanted, after: After) -> Unload:
        view, destination = self._view, name_of(self._view, wanted.move.destination)
        owner, evidence = view.brokers.names[wanted.move.source], self._evidence(wanted)
        return self._admission.unload(
            wanted.bundle,
            source=owner,
            destination=destination,
            policy=self._admission.context.pulsar.policy.name,
            trigger=self._plan.examined.trigger_of(wanted.by),
            reason=self._reason(wanted, owner, destination, evidence),
            evidence=evidence,
            after=after,
        )

    def _reason(self, wanted: _Wanted, owner: str, destination: str | None, evidence: Evidence) -> str:
        """What the policy found, what moves, and why it moves there if a placement chose the destination.

        The owner is not the broker that the policy found too busy where a swap brings a bundle back.
        """
        examined, policy = self._plan.examined, self._admission.context.pulsar.policy
        source = name_of(self._view, int(examined.high[wanted.by])) or owner
        partner = name_of(self._view, int(examined.low[wanted.by]))
        finding = policy.sentences[examined.trigger_of(wanted.by)](source, partner, evidence)
        returning = "" if owner == source else f" from {owner} in return"
        messages, volume = traffic_in(evidence)
        placement = next((chosen for chosen in PLACEMENTS if chosen.evidence in evidence), None)
        to = "" if placement is None or destination is None else placement.sentence(destination, evidence)
        moving = f"moving {wanted.bundle}{returning} ({messages:.0f} messages/s, {volume:.0f} bytes/s){to}"
        return f"{finding}{shadow_note(self._admission.table.shadow)}: {moving}"

    def _evidence(self, wanted: _Wanted) -> Evidence:
        bundles, source, table = self._view.bundles, wanted.move.source, self._admission.table
        group = self._admission.context.groups.name_of(int(table.broker_groups[source]))
        return {
            **self._plan.examined.evidence_of(wanted.by),
            **{name: column[wanted.place].item() for name, column in self._plan.unload_evidence.items()},
            **bundle_traffic(bundles.messages_per_s[wanted.move.row], bundles.bytes_per_s[wanted.move.row]),
            **self._admission.compared(source),
            **({} if group is None else {"group": group}),
        }
