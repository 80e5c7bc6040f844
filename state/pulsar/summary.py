"""A round's actions and proposals in order, and its summary: every broker and bundle looked at has one outcome."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from policies.shedding.contract import BUNDLE_OUTCOMES, MASKED, SheddingPlan
from policies.shedding.registry import AnyPolicy
from policies.shedding.view import Side, Traffic
from policies.usage import RESOURCES
from state.closing import Closing, Hold
from state.ledger import Decision, Verdict
from state.memory import Header
from state.outputs import (
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    ExaminedRow,
    Finding,
    JudgedRow,
    Output,
    RoundSummary,
    Section,
    Split,
    Unload,
    UsageSummary,
)
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.pulsar import (
    splits,
)
from state.pulsar.approvals import Answers
from state.pulsar.drains import Drained
from state.pulsar.holds import Circumstances, other_balancers
from state.pulsar.masks import MASK_REASONS
from state.pulsar.memory import WaitingReport
from state.pulsar.shedding import Admitted, Shed
from state.pulsar.splits import Splits
from state.pulsar.view import Counted, Eligible, Loads, brokers_of, usage_summary
from state.summary import SHOWN_ROWS, frame


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What a round decided; ``shed`` is None where its policies did not run, ``splits`` also where they are switched off."""

    outcome: Literal["decided", "warm-up", "no-quorum"]
    reason: str
    shed: Shed | None = None
    admitted: Admitted = field(default_factory=Admitted)
    splits: Splits | None = None
    drained: Drained | None = None
    answers: Answers = field(default_factory=Answers)

    @property
    def unloads(self) -> list[Unload]:
        """Unloads that were approved, those that empty drained brokers, then those of the policy."""
        drained = self.drained.unloads if self.drained else ()
        return [*self.answers.unloads, *drained, *self.admitted.unloads]


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
    if code == MASKED:
        return MASK_REASONS[int(eligible.mask_codes[row])]
    return BUNDLE_OUTCOMES[code]


def summarize(
    closing: Closing,
    header: Header,
    round_loads: Loads,
    measured: Eligible,
    counted: Counted,
    decided: Decided,
    actions: Sequence[Output],
    found: Sequence[Finding],
    reports: Mapping[str, WaitingReport],
    live: list[str],
) -> RoundSummary:
    pulsar, shed_ = closing.settings.pulsar, decided.shed
    framed = frame(
        closing,
        header,
        policy=pulsar.shedding_policy,
        outcome=decided.outcome,
        reason=decided.reason,
        reports_ms={name: each.time_ms for name, each in reports.items()},
        live=live,
        found=found,
    )
    summary_ = msgspec.structs.replace(
        framed,
        other_balancers=other_balancers(header.facts),
        brokers_excluded=[
            name for name, kept in zip(round_loads.names, round_loads.included, strict=True) if not kept
        ],
        usage=usage_summary(100.0 * round_loads.usage_ratio[round_loads.included]),
        resources=resource_summaries(round_loads),
        brokers=broker_rows(round_loads, measured),
        judged=judged_section(header.ledger.list_verdicts()),
        shadow=counted.shadow,
        actions_count=len(actions),
        actions=[action.id for action in actions],
    )
    if decided.splits is not None:
        summary_ = msgspec.structs.replace(summary_, splits=splits.section(decided.splits))
    if shed_ is None:
        return summary_
    return msgspec.structs.replace(
        summary_,
        examined=examined_section(counted.table, shed_, pulsar.policy),
        candidates=candidates_section(counted.table, shed_.plan, decided.admitted.holds),
    )


def actions_of(
    closing: Closing, circumstances: Circumstances, decided: Decided
) -> list[tuple[Output, Unload | Split]]:
    """The actions of a round, in order, each with its encoded output.

    First the unloads: approved ones, those that empty drained brokers, those of the policy in its order. Then the splits: approved
    ones, those of the criteria in their order.
    """
    cuts = splits.actions(decided.splits, circumstances) if decided.splits else []
    actions: list[Unload | Split] = [*decided.unloads, *decided.answers.cuts, *cuts]
    return [
        (closing.action(_type_of(action), action.bundle, action, place=place), action)
        for place, action in enumerate(actions)
    ]


def proposals_of(
    closing: Closing, circumstances: Circumstances, decided: Decided, *, place: int
) -> list[tuple[Output, Unload | Split]]:
    """What waits for approval; it comes after the actions of the round."""
    cuts = splits.proposals(decided.splits, circumstances) if decided.splits else []
    proposals: list[Unload | Split] = [*decided.admitted.proposals, *cuts]
    return [
        (closing.proposal(_type_of(action), action.bundle, action, place=place + at), action)
        for at, action in enumerate(proposals)
    ]


def _type_of(action: Unload | Split) -> str:
    return UNLOAD_TYPE if isinstance(action, Unload) else SPLIT_TYPE
