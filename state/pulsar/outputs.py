"""The outputs of a round: its actions and proposals in order, and its summary."""

from collections.abc import Mapping, Sequence

import msgspec

from state.engine.closing import Closing
from state.engine.memory import Header
from state.engine.summary import frame
from state.outputs import Finding, Output, RoundSummary, Split, Unload
from state.outputs.types import SPLIT_TYPE, UNLOAD_TYPE
from state.pulsar import splits, summary
from state.pulsar.circumstances import Circumstances
from state.pulsar.closing import Decided
from state.pulsar.counted import Counted
from state.pulsar.memory import WaitingReport
from state.pulsar.tables import Eligible, Loads
from state.pulsar.two_balancers import other_balancers


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
        usage=summary.usage_summary(100.0 * round_loads.usage_ratio[round_loads.included]),
        resources=summary.resource_summaries(round_loads),
        brokers=summary.broker_rows(round_loads, measured),
        judged=summary.judged_section(header.ledger.list_verdicts()),
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
        examined=summary.examined_section(counted.table, shed_, pulsar.policy),
        candidates=summary.candidates_section(counted.table, shed_.plan, decided.admitted.holds),
    )


def actions_of(closing: Closing, circumstances: Circumstances, decided: Decided) -> list[Output]:
    """The actions of a round, in order.

    First the unloads: approved ones, those that empty drained brokers, those of the policy in its order. Then the splits: approved
    ones, those of the criteria in their order.
    """
    cuts = splits.actions(decided.splits, circumstances) if decided.splits else []
    typed: list[tuple[str, Unload | Split]] = [
        *((UNLOAD_TYPE, unload) for unload in decided.unloads),
        *((SPLIT_TYPE, cut.action) for cut in decided.answers.cuts),
        *((SPLIT_TYPE, cut) for cut in cuts),
    ]
    return [
        closing.action(type_, action.bundle, action, place=place)
        for place, (type_, action) in enumerate(typed)
    ]


def proposals_of(
    closing: Closing, circumstances: Circumstances, decided: Decided, *, place: int
) -> list[tuple[Output, Unload | Split]]:
    """What waits for approval; it comes after the actions of the round."""
    cuts = splits.proposals(decided.splits, circumstances) if decided.splits else []
    typed: list[tuple[str, Unload | Split]] = [
        *((UNLOAD_TYPE, unload) for unload in decided.admitted.proposals),
        *((SPLIT_TYPE, cut) for cut in cuts),
    ]
    return [
        (closing.proposal(type_, action.bundle, action, place=place + at), action)
        for at, (type_, action) in enumerate(typed)
    ]
