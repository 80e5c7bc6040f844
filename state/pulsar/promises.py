"""Checks what unloads promised: whether the usage of their brokers changed as predicted.

An unload promises that its source's usage falls and its destination's rises by some points. A policy that predicts usage says by how
many (``SOURCE_FALLS``, ``DESTINATION_RISES``). For one that does not, ``policies.costs`` says what the bundle takes of each resource.

The unloads that one round moves between the same two brokers are one promise: what is expected of the brokers is the sum of what they
promise, so that it shows even where each of them is too small to, and it is checked once.

Two rounds after an unload is known to be good, once no other unload of its brokers is on its way, the usage they report is compared
with the usage before it, changed by every unload carried out since. A promise is kept if the two came at least half as much closer as they
should have. It is not checked if a broker is gone, if the bundle landed elsewhere, if its brokers do not come to rest in time, if they
should hardly have come closer, or if the source was so busy that its usage does not show what is taken off it.

Source: ours.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policies.columns import Floats, Ints
from policies.costs import figures_of
from policies.shedding.view import DESTINATION_RISES, SOURCE_FALLS, Promise, RoundView, Side
from state.engine.ledger import CheckedPromise, Decision, Ledger
from state.engine.summary import SHOWN_ROWS
from state.outputs import Finding, PromiseRow, PromisesSummary, Section, Unload
from state.pulsar.tables import Loads

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


def check(ledger: Ledger, loads: Loads, *, length_ms: int, end_ms: int) -> list[Decision]:
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


def summarize(ledger: Ledger, checked: Sequence[Decision], *, end_ms: int) -> PromisesSummary | None:
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


def find_failed(summary: PromisesSummary | None, policy: str) -> list[Finding]:
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
