"""How noisy reports are, and how much evidence there is that a level has changed.

A report differs from a level in two ways: its traffic from the running averages, and its usage from what its traffic costs. Both
differences (residuals) count as noise as long as they do not last. If their average over the last few rounds is beyond the noise, it is a
lag, and the part beyond the noise counts. Where residuals add up beyond any doubt (Page's cumulative sum, CUSUM), the level follows the
last of them.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.shedding.fleet_planner.memory import (
    COST,
    COST_NOISE,
    COST_TOGETHER,
    EVIDENCE,
    FLEET_ROUNDS,
    LAG,
    LAST,
    ROUNDS,
    RUN,
    SHIFT,
    TRAFFIC,
    TRAFFIC_NOISE,
    TRAFFIC_TOGETHER,
    VARIANCE,
)

CLIPPED_NOISES = 2.5
"""Largest residual, as a multiple of the noise; a larger one is a spike and counts as this much."""
SLACK_NOISES, MOST_NOISES = 2.0, 6.0
"""Multiples of the noise: a residual below the first is no evidence; no report counts more than the second, for it may be a spike."""
SHIFT_FADES = 0.5
"""Share that is kept each round of the residuals that a level is shifted by."""
LAG_FADES, LAG_ERRORS = 0.7, 1.5
"""Share that is kept each round of a lag's average, and how many of its standard errors count as noise."""
NOISE_FADES = 0.9
"""Share of the noise that is kept each round."""
FIRST_NOISE_POINTS, FIRST_NOISE_ROUNDS = 4.0, 8.0
"""What either noise is assumed to be before any was measured, and how many rounds the assumption counts as."""
FIRST_LASTING = 0.5
"""Share of that noise which is assumed to last into the next round."""
LEAST_NOISE_POINTS = 0.3
FEWEST_ROUNDS = 2
"""First rounds of a broker, in which its residuals show what is not yet known about it rather than noise."""
UNKNOWN_ROUNDS = 4.0
"""Rounds after which half of an average's squared error is its noise: before, it is not known how much noise there is and how long it
lasts."""
MOST_STEPS = 2.0
"""Most that the whole noise may be, as a multiple of what differs from round to round: what lasts longer is a change in all traffic."""
_MOST_TOGETHER = 0.9
_MEDIAN_TO_DEVIATION = 1.4826
"""Factor from the median of absolute values to the standard deviation, for normal noise."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the two residuals: where it is remembered, and what it takes to believe it."""

    columns: Ints
    noise: int
    together: int
    enough: float
    """Evidence from which a level follows: traffic is counted, so two large residuals are enough; usage has spikes, so it takes three."""
    averaged_rounds: float
    """Number of rounds in the averages that it is compared with."""


OF_TRAFFIC: Final = Kind(TRAFFIC, TRAFFIC_NOISE, TRAFFIC_TOGETHER, enough=8.0, averaged_rounds=10.0)
OF_COST: Final = Kind(COST, COST_NOISE, COST_TOGETHER, enough=12.0, averaged_rounds=10.0)


def known_noise(fleet: Floats, learned: Floats, kind: Kind) -> Floats:
    """Noise of each broker as the rounds before show it, (n,): its own or the group's, whichever is larger."""
    if fleet[kind.noise] == 0:
        fleet[kind.noise] = FIRST_NOISE_POINTS**2
        fleet[kind.together] = FIRST_LASTING * FIRST_NOISE_POINTS**2
    noise: Floats = np.sqrt(np.maximum(fleet[kind.noise], learned[:, kind.columns[VARIANCE]]))
    return noise


def learn_noise(
    fleet: Floats, learned: Floats, kind: Kind, residual: Floats, noise: Floats, settling: Bools
) -> None:
    """Learn from this round's residuals, in place.

    The group's noise is a median, so that a broker that stands out does not count. A broker's own noise is a mean, so that it does count,
    but of the differences from one round to the next: a level that has changed is no noise.
    """
    columns = kind.columns
    counts = ~settling & (learned[:, ROUNDS] > FEWEST_ROUNDS)
    if counts.any():
        most = CLIPPED_NOISES * noise[counts]
        found, last = (
            np.clip(each, -most, most) for each in (residual[counts], learned[counts, columns[LAST]])
        )
        steps = found - last
        step = _MEDIAN_TO_DEVIATION * float(np.median(np.abs(steps))) / math.sqrt(2.0)
        scale = min(_MEDIAN_TO_DEVIATION * float(np.median(np.abs(found))), MOST_STEPS * step)
        kept = min(NOISE_FADES, 1.0 - 1.0 / (fleet[FLEET_ROUNDS] + FIRST_NOISE_ROUNDS))
        usual = CLIPPED_NOISES * math.sqrt(fleet[kind.noise])
        products = np.clip(found, -usual, usual) * np.clip(last, -usual, usual)
        together = math.fsum(products.tolist()) / len(products)
        fleet[kind.noise] = max(kept * fleet[kind.noise] + (1 - kept) * scale**2, LEAST_NOISE_POINTS**2)
        fleet[kind.together] = kept * fleet[kind.together] + (1 - kept) * together
        variance = learned[counts, columns[VARIANCE]]
        shown = 2.0 * max(1.0 - _lasting_share_of(fleet, kind), MOST_STEPS**-2)
        learned[counts, columns[VARIANCE]] = NOISE_FADES * variance + (1.0 - NOISE_FADES) * steps**2 / shown
    learned[:, columns[LAST]] = np.where(settling, learned[:, columns[LAST]], residual)


@dataclass(frozen=True, slots=True, eq=False)
class Lag:
    """By how much levels trail behind what is reported, (n,) each."""

    points: Floats
    is_shift: Bools
    """Where that is beyond doubt."""
    error: Floats
    """Standard error of it, points."""


def add_evidence(
    learned: Floats, fleet: Floats, kind: Kind, residual: Floats, noise: Floats, settling: Bools
) -> Lag:
    """Add a round's residuals, in place; brokers whose reports show the past keep what they had."""
    columns = kind.columns
    before, run, shift, lag = (learned[:, columns[at]] for at in (EVIDENCE, RUN, SHIFT, LAG))
    lasts = _lasting_share_of(fleet, kind)
    z = np.clip(residual / noise / math.sqrt((1.0 + lasts) / (1.0 - lasts)), -MOST_NOISES, MOST_NOISES)
    above = np.maximum(np.maximum(before, 0.0) + z - SLACK_NOISES, 0.0)
    below = np.minimum(np.minimum(before, 0.0) + z + SLACK_NOISES, 0.0)
    evidence = np.clip(np.where(above > 0, above, below), -2 * kind.enough, 2 * kind.enough)
    has_some = evidence != 0
    clipped = np.clip(residual, -CLIPPED_NOISES * noise, CLIPPED_NOISES * noise)
    for at, old, new in (
        (EVIDENCE, before, evidence),
        (RUN, run, np.where(has_some, run + 1, 0.0)),
        (SHIFT, shift, np.where(has_some, SHIFT_FADES * shift + (1.0 - SHIFT_FADES) * residual, 0.0)),
        (LAG, lag, LAG_FADES * lag + (1.0 - LAG_FADES) * clipped),
    ):
        learned[:, columns[at]] = np.where(settling, old, new)
    return _measure_lag(learned, kind, noise, error=_averaged_share_of(fleet, kind, 1.0 - LAG_FADES) * noise)


def _measure_lag(learned: Floats, kind: Kind, noise: Floats, *, error: Floats) -> Lag:
    evidence, run, shift, lag = (learned[:, kind.columns[at]] for at in (EVIDENCE, RUN, SHIFT, LAG))
    is_shift = np.abs(evidence) >= kind.enough
    whole = 1.0 - SHIFT_FADES ** np.maximum(run, 1.0)
    beyond = np.sign(lag) * np.maximum(np.abs(lag) - LAG_ERRORS * error, 0.0)
    points = np.where(is_shift, shift / whole, beyond)
    return Lag(points, is_shift, np.where(is_shift, noise, np.where(beyond != 0, error, 0.0)))


def carry_shift(row: Floats, points: float) -> None:
    """Note in a broker's row that a bundle came or went whose traffic is ``points`` off its averages, in place."""
    evidence, run, shift = OF_TRAFFIC.columns[[EVIDENCE, RUN, SHIFT]]
    known = row[shift] if abs(row[evidence]) >= OF_TRAFFIC.enough else 0.0
    row[run] = max(row[run], 4.0)
    row[shift] = known + points * (1.0 - SHIFT_FADES ** row[run])
    row[evidence] = math.copysign(2 * OF_TRAFFIC.enough, row[shift])


def average_error(fleet: Floats, learned: Floats, kind: Kind, noise: Floats) -> Floats:
    """Standard error of a running average of noise that lasts some rounds, (n,)."""
    unknown = 1.0 + UNKNOWN_ROUNDS / np.maximum(learned[:, ROUNDS], 1.0)
    weight = 1.0 / np.clip(learned[:, ROUNDS], 1.0, kind.averaged_rounds)
    error: Floats = noise * np.sqrt(unknown) * _averaged_share_of(fleet, kind, weight)
    return error


def _lasting_share_of(fleet: Floats, kind: Kind) -> float:
    """Which share of a round's noise is still there in the next one."""
    return float(min(max(fleet[kind.together] / fleet[kind.noise], 0.0), _MOST_TOGETHER))


def _averaged_share_of(fleet: Floats, kind: Kind, weight: Floats | float) -> Floats:
    """How much of a noise that lasts some rounds is left, as a share of it, in an average to which each round adds with this weight."""
    kept = (1.0 - weight) * _lasting_share_of(fleet, kind)
    share: Floats = np.sqrt(weight / (2.0 - weight) * (1.0 + kept) / (1.0 - kept))
    return share
