"""Summaries of rounds as the driver reads them, for tests that need one and look at a few of its fields."""

from typing import Any

import msgspec

from state.outputs import ControlInForce, ExaminedRow, RoundSummary, Section, ThrottleSummary, UsageSummary
from state.outputs.actions import ROUND_TYPE
from streaming.cli.published import Round
from streaming.controller.published import Published


def section(**outcomes: int) -> Section[Any]:
    """A table's counts by outcome (``hit_count`` for `hit-count`), with no row shown."""
    named = {name.replace("_", "-"): count for name, count in outcomes.items()}
    return Section(count=sum(named.values()), outcomes=named, heaviest=[])


def examined(evidence: dict[str, float | int], **outcomes: int) -> Section[ExaminedRow]:
    """Counts by outcome of what a policy looked at, with one row, which has this evidence."""
    row = ExaminedRow(
        high_broker="b1",
        low_broker="b2",
        group=None,
        outcome="fired",
        detail="fired",
        trigger="",
        evidence=evidence,
    )
    return msgspec.structs.replace(section(**outcomes), heaviest=[row])


ROUND = RoundSummary(
    cluster="east-1",
    system="pulsar",
    round=7,
    start="1970-01-01T00:07:00.000Z",
    end="1970-01-01T00:08:00.000Z",
    gap_rounds=0,
    restarted=False,
    outcome="decided",
    reason="",
    policy="avg-shedder",
    mode="act",
    paused=False,
    failing_since=None,
    other_balancers=None,
    last_actions={},
    control=None,
    settings_digest="",
    brokers_reporting_count=3,
    brokers_live_count=4,
    brokers_reporting=[],
    brokers_missing_count=1,
    brokers_missing=[],
    brokers_excluded=[],
    brokers_asked=[],
    brokers_failed={},
    oldest_report_age_s=12.5,
    usage=UsageSummary(mean_points=60.0, max_points=80.0, stdev_points=28.5),
    resources={"cpu": UsageSummary(mean_points=50.0, max_points=55.0, stdev_points=2.0)},
    brokers=[],
    examined=examined(
        {"difference_points": 52.0, "threshold_points": 40.0, "hit_count": 2, "needed_hit_count": 2},
        fired=1,
        hit_count=1,
        below_threshold=4,
    ),
    candidates=section(acted=2, cooldown=5),
    splits=section(acted=1, dominant_topic=3),
    findings=section(hot_partition=4),
    actions_count=3,
    actions=[],
    throttle=None,
)
CONTROL = ControlInForce(
    id="c1",
    time="1970-01-01T00:05:00.000Z",
    who="maria",
    why="the sale",
    arrived_late=False,
    resumed_at=None,
    problem=None,
)
THROTTLE = ThrottleSummary(
    outcome="waiting",
    trigger=None,
    as_of="1970-01-01T00:00:20.000Z",
    partitions_moving_count=1,
    fingerprint=None,
    bytes_left=72_000,
    rates_bytes_per_s={"leader:101": 30, "follower:104": 40},
    min_bytes_per_s={"leader:101": 26, "follower:104": None},
    feasible=False,
    violations=[],
    eta_s=None,
    eta_basis=None,
    eta_predicted_s=None,
    eta_observed_low_s=None,
    eta_observed_high_s=None,
    bottleneck=None,
    late=True,
    broken_count=0,
    held_over_count=0,
    unknown_count=0,
    unknown=[],
    others_leader_throttled_replicas={},
    others_follower_throttled_replicas={},
    others_rates_bytes_per_s={},
    lost_leader_throttled_replicas={},
    lost_follower_throttled_replicas={},
    changed_rates_bytes_per_s={},
    failures_count=0,
    retry_at=None,
)


def of_kafka(throttle: ThrottleSummary) -> RoundSummary:
    """A round of 10 s of a Kafka cluster."""
    empty = section()
    return msgspec.structs.replace(
        ROUND,
        cluster="kafka-1",
        system="kafka",
        policy="reassignment-throttle",
        round=1,
        usage=None,
        resources={},
        examined=empty,
        candidates=empty,
        splits=empty,
        findings=empty,
        actions_count=1,
        throttle=throttle,
    )


def round_event(data: RoundSummary, **fields: Any) -> Round:
    """A round as it is read from the audit topic, with other fields in its summary."""
    data = msgspec.structs.replace(data, **fields)
    return Round(
        id="0" * 32,
        source="/trimtab/main",
        type=ROUND_TYPE,
        cluster=data.cluster,
        subject="round",
        time=data.end,
        data=data,
    )


def published(data: RoundSummary, *, end_s: float = 480.0) -> Published:
    """The summary as published on the audit topic."""
    return Published(id="", type="trimtab.round.v1", time_s=end_s, data=data)
