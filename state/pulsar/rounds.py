"""One closed round: from its reports to its actions and its summary.

The order is fixed: restart, control, fleet, quorum and warm-up, masks, policy, splits, budgets, memory, outputs.
"""

from dataclasses import dataclass
from typing import Literal

from policies.shedding.contract import FIRED, SheddingPlan
from policies.splitting.plan import TopicTable
from state.engine import control, holds
from state.engine.holds import holds_of
from state.engine.memory import ControlRecord, Fleet, Header, WaitingReport, WaitingTopics
from state.engine.waiting import silence_ms
from state.outputs import Output, RoundSummary, Split, Unload, output
from state.pulsar import effects, findings, fleet, masks, members, policy_memory, splits, summary
from state.pulsar.actions import Admitted, Circumstances, admit
from state.pulsar.aftermath import remember
from state.pulsar.anti_affinity import AntiAffinity
from state.pulsar.budget import Budget
from state.pulsar.closing import Closing, Decided
from state.pulsar.groups import Groups
from state.pulsar.round_summary import round_summary
from state.pulsar.shedding import settle, shed
from state.pulsar.splits import Splits
from state.pulsar.tables import Eligible, eligible, loads
from state.settings import (
    ClusterSettings,
    Mode,
    OverlayError,
    PulsarSettings,
    SettingsSource,
    to_ms,
)

UNLOAD_TYPE = "trimtab.action.unload.v1"
SPLIT_TYPE = "trimtab.action.split.v1"
ROUND_TYPE = "trimtab.round.v1"

MAX_ACTION_BYTES = 8_000_000
"""Just below what the topics of actions on Kafka take, the envelope included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a controller is started with."""

    mode: Mode = "dry-run"
    action_ttl_s: float = 180.0
    max_action_bytes: int = MAX_ACTION_BYTES
    """Data of a throttle action above it is held: the output would refuse the record, and its batch for ever."""


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
    restarted = silence_ms(header, number) > pulsar.rounds.max_report_age_ms
    if restarted:
        before.forget_policies()
        header.rounds_since_start = 0
    before.policies = policy_memory.of_policy(before.policies, pulsar.policy)
    _change_mode(header, closing.mode)
    if closing.record is not None and closing.record.resumed_ms is not None:
        holds.resume(header, closing.record.resumed_ms)
    header.ledger.forget_old(pulsar, end_ms=closing.end_ms)
    expected = list(header.ledger.expected_children(end_ms=closing.end_ms))
    if expected:
        listed = set[str]().union(*(waiting.report.bundles for waiting in reports.values()))
        fleet.inherit(before, expected, listed.__contains__)
    members.watch(header, before, reports, number=number, restarted=restarted)
    advanced = fleet.advance(
        before,
        reports,
        _sampling(pulsar),
        round_end_ms=closing.end_ms,
        max_report_age_ms=pulsar.rounds.max_report_age_ms,
    )
    live = _live(advanced.fleet, closing, pulsar)
    outputs = _decide(closing, header, advanced, live=live, restarted=restarted)
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
    in_force, problem = settings_in_force(cluster, record, settings)
    return Closing(
        cluster=cluster,
        number=number,
        start_ms=number * header.length_ms,
        end_ms=(number + 1) * header.length_ms,
        expires_ms=(number + 1) * header.length_ms + to_ms(identity.action_ttl_s),
        open_round=header.rounds[number],
        reports=reports,
        topics=topics,
        settings=in_force,
        record=record,
        settings_problem=problem,
        mode=identity.mode if record is None or record.mode is None else record.mode,
    )


def settings_in_force(
    cluster: str, record: ControlRecord | None, settings: SettingsSource
) -> tuple[ClusterSettings, str | None]:
    """Settings of a round, and why the overlay is not in them, if so.

    The overlay was valid when it came; after a restart with other settings below it, it may no longer be.
    """
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


def _change_mode(header: Header, mode: Mode) -> None:
    if mode == "act" and header.last_mode == "dry-run":
        header.ledger.forget_dry_run()
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
    restarted: bool,
) -> list[Output]:
    pulsar, ledger = closing.settings.pulsar, header.ledger
    seen = effects.judge(
        ledger, advanced, closing.reports, pulsar, length_ms=header.length_ms, end_ms=closing.end_ms
    )
    budget = Budget.of(ledger, pulsar.guards, seen.leaving, end_ms=closing.end_ms)
    round_loads = loads(closing.reports, pulsar, end_ms=closing.end_ms)
    unsettled = masks.unsettled_brokers(header, pulsar, end_ms=closing.end_ms)
    table = eligible(
        round_loads,
        advanced.fleet,
        masks.unload_mask(advanced, header, pulsar, unsettled, end_ms=closing.end_ms),
        Groups.of(header.facts),
        ledger,
        end_ms=closing.end_ms,
        unsettled=unsettled,
    )
    topics = splits.topic_table(table, closing.topics)
    obstacle = _obstacle(header, closing, live)
    circumstances = _circumstances(closing, header)
    decided = (
        Decided(*obstacle)
        if obstacle
        else _judge(circumstances, header, table, advanced, topics, pulsar, budget=budget)
    )
    actions = _actions(circumstances, decided)
    remember(ledger, closing, decided, actions)
    ineffective = ledger.ineffective(pulsar.guards.ineffective_rest_s, end_ms=closing.end_ms)
    found = findings.of_actions(ineffective | seen.ineffective, seen.elsewhere)
    found += findings.of_topics(table, topics, pulsar.split)
    spoken = round_summary(
        closing,
        header,
        round_loads,
        table,
        decided=decided,
        found=findings.section(found),
        actions=actions,
        live=live,
        restarted=restarted,
    )
    return [*actions, _round_output(closing, len(actions), summary.fit(spoken))]


def _judge(
    circumstances: Circumstances,
    header: Header,
    table: Eligible,
    advanced: fleet.Advanced,
    topics: TopicTable,
    pulsar: PulsarSettings,
    *,
    budget: Budget,
) -> Decided:
    wanted = shed(table, advanced.fleet, pulsar)
    decided = None
    if pulsar.split.enabled:
        codes = masks.split_mask(advanced, header, pulsar, end_ms=circumstances.end_ms)
        decided = splits.decide(
            table,
            advanced,
            wanted.plan,
            topics,
            codes,
            proposals=wanted.proposals(),
            circumstances=circumstances,
            pulsar=pulsar,
        )
    admitted = admit(
        table,
        wanted.plan,
        budget,
        circumstances,
        AntiAffinity.of(header.facts, table, advanced.fleet),
        split_rows=decided.rows if decided else (),
    )
    settle(wanted, table, advanced.fleet, pulsar, admitted.holds)
    return Decided("decided", _decision_reason(wanted.plan, admitted, decided), wanted, admitted, decided)


def _circumstances(closing: Closing, header: Header) -> Circumstances:
    return Circumstances(
        cluster=closing.cluster,
        number=closing.number,
        end_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        policy=closing.settings.pulsar.policy,
        dry_run=closing.mode == "dry-run",
        holds=holds_of(
            header,
            closing.settings.pulsar.guards,
            is_paused=closing.paused,
            mode=closing.mode,
            end_ms=closing.end_ms,
        ),
        calm=members.calm(header, closing.settings.pulsar, number=closing.number),
    )


def _decision_reason(plan: SheddingPlan, admitted: Admitted, decided: Splits | None) -> str:
    fired = plan.examined.counts().get(FIRED, 0)
    held = len(admitted.holds)
    said = f"{fired} of {len(plan.examined)} examined fired, {len(admitted.unloads)} unloads decided, {held} held back"
    if decided is None:
        return said
    return f"{said}; {len(decided.plan.examined)} bundles stand out for a split, {len(decided.admitted)} splits decided"


def _actions(circumstances: Circumstances, decided: Decided) -> list[Output]:
    """Unloads in the policy's order, then splits in that of the criteria."""
    cuts = splits.actions(decided.splits, circumstances) if decided.splits else []
    typed: list[tuple[str, Unload | Split]] = [
        *((UNLOAD_TYPE, unload) for unload in decided.admitted.unloads),
        *((SPLIT_TYPE, cut) for cut in cuts),
    ]
    return [
        output(
            kind="action",
            type_=type_,
            subject=action.bundle,
            cluster=circumstances.cluster,
            number=circumstances.number,
            place=place,
            time_ms=circumstances.end_ms,
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
