"""What the driver's metrics are told of a batch: taken from outputs and tallies, never computed again."""

from collections import Counter
from collections.abc import Sequence

from policies.shedding.registry import policy_named
from state.controller import Result
from state.outputs import ExaminedRow, Output, UsageSummary
from state.throttle_outputs import ThrottleSummary
from streaming.intake.observation import (
    EventCount,
    EventObservation,
    Foremost,
    Resource,
    RoundObservation,
    ThrottleObservation,
    UsageStats,
)
from streaming.intake.records import Tally

_RESOURCES: tuple[Resource, ...] = ("cpu", "bandwidth-in", "bandwidth-out", "direct-memory", "capacity")


def event_observation(cluster: str, tally: Tally, *, forgotten: bool = False) -> EventObservation:
    """How the records of one cluster ended in a micro-batch; ``forgotten``: nothing is remembered of it after them."""
    by_type: Counter[tuple[str, Result]] = Counter()
    for (_, kind, result), count in tally.results.items():
        by_type[kind, result] += count
    counts = [
        EventCount(type=kind, result=result, count=count) for (kind, result), count in sorted(by_type.items())
    ]
    return EventObservation(
        cluster=cluster,
        counts=counts,
        rejected=dict(sorted(tally.reasons.items())),
        action_results=dict(sorted(tally.action_results.items())),
        forgotten=forgotten,
    )


def round_observation(output: Output) -> RoundObservation:
    """A closed round; ``output`` is its summary."""
    summary = output.summary
    assert summary is not None, "only a round's summary is observed"
    splits_count = summary.splits.outcomes.get("acted", 0)
    actions = (
        {"throttle": summary.actions_count}
        if summary.system == "kafka"
        else {"unload": summary.actions_count - splits_count, "split": splits_count}
    )
    usage: dict[Resource, UsageStats] = {
        name: _stats(summary.resources[name]) for name in _RESOURCES if name in summary.resources
    }
    if summary.usage is not None:
        usage["overall"] = _stats(summary.usage)
    return RoundObservation(
        cluster=summary.cluster,
        round=summary.round,
        end_ms=output.time_ms,
        outcome=summary.outcome,
        policy=summary.policy,
        mode=summary.mode,
        paused=summary.paused,
        failing=(summary.failing_since or summary.splits_failing_since) is not None,
        brokers_reporting_count=summary.brokers_reporting_count,
        brokers_missing_count=summary.brokers_missing_count,
        brokers_excluded_count=len(summary.brokers_excluded),
        usage=usage,
        examined=summary.examined.outcomes,
        foremost=_foremost(summary.policy, summary.examined.heaviest),
        candidates=summary.candidates.outcomes,
        splits=summary.splits.outcomes,
        findings=summary.findings.outcomes,
        actions=actions,
        oldest_report_age_s=summary.oldest_report_age_s,
        throttle=None if summary.throttle is None else _throttle(summary.throttle),
    )


def _throttle(found: ThrottleSummary) -> ThrottleObservation:
    return ThrottleObservation(
        left_bytes=found.bytes_left,
        eta_s=0.0 if found.outcome == "nothing-moves" else found.eta_s,
        feasible=found.feasible,
        late=found.late,
        rates_bytes_per_s=found.rates_bytes_per_s,
        min_bytes_per_s=found.min_bytes_per_s,
        bottleneck=found.bottleneck,
        changed_count=len(found.changed_rates_bytes_per_s)
        + len(found.lost_leader_throttled_replicas)
        + len(found.lost_follower_throttled_replicas),
        failures_count=found.failures_count,
    )


def _foremost(policy: str, rows: Sequence[ExaminedRow]) -> Foremost | None:
    """Of the rows shown, which begin with what stands out most; None for a policy without such a number."""
    found = policy_named(policy)
    if found is None or found.headline.stand_of is None or not rows:
        return None
    stand = max(
        (found.headline.stand_of(row.evidence) for row in rows), key=lambda each: each.difference_points
    )
    return Foremost(
        difference_points=stand.difference_points,
        threshold_points=stand.threshold_points,
        hit_count=stand.hit_count,
        needed_hit_count=stand.needed_hit_count,
    )


def _stats(found: UsageSummary) -> UsageStats:
    return UsageStats(
        mean_points=found.mean_points, max_points=found.max_points, stdev_points=found.stdev_points
    )
