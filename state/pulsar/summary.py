"""A round's actions and proposals in order, and its summary: every broker and bundle looked at has one outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from policies.columns import Codes
from policies.shedding.contract import BUNDLE_OUTCOMES, BundleOutcome, SheddingPlan
from policies.shedding.view import Side, Traffic
from policies.usage import RESOURCES
from state.closing import Hold
from state.ledger import Decision
from state.outputs import (
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
from state.pulsar import splits
from state.pulsar.approvals import Answers
from state.pulsar.brokers import broker_rows
from state.pulsar.drains import Drained
from state.pulsar.holds import other_balancers
from state.pulsar.loads import Loads, usage_summary
from state.pulsar.masks import MASK_REASONS
from state.pulsar.shedding import Admitted, Shed
from state.pulsar.splits import Splits
from state.pulsar.view import PolicyView, RoundContext, brokers_of
from state.summary import SHOWN_ROWS, frame, section_of


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What a round decided; ``shed`` is None where its policies did not run, ``splits`` also where they are switched off."""

    outcome: Literal["decided", "warm-up", "no-quorum"]
    reason: str
    shed: Shed | None = None
    admitted: Admitted = field(default_factory=Admitted)
    splits: Splits | None = None
    drained: Drained = field(default_factory=Drained)
    answers: Answers = field(default_factory=Answers)

    @property
    def unloads(self) -> list[Unload]:
        """Unloads that were approved, those that empty drained brokers, then those of the policy in its order."""
        return [*self.answers.unloads, *self.drained.unloads, *self.admitted.unloads]

    @property
    def actions(self) -> list[Unload | Split]:
        """The actions in order: the unloads, then the splits, first those that were approved, then those of the criteria."""
        return [*self.unloads, *self.answers.cuts, *(self.splits.cuts if self.splits else ())]

    @property
    def proposals(self) -> list[Unload | Split]:
        """What waits for approval; it comes after the actions of the round."""
        return [*self.admitted.proposals, *(self.splits.proposals if self.splits else ())]


def summarize(
    context: RoundContext,
    table: PolicyView,
    decided: Decided,
    *,
    mask_codes: Codes,
    actions: Sequence[Output],
    findings: Sequence[Finding],
) -> RoundSummary:
    """The summary of a round; ``table`` is the view that it was decided on, ``mask_codes`` are those of the fleet's leading bundles."""
    framed = frame(
        context.closing,
        context.header,
        policy=context.pulsar.shedding_policy,
        outcome=decided.outcome,
        reason=decided.reason,
        reports_ms={name: report.time_ms for name, report in context.reports.items()},
        live=context.live,
        findings=findings,
    )
    loads, shed = context.loads, decided.shed
    return msgspec.structs.replace(
        framed,
        other_balancers=other_balancers(context.facts),
        brokers_excluded=[name for name, kept in zip(loads.names, loads.included, strict=True) if not kept],
        usage=loads.usage_summary(),
        resources=resource_summaries(loads),
        brokers=broker_rows(context, table, mask_codes),
        judged=judged_section(context.ledger.list_verdicts()),
        shadow=table.shadow,
        actions_count=len(actions),
        actions=[action.id for action in actions],
        **({} if decided.splits is None else {"splits": splits.section(decided.splits)}),
        **(
            {}
            if shed is None
            else {
                "examined": examined_section(context, table, shed),
                "candidates": candidates_section(table, shed.plan, decided.admitted.holds),
            }
        ),
    )


def resource_summaries(loads: Loads) -> dict[str, UsageSummary]:
    """Usage of each resource over the included brokers that measured it."""
    summaries = {}
    for column, name in enumerate(RESOURCES):
        rows = loads.included & loads.measured[:, column]
        summary = usage_summary(loads.percents[rows, column])
        if summary is not None:
            summaries[name] = summary
    return summaries


def judged_section(decisions: Sequence[Decision]) -> Section[JudgedRow] | None:
    """Earlier actions whose effect became known, the oldest verdict first; None without one."""
    if not decisions:
        return None
    rows = [
        JudgedRow(
            id=decision.id,
            kind=decision.kind,
            bundle=decision.bundle,
            outcome=decision.verdict.outcome,
            brokers=brokers_of(decision),
            before=_traffic(decision.before),
            expected=_traffic(decision.verdict.expected),
            seen=_traffic(decision.verdict.seen),
        )
        for decision in decisions[:SHOWN_ROWS]
        if decision.verdict
    ]
    return section_of((decision.verdict.outcome for decision in decisions if decision.verdict), rows)


def _traffic(loads: Mapping[Side, Traffic]) -> dict[Side, BrokerTraffic]:
    return {
        side: BrokerTraffic(messages_per_s=load.messages_per_s, bytes_per_s=load.bytes_per_s)
        for side, load in loads.items()
    }


def examined_section(context: RoundContext, table: PolicyView, shed: Shed) -> Section[ExaminedRow]:
    """What the policy looked at, in its own order, heaviest first; a row about the whole fleet names no broker."""
    names, examined, details = (
        (*table.view.brokers.names, None),
        shed.plan.examined,
        context.pulsar.policy.details,
    )
    shown = []
    for row in range(min(SHOWN_ROWS, len(examined))):
        outcome, evidence = examined.outcome_of(row), examined.evidence_of(row)
        shown.append(
            ExaminedRow(
                high_broker=names[int(examined.high[row])] or "",
                low_broker=names[int(examined.low[row])],
                group=context.groups.name_of(int(shed.groups[row])),
                outcome=outcome,
                detail=details[outcome](evidence) if outcome in details else outcome,
                trigger=examined.trigger_of(row),
                evidence=evidence,
            )
        )
    return Section(count=len(examined), outcomes=examined.counts(), heaviest=shown)


def candidate_outcomes(table: PolicyView, plan: SheddingPlan, holds: Mapping[int, Hold]) -> list[str]:
    """What became of each bundle that was tried; ``holds`` says which wanted unloads (by bundle row) did not happen."""
    return [
        holds[row].reason
        if row in holds
        else MASK_REASONS[int(table.mask_codes[row])]
        if code == BundleOutcome.MASKED
        else BUNDLE_OUTCOMES[code]
        for row, code in zip(plan.tried_rows.tolist(), plan.tried_outcomes.tolist(), strict=True)
    ]


def candidates_section(
    table: PolicyView, plan: SheddingPlan, holds: Mapping[int, Hold]
) -> Section[CandidateRow]:
    """Bundles of the brokers that fired, each with its one outcome."""
    bundles, brokers, rows = table.view.bundles, table.view.brokers, plan.tried_rows
    outcomes = candidate_outcomes(table, plan, holds)
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
    return section_of(outcomes, shown)
