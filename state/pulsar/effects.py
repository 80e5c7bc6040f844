"""Judges the effects of actions, and checks what unloads promised.

Only real actions with a result are judged: a failed one at once, a succeeded one by the reports that came after its result. An
unload is effective once its source reports without its bundle, or another broker reports it: whether a bundle has an owner at all is what
the collector looks after (the finding ``unowned``). A split is effective once a child is listed; that the parent still is, too, is what
the finding ``overlapping-ranges`` looks after, because Pulsar makes children only by a split and never joins them. A round counts
against an action only if the broker concerned reported in it: a missing report does not mean "no effect". An action that was
skipped, or whose brokers sent no report for too long, gets no verdict.

An unload promises that its source's usage falls and its destination's rises by some points. A policy that predicts usage says by
how many (``SOURCE_FALLS``, ``DESTINATION_RISES``). For one that does not, ``policies.costs`` says what the bundle takes of each
resource. The unloads that one round moves between the same two brokers are one promise: what is expected of the brokers is the
sum of what they promise, so that it shows even where each of them is too small to, and it is checked once. Two rounds after an
unload is known to be effective, once no other unload of its brokers is on its way, the usage they report is compared with the usage
before it, changed by every unload carried out since. A promise is kept if the two came at least half as much closer as they
should have. It is not checked if a broker is gone, if the bundle landed elsewhere, if its brokers do not come to rest in time, if
they should hardly have come closer, or if the source was so busy that its usage does not show what is taken off it.

Source: ours; Pulsar's answer to an admin call does not say whether anything happened.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from policies.columns import Floats, Ints
from policies.costs import figures_of
from policies.shedding.view import DESTINATION_RISES, SOURCE_FALLS, Promise, RoundView, Side, Traffic
from state.events import LoadReport
from state.ledger import ActionKind, CheckedPromise, Decision, Ledger, Verdict, end_watch
from state.outputs import Finding, PromiseRow, PromisesSummary, Unload
from state.pulsar.fleet import Advanced
from state.pulsar.view import PolicyView, RoundContext
from state.summary import section_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What the reports of a round show about earlier decisions."""

    elsewhere: "list[Elsewhere]"
    """Unloads that landed elsewhere."""
    ineffective: dict[str, Decision]
    """By bundle, actions that this round found to have had no effect."""
    leaving: dict[str, set[str]]
    """By broker, bundles that it still lists, that were told to leave it and may still do so."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """An unload that had an effect, but another than the one decided."""

    bundle: str
    owner: str
    destination: str


def judge(context: RoundContext) -> Effects:
    """Judge earlier actions by the reports of a round."""
    ledger, guards, end_ms = context.ledger, context.guards, context.end_ms
    patience_ms = guards.ineffective_after_rounds * context.header.length_ms + context.max_report_age_ms
    for decision in ledger.decisions:
        last_ms = decision.until_ms if decision.succeeded_ms is None else decision.succeeded_ms + patience_ms
        decision.is_watched = decision.is_watched and end_ms < last_ms
    watched = [
        decision for decision in ledger.decisions if decision.is_watched and decision.succeeded_ms is not None
    ]
    expired = [decision for decision in ledger.decisions if decision.is_unanswered(end_ms)]
    names = {
        name
        for decision in watched + expired
        for name in (decision.bundle, *(child.bundle for child in decision.children))
    }
    owners = context.advanced.owners_of(names) if names else {}
    elsewhere = [landed for decision in watched for landed in _judge_one(context, decision, owners)]
    for decision in expired:  # counted as soon as reports show whether it had an effect
        had_effect = _has_effect(decision, owners, context.reports)
        if had_effect is not None:
            decision.is_counted = True
            ledger.count_unanswered(decided_ms=decision.decided_ms, had_effect=had_effect)
    leaving = _see_departures(ledger, context.advanced, end_ms=end_ms)
    for kind in get_args(ActionKind):
        if 0 < guards.failing_actions_count <= ledger.failures_count(kind):
            ledger.failing_since_ms.setdefault(kind, end_ms)
    ineffective = {
        decision.bundle: decision
        for decision in ledger.decisions
        if decision.verdict
        and decision.verdict.outcome == "ineffective"
        and decision.verdict.judged_ms == end_ms
    }
    return Effects(elsewhere=elsewhere, ineffective=ineffective, leaving=leaving)


def _judge_one(context: RoundContext, decision: Decision, owners: Mapping[str, str]) -> list[Elsewhere]:
    """Judge an action that succeeded, if the round shows its effect; the result is where it landed, if not as decided."""
    most_count, owner = context.guards.ineffective_after_rounds, owners.get(decision.bundle, "")
    elsewhere = []
    has_effect = _has_effect(decision, owners, context.reports) if most_count else True
    if has_effect:
        end_watch(decision, Verdict("effective", context.end_ms, owner, decision.rounds_count))
        if decision.landed_elsewhere and decision.destination is not None:
            elsewhere = [Elsewhere(decision.bundle, owner, decision.destination)]
    elif has_effect is False:
        decision.rounds_count += 1
        if decision.rounds_count >= most_count:
            end_watch(decision, Verdict("ineffective", context.end_ms, owner, decision.rounds_count))
    if decision.verdict is not None and decision.kind == "unload":
        decision.verdict = msgspec.structs.replace(
            decision.verdict,
            expected=context.ledger.expected_traffic(decision),
            seen=_observe_traffic(context, decision),
        )
    return elsewhere


def _observe_traffic(context: RoundContext, decision: Decision) -> dict[Side, Traffic]:
    """Load of the brokers of an unload, so far as they have reported since its result."""
    sides = {side: broker for side in decision.before if (broker := decision.broker_of(side)) is not None}
    return {
        side: context.loads.traffic_of(broker)
        for side, broker in sides.items()
        if _has_reported_since(decision, context.reports, broker)
    }


def _has_effect(
    decision: Decision, owners: Mapping[str, str], reports: Mapping[str, LoadReport]
) -> bool | None:
    """Whether an action had its effect; None if the round's reports do not show it."""
    owner = owners.get(decision.bundle)
    if decision.kind == "split":
        if any(child.bundle in owners for child in decision.children):
            return True
        return False if owner is not None and _has_reported_since(decision, reports, owner) else None
    if owner is not None and owner != decision.source:
        return True
    return owner is None if _has_reported_since(decision, reports, decision.source) else None


def _has_reported_since(decision: Decision, reports: Mapping[str, LoadReport], broker: str) -> bool:
    """Whether a broker's report of the round is no older than the result, or the expiry: an older one cannot show an effect."""
    report = reports.get(broker)
    since_ms = decision.expires_ms if decision.succeeded_ms is None else decision.succeeded_ms
    return report is not None and report.time_ms >= since_ms


def _see_departures(ledger: Ledger, advanced: Advanced, *, end_ms: int) -> dict[str, set[str]]:
    """By broker, bundles that are still leaving. One that is seen at another broker has left; one whose unload is over stays."""
    leaving: dict[str, set[str]] = defaultdict(set)
    on_their_way = ledger.unloads_on_their_way()
    stays = [advanced.owns(unload.source, unload.bundle) for unload in on_their_way]
    gone = {unload.bundle for unload, is_there in zip(on_their_way, stays, strict=True) if not is_there}
    elsewhere = advanced.owners_of(gone) if gone else {}
    for unload, is_there in zip(on_their_way, stays, strict=True):
        may_leave = is_there or unload.bundle not in elsewhere
        unload.is_leaving = may_leave and (end_ms < unload.until_ms or unload.is_watched)
        if unload.is_leaving and is_there:
            leaving[unload.source].add(unload.bundle)
    return leaving


SETTLED_ROUNDS = 2
"""Rounds after a verdict until the reports no longer show the move itself: clients that reconnect, traffic counted twice."""
PATIENCE_ROUNDS = 5
"""Rounds after a verdict until a promise that could not be checked is given up."""
LEAST_CLOSER_POINTS = 1.0
"""By how much an unload and those after it have to bring its brokers closer; below that, usage cannot show whether it helped."""
SATURATED_POINTS = 80.0
"""Usage from which a broker may have more to do than it can: less traffic then shortens its queue and does not lower its usage."""
FEWEST_CHECKED = 5
"""Fewest checked promises for which a finding about failed ones is made."""


class Promised(NamedTuple):
    """What an unload promises about the usage of its brokers."""

    before_points: dict[Side, float]
    """Usage as it was reported in the round."""
    change_points: dict[Side, float]
    """By how much this unload is to change it."""


def promised(unload: Unload, table: PolicyView) -> Promised:
    """What an unload promises; if its policy predicts no usage, by the costs of what the bundle carries."""
    evidence, loads = unload.evidence, table.loads
    sides: dict[Side, str | None] = {"source": unload.source_broker, "destination": unload.destination_broker}
    known = {side: broker for side, broker in sides.items() if broker is not None}
    change: dict[Side, float]
    if SOURCE_FALLS in evidence:
        change = {"source": -float(evidence[SOURCE_FALLS]), "destination": float(evidence[DESTINATION_RISES])}
    else:
        change = {
            side: _change_points(unload, broker, table, sign=-1.0 if side == "source" else 1.0)
            for side, broker in known.items()
        }
    return Promised(
        {side: loads.points_of(broker) for side, broker in known.items()},
        {side: change[side] for side in known},
    )


def _change_points(unload: Unload, broker: str, table: PolicyView, *, sign: float) -> float:
    """By how much a broker's usage changes with the bundle, from its largest resource to the largest after it."""
    names, costs, loads = table.view.brokers.names, table.view.costs, table.loads
    if broker not in names or costs is None:
        return 0.0
    change = costs.points_at(np.array([names.index(broker)]), figures_of(*_carried(unload, table.view)))[0]
    return loads.points_of(broker, changed=sign * change) - loads.points_of(broker)


def _carried(unload: Unload, view: RoundView) -> tuple[Floats, Ints]:
    """Rates of a bundle, (1, 4), and its counts, (1, 2); where it is not in the view, as the unload states them."""
    bundles, names = view.bundles, view.brokers.names
    if unload.source_broker in names:
        row = bundles.row_of(names.index(unload.source_broker), unload.bundle)
        if row is not None:
            return bundles.rates[[row]], bundles.counts[[row]]
    stated = [float(unload.evidence[f"bundle_{name}"]) for name in ("messages_per_s", "bytes_per_s")]
    return np.array([stated]).repeat(2, axis=1) / 2, np.zeros((1, 2), dtype=np.int64)


def check_promises(context: RoundContext) -> list[Decision]:
    """Check the promises that can be checked in this round; returns their decisions, in order."""
    ledger, loads = context.ledger, context.loads
    due = [
        decision
        for decision in ledger.decisions
        if _is_due(decision, length_ms=context.header.length_ms, end_ms=context.end_ms)
    ]
    if not due:
        return []
    reported, moving = set(loads.names), ledger.unsettled_brokers(end_ms=context.end_ms)
    plans = {decision.plan for decision in ledger.decisions if decision.promise is not None}
    checked = []
    for decision in due:
        brokers = {
            side: broker
            for side in decision.before_points
            if (broker := decision.broker_of(side)) is not None
        }
        if (
            decision.plan in plans
            or not reported.issuperset(brokers.values())
            or moving.intersection(brokers.values())
        ):
            continue
        promise = Promise(
            before_points=decision.before_points,
            expected_points=ledger.expected_points(decision),
            seen_points={side: loads.points_of(broker) for side, broker in brokers.items()},
        )
        if promise.expected_closer_points >= LEAST_CLOSER_POINTS:
            decision.promise = CheckedPromise(checked_ms=context.end_ms, promise=promise)
            plans.add(decision.plan)
            checked.append(decision)
    return checked


def _is_due(decision: Decision, *, length_ms: int, end_ms: int) -> bool:
    verdict = decision.verdict
    if verdict is None or verdict.outcome != "effective" or decision.promise is not None:
        return False
    if not decision.before_points or decision.destination not in (None, verdict.broker):
        return False
    if decision.before_points["source"] >= SATURATED_POINTS:
        return False
    waited_ms = end_ms - verdict.judged_ms
    return SETTLED_ROUNDS * length_ms <= waited_ms < PATIENCE_ROUNDS * length_ms


def summarize_promises(context: RoundContext, checked: Sequence[Decision]) -> PromisesSummary | None:
    """The promises of a round, and how the last ones ended; None where none was checked within the hour."""
    last = context.ledger.last_promises(end_ms=context.end_ms)
    if not last:
        return None
    kept_count = sum(promise.is_kept for promise in last)
    rows = [
        PromiseRow(
            id=decision.id,
            bundle=decision.bundle,
            brokers={side: broker for side in promise.before_points if (broker := decision.broker_of(side))},
            before_points=dict(promise.before_points),
            expected_points=dict(promise.expected_points),
            seen_points=dict(promise.seen_points),
            outcome="kept" if promise.is_kept else "failed",
        )
        for decision in checked
        if decision.promise and (promise := decision.promise.promise)
    ]
    return PromisesSummary(
        kept_count=kept_count,
        failed_count=len(last) - kept_count,
        expected_gain_points=math.fsum(promise.expected_gain_points for promise in last) / len(last),
        gain_points=math.fsum(promise.gain_points for promise in last) / len(last),
        error_points=math.fsum(promise.error_points for promise in last) / len(last),
        checked=section_of((row.outcome for row in rows), rows),
    )


def find_failed_promises(summary: PromisesSummary | None, cluster: str) -> list[Finding]:
    """A finding that says what a person can look at, if most of the last promises failed."""
    if summary is None or summary.failed_count + summary.kept_count < FEWEST_CHECKED:
        return []
    if summary.failed_count <= summary.kept_count:
        return []
    return [
        Finding(
            kind="promises-failed",
            subject=cluster,
            broker="",
            bytes_per_s=None,
            advice=f"for {summary.failed_count} of the last {summary.failed_count + summary.kept_count} unloads, the gap between the "
            f"two brokers closed by less than half of what was expected (mean gain {summary.gain_points:.1f} points, expected "
            f"{summary.expected_gain_points:.1f}): check whether another program uses these machines, "
            f"whether topics or clients load them rather than traffic (then declare topics_count or sessions_count in "
            f"[pulsar.capacity], for fleet-planner), or whether somebody else moves bundles",
        )
    ]
