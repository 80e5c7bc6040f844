"""A throttle worked out for a person or a program: lists, minimums and two plans, and the answer in JSON.

``policies.throttle`` decides; this only puts it together. Reads and writes no file and no cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from policies.throttle.batches import BatchPlan
from policies.throttle.lists import ThrottledLists, lists_of
from policies.throttle.moves import Reassignment
from policies.throttle.needs import ByBroker, Needs, needs_of
from policies.throttle.rates import (
    BrokerRole,
    Load,
    RatePlan,
    RateRule,
    Role,
    UniformPlan,
    loads_of,
    per_broker_plan,
    uniform_plan,
)
from streaming.planner.throttle.request import Checked, NotPlanned, show

PRICE = (
    "Batches need a lower rate each and take longer together: every batch runs at what its own minimum asks for, and the "
    "brokers it does not touch wait."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThrottlePlan:
    """Everything that was worked out for a request."""

    reassignment: Reassignment
    not_planned: tuple[NotPlanned, ...]
    """Partitions that are left out, with the reason."""
    rule: RateRule
    lists: ThrottledLists
    needs: Needs
    loads: tuple[Load, ...]
    uniform: UniformPlan
    per_broker: RatePlan
    batches: BatchPlan | None
    warnings: tuple[str, ...]

    @property
    def is_infeasible(self) -> bool:
        """Whether one of the two plans can never finish."""
        return self.uniform.plan.feasible is False or self.per_broker.feasible is False


def make_plan(checked: Checked, rule: RateRule, *, batches: BatchPlan | None = None) -> ThrottlePlan:
    """Work out the plan of what can be planned."""
    reassignment = checked.reassignment
    needs = needs_of(reassignment.moves)
    loads = loads_of(needs)
    uniform, per_broker = uniform_plan(loads, rule), per_broker_plan(loads, rule)
    return ThrottlePlan(
        reassignment=reassignment,
        not_planned=checked.not_planned,
        rule=rule,
        lists=lists_of(reassignment.moves),
        needs=needs,
        loads=loads,
        uniform=uniform,
        per_broker=per_broker,
        batches=batches,
        warnings=(*checked.notes, *_warnings(checked, needs, rule, (uniform.plan, per_broker))),
    )


def _warnings(
    checked: Checked, needs: Needs, rule: RateRule, plans: tuple[RatePlan, RatePlan]
) -> Iterator[str]:
    reassignment, perhaps_running = checked.reassignment, set(checked.perhaps_running)
    still = [name for name in reassignment.without_data_movement if name not in perhaps_running]
    if perhaps_running:
        yield (
            f"{show(checked.perhaps_running)}: every target replica is among current_replicas. Either the replication factor gets smaller, or "
            "only the order changes, and nothing is copied; or the move runs already, and Kafka is adding some of them: then give "
            "in_progress_adding_replicas, or let it be read with --cluster"
        )
    elif not len(reassignment.moves):
        yield "no partition gains a replica: nothing is copied, so no throttle is needed"
    if still and len(reassignment.moves):
        yield f"no throttle is needed where nothing is copied: {show(still)}"
    if needs.whole_logs_count:
        yield (
            f"{needs.whole_logs_count} new replicas are counted with their whole log: "
            "it is not known what they have already"
        )
    if needs.lacking:
        names = show(f"{lack.partition} ({', '.join(lack.lacks)})" for lack in needs.lacking)
        yield f"some values are unknown, so figures that depend on them are missing: {names}"
    for title, plan in zip(("uniform", "per broker"), plans, strict=True):
        if rule.deadline_s is not None and plan.total_s is not None and plan.total_s > rule.deadline_s:
            yield f"{title}: takes {plan.total_s:.0f} s and misses the deadline of {float(rule.deadline_s):g} s"


class ViolationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A role of a broker that can never finish."""

    broker: int
    role: Role
    rate: int
    required_more_than: int
    deficit: int


class UnknownAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A partition without a number that the plan needs."""

    partition: str
    lacks: tuple[str, ...]


class NotPlannedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is left out of the plan."""

    partition: str
    reason: str


class OutcomeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a plan's rates."""

    feasible: bool | None
    violations: list[ViolationAnswer]
    duration_s: dict[str, float | None]
    total_s: float | None
    bottleneck: str | None


class UniformAnswer(OutcomeAnswer, frozen=True, kw_only=True):
    """One rate for all."""

    min_bytes_per_s: int | None
    rate_bytes_per_s: int | None


class PerBrokerAnswer(OutcomeAnswer, frozen=True, kw_only=True):
    """A rate for each role of each broker."""

    leader_rate_bytes_per_s: dict[str, int | None]
    follower_rate_bytes_per_s: dict[str, int | None]


class BatchAnswer(UniformAnswer, frozen=True, kw_only=True):
    """One batch with its uniform plan."""

    partitions: list[str]


class BatchesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The batches in order."""

    batches: list[BatchAnswer]
    total_s: float | None
    total_at_cap_s: float | None
    all_at_once_total_s: float | None
    explanation: str


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer; keys of maps are broker ids or topics as text, ascending."""

    leader_throttled_replicas: Mapping[str, str]
    follower_throttled_replicas: Mapping[str, str]
    partitions_moving: list[str]
    partitions_without_data_movement: Sequence[str]
    leader_bytes_to_send: dict[str, int | None]
    follower_bytes_to_receive: dict[str, int | None]
    leader_min_bytes_per_s: dict[str, int | None]
    follower_min_bytes_per_s: dict[str, int | None]
    leader_min_write_rate_bytes_per_s: dict[str, int | None]
    failover_safe_leader_min_bytes_per_s: dict[str, int | None]
    uniform: UniformAnswer
    per_broker: PerBrokerAnswer
    batches: BatchesAnswer | None
    unknown: list[UnknownAnswer]
    not_planned: list[NotPlannedAnswer]
    warnings: Sequence[str]
    fingerprint: str


def answer_of(plan: ThrottlePlan) -> PlanAnswer:
    """What is printed; equal plans give equal answers, key by key."""
    needs, moves = plan.needs, plan.reassignment.moves
    safe = {
        broker: needs.failover_safe_min_bytes_per_s.get(broker, 0) for broker in needs.leader_min_bytes_per_s
    }
    return PlanAnswer(
        leader_throttled_replicas=plan.lists.leader,
        follower_throttled_replicas=plan.lists.follower,
        partitions_moving=moves.names(),
        partitions_without_data_movement=plan.reassignment.without_data_movement,
        leader_bytes_to_send=_by_name(needs.leader_bytes_to_send),
        follower_bytes_to_receive=_by_name(needs.follower_bytes_to_receive),
        leader_min_bytes_per_s=_by_name(needs.leader_min_bytes_per_s),
        follower_min_bytes_per_s=_by_name(needs.follower_min_bytes_per_s),
        leader_min_write_rate_bytes_per_s=_by_name(needs.leader_min_write_rate_bytes_per_s),
        failover_safe_leader_min_bytes_per_s=_by_name(safe),
        uniform=UniformAnswer(**_uniform(plan.uniform)),
        per_broker=PerBrokerAnswer(
            leader_rate_bytes_per_s=_rates(plan.per_broker, "leader"),
            follower_rate_bytes_per_s=_rates(plan.per_broker, "follower"),
            **_outcome(plan.per_broker),
        ),
        batches=None if plan.batches is None else _batches(plan.batches, plan.uniform),
        unknown=[UnknownAnswer(partition=lack.partition, lacks=lack.lacks) for lack in needs.lacking],
        not_planned=[NotPlannedAnswer(**each._asdict()) for each in plan.not_planned],
        warnings=plan.warnings,
        fingerprint=moves.fingerprint(),
    )


def _by_name(values: ByBroker) -> dict[str, int | None]:
    return {str(broker): value for broker, value in values.items()}


def _rates(plan: RatePlan, role: Role) -> dict[str, int | None]:
    return {str(key.broker): rate for key, rate in plan.rates.items() if key.role == role}


def _name(role: BrokerRole | None) -> str | None:
    return None if role is None else str(role)


def _outcome(plan: RatePlan) -> dict[str, Any]:
    return {
        "feasible": plan.feasible,
        "violations": [
            ViolationAnswer(
                broker=found.role.broker,
                role=found.role.role,
                rate=found.rate_bytes_per_s,
                required_more_than=found.required_more_than_bytes_per_s,
                deficit=found.deficit_bytes_per_s,
            )
            for found in plan.violations
        ],
        "duration_s": {str(role): seconds for role, seconds in plan.durations_s.items()},
        "total_s": plan.total_s,
        "bottleneck": _name(plan.bottleneck),
    }


def _uniform(found: UniformPlan) -> dict[str, Any]:
    return {
        "min_bytes_per_s": found.min_bytes_per_s,
        "rate_bytes_per_s": found.rate_bytes_per_s,
        **_outcome(found.plan),
    }


def _batches(found: BatchPlan, all_at_once: UniformPlan) -> BatchesAnswer:
    return BatchesAnswer(
        batches=[
            BatchAnswer(partitions=batch.moves.names(), **_uniform(batch.plan)) for batch in found.batches
        ],
        total_s=found.total_s,
        total_at_cap_s=found.total_at_cap_s,
        all_at_once_total_s=all_at_once.plan.total_s,
        explanation=PRICE,
    )
