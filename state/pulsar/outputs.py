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
