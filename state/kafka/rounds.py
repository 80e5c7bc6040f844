"""One closed round of a Kafka cluster: from its reports to at most one throttle action and its summary.

The order is fixed: restart, control, what was seen, what became of the last decision, pacing, holds, memory, outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from policies.throttle.network import network_limits
from policies.throttle.pacing import decide, plan_in_force
from policies.throttle.pacing_plan import (
    PacingExplanation,
    PacingMemory,
    PacingSnapshot,
    ThrottleDecision,
)
from policies.throttle.progress import Watch, watched
from policies.throttle.rates import BrokerRole, Caps, loads_of
from state.engine import control, holds
from state.engine.memory import Header
from state.engine.waiting import silence_ms
from state.kafka import drift, pursuit
from state.kafka.actions import leaderless, throttle_action
from state.kafka.drift import NO_DRIFT, Drift
from state.kafka.memory import KafkaMemory, WaitingLogs, WaitingMoves
from state.kafka.snapshot import Seen, see
from state.kafka.summary import Closed, round_summary
from state.outputs import Output, canonical, output, rfc3339
from state.pulsar.rounds import ROUND_TYPE, Identity, settings_in_force
from state.settings import SettingsSource, to_ms

THROTTLE_TYPE = "trimtab.action.throttle.v1"
SUBJECT = "reassignments"
"""Of every throttle action: a cluster has one throttle."""


def close(
    cluster: str,
    header: Header,
    memory: KafkaMemory,
    reports: Mapping[str, WaitingLogs],
    moves: WaitingMoves | None,
    *,
    number: int,
    identity: Identity,
    settings: SettingsSource,
) -> list[Output]:
    """Close a round that somebody reported in. Changes ``header`` and ``memory``."""
    record = control.in_force(header, number)
    if record is not None and record.resumed_ms is not None:
        holds.resume(header, record.resumed_ms)
    in_force, problem = settings_in_force(cluster, record, settings)
    kafka = in_force.kafka
    closed = Closed(
        cluster=cluster,
        number=number,
        start_ms=number * header.length_ms,
        end_ms=(number + 1) * header.length_ms,
        open_round=header.rounds[number],
        reports=reports,
        settings=kafka,
        digest=in_force.kafka_digest,
        record=record,
        settings_problem=problem,
        mode=identity.mode if record is None or record.mode is None else record.mode,
        gap_rounds=0 if header.last_summary is None else number - header.last_summary - 1,
        restarted=silence_ms(header, number) > kafka.rounds.max_report_age_ms,
        failing_since_ms=header.error_held_since_ms,
    )
    if closed.restarted:
        memory.readings, memory.rates, header.rounds_since_start = {}, {}, 0
    _change_mode(header, memory, closed)
    _meet(memory, closed)
    seen = see(
        memory.readings,
        moves,
        reports,
        end_ms=closed.end_ms,
        known=memory.rates,
        hold_ms=kafka.throttle.stale_rounds_count * header.length_ms,
    )
    memory.readings, memory.rates = seen.readings, seen.rates
    pursuit.look(memory, seen, end_ms=closed.end_ms)
    outputs = _decide(header, memory, closed, seen, identity)
    header.rounds_since_start += 1
    header.last_summary = number
    spans = closed.open_round.spans
    header.last_report_ms = spans[-1][1] if spans else header.last_report_ms
    return outputs


def _change_mode(header: Header, memory: KafkaMemory, closed: Closed) -> None:
    """What a dry-run decided never happened; what was in force before it still is."""
    if closed.mode == "act" and memory.real is not None:
        memory.pacing, memory.real = memory.real, None
    header.last_mode = closed.mode


def _meet(memory: KafkaMemory, closed: Closed) -> None:
    """Know the brokers that reported, and forget those that have not for too long."""
    times = {**memory.last_ms, **{name: waiting.time_ms for name, waiting in closed.reports.items()}}
    oldest_ms = closed.end_ms - closed.settings.rounds.max_report_age_ms
    memory.last_ms = {name: at_ms for name, at_ms in sorted(times.items()) if at_ms >= oldest_ms}
    memory.readings = {
        where: reading for where, reading in memory.readings.items() if reading.at_ms >= oldest_ms
    }


_REMOVAL_BYTES = 100_000
"""Of an action that takes a throttle off, beside the lists: its other fields."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """Why a wanted decision does not happen."""

    reason: Literal["paused", "failing", "off", "retrying", "too-large"]
    detail: str


def _decide(
    header: Header, memory: KafkaMemory, closed: Closed, seen: Seen, identity: Identity
) -> list[Output]:
    obstacle = _obstacle(header, closed, live_count=len(memory.last_ms))
    if obstacle is not None:
        return [_round_output(closed, memory, seen, None, [], outcome=obstacle[0], reason=obstacle[1])]
    _start(memory, seen)
    drifted, sure = drift.look(memory, seen)
    settings = closed.settings.throttle
    decision, after, told = decide(_snapshot(memory, closed, seen, sure), memory.pacing, settings)
    hold = None if decision is None else _hold(decision, header, memory, closed)
    actions: list[Output] = []
    if decision is not None and hold is None:
        ttl_ms = to_ms(identity.action_ttl_s)
        actions = [_action(decision, told, seen, closed, ttl_ms)]
        hold = _too_large(actions[0], after, identity.max_action_bytes)
    if decision is not None and hold is None:
        _remember(memory, decision, after, actions[0], closed, ttl_ms)
    else:
        actions = []
        memory.pacing = after if decision is None else _watched_on(memory.pacing, after, told, seen)
    return [
        *actions,
        _round_output(
            closed,
            memory,
            seen,
            told,
            actions,
            outcome="decided",
            reason=_verdict(told, decision, hold),
            drifted=drifted,
            is_held=hold is not None,
        ),
    ]


def _start(memory: KafkaMemory, seen: Seen) -> None:
    """Progress and deadline count from the moment a move runs, not from that of its throttle."""
    if seen.moves is None or not len(seen.moves):
        return
    if memory.pacing.is_active and not (memory.is_running and seen.is_running):
        memory.pacing = replace(memory.pacing, begun_ms=seen.at_ms, watch=Watch())
    memory.is_running = seen.is_running


def _obstacle(
    header: Header, closed: Closed, *, live_count: int
) -> tuple[Literal["warm-up", "no-quorum"], str] | None:
    """Outcome and reason of a round in which nothing is decided."""
    rounds = closed.settings.rounds
    if header.rounds_since_start < rounds.warmup_rounds:
        return "warm-up", f"round {header.rounds_since_start + 1} of {rounds.warmup_rounds} of warm-up"
    if live_count and len(closed.reports) / live_count < rounds.quorum_ratio:
        share = f"{len(closed.reports)} of {live_count} live brokers reported"
        return "no-quorum", f"{share}, {rounds.quorum_ratio:g} of them are needed"
    return None


def _snapshot(memory: KafkaMemory, closed: Closed, seen: Seen, sure: Drift) -> PacingSnapshot:
    kafka = closed.settings
    caps, room = Caps(), Caps()
    if seen.moves is not None:
        roles = [
            *(BrokerRole("leader", broker) for broker in sorted(set(seen.moves.sources.brokers.tolist()))),
            *(BrokerRole("follower", broker) for broker in sorted(set(seen.moves.added.brokers.tolist()))),
        ]
        caps, room = network_limits(
            roles,
            capacity=kafka.capacity,
            share_ratio=kafka.throttle.network_share_ratio,
            use=seen.use,
            rates_in_force=memory.pacing.rates(),
        )
    return PacingSnapshot(
        now_ms=seen.at_ms,
        moves=seen.moves,
        lists=pursuit.others(seen, memory),
        lost=sure.lost,
        is_rate_lost=sure.is_rate_lost,
        caps=caps,
        room=room,
        planned_fingerprint=kafka.throttle.planned_fingerprint or None,
    )


def _hold(decision: ThrottleDecision, header: Header, memory: KafkaMemory, closed: Closed) -> _Hold | None:
    if closed.paused:
        return _Hold("paused", "the cluster is paused")
    error = holds.error_hold(header)
    if error is not None:
        return _Hold("failing", error.detail)
    if not closed.settings.throttle.enabled and decision.trigger != "finished":
        return _Hold("off", "kafka.throttle.enabled is false")
    if closed.end_ms < memory.retry_ms:
        waits_s = (memory.retry_ms - closed.end_ms) / 1000
        return _Hold(
            "retrying",
            f"{memory.failures_count} decisions in a row were not carried out, the next is made in {waits_s:g} s",
        )
    return None


def _too_large(action: Output, after: PacingMemory, max_bytes: int) -> _Hold | None:
    """Why a decision is not published: it, or what takes it off in the end, is larger than the output takes."""
    needed = max(len(action.data), len(canonical(after.added)) + _REMOVAL_BYTES if after.is_active else 0)
    if needed <= max_bytes:
        return None
    return _Hold(
        "too-large",
        f"the action takes {needed} bytes and at most {max_bytes} are published: move fewer partitions at a time "
        "(`trimtab throttle plan --batches`), or throttle whole topics with `*` by hand",
    )


def _watched_on(
    before: PacingMemory, after: PacingMemory, told: PacingExplanation, seen: Seen
) -> PacingMemory:
    """The memory of a round whose decision was held: it saw, and changed nothing."""
    watch = before.watch
    if told.needs is not None and before.is_active:
        loads = loads_of(told.needs)
        in_force = plan_in_force(before.rates(), loads)
        watch = watched(watch, at_ms=seen.at_ms, loads=loads, plan=in_force, is_changed=False)
    return replace(
        before,
        safe_leader_mins=after.safe_leader_mins or before.safe_leader_mins,
        safe_follower_mins=after.safe_follower_mins or before.safe_follower_mins,
        stale_rounds=after.stale_rounds,
        watch=watch,
    )


def _action(
    decision: ThrottleDecision, told: PacingExplanation, seen: Seen, closed: Closed, ttl_ms: int
) -> Output:
    data = throttle_action(
        decision,
        told,
        seen,
        cluster=closed.cluster,
        number=closed.number,
        expires_at=rfc3339(closed.end_ms + ttl_ms),
        dry_run=closed.is_dry_run,
    )
    return output(
        kind="action",
        type_=THROTTLE_TYPE,
        subject=SUBJECT,
        cluster=closed.cluster,
        number=closed.number,
        place=0,
        time_ms=closed.end_ms,
        data=data,
        dry_run=closed.is_dry_run,
    )


def _remember(
    memory: KafkaMemory,
    decision: ThrottleDecision,
    after: PacingMemory,
    action: Output,
    closed: Closed,
    ttl_ms: int,
) -> None:
    """A dry-run is taken for done, so that it goes on to say what would come next."""
    drift.forget(memory, decision)
    if not closed.is_dry_run:
        pursuit.pursue(memory, decision, action_id=action.id, expires_ms=closed.end_ms + ttl_ms)
    elif memory.real is None:
        memory.real = memory.pacing
    memory.pacing = after


def _verdict(told: PacingExplanation, decision: ThrottleDecision | None, hold: _Hold | None) -> str:
    if decision is not None and hold is not None:
        return f"{decision.trigger} is held, {hold.reason}: {hold.detail}"
    uncounted = "" if (names := leaderless(told)) is None else f"; {names}"
    if decision is not None:
        return f"throttle decided: {decision.trigger}{uncounted}"
    wanted = "" if told.wanted_trigger is None else f", {told.wanted_trigger} waits"
    return f"no throttle decided: {told.outcome}{wanted}{uncounted}"


def _round_output(
    closed: Closed,
    memory: KafkaMemory,
    seen: Seen,
    told: PacingExplanation | None,
    actions: list[Output],
    *,
    outcome: Literal["decided", "warm-up", "no-quorum"],
    reason: str,
    drifted: Drift = NO_DRIFT,
    is_held: bool = False,
) -> Output:
    spoken = round_summary(
        closed, memory, seen, told, actions, drifted, outcome=outcome, reason=reason, is_held=is_held
    )
    return output(
        kind="round",
        type_=ROUND_TYPE,
        subject="round",
        cluster=closed.cluster,
        number=closed.number,
        place=len(actions),
        time_ms=closed.end_ms,
        data=spoken,
        dry_run=closed.is_dry_run,
        summary=spoken,
    )
