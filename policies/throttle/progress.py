"""When a running move is done: from the prediction at first, more and more from the observed slope.

The prediction is bytes left ÷ (rate - minimum). The observed slope says more the longer the move is seen, and little at
first: Kafka begins slowly, the quota window is filling, and a report is off by what is copied while it is read. So the first
seconds are left out, then the slope's weight grows with the time it covers, until only the slope counts. The two are weighted
as paces, not as times: one moment without progress does not make the end infinitely far.

The slope is a least-squares line through the newest samples, of the role that is the bottleneck at the rates in force. The
others change pace whenever a partition is done and its share goes to the rest; the bottleneck is busy to the end. Where the
bottleneck is unknown, or is a leader whose bytes rose, so that it may just have taken over, the slowest follower counts.
The followers also show whether the move catches up at all.

A watch begins anew when rates change or moves join, because the slope changes too, and when another role has become the
bottleneck: until then the new one was kept waiting, so its slope says little about its own pace.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from policies.throttle.copies import LARGEST_NUMBER, Copies
from policies.throttle.needs import total_by_broker
from policies.throttle.rates import Load, RatePlan
from policies.throttle.roles import BrokerRole, by_role

SETTLED_AFTER_MS = 10_000
"""What is seen before is left out: Kafka's quota window is that long, and fetchers start meanwhile."""
OBSERVED_AFTER_MS = 50_000
"""A slope that covers this much time counts alone, without the prediction: over 10 s, the error of reports is a fifth of the
slope, over a minute a thirtieth."""
SAMPLE_STEP_MS = 9_000
"""Least time between samples, except for the newest, so that the kept ones cover more than ``OBSERVED_AFTER_MS``."""
STILL_BUSY_RATIO = 0.7
"""The same bottleneck is watched as long as it needs at least this share of the longest time: among brokers that are alike,
the one that needs longest changes often."""
SAMPLES_MAX = 8
"""Most samples kept: with that step and rounds of any length, enough for a slope to count alone, few enough to follow the load."""
STANDSTILL_SAMPLES = 4
"""If a line through this many samples does not fall, the move does not catch up, whatever was predicted."""
_MS_PER_S = 1000

Basis = Literal["unknown", "broken", "predicted", "blended", "observed", "not-catching-up", "done"]
"""``broken``: a copy cannot go on before a broker is back, so nobody knows the end."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes left at one moment."""

    at_ms: int
    bytes_left: Mapping[BrokerRole, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What was seen since rates or moves changed last."""

    begun_ms: int = 0
    samples: tuple[Sample, ...] = ()
    """The oldest first; while the move settles, only the newest."""
    bottleneck: BrokerRole | None = None
    """The role whose slope counts; None: not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """Seconds until the move is done, how they were found, and how sure that is."""

    remaining_s: float | None
    """None: unknown, or the move never ends at its present pace."""
    basis: Basis
    predicted_s: float | None = None
    observed_s: float | None = None
    observed_weight_ratio: float = 0.0
    """0: all prediction, 1: all observation; it grows with the time that was observed."""
    observed_low_s: float | None = None
    """Seconds left at the pace of the quickest stretch between two samples; with ``observed_high_s`` it shows how sure this is."""
    observed_high_s: float | None = None
    """Seconds left at the pace of the slowest stretch; None where that stood still or there is only one stretch."""
    slopes_bytes_per_s: Mapping[BrokerRole, float] = field(default_factory=dict)
    """How quickly each role's bytes left shrink; negative: they grow."""


UNKNOWN_END = Eta(remaining_s=None, basis="unknown")
BROKEN_END = Eta(remaining_s=None, basis="broken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inflow:
    """How quickly brokers sent or received what is copied between them: it shows what the cluster can carry where nobody declared it."""

    at_ms: int = 0
    present_bytes: Mapping[BrokerRole, int] = field(default_factory=dict)
    """What the destinations had then, by the role that sends or receives it; only of roles where all of it was known."""
    copies_count: Mapping[BrokerRole, int] = field(default_factory=dict)
    """How many copies that was: what a copy that joins had before did not flow in."""
    largest_bytes_per_s: int = 0
    """The largest inflow or outflow of one broker between two readings."""

    def measure(self, copies: Copies, *, at_ms: int) -> "Inflow":
        """Take one reading more. A leader sends no more than all followers receive, whatever a new leadership makes of its sum."""
        rows, between = copies.destinations.rows, copies.is_between_brokers()
        is_sent = between & copies.is_led()[rows]
        sent = total_by_broker(copies.leader[rows[is_sent]], copies.present_bytes[is_sent])
        received = total_by_broker(copies.destinations.brokers[between], copies.present_bytes[between])
        now = {
            role: min(present, LARGEST_NUMBER)
            for role, present in by_role(sent, received).items()
            if present is not None
        }
        count = by_role(
            Counter(copies.leader[rows[is_sent]].tolist()),
            Counter(copies.destinations.brokers[between].tolist()),
        )
        grown = {
            role: max(present - self.present_bytes[role], 0)
            for role, present in now.items()
            if role in self.present_bytes and count[role] <= self.copies_count.get(role, 0)
        }
        all_received = sum(grew for role, grew in grown.items() if role.role == "follower")
        most = max((min(grew, all_received) for grew in grown.values()), default=0)
        elapsed_ms = at_ms - self.at_ms
        measured = most * _MS_PER_S // elapsed_ms if elapsed_ms > 0 else 0
        return Inflow(
            at_ms=at_ms,
            present_bytes=now,
            copies_count=count,
            largest_bytes_per_s=max(self.largest_bytes_per_s, measured),
        )


def extend_watch(
    watch: Watch, *, at_ms: int, loads: Iterable[Load], plan: RatePlan | None, is_changed: bool
) -> Watch:
    """The watch with one sample more; ``is_changed`` begins it anew. Unknown bytes give no sample.

    ``plan`` is what follows from the rates in force; None: there are none.
    """
    bytes_left = {load.role: load.bytes_left for load in loads}
    known = {role: left for role, left in bytes_left.items() if left is not None}
    if is_changed or not watch.samples or not _is_still_busy(watch.bottleneck, plan):
        watch = Watch(begun_ms=at_ms)
    if len(known) < len(bytes_left):
        return watch
    settled = [sample for sample in watch.samples if sample.at_ms - watch.begun_ms >= SETTLED_AFTER_MS]
    if len(settled) > 1 and settled[-1].at_ms - settled[-2].at_ms < SAMPLE_STEP_MS:
        settled.pop()
    return Watch(
        begun_ms=watch.begun_ms,
        samples=(*settled, Sample(at_ms, known))[-SAMPLES_MAX:],
        bottleneck=watch.bottleneck or (None if plan is None else plan.bottleneck),
    )


def _is_still_busy(role: BrokerRole | None, plan: RatePlan | None) -> bool:
    """Whether the role that was the bottleneck still needs about as long as the one that is now."""
    if role is None or plan is None or plan.total_s is None:
        return True
    return (plan.durations_s.get(role) or 0.0) >= STILL_BUSY_RATIO * plan.total_s


def eta_of(watch: Watch, plan: RatePlan | None) -> Eta:
    """The end, from the newest sample on; ``plan`` is what follows from the rates in force and the bytes left in that sample."""
    predicted_s = None if plan is None else plan.total_s
    is_known = plan is None or plan.total_s is not None
    bottleneck = (watch.bottleneck or (None if plan is None else plan.bottleneck)) if is_known else None
    if watch.samples and not any(watch.samples[-1].bytes_left.values()):
        return Eta(
            remaining_s=0.0, basis="done", predicted_s=predicted_s, observed_s=0.0, observed_weight_ratio=1.0
        )
    slopes = _slopes(watch.samples)
    if slopes is None:
        basis: Basis = "unknown" if predicted_s is None else "predicted"
        return Eta(remaining_s=predicted_s, basis=basis, predicted_s=predicted_s)
    observed_s = _remaining_s(watch.samples[-1], slopes, bottleneck)
    weight = _weight(watch.samples) if predicted_s is not None else 1.0
    low_s, high_s = _range(watch.samples, bottleneck)
    stands_still = observed_s is None and len(watch.samples) >= STANDSTILL_SAMPLES
    remaining_s, basis = _blend(predicted_s, observed_s, 1.0 if stands_still else weight)
    return Eta(
        remaining_s=remaining_s,
        basis=basis,
        predicted_s=predicted_s,
        observed_s=observed_s,
        observed_weight_ratio=weight,
        observed_low_s=low_s,
        observed_high_s=high_s,
        slopes_bytes_per_s=slopes,
    )


def _weight(samples: tuple[Sample, ...]) -> float:
    return min((samples[-1].at_ms - samples[0].at_ms) / OBSERVED_AFTER_MS, 1.0)


def _blend(predicted_s: float | None, observed_s: float | None, weight: float) -> tuple[float | None, Basis]:
    """``observed_s`` is None where the move stands still or falls behind."""
    if predicted_s is None or weight == 1.0:
        return observed_s, "not-catching-up" if observed_s is None else "observed"
    if predicted_s == 0.0 or observed_s == 0.0:
        return 0.0, "blended"
    pace = (1.0 - weight) / predicted_s + (0.0 if observed_s is None else weight / observed_s)
    return 1.0 / pace, "blended"


def _slopes(samples: tuple[Sample, ...]) -> dict[BrokerRole, float] | None:
    """Slope of each role that is in the first and in the last sample; None with fewer than two moments."""
    if len(samples) < 2 or samples[-1].at_ms <= samples[0].at_ms:  # noqa: PLR2004
        return None
    rose = {
        role
        for first, last in pairwise(samples)
        for role, slope in _slopes_between(first, last).items()
        if slope < 0
    }
    return {
        role: _slope(samples, role)
        for role in samples[-1].bytes_left
        if role in samples[0].bytes_left and not (role.role == "leader" and role in rose)
    }


def _slope(samples: tuple[Sample, ...], role: BrokerRole) -> float:
    """Least squares over the samples that have the role, which the first and the last do."""
    now = samples[-1]
    points = [
        (sample.at_ms - now.at_ms, sample.bytes_left[role] - now.bytes_left[role])
        for sample in samples
        if role in sample.bytes_left
    ]
    mean_ms = sum(at_ms for at_ms, _ in points) / len(points)
    spread = sum((at_ms - mean_ms) ** 2 for at_ms, _ in points)
    return -sum((at_ms - mean_ms) * left for at_ms, left in points) * _MS_PER_S / spread


def _slopes_between(first: Sample, last: Sample) -> dict[BrokerRole, float]:
    elapsed_ms = last.at_ms - first.at_ms
    return {
        role: (first.bytes_left[role] - left) * _MS_PER_S / elapsed_ms
        for role, left in last.bytes_left.items()
        if role in first.bytes_left
    }


def _remaining_s(
    now: Sample, slopes: Mapping[BrokerRole, float], bottleneck: BrokerRole | None
) -> float | None:
    """Seconds left; None if a follower or a disk does not catch up."""
    receivers = {role: left for role, left in now.bytes_left.items() if left and role.role != "leader"}
    if any(slopes.get(role, 0.0) <= 0 for role in receivers):
        return None
    if bottleneck is not None and now.bytes_left.get(bottleneck) and slopes.get(bottleneck, 0.0) > 0:
        return now.bytes_left[bottleneck] / slopes[bottleneck]
    return max((left / slopes[role] for role, left in receivers.items()), default=0.0)


def _range(samples: tuple[Sample, ...], bottleneck: BrokerRole | None) -> tuple[float | None, float | None]:
    stretches = [
        _remaining_s(samples[-1], _slopes_between(first, last), bottleneck)
        for first, last in pairwise(samples)
        if last.at_ms > first.at_ms
    ]
    if len(stretches) < 2:  # noqa: PLR2004
        return None, None
    known = [seconds for seconds in stretches if seconds is not None]
    return (min(known) if known else None), (max(known) if len(known) == len(stretches) else None)
