"""A Pulsar cluster's part of the summary: every broker and bundle looked at has one outcome, and the sums add up."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from policies.columns import Floats
from policies.shedding.contract import BUNDLE_OUTCOMES, BundleOutcome, SheddingPlan
from policies.shedding.registry import AnyPolicy
from policies.shedding.view import Side, Traffic
from policies.usage import RESOURCES
from state.engine.holds import Hold
from state.engine.ledger import Decision, Verdict
from state.engine.summary import SHOWN_ROWS
from state.outputs import (
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    ExaminedRow,
    JudgedRow,
    Section,
    UsageSummary,
)
from state.pulsar.masks import MASK_REASONS
from state.pulsar.shedding import Shed
from state.pulsar.tables import Eligible, Loads, brokers_of, mean_points


def usage_summary(points: Floats) -> UsageSummary | None:
    """Mean, maximum and population standard deviation, independent of the order of brokers."""
    if len(points) == 0:
        return None
    mean = mean_points(points)
    variance = mean_points((points - mean) ** 2)
    return UsageSummary(mean_points=mean, max_points=float(points.max()), stdev_points=math.sqrt(variance))


def resource_summaries(loads: Loads) -> dict[str, UsageSummary]:
    """Usage of each resource over the included brokers that measured it."""
    found = {}
    for column, name in enumerate(RESOURCES):
        rows = loads.included & loads.measured[:, column]
        summary = usage_summary(loads.percents[rows, column])
        if summary is not None:
            found[name] = summary
    return found


def broker_rows(loads: Loads, table: Eligible) -> list[BrokerLoad]:
    """The heaviest brokers, ties by name."""
    order = np.argsort(-loads.usage_ratio, kind="stable")[:SHOWN_ROWS]
    groups = table.groups.of_brokers([loads.names[row] for row in order.tolist()])
    return [
        BrokerLoad(
            broker=loads.names[row],
            usage_points=float(100.0 * loads.usage_ratio[row]),
            resources={
                name: float(loads.percents[row, column]) if loads.measured[row, column] else "not-measured"
                for column, name in enumerate(RESOURCES)
            },
            messages_per_s=float(loads.messages_per_s[row]),
            bytes_per_s=float(loads.bytes_per_s[row]),
            bundles_count=table.bundle_counts[loads.names[row]],
            excluded=not bool(loads.included[row]),
            group=table.groups.name_of(int(group)),
        )
        for row, group in zip(order.tolist(), groups.tolist(), strict=True)
    ]


def judged_section(decisions: Sequence[Decision]) -> Section[JudgedRow] | None:
    """Earlier actions whose effect became known, the oldest verdict first; None without one."""
    if not decisions:
        return None
    outcomes = Counter(each.verdict.outcome for each in decisions if each.verdict)
    rows = [_judged_row(each, each.verdict) for each in decisions[:SHOWN_ROWS] if each.verdict]
    return Section(count=len(decisions), outcomes=dict(sorted(outcomes.items())), heaviest=rows)


def _judged_row(decision: Decision, verdict: Verdict) -> JudgedRow:
    return JudgedRow(
        id=decision.id,
        kind=decision.kind,
        bundle=decision.bundle,
        outcome=verdict.outcome,
        brokers=brokers_of(decision),
        before=_traffic(decision.before),
        expected=_traffic(verdict.expected),
        seen=_traffic(verdict.seen),
    )


def _traffic(loads: Mapping[Side, Traffic]) -> dict[Side, BrokerTraffic]:
    return {
        side: BrokerTraffic(messages_per_s=load.messages_per_s, bytes_per_s=load.bytes_per_s)
        for side, load in loads.items()
    }


def examined_section(eligible: Eligible, shed: Shed, policy: AnyPolicy) -> Section[ExaminedRow]:
    """What the policy looked at, in its own order, heaviest first; a row about the whole fleet names no broker."""
    names, examined = (*eligible.view.brokers.names, None), shed.plan.examined
    shown = [
        ExaminedRow(
            high_broker=names[int(examined.high[row])] or "",
            low_broker=names[int(examined.low[row])],
            group=eligible.groups.name_of(int(shed.groups[row])),
            outcome=examined.outcome_of(row),
            detail=_detail(policy, examined.outcome_of(row), examined.evidence_of(row)),
            trigger=examined.trigger_of(row),
            evidence=examined.evidence_of(row),
        )
        for row in range(min(SHOWN_ROWS, len(examined)))
    ]
    return Section(count=len(examined), outcomes=examined.counts(), heaviest=shown)


def _detail(policy: AnyPolicy, outcome: str, evidence: dict[str, float | int]) -> str:
    return policy.details[outcome](evidence) if outcome in policy.details else outcome


def candidates_section(
    eligible: Eligible, plan: SheddingPlan, holds: dict[int, Hold]
) -> Section[CandidateRow]:
    """Bundles of the brokers that fired; ``holds`` says which wanted unloads (by bundle row) did not happen."""
    bundles, brokers = eligible.view.bundles, eligible.view.brokers
    outcomes = [
        _candidate_outcome(eligible, int(row), int(code), holds)
        for row, code in zip(plan.tried_rows, plan.tried_outcomes, strict=True)
    ]
    rows = plan.tried_rows
    owners = bundles.owners_of(rows)
    heaviest = np.lexsort((rows, -bundles.bytes_per_s[rows], -bundles.messages_per_s[rows]))[:SHOWN_ROWS]
    shown = [
        CandidateRow(
            bundle=bundles.names[int(rows[at])],
            broker=brokers.names[int(owners[at])],
            outcome=outcomes[at],
            detail=holds[int(rows[at])].detail if int(rows[at]) in holds else outcomes[at],
            messages_per_s=float(bundles.messages_per_s[rows[at]]),
            bytes_per_s=float(bundles.bytes_per_s[rows[at]]),
        )
        for at in heaviest.tolist()
    ]
    return Section(count=len(rows), outcomes=dict(sorted(Counter(outcomes).items())), heaviest=shown)


def _candidate_outcome(eligible: Eligible, row: int, code: int, holds: dict[int, Hold]) -> str:
    if row in holds:
        return holds[row].reason
    if code == BundleOutcome.MASKED:
        return MASK_REASONS[int(eligible.mask_codes[row])]
    return BUNDLE_OUTCOMES[code]
