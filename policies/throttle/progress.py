"""When a running move is done: from the prediction at first, from the observed slope once there is one.

The prediction is bytes left ÷ (rate - minimum). It is off at the start (the quota window is full of credit) and with large
batches (a held-back follower waits out its fetch backoff), so after some rounds what the move really does counts: the
slope of the role that is the bottleneck at the rates in force. The others change pace whenever a partition is done and its
share goes to the rest; the bottleneck is busy to the end. Where the bottleneck is unknown, or a leader that may just have
taken over because its bytes rose, the slowest follower counts. Whether the move catches up at all is told by followers too.

A watch begins anew when rates change or moves join, because the slope does too. It keeps the newest samples only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from policies.throttle.rates import Load, RatePlan

PREDICTED_UNTIL_MS = 10_000
"""Up to here the quota window is still filling, and growth says little."""
OBSERVED_FROM_MS = 20_000
"""From here only the slope counts; in between the one goes over into the other."""
SAMPLES_MAX = 7
"""A minute of rounds of 10 s: long enough to be steady, short enough to follow the load."""
_MS_PER_S = 1000

Basis = Literal["unknown", "predicted", "blended", "observed", "not-catching-up", "done"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes left at one moment."""

    at_ms: int
    bytes_left: Mapping[str, int]
    """By role, as in ``leader:101``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Samples since rates or moves changed last, the oldest first."""

    begun_ms: int = 0
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """Seconds until the move is done, how they were found, and how sure that is."""

    remaining_s: float | None
    """None: unknown, or never as it goes now."""
    basis: Basis
    predicted_s: float | None
    observed_s: float | None
    observed_weight_ratio: float
    """0: all prediction, 1: all observation."""
    observed_low_s: float | None = None
    """What the quickest stretch between two samples promises; with ``observed_high_s``, how sure it is."""
    observed_high_s: float | None = None
    """What the slowest stretch promises; None where it stood still or there is one stretch only."""
    slopes_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    """How quickly each role's bytes left shrink; negative: they grow."""


def watched(watch: Watch, *, at_ms: int, loads: Iterable[Load], is_changed: bool) -> Watch:
    """The watch with one sample more; ``is_changed`` begins it anew. Unknown bytes give no sample."""
    bytes_left = {str(load.role): load.bytes_left for load in loads}
    known = {role: left for role, left in bytes_left.items() if left is not None}
    if is_changed or not watch.samples:
        watch = Watch(begun_ms=at_ms)
    if len(known) < len(bytes_left):
        return watch
    return Watch(begun_ms=watch.begun_ms, samples=(*watch.samples, Sample(at_ms, known))[-SAMPLES_MAX:])


def eta_of(watch: Watch, plan: RatePlan | None) -> Eta:
    """From the newest sample on; ``plan`` is what comes of the rates in force and of the bytes left in that sample."""
    predicted_s = None if plan is None else plan.total_s
    bottleneck = None if plan is None or plan.bottleneck is None else str(plan.bottleneck)
    if watch.samples and not any(watch.samples[-1].bytes_left.values()):
        return Eta(
            remaining_s=0.0, basis="done", predicted_s=predicted_s, observed_s=0.0, observed_weight_ratio=1.0
        )
    slopes = _slopes(watch.samples)
    if slopes is None:
        basis: Basis = "unknown" if predicted_s is None else "predicted"
        return Eta(
            remaining_s=predicted_s,
            basis=basis,
            predicted_s=predicted_s,
            observed_s=None,
            observed_weight_ratio=0.0,
        )
    observed_s = _remaining_s(watch.samples[-1], slopes, bottleneck)
    weight = _weight(watch) if predicted_s is not None else 1.0
    low_s, high_s = _range(watch.samples, bottleneck)
    remaining_s, basis = _blend(predicted_s, observed_s, weight)
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


def _weight(watch: Watch) -> float:
    ran_ms = watch.samples[-1].at_ms - watch.begun_ms
    share = (ran_ms - PREDICTED_UNTIL_MS) / (OBSERVED_FROM_MS - PREDICTED_UNTIL_MS)
    return min(max(share, 0.0), 1.0)


def _blend(predicted_s: float | None, observed_s: float | None, weight: float) -> tuple[float | None, Basis]:
    if weight == 0.0 or (predicted_s is None and observed_s is None):
        return predicted_s, "predicted" if predicted_s is not None else "not-catching-up"
    if observed_s is None:
        return None, "not-catching-up"
    if predicted_s is None or weight == 1.0:
        return observed_s, "observed"
    return (1.0 - weight) * predicted_s + weight * observed_s, "blended"


def _slopes(samples: tuple[Sample, ...]) -> dict[str, float] | None:
    """From the first sample to the last, of the roles in both; None with fewer than two moments.

    With three samples and more the first stretch is left out: it holds what the full quota window let through at once.
    """
    used = samples[1:] if len(samples) > 2 and len(samples) < SAMPLES_MAX else samples  # noqa: PLR2004
    if len(used) < 2 or used[-1].at_ms <= used[0].at_ms:  # noqa: PLR2004
        return None
    rose = {
        role for first, last in pairwise(used) for role, slope in _between(first, last).items() if slope < 0
    }
    return {
        role: slope
        for role, slope in _between(used[0], used[-1]).items()
        if not (_leads(role) and role in rose)
    }


def _leads(role: str) -> bool:
    return role.startswith("leader:")


def _between(first: Sample, last: Sample) -> dict[str, float]:
    elapsed_ms = last.at_ms - first.at_ms
    return {
        role: (first.bytes_left[role] - left) * _MS_PER_S / elapsed_ms
        for role, left in last.bytes_left.items()
        if role in first.bytes_left
    }


def _remaining_s(now: Sample, slopes: Mapping[str, float], bottleneck: str | None) -> float | None:
    """None if a follower does not catch up."""
    followers = {role: left for role, left in now.bytes_left.items() if left and not _leads(role)}
    if any(slopes.get(role, 0.0) <= 0 for role in followers):
        return None
    if bottleneck is not None and slopes.get(bottleneck, 0.0) > 0:
        return now.bytes_left[bottleneck] / slopes[bottleneck]
    return max((left / slopes[role] for role, left in followers.items()), default=0.0)


def _range(samples: tuple[Sample, ...], bottleneck: str | None) -> tuple[float | None, float | None]:
    stretches = [
        _remaining_s(samples[-1], _between(first, last), bottleneck)
        for first, last in pairwise(samples)
        if last.at_ms > first.at_ms
    ]
    if len(stretches) < 2:  # noqa: PLR2004
        return None, None
    known = [seconds for seconds in stretches if seconds is not None]
    return (min(known) if known else None), (max(known) if len(known) == len(stretches) else None)
