"""One closed round of a Kafka cluster: from its reports to at most one throttle action and its summary.

The order is fixed: restart, control, observation, reconciling the throttle, pacing, holds, memory, outputs.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from policies.throttle.capacity import limits_of, replicated_now
from policies.throttle.copies import Copies
from policies.throttle.lists import roles_of
from policies.throttle.needs import capped_needs_of
from policies.throttle.pacing import decide as pace
from policies.throttle.pacing import leave_out
from policies.throttle.pacing_round import (
    PacingExplanation,
    PacingMemory,
    PacingSnapshot,
    ThrottleDecision,
    explain,
    plan_in_force,
)
from policies.throttle.progress import SETTLED_AFTER_MS, Watch, extend_watch
from policies.throttle.rates import Caps, loads_of
from policies.wording import digits
from state.closing import Closing, Hold, error_hold, obstacle
from state.events import KafkaLoadReport, Reassignment
from state.kafka import reconcile
from state.kafka.absences import forget_absences, select_copies
from state.kafka.actions import SUBJECT, left_out, throttle_action
from state.kafka.findings import Broken, observe_broken
from state.kafka.memory import KafkaMemory
from state.kafka.reconcile import Drift
from state.kafka.snapshot import Observation, observe
from state.kafka.standstill import observe_standstill
from state.kafka.summary import RoundContext, is_late, round_summary
from state.kafka.wording import TRIGGERS, outcome_words
from state.memory import Header
from state.outputs import Output, canonical
from state.outputs.actions import THROTTLE_TYPE
from state.settings import MS_PER_S, to_ms

_REMOVAL_BYTES = 100_000
"""Size of an action that takes a throttle off, without its lists."""


def decide(
    closing: Closing,
    header: Header,
    memory: KafkaMemory,
    reports: Mapping[str, KafkaLoadReport],
    copies: Reassignment | None,
) -> list[Output]:
    """The outputs of a round in which a report or a tick came. Changes ``memory``."""
    if closing.restarted:
        memory.readings, memory.rates = KafkaMemory().readings, KafkaMemory().rates
        memory.silent_rounds = {}
    kafka = closing.settings.kafka
    times = {**memory.last_ms, **{name: waiting.time_ms for name, waiting in reports.items()}}
    oldest_ms = (
        closing.end_ms - kafka.rounds.max_report_age_ms
    )  # brokers that have been silent for longer are forgotten
    memory.last_ms = {name: at_ms for name, at_ms in sorted(times.items()) if at_ms >= oldest_ms}
    memory.readings = memory.readings.take(memory.readings.columns[:, 2] >= oldest_ms)
    seen = observe(
        memory.readings,
        copies,
        reports,
        end_ms=closing.end_ms,
        known=memory.rates,
        hold_ms=kafka.throttle.stale_after_rounds * header.length_ms,
    )
    memory.readings, memory.rates = seen.readings, seen.rates
    gap_ms = max(to_ms(kafka.throttle.recovery_after_s), kafka.rounds.max_report_age_ms)
    forget_absences(memory, at_ms=seen.at_ms, gap_ms=gap_ms)
    observation = select_copies(memory, seen, kafka.throttle)
    asked = memory.asked
    had_effect = reconcile.reconcile(
        memory, observation, end_ms=closing.end_ms, is_acting=closing.mode == "act"
    )
    if asked is not None and had_effect is not None:
        decided_ms = asked.expires_ms - (closing.expires_ms - closing.end_ms)
        header.ledger.count_unanswered(decided_ms=decided_ms, had_effect=had_effect)
    context = RoundContext(
        closing=closing, header=header, memory=memory, reports=reports, observation=observation
    )
    stopped = obstacle(header, kafka.rounds, reports, live_count=len(memory.last_ms))
    if stopped is None:
        return _decide(context)
    summary_ = round_summary(context, outcome=stopped[0], reason=stopped[1])
    return [closing.summary(summary_, actions_count=0)]


def _decide(context: RoundContext) -> list[Output]:
    closing, memory, observation = context.closing, context.memory, context.observation
    settings = context.settings.throttle
    restart_progress(memory, observation)
    drift_seen, sure = reconcile.observe_drift(memory, observation)
    broken = observe_broken(
        memory, observation, context.failed, stale_after_rounds=settings.stale_after_rounds
    )
    if observation.copies is not None and memory.pacing.is_active:
        waiting = frozenset(chain.from_iterable(broken.copies.values()))
        begun = observation.copies.take_copies(observation.begun)
        stalled = observe_standstill(memory, begun, at_ms=observation.at_ms, waiting=waiting)
        broken = replace(broken, stalled=stalled)
    elif not memory.pacing.is_active:
        memory.progress, memory.arrived_bytes = KafkaMemory().progress, {}
    snapshot = _snapshot(context, sure, broken)
    decision, after, explanation = pace(snapshot, memory.pacing, settings)
    actions: list[Output] = []
    hold = None
    if decision is not None:
        decision = reconcile.remove_attempted(decision, memory, after)
        hold = hold_decision(decision, context)
    if decision is not None and hold is None:
        data = throttle_action(decision, explanation, observation, closing)
        actions = [closing.action(THROTTLE_TYPE, SUBJECT, data)]
        hold = hold_too_large(actions[0], after, closing.max_action_bytes)
    if decision is None:
        memory.pacing = after
    elif hold is not None:
        actions = []
        memory.pacing = _keep_watching(memory.pacing, after, explanation, snapshot)
        explanation = _explain_held(memory.pacing, explanation, snapshot)
    elif closing.is_dry_run:  # it counts as carried out, so that the dry-run shows what would come next
        memory.pacing, memory.is_shadow = after, True
    else:
        expires_ms = closing.expires_ms
        reconcile.remember_asked(memory, decision, after, action_id=actions[0].id, expires_ms=expires_ms)
        memory.pacing = after
    memory.is_late = is_late(context, explanation)
    summary_ = round_summary(
        context,
        explanation,
        outcome="decided",
        reason="; ".join(
            [
                _verdict(explanation, decision, hold, broken, is_dry_run=closing.is_dry_run),
                *(["all of it is planned, nothing of it is copied yet"] if observation.is_planned else []),
                *observation.unpaced,
            ]
        ),
        actions=actions,
        drift_seen=drift_seen,
        broken=broken,
        is_held=hold is not None,
    )
    return [*actions, closing.summary(summary_, actions_count=len(actions))]


def restart_progress(memory: KafkaMemory, observation: Observation) -> None:
    """Progress and deadline count from the moment a move runs, not from that of its throttle.

    Planned copies that begin change progress, and so do copies that go before they have caught up.
    """
    if observation.copies is None or not len(observation.copies):
        return
    before, now = memory.running_count, observation.running_count
    if memory.pacing.is_active and not (before and now):
        memory.pacing = replace(memory.pacing, begun_ms=observation.at_ms, watch=Watch())
    elif memory.pacing.is_active and (
        now > before or (now < before and _is_more_gone(memory.pacing, observation, observation.copies))
    ):
        memory.pacing = replace(memory.pacing, watch=Watch())
    memory.running_count = now


def _is_more_gone(pacing: PacingMemory, observation: Observation, copies: Copies) -> bool:
    """Whether more bytes are gone since the last sample than the rates let through, so that copies left, and are not done."""
    if not pacing.watch.samples:
        return False
    last = pacing.watch.samples[-1]
    passed_ms = (
        observation.at_ms - last.at_ms + SETTLED_AFTER_MS
    )  # Kafka lets a window's worth through at once
    left = capped_needs_of(copies, disk_threads=observation.disk_threads).bytes_left
    return any(
        (last.bytes_left.get(role, 0) - now) * MS_PER_S > rate * passed_ms
        for role, rate in pacing.rates.items()
        if role.role != "leader" and (now := left.get(role, 0)) is not None
    )


def _snapshot(context: RoundContext, sure: Drift, broken: Broken) -> PacingSnapshot:
    settings, memory, observation = context.settings, context.memory, context.observation
    copies, caps, room = observation.copies, Caps(), Caps()
    if copies is not None:
        roles = roles_of(copies)
        replicated = reconcile.rates_in_force(memory)
        if observation.is_planned:
            replicated |= dict.fromkeys(roles, 0) | replicated_now(copies)
        caps, room = limits_of(
            roles,
            capacity=settings.capacity,
            share_ratio=settings.throttle.network_share_ratio,
            use=observation.use,
            rates_in_force=replicated,
        )
    return PacingSnapshot(
        now_ms=observation.at_ms,
        copies=copies,
        lists=reconcile.foreign_lists(observation, memory),
        lost=sure.lost,
        is_rate_lost=sure.is_rate_lost,
        caps=caps,
        room=room,
        down=broken.down,
        is_planned=observation.is_planned,
        is_pressed=bool(observation.under_min_isr),
        broken=frozenset(chain.from_iterable([*broken.copies.values(), *broken.stalled.values()])),
        disk_threads=observation.disk_threads,
    )


def _keep_watching(
    before: PacingMemory, after: PacingMemory, explanation: PacingExplanation, snapshot: PacingSnapshot
) -> PacingMemory:
    """The memory after a round whose decision was held: the round observed progress, and changed nothing."""
    watch = Watch() if snapshot.is_broken else before.watch
    if explanation.needs is not None and before.is_active and not snapshot.is_broken:
        loads = loads_of(explanation.needs)
        in_force = plan_in_force(before.rates, loads)
        watch = extend_watch(watch, at_ms=snapshot.now_ms, loads=loads, plan=in_force, is_changed=False)
    known = {key.role for key in after.safe_mins}
    kept = {key: minimum for key, minimum in before.safe_mins.items() if key.role not in known}
    return replace(
        before,
        safe_mins={**kept, **after.safe_mins},
        stale_rounds=after.stale_rounds,
        watch=watch,
        inflow=after.inflow,
    )


def _explain_held(
    memory: PacingMemory, explanation: PacingExplanation, snapshot: PacingSnapshot
) -> PacingExplanation:
    """What follows from the rates in force, because those of the decision will not be."""
    if explanation.needs is None or not memory.is_active:
        return explanation
    held = explain(snapshot, memory, explanation.needs, explanation.outcome, explanation.wanted_trigger)
    if not explanation.unfit or explanation.plan is None:
        return held
    return leave_out(held, explanation.unfit, explanation.plan.violations)


def _verdict(
    explanation: PacingExplanation,
    decision: ThrottleDecision | None,
    hold: Hold | None,
    broken: Broken,
    *,
    is_dry_run: bool,
) -> str:
    if decision is not None and hold is not None:
        return f"throttle held, {hold.reason}: {hold.detail} (wanted: {TRIGGERS[decision.trigger]})"
    uncounted = "".join(f"; {each}" for each in (*left_out(explanation), str(broken)) if each)
    if decision is not None:
        what = "taking the throttle off" if decision.trigger == "finished" else "throttle"
        return f"{what} decided: {TRIGGERS[decision.trigger]}{uncounted}"
    wanted = (
        "" if explanation.wanted_trigger is None else f" (wanted: {TRIGGERS[explanation.wanted_trigger]})"
    )
    why = outcome_words(explanation.outcome, is_dry_run=is_dry_run)
    return f"no throttle decided: {why}{wanted}{uncounted}"


def hold_decision(decision: ThrottleDecision, context: RoundContext) -> Hold | None:
    """Why a decision does not become an action; None if it does. What is throttled comes off even where throttling is switched off."""
    memory, end_ms = context.memory, context.closing.end_ms
    if context.closing.overlay.paused:
        return Hold("paused", "the cluster is paused")
    error = error_hold(context.header)
    if error is not None:
        return error
    if not context.settings.throttle.enabled and decision.trigger != "finished":
        return Hold("off", "kafka.throttle.enabled is false")
    if end_ms < memory.retry_ms:
        waits_s = (memory.retry_ms - end_ms) / 1000
        count = memory.failures_count
        failed = "the last decision was" if count == 1 else f"{count} decisions in a row were"
        return Hold(
            "retrying",
            f"{failed} not carried out, the next is made in {digits(waits_s)} s",
        )
    return None


def hold_too_large(action: Output, after: PacingMemory, max_bytes: int) -> Hold | None:
    """Why an action is not published: it, or the one that takes the throttle off in the end, is larger than the output accepts."""
    needed = max(len(action.data), len(canonical(after.added)) + _REMOVAL_BYTES if after.is_active else 0)
    if needed <= max_bytes:
        return None
    return Hold(
        "too-large",
        f"the action takes {needed} bytes and at most {max_bytes} are published: move fewer partitions at a time "
        "(`trimtab throttle plan --batches`), or throttle whole topics with `*` by hand",
    )
