"""Runs the shedding policy of a round for each group of brokers separately, and turns its plan into the round's actions.

With one group the policy sees the whole view, and its plan is the round's. With several groups it sees, for each group, only the
brokers of that group, and the memory of these brokers, whether they reported or not. No unload crosses a group, because the
policy sees no broker outside it. Every number in the sentence that an action gives as its reason is part of the action's
evidence.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from policies.columns import Floats, Ints
from policies.placement import least_resource_usage
from policies.placement.registry import PLACEMENTS, find_placement
from policies.shedding.contract import (
    ADMITTED,
    POSTPONED,
    REFUSED,
    Evidence,
    Examined,
    Proposal,
    SheddingPlan,
)
from policies.shedding.registry import AnyPolicy
from policies.shedding.rules import Rules
from policies.shedding.view import NOBODY, RoundView
from policies.splitting.plan import Proposals
from policies.splitting.relief import relief
from state.closing import Hold
from state.outputs import Unload, rfc3339
from state.pulsar import groups
from state.pulsar.holds import PROPOSED, Circumstances, Move, hold_unload, name_of
from state.pulsar.memory import Fleet
from state.pulsar.view import Eligible, mean_points
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
        placement = least_resource_usage.PLACEMENT
    if len(numbers) > 1 and table.view.rules is not None:
        table = replace(table, view=replace(table.view, rules=table.view.rules.draft()))
    memories = groups.recall_policy(fleet.policies, policy, table.groups, numbers)
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
    groups_of_rows = np.concatenate([np.full(len(part.plan.examined), part.group) for part in parts])
    return Shed(tuple(parts), plan, groups_of_rows)


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
    fleet.policies = groups.remember_policy(fleet.policies, pulsar.policy, table.groups, after)


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


class After:
    """Traffic of each broker of the view after the round's actions so far."""

    def __init__(self, view: RoundView) -> None:
        self._view = view
        self._messages: Floats = view.brokers.messages_per_s.copy()
        self._volume: Floats = view.brokers.bytes_per_s.copy()

    def move(self, move: Move) -> dict[str, dict[str, float]]:
        """Move a bundle; returns the load of both brokers after that."""
        bundles = self._view.bundles
        messages, volume = bundles.messages_per_s[move.row], bundles.bytes_per_s[move.row]
        self._add(move.source, -messages, -volume)
        expected = {"source": self._load(move.source)}
        if move.destination != NOBODY:
            expected["destination"] = self.receive(move.destination, messages, volume)
        return expected

    def receive(self, broker: int, messages_per_s: float, bytes_per_s: float) -> dict[str, float]:
        """Add a bundle to a broker, also one from a broker outside the view; returns the load of the broker after that."""
        self._add(broker, messages_per_s, bytes_per_s)
        return self._load(broker)

    def _add(self, broker: int, messages_per_s: float, bytes_per_s: float) -> None:
        self._messages[broker] = max(0.0, self._messages[broker] + messages_per_s)
        self._volume[broker] = max(0.0, self._volume[broker] + bytes_per_s)

    def _load(self, broker: int) -> dict[str, float]:
        return traffic_of(float(self._messages[broker]), float(self._volume[broker]))


def traffic_of(messages_per_s: float, bytes_per_s: float) -> dict[str, float]:
    """A load in the form that actions have."""
    return {"messages_per_s": messages_per_s, "bytes_per_s": bytes_per_s}


def reason(
    *,
    policy: AnyPolicy,
    trigger: str,
    bundle: str,
    owner: str,
    source: str,
    partner: str | None,
    destination: str | None,
    evidence: Evidence,
) -> str:
    """One sentence for a person; ``partner`` is the broker that ``source`` was compared with.

    ``owner`` has the bundle; it is not ``source`` where a swap brings a bundle back.
    """
    finding = policy.sentences[trigger](source, partner, evidence)
    moved = (
        f"{evidence['bundle_messages_per_s']:.0f} messages/s, {evidence['bundle_bytes_per_s']:.0f} bytes/s"
    )
    returning = "" if owner == source else f" from {owner} in return"
    return f"{finding}: moving {bundle}{returning} ({moved}){_placement_sentence(destination, evidence)}"


def _placement_sentence(destination: str | None, evidence: Evidence) -> str:
    """Why it moves there, if a placement chose the destination."""
    chosen = next((each for each in PLACEMENTS if each.evidence in evidence), None)
    return "" if chosen is None or destination is None else chosen.sentence(destination, evidence)


@dataclass(slots=True)
class Admitted:
    """Actions of a round in the policy's order, and why the other wanted ones were held (by bundle row)."""

    unloads: list[Unload] = field(default_factory=list)
    proposals: list[Unload] = field(default_factory=list)
    """Unloads that wait for approval."""
    holds: dict[int, Hold] = field(default_factory=dict)


def admit(
    eligible: Eligible,
    plan: SheddingPlan,
    rules: Rules,
    circumstances: Circumstances,
    after: After,
    *,
    split_rows: Collection[int],
    done_rows: Collection[int] = (),
) -> Admitted:
    """Let the unloads of the plan happen in its order, as far as they may; ``rules`` and ``after`` count what moves.

    ``split_rows`` are bundles that are split in this round, ``done_rows`` those whose approved unload goes out already. An unload
    that has to be approved is proposed and spends nothing.
    """
    desk = _Desk(eligible, plan, rules, circumstances, after, split_rows)
    for _, places in groupby(range(len(plan.unload_rows)), key=plan.unload_for.tolist().__getitem__):
        wanted = [desk.wanted(place) for place in places]
        desk.decide([each for each in wanted if each.move.row not in done_rows])
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
        eligible: Eligible,
        plan: SheddingPlan,
        rules: Rules,
        circumstances: Circumstances,
        after: After,
        split_rows: Collection[int],
    ) -> None:
        self._eligible, self._plan, self._circumstances = eligible, plan, circumstances
        self._rules, self._after = rules, after
        self._proposing, self._after_proposals = rules.draft(), After(eligible.view)
        self._split_rows = split_rows
        self._groups = _GroupEvidence(eligible)
        self._sources = eligible.view.bundles.owners_of(plan.unload_rows)
        self.admitted = Admitted()

    def wanted(self, place: int) -> _Wanted:
        """The unload at a place of the plan."""
        plan, row = self._plan, int(self._plan.unload_rows[place])
        return _Wanted(
            place=place,
            by=int(plan.unload_examined[place]),
            bundle=self._eligible.view.bundles.names[row],
            move=Move(row, int(self._sources[place]), int(plan.unload_destinations[place])),
        )

    def decide(self, swapped: Sequence[_Wanted]) -> None:
        """Decide on unloads that happen together or not at all; mostly it is only one."""
        waits = any(map(self._waits, swapped))
        rules = self._proposing if waits else self._rules
        if len(swapped) > 1 and self._hold_all(swapped, rules.draft(), waits=waits):
            return
        for each in swapped:
            hold = self._hold(each, rules, waits=waits)
            if hold is not None:
                self.admitted.holds[each.move.row] = hold
            else:
                self._let_go(each, waits=waits)

    def _waits(self, each: _Wanted) -> bool:
        asking, bundles = self._circumstances.asking, self._eligible.view.bundles
        return asking is not None and asking.needs(
            "unloads",
            each.bundle,
            messages_per_s=float(bundles.messages_per_s[each.move.row]),
            bytes_per_s=float(bundles.bytes_per_s[each.move.row]),
        )

    def _hold_all(self, swapped: Sequence[_Wanted], rules: Rules, *, waits: bool) -> bool:
        """Hold all unloads of a swap if one of them is held; returns whether that is so."""
        for held in swapped:
            hold = self._hold(held, rules, waits=waits)
            if hold is None:
                continue
            for each in swapped:
                detail = hold.detail if each is held else f"swapped with {held.bundle}: {hold.detail}"
                self.admitted.holds[each.move.row] = replace(hold, detail=detail)
            return True
        return False

    def _hold(self, each: _Wanted, rules: Rules, *, waits: bool) -> Hold | None:
        return hold_unload(
            each.move,
            self._eligible,
            self._circumstances,
            rules,
            split_rows=self._split_rows,
            is_proposed=waits,
        )

    def _let_go(self, each: _Wanted, *, waits: bool) -> None:
        """Let an unload happen, as an action or as a proposal."""
        if not waits:
            self._proposing.gather(each.move.row, each.move.destination)
        after = self._after_proposals if waits else self._after
        expected = after.move(each.move)
        unload = _unload(self._eligible, self._plan, self._circumstances, self._groups, expected, each)
        if waits and self._circumstances.asking is not None:
            self.admitted.proposals.append(self._circumstances.asking.propose(unload))
            self.admitted.holds[each.move.row] = PROPOSED
        else:
            self.admitted.unloads.append(unload)


def _unload(
    eligible: Eligible,
    plan: SheddingPlan,
    circumstances: Circumstances,
    groups: "_GroupEvidence",
    expected: dict[str, dict[str, float]],
    each: _Wanted,
) -> Unload:
    view, by = eligible.view, each.by
    owner, evidence = view.brokers.names[each.move.source], _evidence(eligible, plan, groups, each)
    target, trigger = name_of(view, each.move.destination), plan.examined.trigger_of(by)
    return Unload(
        cluster=circumstances.cluster,
        round=circumstances.number,
        policy=circumstances.policy.name,
        trigger=trigger,
        reason=reason(
            policy=circumstances.policy,
            trigger=trigger,
            bundle=each.bundle,
            owner=owner,
            source=name_of(view, int(plan.examined.high[by])) or owner,
            partner=name_of(view, int(plan.examined.low[by])),
            destination=target,
            evidence=evidence,
        ),
        evidence=evidence,
        expected=expected,
        precondition={"owner": owner, "range": each.bundle.rpartition("/")[2]},
        expires_at=rfc3339(circumstances.expires_ms),
        dry_run=circumstances.dry_run,
        bundle=each.bundle,
        source_broker=owner,
        destination_broker=target,
    )


def _evidence(
    eligible: Eligible,
    plan: SheddingPlan,
    groups: "_GroupEvidence",
    each: _Wanted,
) -> dict[str, float | int | str]:
    bundles = eligible.view.bundles
    return {
        **plan.examined.evidence_of(each.by),
        **{name: column[each.place].item() for name, column in plan.unload_evidence.items()},
        "bundle_messages_per_s": float(bundles.messages_per_s[each.move.row]),
        "bundle_bytes_per_s": float(bundles.bytes_per_s[each.move.row]),
        **groups.of(each.move.source),
    }


class _GroupEvidence:
    """Evidence about the brokers that a broker is compared with; computed once for each group."""

    def __init__(self, eligible: Eligible) -> None:
        self._eligible = eligible
        self._known: dict[int, dict[str, float | int | str]] = {}

    def of(self, broker: int) -> dict[str, float | int | str]:
        """The evidence about the group of a broker row."""
        group = int(self._eligible.broker_groups[broker])
        if group not in self._known:
            self._known[group] = self._work_out(broker)
        return self._known[group]

    def _work_out(self, broker: int) -> dict[str, float | int | str]:
        name = self._eligible.group_of(broker)
        compared = self._eligible.broker_groups == self._eligible.broker_groups[broker]
        return {
            "brokers_count": int(compared.sum()),
            "mean_usage_points": mean_points(100.0 * self._eligible.view.brokers.usage_ratio[compared]),
            **({} if name is None else {"group": name}),
        }
