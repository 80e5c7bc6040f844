"""Judges the effects of actions, and checks what unloads promised.

Only real actions with a result are judged: a failed one at once, a succeeded one by the reports that came after its result. An
unload is good once another broker owns its bundle. A split is good once a child is listed and the parent is not. A round counts
against an action only if the broker concerned reported in it: a missing report does not mean "no effect". An action that was
skipped, or whose brokers sent no report for too long, gets no verdict.

An unload promises that its source's usage falls and its destination's rises by some points. A policy that predicts usage says by
how many (``SOURCE_FALLS``, ``DESTINATION_RISES``). For one that does not, ``policies.costs`` says what the bundle takes of each
resource. The unloads that one round moves between the same two brokers are one promise: what is expected of the brokers is the
sum of what they promise, so that it shows even where each of them is too small to, and it is checked once. Two rounds after an
unload is known to be good, once no other unload of its brokers is on its way, the usage they report is compared with the usage
before it, changed by every unload carried out since. A promise is kept if the two came at least half as much closer as they
should have. It is not checked if a broker is gone, if the bundle landed elsewhere, if its brokers do not come to rest in time, if
they should hardly have come closer, or if the source was so busy that its usage does not show what is taken off it.

Source: ours; Pulsar's answer to an admin call does not say whether anything happened.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from policies.columns import Floats, Ints
from policies.costs import figures_of
from policies.shedding.view import DESTINATION_RISES, SOURCE_FALLS, Promise, RoundView, Side, Traffic
from state.ledger import ActionKind, CheckedPromise, Decision, Ledger, Verdict, end_watch
from state.outputs import Finding, PromiseRow, PromisesSummary, Section, Unload
from state.pulsar.fleet import Advanced
from state.pulsar.memory import WaitingReport
from state.pulsar.view import Loads
from state.settings import GuardSettings, PulsarSettings
from state.summary import SHOWN_ROWS


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


def judge(
    ledger: Ledger,
    advanced: Advanced,
    reports: Mapping[str, WaitingReport],
    loads: Loads,
    pulsar: PulsarSettings,
    *,
    length_ms: int,
    end_ms: int,
) -> Effects:
    """Judge earlier actions by the reports of a round."""
    patience_ms = pulsar.guards.ineffective_after_rounds_count * length_ms + pulsar.rounds.max_report_age_ms
    for each in ledger.decisions:
        last_ms = each.until_ms if each.succeeded_ms is None else each.succeeded_ms + patience_ms
        each.is_watched = each.is_watched and end_ms < last_ms
    watched = [each for each in ledger.decisions if each.is_watched and each.succeeded_ms is not None]
    expired = [each for each in ledger.decisions if each.is_unanswered(end_ms)]
    names = {
        name
        for each in watched + expired
        for name in (each.bundle, *(child.bundle for child in each.children))
    }
    owners = advanced.owners_of(names) if names else {}
    elsewhere = _judge_all(watched, ledger, owners, reports, loads, pulsar.guards, end_ms=end_ms)
    _count_unanswered(expired, ledger, owners, reports)
    leaving = _see_departures(ledger, advanced, end_ms=end_ms)
    for kind in _failing_kinds(ledger, pulsar.guards):
        ledger.failing_since_ms.setdefault(kind, end_ms)
    ineffective = {
        each.bundle: each
        for each in ledger.decisions
        if each.verdict and each.verdict.outcome == "ineffective" and each.verdict.judged_ms == end_ms
    }
    return Effects(elsewhere=elsewhere, ineffective=ineffective, leaving=leaving)


def _judge_all(
    watched: Sequence[Decision],
    ledger: Ledger,
    owners: Mapping[str, str],
    reports: Mapping[str, WaitingReport],
    loads: Loads,
    guards: GuardSettings,
    *,
    end_ms: int,
) -> list[Elsewhere]:
    elsewhere = []
    for each in watched:
        owner = owners.get(each.bundle, "")
        found = _has_effect(each, owners, reports) if guards.ineffective_after_rounds_count else True
        if found:
            end_watch(each, Verdict("good", end_ms, owner, each.rounds_count))
            elsewhere += _find_elsewhere(each, owner)
        elif found is False:
            each.rounds_count += 1
            if each.rounds_count >= guards.ineffective_after_rounds_count:
                end_watch(each, Verdict("ineffective", end_ms, owner, each.rounds_count))
        if each.verdict is not None and each.kind == "unload":
            each.verdict = msgspec.structs.replace(
                each.verdict,
                expected=ledger.expected_traffic(each),
                seen=_observe_traffic(each, reports, loads),
            )
    return elsewhere


def _observe_traffic(
    decision: Decision, reports: Mapping[str, WaitingReport], loads: Loads
) -> dict[Side, Traffic]:
    found: dict[Side, Traffic] = {}
    for side in decision.before:
        broker = decision.broker_of(side)
        if broker is not None and _has_reported_since(decision, reports, broker):
            found[side] = loads.traffic_of(broker)
    return found


def _find_elsewhere(decision: Decision, owner: str) -> list[Elsewhere]:
    if decision.destination is None or owner in ("", decision.source, decision.destination):
        return []
    return [Elsewhere(decision.bundle, owner, decision.destination)]


def _has_effect(
    decision: Decision, owners: Mapping[str, str], reports: Mapping[str, WaitingReport]
) -> bool | None:
    """Whether an action had its effect; None if the round's reports do not show it."""
    owner = owners.get(decision.bundle)
    if decision.kind == "split":
        if owner is None:
            return True if any(child.bundle in owners for child in decision.children) else None
        return False if _has_reported_since(decision, reports, owner) else None
    if owner is not None and owner != decision.source:
        return True
    return owner is None if _has_reported_since(decision, reports, decision.source) else None


def _has_reported_since(decision: Decision, reports: Mapping[str, WaitingReport], broker: str) -> bool:
    """Whether a broker's report of the round is no older than the result, or the expiry: an older one cannot show an effect."""
    report = reports.get(broker)
    since_ms = decision.expires_ms if decision.succeeded_ms is None else decision.succeeded_ms
    return report is not None and report.time_ms >= since_ms


def _count_unanswered(
    expired: Sequence[Decision],
    ledger: Ledger,
    owners: Mapping[str, str],
    reports: Mapping[str, WaitingReport],
) -> None:
    """Count the actions that expired without a result, as soon as reports show whether they had an effect."""
    for each in expired:
        found = _has_effect(each, owners, reports)
        if found is not None:
            each.is_counted = True
            ledger.count_unanswered(decided_ms=each.decided_ms, had_effect=found)


def _see_departures(ledger: Ledger, advanced: Advanced, *, end_ms: int) -> dict[str, set[str]]:
    """By broker, bundles that are still leaving. One that is seen at another broker has left; one whose unload is over stays."""
    found: dict[str, set[str]] = defaultdict(set)
    on_their_way = ledger.unloads_on_their_way()
    stays = [advanced.owns(each.source, each.bundle) for each in on_their_way]
    gone = {each.bundle for each, is_there in zip(on_their_way, stays, strict=True) if not is_there}
    elsewhere = advanced.owners_of(gone) if gone else {}
    for each, is_there in zip(on_their_way, stays, strict=True):
        may_leave = is_there or each.bundle not in elsewhere
        each.is_leaving = may_leave and (end_ms < each.until_ms or each.is_watched)
        if each.is_leaving and is_there:
            found[each.source].add(each.bundle)
    return found


def _failing_kinds(ledger: Ledger, guards: GuardSettings) -> list[ActionKind]:
    most = guards.failing_actions_count
    return [kind for kind in get_args(ActionKind) if 0 < most <= ledger.failures_count(kind)]


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


def promised(unload: Unload, loads: Loads, view: RoundView) -> Promised:
    """What an unload promises; if its policy predicts no usage, by the costs of what the bundle carries."""
    evidence, destination = unload.evidence, unload.destination_broker
    if SOURCE_FALLS in evidence:
        change = {"source": -float(evidence[SOURCE_FALLS]), "destination": float(evidence[DESTINATION_RISES])}
    else:
        change = {
            "source": _change_points(unload, unload.source_broker, loads, view, sign=-1.0),
            "destination": _change_points(unload, destination, loads, view, sign=1.0),
        }
    sides: dict[Side, str | None] = {"source": unload.source_broker, "destination": destination}
    known = {side: broker for side, broker in sides.items() if broker is not None}
    return Promised(
        {side: loads.points_of(broker) for side, broker in known.items()},
        {side: change[side] for side in known},
    )


def _change_points(
    unload: Unload, broker: str | None, loads: Loads, view: RoundView, *, sign: float
) -> float:
    """By how much a broker's usage changes with the bundle, from its largest resource to the largest after it."""
    names = view.brokers.names
    if broker not in names or view.costs is None:
        return 0.0
    figures = figures_of(*_carried(unload, view))
    change = view.costs.points_at(np.array([names.index(broker)]), figures)[0]
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


def check_promises(ledger: Ledger, loads: Loads, *, length_ms: int, end_ms: int) -> list[Decision]:
    """Check the promises that can be checked in this round; returns their decisions, in order."""
    due = [each for each in ledger.decisions if _is_due(each, length_ms=length_ms, end_ms=end_ms)]
    if not due:
        return []
    reported, moving = set(loads.names), ledger.unsettled_brokers(end_ms=end_ms)
    plans = {each.plan for each in ledger.decisions if each.promise is not None}
    found = []
    for each in due:
        brokers = {each.broker_of(side) for side in each.before_points}
        if each.plan not in plans and brokers <= reported and brokers.isdisjoint(moving):
            checked = _checked(ledger, each, loads, end_ms=end_ms)
            if checked.promise.expected_closer_points >= LEAST_CLOSER_POINTS:
                each.promise = checked
                plans.add(each.plan)
                found.append(each)
    return found


def _is_due(decision: Decision, *, length_ms: int, end_ms: int) -> bool:
    verdict = decision.verdict
    if verdict is None or verdict.outcome != "good" or decision.promise is not None:
        return False
    if not decision.before_points or decision.destination not in (None, verdict.broker):
        return False
    if decision.before_points["source"] >= SATURATED_POINTS:
        return False
    waited_ms = end_ms - verdict.judged_ms
    return SETTLED_ROUNDS * length_ms <= waited_ms < PATIENCE_ROUNDS * length_ms


def _checked(ledger: Ledger, decision: Decision, loads: Loads, *, end_ms: int) -> CheckedPromise:
    seen = {
        side: loads.points_of(broker)
        for side in decision.before_points
        if (broker := decision.broker_of(side)) is not None
    }
    return CheckedPromise(
        checked_ms=end_ms,
        promise=Promise(
            before_points=decision.before_points,
            expected_points=ledger.expected_points(decision),
            seen_points=seen,
        ),
    )


def summarize_promises(ledger: Ledger, checked: Sequence[Decision], *, end_ms: int) -> PromisesSummary | None:
    """The promises of a round, and how the last ones ended; None where none was checked within the hour."""
    last = ledger.last_promises(end_ms=end_ms)
    if not last:
        return None
    kept_count = sum(each.is_kept for each in last)
    return PromisesSummary(
        kept_count=kept_count,
        failed_count=len(last) - kept_count,
        expected_gain_points=_mean([each.expected_gain_points for each in last]),
        gain_points=_mean([each.gain_points for each in last]),
        error_points=_mean([each.error_points for each in last]),
        checked=_section([_row(each, each.promise.promise) for each in checked if each.promise]),
    )


def _section(rows: list[PromiseRow]) -> Section[PromiseRow]:
    outcomes = Counter(each.outcome for each in rows)
    return Section(count=len(rows), outcomes=dict(sorted(outcomes.items())), heaviest=rows[:SHOWN_ROWS])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _row(decision: Decision, promise: Promise) -> PromiseRow:
    return PromiseRow(
        id=decision.id,
        bundle=decision.bundle,
        brokers={side: broker for side in promise.before_points if (broker := decision.broker_of(side))},
        before_points=dict(promise.before_points),
        expected_points=dict(promise.expected_points),
        seen_points=dict(promise.seen_points),
        outcome="kept" if promise.is_kept else "failed",
    )


def find_failed_promises(summary: PromisesSummary | None, policy: str) -> list[Finding]:
    """A finding that says what a person can look at, if most of the last promises failed."""
    if summary is None or summary.failed_count + summary.kept_count < FEWEST_CHECKED:
        return []
    if summary.failed_count <= summary.kept_count:
        return []
    return [
        Finding(
            kind="failed-promises",
            subject=policy,
            broker="",
            bytes_per_s=None,
            advice=f"for {summary.failed_count} of the last {summary.failed_count + summary.kept_count} unloads, the gap between the "
            f"two brokers closed by less than half of what was expected (mean gain {summary.gain_points:.1f} points, expected "
            f"{summary.expected_gain_points:.1f}): check whether another program uses these machines, "
            f"or whether somebody else moves bundles",
        )
    ]
