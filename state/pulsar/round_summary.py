"""What a closed round says of itself: what was seen, decided, held back, and why."""

from state.engine import holds
from state.engine.memory import ControlRecord, Header
from state.outputs import ControlInForce, Finding, Output, RoundSummary, Section, rfc3339
from state.pulsar import effects, splits, summary
from state.pulsar.closing import Closing, Decided
from state.pulsar.tables import Eligible, Loads
from state.pulsar.two_balancers import other_balancers
from state.settings import MS_PER_S

MAX_REMARK_CHARACTERS = 500
"""Length of an operator's name or reason, or of a problem, in a summary, so that summaries stay small."""


def round_summary(
    closing: Closing,
    header: Header,
    round_loads: Loads,
    table: Eligible,
    *,
    decided: Decided,
    found: Section[Finding],
    actions: list[Output],
    live: list[str],
    restarted: bool,
) -> RoundSummary:
    """The summary of a closed round, before it is cut to its greatest size."""
    tick = closing.open_round.tick
    missing = [name for name in live if name not in closing.reports]
    oldest_ms = min(waiting.time_ms for waiting in closing.reports.values())
    shed = decided.shed
    failing = holds.failing_since(header, closing.settings.pulsar.guards)
    return RoundSummary(
        cluster=closing.cluster,
        system="pulsar",
        round=closing.number,
        start=rfc3339(closing.start_ms),
        end=rfc3339(closing.end_ms),
        gap_rounds=0 if header.last_summary is None else closing.number - header.last_summary - 1,
        restarted=restarted,
        outcome=decided.outcome,
        reason=decided.reason,
        policy=closing.settings.pulsar.shedding_policy,
        mode=closing.mode,
        paused=closing.paused,
        failing_since=failing.get("unload"),
        splits_failing_since=failing.get("split"),
        other_balancers=other_balancers(header.facts),
        last_actions=effects.counts(header.ledger),
        control=control_in_force(closing.record, closing.settings_problem),
        settings_digest=closing.settings.digest,
        brokers_reporting_count=len(closing.reports),
        brokers_live_count=len(live),
        brokers_reporting=sorted(closing.reports),
        brokers_missing_count=len(missing),
        brokers_missing=missing,
        brokers_excluded=[
            name for name, kept in zip(round_loads.names, round_loads.included, strict=True) if not kept
        ],
        brokers_asked=[] if tick is None else sorted(tick.asked),
        brokers_failed={} if tick is None else dict(tick.failed),
        reports_used_count=len(closing.reports),
        oldest_report_age_s=(closing.end_ms - oldest_ms) / MS_PER_S,
        usage=summary.usage_summary(100.0 * round_loads.usage_ratio[round_loads.included]),
        resources=summary.resource_summaries(round_loads),
        brokers=summary.broker_rows(round_loads, table),
        examined=(
            summary.empty_section()
            if shed is None
            else summary.examined_section(table, shed, closing.settings.pulsar.policy)
        ),
        candidates=(
            summary.empty_section()
            if shed is None
            else summary.candidates_section(table, shed.plan, decided.admitted.holds)
        ),
        splits=summary.empty_section() if decided.splits is None else splits.section(decided.splits),
        findings=found,
        actions_count=len(actions),
        actions=[action.id for action in actions],
        throttle=None,
    )


def control_in_force(record: ControlRecord | None, problem: str | None) -> ControlInForce | None:
    """What a summary says of the control event; None without one."""
    if record is None:
        return None
    return ControlInForce(
        id=record.id[:MAX_REMARK_CHARACTERS],
        time=rfc3339(record.time_ms),
        who=record.who[:MAX_REMARK_CHARACTERS],
        why=record.why[:MAX_REMARK_CHARACTERS],
        arrived_late=record.arrived_late,
        resumed_at=None if record.resumed_ms is None else rfc3339(record.resumed_ms),
        problem=None if problem is None else problem[:MAX_REMARK_CHARACTERS],
    )
