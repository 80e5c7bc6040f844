"""From a policy's plan to the round's actions: rules, evidence, expected load."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from policies.shedding.contract import SheddingPlan
from policies.shedding.rules import Rules
from state.engine.holds import Hold
from state.outputs import Unload, rfc3339
from state.pulsar.after import After
from state.pulsar.asking import PROPOSED
from state.pulsar.circumstances import Circumstances
from state.pulsar.moves import Move, name_of
from state.pulsar.reasons import reason
from state.pulsar.tables import Eligible, mean_points
from state.pulsar.unload_holds import hold_unload


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
