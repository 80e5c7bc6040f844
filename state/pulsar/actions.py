"""From a policy's plan to the round's actions: budgets, evidence, expected load."""

from collections.abc import Collection
from dataclasses import dataclass, field

from policies.shedding.contract import SheddingPlan
from policies.shedding.registry import AnyPolicy
from policies.shedding.view import NOBODY, RoundView
from state.engine.holds import Hold
from state.outputs import Unload, rfc3339
from state.pulsar.after import After, share_ratio
from state.pulsar.anti_affinity import AntiAffinity
from state.pulsar.asking import PROPOSED, Asking
from state.pulsar.budget import Budget
from state.pulsar.holds import Holds
from state.pulsar.members import Calm
from state.pulsar.reasons import reason
from state.pulsar.tables import Eligible, mean_points
from state.settings import GuardSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What every action of a round shares."""

    cluster: str
    number: int
    end_ms: int
    expires_ms: int
    policy: AnyPolicy
    dry_run: bool
    holds: Holds
    calm: Calm
    asking: Asking | None = None
    """Where actions have to be approved; None where they go out."""


@dataclass(slots=True)
class Admitted:
    """Actions of a round in the policy's order, and why the other wanted ones were held (by bundle row)."""

    unloads: list[Unload] = field(default_factory=list)
    proposals: list[Unload] = field(default_factory=list)
    """Those that wait for approval."""
    holds: dict[int, Hold] = field(default_factory=dict)


def admit(
    eligible: Eligible,
    plan: SheddingPlan,
    budget: Budget,
    circumstances: Circumstances,
    spread: AntiAffinity,
    after: After,
    *,
    split_rows: Collection[int],
    done_rows: Collection[int] = (),
) -> Admitted:
    """Spend the budgets on the plan, in its order; ``after`` counts what moves.

    ``split_rows`` are bundles that are split in this round, ``done_rows`` those whose approved unload goes out already. What has to be
    approved is proposed and spends nothing.
    """
    admitted = Admitted()
    view, asking = eligible.view, circumstances.asking
    proposing, after_proposals = budget.draft(), After(view)
    groups = _GroupEvidence(eligible)
    sources = view.bundles.owners_of(plan.unload_rows)
    for place, (row, source, destination, by) in enumerate(
        zip(
            plan.unload_rows.tolist(),
            sources.tolist(),
            plan.unload_destinations.tolist(),
            plan.unload_examined.tolist(),
            strict=True,
        )
    ):
        if row in done_rows:
            continue
        name, owner = view.bundles.names[row], view.brokers.names[source]
        waits = asking is not None and asking.needs(
            "unloads",
            name,
            messages_per_s=float(view.bundles.messages_per_s[row]),
            bytes_per_s=float(view.bundles.bytes_per_s[row]),
        )
        hold = (
            circumstances.holds.unload
            or _split_instead(split_rows, row, circumstances.policy)
            or circumstances.calm.hold_of(float(view.brokers.usage_ratio[source]))
            or why_too_little(view, budget.guards, row=row, source=source)
            or spread.hold(eligible, row=row, source=source, destination=destination)
            or (asking.hold(owner, _name(view, destination)) if asking is not None and waits else None)
            or (proposing if waits else budget).take(
                name, broker=owner, owned_count=int(eligible.owned_counts[source])
            )
        )
        if hold is not None:
            admitted.holds[row] = hold
            continue
        if not waits:
            spread.move(eligible, row=row, destination=destination)
        moving = after_proposals if waits else after
        unload = _unload(
            eligible,
            plan,
            circumstances,
            groups,
            moving.move(row, source=source, destination=destination),
            place=place,
            row=row,
            by=by,
            source=source,
            destination=destination,
        )
        if asking is not None and waits:
            admitted.proposals.append(asking.propose(unload))
            admitted.holds[row] = PROPOSED
        else:
            admitted.unloads.append(unload)
    return admitted


def _split_instead(split_rows: Collection[int], row: int, policy: AnyPolicy) -> Hold | None:
    if row not in split_rows:
        return None
    if policy.splits_first:
        return Hold("split-instead", "it is split in this round, and its parts may move in a later one")
    return Hold("split-instead", "it is too big for any other broker and is split in this round")


def why_too_little(view: RoundView, guards: GuardSettings, *, row: int, source: int) -> Hold | None:
    """Why a move is not worth the reconnects: by the greater of its two shares of the broker's traffic, it lowers too little."""
    if not guards.min_unload_benefit_points:
        return None
    bundles, brokers = view.bundles, view.brokers
    share = max(
        share_ratio(float(bundles.messages_per_s[row]), float(brokers.messages_per_s[source])),
        share_ratio(float(bundles.bytes_per_s[row]), float(brokers.bytes_per_s[source])),
    )
    points = 100.0 * float(brokers.usage_ratio[source]) * share
    if points >= guards.min_unload_benefit_points:
        return None
    return Hold(
        "too-little-benefit",
        f"it would lower {brokers.names[source]} by {points:.3g} points, min_unload_benefit_points is "
        f"{guards.min_unload_benefit_points:g}",
    )


def _unload(
    eligible: Eligible,
    plan: SheddingPlan,
    circumstances: Circumstances,
    groups: "_GroupEvidence",
    expected: dict[str, dict[str, float]],
    *,
    place: int,
    row: int,
    by: int,
    source: int,
    destination: int,
) -> Unload:
    view = eligible.view
    bundle, owner = view.bundles.names[row], view.brokers.names[source]
    evidence = _evidence(eligible, plan, groups, place=place, row=row, by=by, source=source)
    target, trigger = _name(view, destination), plan.examined.trigger_of(by)
    return Unload(
        cluster=circumstances.cluster,
        round=circumstances.number,
        policy=circumstances.policy.name,
        trigger=trigger,
        reason=reason(
            policy=circumstances.policy,
            trigger=trigger,
            bundle=bundle,
            owner=owner,
            source=_name(view, int(plan.examined.high[by])) or owner,
            partner=_name(view, int(plan.examined.low[by])),
            destination=target,
            evidence=evidence,
        ),
        evidence=evidence,
        expected=expected,
        precondition={"owner": owner, "range": bundle.rpartition("/")[2]},
        expires_at=rfc3339(circumstances.expires_ms),
        dry_run=circumstances.dry_run,
        bundle=bundle,
        source_broker=owner,
        destination_broker=target,
    )


def _name(view: RoundView, broker: int) -> str | None:
    return None if broker == NOBODY else view.brokers.names[broker]


def _evidence(
    eligible: Eligible,
    plan: SheddingPlan,
    groups: "_GroupEvidence",
    *,
    place: int,
    row: int,
    by: int,
    source: int,
) -> dict[str, float | int | str]:
    bundles = eligible.view.bundles
    return {
        **plan.examined.evidence_of(by),
        **{name: column[place].item() for name, column in plan.unload_evidence.items()},
        "bundle_messages_per_s": float(bundles.messages_per_s[row]),
        "bundle_bytes_per_s": float(bundles.bytes_per_s[row]),
        **groups.of(source),
    }


class _GroupEvidence:
    """What the evidence says of the brokers that a broker is compared with; worked out once for each group."""

    def __init__(self, eligible: Eligible) -> None:
        self._eligible = eligible
        self._known: dict[int, dict[str, float | int | str]] = {}

    def of(self, broker: int) -> dict[str, float | int | str]:
        """Of the group of a broker row."""
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
