"""The summary of a closed round of a Kafka cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Literal

import msgspec
import numpy as np

from policies.columns import Ints
from policies.throttle.copies import RECOVERY
from policies.throttle.lists import difference
from policies.throttle.pacing_round import PacingExplanation
from policies.throttle.rates import loads_of
from state import summary
from state.closing import Closing
from state.events import KafkaLoadReport
from state.kafka import reconcile
from state.kafka.actions import NAME, SUBJECT, bottleneck, copies_by_kind
from state.kafka.findings import NOTHING_BROKEN, Broken, find_stalled
from state.kafka.memory import KafkaMemory
from state.kafka.reconcile import NO_DRIFT, Drift
from state.kafka.snapshot import Observation
from state.memory import Header
from state.outputs import (
    InFlightRow,
    KafkaBrokerLoad,
    Output,
    RateViolation,
    RoundSummary,
    ThrottleSummary,
    UnknownNumber,
    rfc3339,
)
from state.settings import MS_PER_S, KafkaSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundContext:
    """A round at its close, with what its reports show; its steps change ``header`` and ``memory``."""

    closing: Closing
    header: Header
    memory: KafkaMemory
    reports: Mapping[str, KafkaLoadReport]
    observation: Observation

    @property
    def settings(self) -> KafkaSettings:
        """The settings in force."""
        return self.closing.settings.kafka

    @property
    def failed(self) -> frozenset[str]:
        """Brokers that did not answer the collector in the newest sweep."""
        tick = self.closing.open_round.tick
        return frozenset() if tick is None else frozenset(name for name, _ in tick.failed)


def round_summary(
    context: RoundContext,
    explanation: PacingExplanation | None = None,
    *,
    outcome: Literal["decided", "warm-up", "no-quorum"],
    reason: str,
    actions: Sequence[Output] = (),
    drift_seen: Drift = NO_DRIFT,
    broken: Broken = NOTHING_BROKEN,
    is_held: bool = False,
) -> RoundSummary:
    """The summary, at most as large as one may be; ``explanation`` is None where nothing was judged."""
    asked, copies = context.memory.asked, context.observation.copies
    stalled = () if copies is None or explanation is None else find_stalled(copies, explanation)
    framed = summary.frame(
        context.closing,
        context.header,
        policy=NAME,
        outcome=outcome,
        reason=reason,
        reports_ms={name: report.time_ms for name, report in context.reports.items()},
        live=list(context.memory.last_ms),
        findings=[*broken.findings(), *stalled],
    )
    throttle = (
        None if explanation is None else _throttle(context, explanation, drift_seen, broken, is_held=is_held)
    )
    in_flight = []
    if asked is not None:
        expires_at = rfc3339(asked.expires_ms)
        in_flight = [InFlightRow(id=asked.action_id, kind="throttle", target=SUBJECT, expires_at=expires_at)]
    return summary.fit(
        msgspec.structs.replace(
            framed,
            actions_count=len(actions),
            actions=[action.id for action in actions],
            in_flight=in_flight,
            kafka_brokers=_broker_rows(context),
            throttle=throttle,
        )
    )


def _broker_rows(context: RoundContext) -> list[KafkaBrokerLoad]:
    """The brokers with the most traffic, those without a measurement last, ties by id."""
    observation, capacity = context.observation, context.settings.capacity
    traffic = {
        broker: [each for each in (use.in_bytes_per_s, use.out_bytes_per_s) if each is not None]
        for broker, use in observation.use.items()
    }
    copies, leading, gaining = observation.copies, {}, {}
    if copies is not None:
        leading, gaining = _counts_of(copies.leader), _counts_of(copies.destinations.brokers)

    def row(broker: int) -> KafkaBrokerLoad:
        use, declared = observation.use[broker], capacity.network_of(broker)
        return KafkaBrokerLoad(
            broker=str(broker),
            usage_points=100.0 * max(traffic[broker]) / declared if declared and traffic[broker] else None,
            in_bytes_per_s=use.in_bytes_per_s,
            out_bytes_per_s=use.out_bytes_per_s,
            leading_count=None if copies is None else leading.get(broker, 0),
            gaining_count=None if copies is None else gaining.get(broker, 0),
        )

    order = sorted(traffic, key=lambda broker: (not traffic[broker], -sum(traffic[broker]), broker))
    return list(map(row, order[: summary.SHOWN_ROWS]))


def _counts_of(brokers: Ints) -> dict[int, int]:
    """How often each broker occurs."""
    found, counts = np.unique(brokers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _throttle(
    context: RoundContext, explanation: PacingExplanation, drift_seen: Drift, broken: Broken, *, is_held: bool
) -> ThrottleSummary:
    memory, observation = context.memory, context.observation
    needs, plan, eta, copies = explanation.needs, explanation.plan, explanation.eta, observation.copies
    strange = difference(reconcile.foreign_lists(observation, memory), memory.pacing.added)
    ours = reconcile.our_configs(memory).rates
    lacking = () if needs is None else needs.lacking
    return ThrottleSummary(
        outcome="held" if is_held else explanation.outcome,
        trigger=explanation.wanted_trigger,
        as_of=rfc3339(observation.at_ms),
        partitions_moving_count=None if copies is None else len(copies),
        copies=copies_by_kind(copies),
        recovering=_recovering(memory, observation),
        under_min_isr=list(observation.under_min_isr[: summary.SHOWN_ROWS]),
        planned=observation.is_planned,
        fingerprint=None if copies is None else copies.fingerprint(),
        bytes_left=_bytes_left(explanation, observation),
        rates_bytes_per_s={str(role): rate for role, rate in sorted(memory.pacing.rates.items())},
        min_bytes_per_s={}
        if needs is None
        else {str(load.role): load.min_bytes_per_s for load in loads_of(needs)},
        feasible=None if plan is None else plan.feasible,
        violations=[
            RateViolation(
                role=str(violation.role),
                rate_bytes_per_s=violation.rate_bytes_per_s,
                min_bytes_per_s=violation.min_bytes_per_s,
            )
            for violation in (plan.violations if plan else ())
        ],
        eta_s=None if eta is None else eta.remaining_s,
        eta_basis=None if eta is None else eta.basis,
        eta_predicted_s=None if eta is None else eta.predicted_s,
        eta_observed_low_s=None if eta is None else eta.observed_low_s,
        eta_observed_high_s=None if eta is None else eta.observed_high_s,
        bottleneck=bottleneck(explanation),
        late=memory.is_late,
        broken_count=None if copies is None else broken.partitions_count,
        held_over_count=observation.held_over_count,
        unknown_count=len(lacking),
        unknown=[
            UnknownNumber(
                partition=lack.partition,
                lacks=list(lack.lacks),
                why=observation.why_unknown(lack.partition, copies),
            )
            for lack in islice(lacking, summary.SHOWN_ROWS)
        ],
        others_leader_throttled_replicas=dict(sorted(strange.leader.items())),
        others_follower_throttled_replicas=dict(sorted(strange.follower.items())),
        others_rates_bytes_per_s={
            **{f"{role}:default": rate for role, rate in sorted(observation.defaults_there.items())},
            **{str(role): rate for role, rate in sorted(observation.rates_there.items()) if role not in ours},
        },
        lost_leader_throttled_replicas=dict(sorted(drift_seen.lost.leader.items())),
        lost_follower_throttled_replicas=dict(sorted(drift_seen.lost.follower.items())),
        changed_rates_bytes_per_s={str(role): rate for role, rate in sorted(drift_seen.rates.items())},
        failures_count=memory.failures_count,
        retry_at=rfc3339(memory.retry_ms) if memory.failures_count else None,
    )


def _recovering(memory: KafkaMemory, observation: Observation) -> dict[str, str | None]:
    """When each broker that recovers came back; None where it is still away."""
    copies = observation.copies
    brokers = [] if copies is None else np.unique(copies.of_kind(RECOVERY).brokers).tolist()
    returns = {broker: memory.absences[broker].until_ms for broker in brokers}
    return {str(broker): None if at_ms is None else rfc3339(at_ms) for broker, at_ms in returns.items()}


def _bytes_left(explanation: PacingExplanation, observation: Observation) -> int | None:
    if explanation.needs is not None:
        return explanation.needs.total_bytes_left
    return 0 if observation.copies is not None and not len(observation.copies) else None


def is_late(context: RoundContext, explanation: PacingExplanation) -> bool:
    """Whether the move will miss its deadline, or, with or without one, does not catch up.

    A prediction may call a move late and not on time again: it begins anew with each raise, and only progress shows whether
    the raise helped. While progress is not seen, a move stays what it was.
    """
    memory, observation, eta = context.memory, context.observation, explanation.eta
    deadline_s, begun_ms = context.settings.throttle.deadline_s, memory.pacing.begun_ms
    if (
        begun_ms is None
        or observation.is_planned
        or (observation.copies is not None and not len(observation.copies))
    ):
        return False
    if eta is not None and eta.basis == "not-catching-up":
        return True
    deadline_ms = begun_ms + deadline_s * MS_PER_S if deadline_s else inf
    left_s = 0.0 if eta is None or eta.remaining_s is None else eta.remaining_s
    if observation.at_ms + left_s * MS_PER_S > deadline_ms:
        return True
    return memory.is_late and (eta is None or eta.basis not in {"observed", "done"})
