"""What a closed round of a Kafka cluster says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import msgspec

from policies.throttle.pacing_plan import PacingExplanation
from policies.throttle.rates import loads_of
from state.engine import summary
from state.engine.closing import Closing
from state.engine.memory import Header
from state.kafka import drift, pursuit
from state.kafka.actions import NAME, bottleneck, total
from state.kafka.drift import Drift
from state.kafka.memory import KafkaMemory, WaitingLogs
from state.kafka.snapshot import Seen, others_lists
from state.kafka_settings import KafkaSettings
from state.outputs import Output, RoundSummary, rfc3339
from state.settings import MS_PER_S
from state.throttle_outputs import RateViolation, ThrottleSummary, UnknownNumber


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """A round at its close, with the reports of its brokers."""

    closing: Closing
    reports: Mapping[str, WaitingLogs]

    @property
    def settings(self) -> KafkaSettings:
        """Those in force."""
        return self.closing.settings.kafka


def round_summary(
    closed: Closed,
    header: Header,
    memory: KafkaMemory,
    seen: Seen,
    told: PacingExplanation | None,
    actions: list[Output],
    drifted: Drift,
    *,
    outcome: Literal["decided", "warm-up", "no-quorum"],
    reason: str,
    is_held: bool,
) -> RoundSummary:
    """The summary, at most as large as one may be; ``told`` is None where nothing was judged."""
    framed = summary.frame(
        closed.closing,
        header,
        policy=NAME,
        digest=closed.closing.settings.kafka_digest,
        outcome=outcome,
        reason=reason,
        reports_ms={name: each.time_ms for name, each in closed.reports.items()},
        live=list(memory.last_ms),
    )
    throttle = None if told is None else _throttle(closed, memory, seen, told, drifted, is_held=is_held)
    return summary.fit(
        msgspec.structs.replace(
            framed,
            actions_count=len(actions),
            actions=[action.id for action in actions],
            throttle=throttle,
        )
    )


def _throttle(
    closed: Closed,
    memory: KafkaMemory,
    seen: Seen,
    told: PacingExplanation,
    drifted: Drift,
    *,
    is_held: bool,
) -> ThrottleSummary:
    needs, plan, eta, moves = told.needs, told.plan, told.eta, seen.moves
    strange = others_lists(pursuit.others(seen, memory), memory.pacing.added)
    ours = pursuit.ours(memory)
    lacking = () if needs is None else needs.lacking
    return ThrottleSummary(
        outcome="held" if is_held else told.outcome,
        trigger=told.wanted_trigger,
        as_of=rfc3339(seen.at_ms),
        partitions_moving_count=None if moves is None else len(moves),
        fingerprint=None if moves is None or not len(moves) else moves.fingerprint(),
        differs_from_plan=told.differs_from_plan,
        bytes_left=_bytes_left(told, seen),
        rates_bytes_per_s={str(role): rate for role, rate in sorted(memory.pacing.rates().items())},
        min_bytes_per_s={}
        if needs is None
        else {str(load.role): load.min_bytes_per_s for load in loads_of(needs)},
        feasible=None if plan is None else plan.feasible,
        violations=[]
        if plan is None
        else [
            RateViolation(
                role=str(each.role),
                rate_bytes_per_s=each.rate_bytes_per_s,
                required_more_than_bytes_per_s=each.required_more_than_bytes_per_s,
            )
            for each in plan.violations
        ],
        eta_s=None if eta is None else eta.remaining_s,
        eta_basis=None if eta is None else eta.basis,
        eta_predicted_s=None if eta is None else eta.predicted_s,
        eta_observed_low_s=None if eta is None else eta.observed_low_s,
        eta_observed_high_s=None if eta is None else eta.observed_high_s,
        bottleneck=bottleneck(told),
        late=_is_late(closed, memory, seen, told),
        held_over_count=seen.held_over_count,
        unknown_count=len(lacking),
        unknown=[
            UnknownNumber(
                partition=lack.partition, lacks=list(lack.lacks), why=seen.why_unknown(lack.partition)
            )
            for lack in islice(lacking, summary.SHOWN_ROWS)
        ],
        others_leader_throttled_replicas=dict(sorted(strange.leader.items())),
        others_follower_throttled_replicas=dict(sorted(strange.follower.items())),
        others_rates_bytes_per_s={
            **{f"{role}:default": rate for role, rate in sorted(seen.defaults_there.items())},
            **{str(role): rate for role, rate in sorted(seen.rates_there.items()) if role not in ours},
        },
        lost_leader_throttled_replicas=dict(sorted(drifted.lost.leader.items())),
        lost_follower_throttled_replicas=dict(sorted(drifted.lost.follower.items())),
        changed_rates_bytes_per_s=drift.named(memory, drifted),
        failures_count=memory.failures_count,
        retry_at=rfc3339(memory.retry_ms) if memory.failures_count else None,
    )


def _bytes_left(told: PacingExplanation, seen: Seen) -> int | None:
    if told.needs is not None:
        return total(told.needs.follower_bytes_to_receive)
    return 0 if seen.moves is not None and not len(seen.moves) else None


def _is_late(closed: Closed, memory: KafkaMemory, seen: Seen, told: PacingExplanation) -> bool:
    """Without a deadline nothing is; a move that does not catch up is, whatever the clock says."""
    deadline_s, begun_ms = closed.settings.throttle.deadline_s, memory.pacing.begun_ms
    if deadline_s == 0 or begun_ms is None or told.eta is None:
        return False
    if told.eta.remaining_s is None:
        return told.eta.basis == "not-catching-up" or seen.at_ms > begun_ms + deadline_s * MS_PER_S
    return seen.at_ms + told.eta.remaining_s * MS_PER_S > begun_ms + deadline_s * MS_PER_S
