"""One closed round: from its reports to its actions and its summary.

The order is fixed: restart, control, fleet, quorum and warm-up, masks, policy, splits, budgets, memory, outputs.
"""

from dataclasses import dataclass, field
from typing import Literal, assert_never

from policies.placement import place
from policies.shedding import avg_shedder, overload_shedder, threshold_shedder, uniform_load_shedder
from policies.shedding.plan import SheddingPlan
from policies.snapshot import Snapshot
from policies.splitting.plan import TopicTable
from state import control, fleet, guards, splits, summary
from state.actions import Admitted, Circumstances, admit
from state.findings import findings
from state.memory import (
    ControlRecord,
    Fleet,
    Header,
    OpenRound,
    PastAction,
    PastUnloads,
    WaitingReport,
    WaitingTopics,
)
from state.outputs import (
    ControlInForce,
    Finding,
    Output,
    RoundSummary,
    Section,
    Split,
    Unload,
    output,
    rfc3339,
)
from state.settings import (
    MS_PER_S,
    ClusterSettings,
    Mode,
    OverlayError,
    PulsarSettings,
    SettingsSource,
    to_ms,
)
from state.splits import Splits
from state.tables import Eligible, Loads, eligible, loads

UNLOAD_TYPE = "trimtab.action.unload.v1"
SPLIT_TYPE = "trimtab.action.split.v1"
ROUND_TYPE = "trimtab.round.v1"

MAX_REMARK_CHARACTERS = 500
"""Length of an operator's name or reason, or of a problem, in a summary, so that summaries stay small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a controller is started with."""

    mode: Mode = "dry-run"
    action_ttl_s: float = 180.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closing:
    """A round at its close, with all that its outputs are made of."""

    cluster: str
    number: int
    start_ms: int
    end_ms: int
    open_round: OpenRound
    reports: dict[str, WaitingReport]
    topics: dict[str, WaitingTopics]
    settings: ClusterSettings
    record: ControlRecord | None
    settings_problem: str | None
    mode: Mode

    @property
    def paused(self) -> bool:
        """Whether an operator holds every action."""
        return self.record is not None and self.record.paused


def close(
    cluster: str,
    header: Header,
    before: Fleet,
    reports: dict[str, WaitingReport],
    topics: dict[str, WaitingTopics],
    *,
    number: int,
    identity: Identity,
    settings: SettingsSource,
) -> tuple[Fleet, list[Output]]:
    """Close a round that at least one broker reported in. Changes ``header``, returns the fleet's next value."""
    closing = _closing(cluster, header, reports, topics, number=number, identity=identity, settings=settings)
    pulsar = closing.settings.pulsar
    restarted = _is_restart(header, closing.open_round, pulsar)
    if restarted:
        before.forget_policies()
        header.rounds_since_start = 0
    _change_mode(header, closing.mode)
    guards.forget_old(header, pulsar, end_ms=closing.end_ms)
    if header.inheritances:
        listed = set[str]().union(*(waiting.report.bundles for waiting in reports.values()))
        fleet.inherit(before, header.inheritances.items(), listed.__contains__)
    advanced = fleet.advance(
        before,
        reports,
        _sampling(pulsar),
        round_end_ms=closing.end_ms,
        max_report_age_ms=pulsar.rounds.max_report_age_ms,
    )
    live = _live(advanced.fleet, closing, pulsar)
    outputs = _decide(closing, header, advanced, live=live, identity=identity, restarted=restarted)
    header.rounds_since_start += 1
    header.last_summary = number
    header.last_report_ms = closing.open_round.spans[-1][1]
    return advanced.fleet, outputs


def _sampling(pulsar: PulsarSettings) -> fleet.Sampling:
    return fleet.Sampling(
        samples=pulsar.bundle_average_samples,
        split_samples=pulsar.split.average_samples if pulsar.split.enabled else 0,
        skip_after_move=pulsar.skip_sample_after_move,
    )


def _closing(
    cluster: str,
    header: Header,
    reports: dict[str, WaitingReport],
    topics: dict[str, WaitingTopics],
    *,
    number: int,
    identity: Identity,
    settings: SettingsSource,
) -> Closing:
    record = control.in_force(header, number)
    in_force, problem = _settings_in_force(cluster, record, settings)
    return Closing(
        cluster=cluster,
        number=number,
        start_ms=number * header.length_ms,
        end_ms=(number + 1) * header.length_ms,
        open_round=header.rounds[number],
        reports=reports,
        topics=topics,
        settings=in_force,
        record=record,
        settings_problem=problem,
        mode=identity.mode if record is None or record.mode is None else record.mode,
    )


def _settings_in_force(
    cluster: str, record: ControlRecord | None, settings: SettingsSource
) -> tuple[ClusterSettings, str | None]:
    """The overlay was valid when it came; after a restart with other settings below it, it may no longer be."""
    base = settings.base(cluster)
    if record is None:
        return base, None
    try:
        return settings.overlaid(cluster, record.overlay), None
    except OverlayError as error:
        return (
            base,
            f"the overlay does not fit the settings of this start, they are in force without it: {error}",
        )


def _is_restart(header: Header, open_round: OpenRound, pulsar: PulsarSettings) -> bool:
    """Whether the cluster was silent for too long before, or within, this round."""
    if len(open_round.spans) > 1:
        return True
    since = header.last_report_ms
    return since is not None and open_round.spans[0][0] - since > pulsar.rounds.max_report_age_ms


def _change_mode(header: Header, mode: Mode) -> None:
    if mode == "act" and header.last_mode == "dry-run":
        guards.forget_dry_run(header)
    header.last_mode = mode


def _live(after: Fleet, closing: Closing, pulsar: PulsarSettings) -> list[str]:
    fresh = closing.end_ms - after.broker_last_ms <= pulsar.rounds.max_report_age_ms
    return [name for name, is_live in zip(after.brokers, fresh.tolist(), strict=True) if is_live]


def _obstacle(
    header: Header, closing: Closing, live: list[str]
) -> tuple[Literal["warm-up", "no-quorum"], str] | None:
    """Outcome and reason of a round whose policies do not run."""
    rounds = closing.settings.pulsar.rounds
    if header.rounds_since_start < rounds.warmup_rounds:
        return "warm-up", f"round {header.rounds_since_start + 1} of {rounds.warmup_rounds} of warm-up"
    if live and len(closing.reports) / len(live) < rounds.quorum_ratio:
        share = f"{len(closing.reports)} of {len(live)} live brokers reported"
        return "no-quorum", f"{share}, {rounds.quorum_ratio:g} of them are needed"
    return None


def _decide(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    *,
    live: list[str],
    identity: Identity,
    restarted: bool,
) -> list[Output]:
    pulsar, count = closing.settings.pulsar, advanced.owned_count
    round_loads = loads(closing.reports, pulsar)
    codes = guards.mask(advanced.fleet, count, header, pulsar, end_ms=closing.end_ms)
    table = eligible(round_loads, advanced.fleet, codes)
    topics = splits.topic_table(table, closing.topics)
    obstacle = _obstacle(header, closing, live)
    verdict = _Verdict(*obstacle) if obstacle else _judge(closing, header, table, advanced, topics, identity)
    actions = _actions(closing, verdict, identity)
    _remember(header, closing, verdict, actions, identity)
    spoken = _summary(
        closing,
        header,
        round_loads,
        table,
        verdict=verdict,
        found=findings(table, topics, pulsar.split),
        actions=actions,
        live=live,
        restarted=restarted,
    )
    return [*actions, _round_output(closing, len(actions), summary.fit(spoken))]


@dataclass(frozen=True, slots=True, eq=False)
class _Verdict:
    """What a round came to; no plan where its policies did not run, no splits where they are switched off."""

    outcome: Literal["decided", "warm-up", "no-quorum"]
    reason: str
    plan: SheddingPlan | None = None
    admitted: Admitted = field(default_factory=Admitted)
    splits: Splits | None = None


def _judge(
    closing: Closing,
    header: Header,
    table: Eligible,
    advanced: fleet.Advanced,
    topics: TopicTable,
    identity: Identity,
) -> _Verdict:
    pulsar = closing.settings.pulsar
    plan = place(
        table.snapshot,
        _run_policy(table.snapshot, advanced.fleet, pulsar),
        table.known,
        strategy=pulsar.placement,
        overloaded_ratio=pulsar.overload_shedder.threshold_ratio,
    )
    circumstances = _circumstances(closing, identity)
    decided = None
    if pulsar.split.enabled:
        codes = guards.split_mask(advanced.fleet, advanced.owned_count, header, pulsar, end_ms=closing.end_ms)
        decided = splits.decide(
            table, advanced, plan, topics, codes, circumstances=circumstances, pulsar=pulsar
        )
    admitted = admit(
        table,
        plan,
        guards.hour_budget(header, pulsar.guards),
        circumstances,
        split_rows=decided.rows if decided else (),
    )
    return _Verdict("decided", _decision_reason(plan, admitted, decided), plan, admitted, decided)


def _circumstances(closing: Closing, identity: Identity) -> Circumstances:
    return Circumstances(
        cluster=closing.cluster,
        number=closing.number,
        end_ms=closing.end_ms,
        expires_ms=closing.end_ms + to_ms(identity.action_ttl_s),
        policy=closing.settings.pulsar.shedding_policy,
        dry_run=closing.mode == "dry-run",
        paused=closing.paused,
    )


def _run_policy(snapshot: Snapshot, after: Fleet, pulsar: PulsarSettings) -> SheddingPlan:
    """Run the chosen policy and keep its next memory in the fleet."""
    match pulsar.shedding_policy:
        case avg_shedder.NAME:
            plan, after.avg_shedder = avg_shedder.shed(snapshot, after.avg_shedder, pulsar.avg_shedder)
            return plan
        case threshold_shedder.NAME:
            plan, after.threshold_shedder = threshold_shedder.shed(
                snapshot, after.threshold_shedder, pulsar.threshold_shedder
            )
            return plan
        case uniform_load_shedder.NAME:
            return uniform_load_shedder.shed(snapshot, pulsar.uniform_load_shedder)
        case overload_shedder.NAME:
            return overload_shedder.shed(snapshot, pulsar.overload_shedder)
    assert_never(pulsar.shedding_policy)


def _decision_reason(plan: SheddingPlan, admitted: Admitted, decided: Splits | None) -> str:
    fired = plan.examined.counts().get("fired", 0)
    held = len(admitted.holds)
    said = f"{fired} of {len(plan.examined)} examined fired, {len(admitted.unloads)} unloads decided, {held} held back"
    if decided is None:
        return said
    return f"{said}; {len(decided.plan.examined)} bundles stand out for a split, {len(decided.admitted)} splits decided"


def _actions(closing: Closing, verdict: _Verdict, identity: Identity) -> list[Output]:
    """Unloads in the policy's order, then splits in that of the criteria."""
    cuts = splits.actions(verdict.splits, _circumstances(closing, identity)) if verdict.splits else []
    typed: list[tuple[str, Unload | Split]] = [
        *((UNLOAD_TYPE, unload) for unload in verdict.admitted.unloads),
        *((SPLIT_TYPE, cut) for cut in cuts),
    ]
    return [
        output(
            kind="action",
            type_=type_,
            subject=action.bundle,
            cluster=closing.cluster,
            number=closing.number,
            place=place,
            time_ms=closing.end_ms,
            data=action,
            dry_run=action.dry_run,
        )
        for place, (type_, action) in enumerate(typed)
    ]


def _round_output(closing: Closing, place: int, spoken: RoundSummary) -> Output:
    return output(
        kind="round",
        type_=ROUND_TYPE,
        subject="round",
        cluster=closing.cluster,
        number=closing.number,
        place=place,
        time_ms=closing.end_ms,
        data=spoken,
        dry_run=closing.mode == "dry-run",
        summary=spoken,
    )


def _remember(
    header: Header, closing: Closing, verdict: _Verdict, actions: list[Output], identity: Identity
) -> None:
    """Cooldown, flight, the hour's budget and the children's inheritance begin when an action is decided."""
    expires_ms = closing.end_ms + to_ms(identity.action_ttl_s)

    def past(action: Output, *, in_flight: bool = True) -> PastAction:
        return PastAction(
            action_id=action.id,
            decided_ms=closing.end_ms,
            expires_ms=expires_ms,
            dry_run=action.dry_run,
            in_flight=in_flight,
        )

    unloads_count = len(verdict.admitted.unloads)
    for action in actions[:unloads_count]:
        header.actions[action.subject] = past(action)
    if unloads_count:
        header.unloads.append(
            PastUnloads(ended_ms=closing.end_ms, count=unloads_count, dry_run=closing.mode == "dry-run")
        )
    if verdict.splits is None:
        return
    for action, decision in zip(actions[unloads_count:], verdict.splits.admitted, strict=True):
        header.splits[action.subject] = past(action)
        for child in splits.children_of(verdict.splits, decision):
            header.splits[child] = past(action, in_flight=False)  # a child that is listed is there
        header.inheritances[action.subject] = splits.inheritance(
            verdict.splits,
            decision,
            expires_ms + closing.settings.pulsar.rounds.max_report_age_ms,
        )


def _summary(
    closing: Closing,
    header: Header,
    round_loads: Loads,
    table: Eligible,
    *,
    verdict: _Verdict,
    found: Section[Finding],
    actions: list[Output],
    live: list[str],
    restarted: bool,
) -> RoundSummary:
    tick = closing.open_round.tick
    missing = [name for name in live if name not in closing.reports]
    oldest_ms = min(waiting.time_ms for waiting in closing.reports.values())
    plan = verdict.plan
    return RoundSummary(
        cluster=closing.cluster,
        round=closing.number,
        start=rfc3339(closing.start_ms),
        end=rfc3339(closing.end_ms),
        gap_rounds=0 if header.last_summary is None else closing.number - header.last_summary - 1,
        restarted=restarted,
        outcome=verdict.outcome,
        reason=verdict.reason,
        policy=closing.settings.pulsar.shedding_policy,
        mode=closing.mode,
        paused=closing.paused,
        control=_control_in_force(closing.record, closing.settings_problem),
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
        brokers=summary.broker_rows(round_loads, table.bundle_counts),
        examined=summary.empty_section() if plan is None else summary.examined_section(table, plan),
        candidates=(
            summary.empty_section()
            if plan is None
            else summary.candidates_section(table, plan, verdict.admitted.holds)
        ),
        splits=summary.empty_section() if verdict.splits is None else splits.section(verdict.splits),
        findings=found,
        actions_count=len(actions),
        actions=[action.id for action in actions],
    )


def _control_in_force(record: ControlRecord | None, problem: str | None) -> ControlInForce | None:
    if record is None:
        return None
    return ControlInForce(
        id=record.id[:MAX_REMARK_CHARACTERS],
        time=rfc3339(record.time_ms),
        who=record.who[:MAX_REMARK_CHARACTERS],
        why=record.why[:MAX_REMARK_CHARACTERS],
        arrived_late=record.arrived_late,
        problem=None if problem is None else problem[:MAX_REMARK_CHARACTERS],
    )
