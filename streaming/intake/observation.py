"""What the stateful operator tells the driver for metrics: one record a closed round, one a micro-batch.

Observations travel in a column of the operator's rows, as MessagePack arrays. They never influence a
decision and are not published. The counts are per micro-batch or round, to be added up by whoever receives
them.
"""

from typing import Annotated, Literal

import msgspec

__all__ = [
    "EventCount",
    "EventObservation",
    "Foremost",
    "Resource",
    "RoundObservation",
    "ThrottleObservation",
    "UsageStats",
    "decode",
    "encode",
]

Resource = Literal["overall", "cpu", "bandwidth-in", "bandwidth-out", "direct-memory", "capacity"]
RoundOutcome = Literal["decided", "warm-up", "no-quorum", "internal-error"]
EventResult = Literal["used", "superseded", "late", "rejected"]

_Count = Annotated[int, msgspec.Meta(ge=0)]


class UsageStats(msgspec.Struct, frozen=True, array_like=True):
    """Usage over the brokers of a round, in percentage points."""

    mean_points: float
    max_points: float
    stdev_points: float


class Foremost(msgspec.Struct, frozen=True, array_like=True):
    """The pair or broker that stands out most, and what it is judged by; None where a policy counts no hits."""

    difference_points: float
    threshold_points: float
    hit_count: float | None
    needed_hit_count: float | None


class ThrottleObservation(msgspec.Struct, frozen=True, array_like=True):
    """Reassignments of a Kafka cluster; None is unknown.

    Rates and minimums are by role, as in `leader:101`; `bottleneck` is the role that is done last. `changed_count`: topics and
    rates whose throttle somebody changed; `failures_count`: decisions in a row that were not carried out.
    """

    left_bytes: _Count | None
    eta_s: float | None
    feasible: bool | None
    late: bool
    rates_bytes_per_s: dict[str, int]
    min_bytes_per_s: dict[str, int | None]
    bottleneck: str | None = None
    changed_count: _Count = 0
    failures_count: _Count = 0


class RoundObservation(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="round"):
    """One closed round of one cluster. A resource that no broker measured is absent from `usage`.

    `examined` counts pairs or brokers by outcome, `candidates` bundles considered for an unload by outcome, `splits`
    those that stand out for a split; `actions` published ones by kind (unload, split, throttle); `findings` what no
    action can help, by kind; `foremost` is None where nothing was compared. `end_ms` is the round's end in Unix
    milliseconds;
    `oldest_report_age_s` the age, at that end, of the oldest of the live brokers' newest reports.
    """

    cluster: str
    round: int
    end_ms: int
    outcome: RoundOutcome
    policy: str
    mode: Literal["dry-run", "act"]
    paused: bool
    failing: bool
    brokers_reporting_count: _Count
    brokers_missing_count: _Count
    brokers_excluded_count: _Count
    usage: dict[Resource, UsageStats]
    examined: dict[str, _Count]
    foremost: Foremost | None
    candidates: dict[str, _Count]
    splits: dict[str, _Count]
    findings: dict[str, _Count]
    actions: dict[str, _Count]
    oldest_report_age_s: float
    throttle: ThrottleObservation | None = None


class EventCount(msgspec.Struct, frozen=True, array_like=True):
    """How many events of a CloudEvents type ended how; `type` is `unknown` where it could not be read."""

    type: str
    result: EventResult
    count: _Count


class EventObservation(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="events"):
    """The input events of one cluster in one micro-batch; `cluster` is empty for records that name none.

    `rejected` counts the rejected ones by reason, `action_results` the used results of actions by outcome.
    """

    cluster: str
    counts: list[EventCount]
    rejected: dict[str, _Count]
    action_results: dict[str, _Count]
    forgotten: bool = False
    """Whether a control event made an end to what was remembered of the cluster."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[RoundObservation | EventObservation] = msgspec.msgpack.Decoder(
    RoundObservation | EventObservation
)


def encode(observation: RoundObservation | EventObservation) -> bytes:
    """The observation as MessagePack."""
    return _ENCODER.encode(observation)


def decode(encoded: bytes) -> RoundObservation | EventObservation:
    """The inverse of `encode`; raises `msgspec.ValidationError` for anything else."""
    return _DECODER.decode(encoded)
