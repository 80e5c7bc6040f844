"""How much each broker is really used, and how sure that is.

A broker's level is what the traffic of its bundles costs there, plus what its reports show beyond that. Two things differ from round to
round without meaning anything: traffic comes in bursts, and usage has errors and spikes. Both are measured, and the noisier they are, the
less a single report counts:

* The traffic of a bundle is its running average, moved towards the present traffic by a share, the broker's *belief*.
* What usage shows beyond the cost of the reported traffic is followed by each resource's *offset*.

A difference beyond ``BEYOND_NOISES`` that lasts for ``LASTING_ROUNDS`` is no noise, and counts fully. Bundles that come or go, and those
on their way, change the level at once, because their traffic goes with them.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.costs import CostMemory, Costs, figures_of, learn
from policies.shedding.fleet_planner.memory import (
    COST,
    OFFSET,
    ROUNDS,
    SETTLING,
    TRAFFIC,
    FleetPlannerMemory,
    Residual,
    broker_columns,
    fleet_values,
    remember,
)
from policies.shedding.view import RoundView

SETTLING_ROUNDS = 2
"""Rounds after a move whose reports still show the past, or clients that reconnect."""
MOST_GAIN, QUIET_POINTS = 0.5, 1.0
"""Share of a report's difference that counts at once where noise is at most so many points; with more noise it is less by the square, as
the gain of a Kalman filter whose level wanders little."""
BEYOND_NOISES, LASTING_ROUNDS = 3.0, 4
"""A difference of so many noises is hardly ever noise: a first one counts up to that much, for it may be a spike; after so many rounds on
one side it counts fully."""
AVERAGED_ROUNDS = 10
"""Number of rounds in the running averages of bundles."""
NOISE_FADES = 0.95
"""Share of the measured noise that is kept each round: it is that of the last half hour, half of it of the last quarter."""
FIRST_NOISE_POINTS, FIRST_NOISE_ROUNDS = 4.0, 8.0
"""What either noise is assumed to be before any was measured, and how many rounds the assumption counts as."""
FIRST_LASTING = 0.5
"""Share of that noise which is assumed to last into the next round."""
LEAST_NOISE_POINTS = 0.3
"""Noise is never taken for less: the resolution of what brokers report."""
UNKNOWN_ROUNDS = 4.0
"""Rounds after which half of a level's squared error is its noise: before, little is known about the broker."""
MOST_LASTING = 0.9
_MEDIAN_TO_DEVIATION = 1.4826
"""Factor from the median of absolute values to the standard deviation, for normal noise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """What is known of the group in a round."""

    points: Floats
    """Level of each resource, (n, resources), percent; 0 where it is not measured."""
    score: Floats
    """Weighted maximum of them, (n,), points."""
    error: Floats
    """Standard error of each score, (n,), points."""
    noise_points: float
    """Standard deviation of a report."""
    costs: Costs
    is_loaded: Bools
    """Resources that a broker measures and its bundles load, (n, resources)."""
    belief: Floats
    """How far each broker's bundles are taken to have their present traffic and not the running averages, (n,), 0 to 1."""
    memory: FleetPlannerMemory

    def rates(self, view: RoundView, rows: Ints, owners: Ints | int) -> Floats:
        """Traffic of bundle rows, (k, 4), at the belief of their owners."""
        average = view.bundles.rates[rows]
        share = np.broadcast_to(self.belief[owners], len(rows))[:, None]
        return average + share * (_present_rates(view, rows) - average)


def judge(view: RoundView, memory: FleetPlannerMemory) -> Levels:
    """Learn from a round's reports, and give each broker's level once the bundles in flight have arrived."""
    brokers, weights = view.brokers, view.usage_weights
    learned, fleet = broker_columns(memory, brokers.names), fleet_values(memory)
    average, present = _owned_rates(view)
    counts = _sum_owned(view, view.bundles.counts.astype(np.float64))
    costs = view.costs or _first_costs(view, present)
    arrived, concerned = _expect_moves(view, average)
    settling = _note_changes(learned, concerned)

    idle, rows = costs.idle_points(), slice(None)
    by_average, by_report = (
        idle + costs.points_at(rows, figures_of(rates, counts)) for rates in (average, present)
    )
    offset = learned[:, OFFSET]
    burst = _score(by_report + offset, weights) - _score(by_average + offset, weights)
    belief, traffic_error = _believe(learned, fleet, burst, settling)
    beyond = np.where(brokers.measured, brokers.percents - by_report, 0.0)
    cost_error = _follow(learned, fleet, beyond, settling, weights)
    learned[:, ROUNDS] += 1

    traffic = arrived + belief[:, None] * (present - average)
    by_traffic = costs.points_at(rows, figures_of(traffic, counts))
    points = idle + by_traffic + learned[:, OFFSET]
    points = np.where(brokers.measured, np.maximum(points, 0.0), 0.0)
    return Levels(
        points=points,
        score=_score(points, weights),
        error=np.hypot(traffic_error, cost_error),
        noise_points=math.hypot(
            math.sqrt(fleet[TRAFFIC.noise][0]), float(_largest(np.sqrt(fleet[COST.noise]), weights))
        ),
        costs=costs,
        is_loaded=by_traffic > 0,
        belief=belief,
        memory=remember(memory, brokers.names, learned, fleet),
    )


def _note_changes(learned: Floats, concerned: Bools) -> Bools:
    """Brokers whose reports do not show the present, (n,)."""
    learned[:, SETTLING] = np.where(concerned, SETTLING_ROUNDS + 1, np.maximum(learned[:, SETTLING] - 1, 0))
    settling: Bools = learned[:, SETTLING] > 0
    return settling


def _believe(learned: Floats, fleet: Floats, burst: Floats, settling: Bools) -> tuple[Floats, Floats]:
    """How far the present traffic is believed, (n,), and the standard error that is left, (n,)."""
    noise = _noise_of(learned, fleet, TRAFFIC)[:, 0]
    run = _count_run(learned, TRAFFIC, burst[:, None], noise[:, None], settling)[:, 0]
    lasts = _lasting_share(fleet, TRAFFIC)[0]
    belief = np.where(np.abs(run) >= LASTING_ROUNDS, 1.0, _gain(noise))
    limited = BEYOND_NOISES * noise / np.maximum(np.abs(burst), BEYOND_NOISES * noise)
    belief = np.where(np.abs(run) <= 1, belief * limited, belief)
    belief = np.where(settling, 0.0, belief)
    error = noise * (belief + (1.0 - belief) * _averaged_share(1.0 / AVERAGED_ROUNDS, lasts))
    _learn_noise(learned, fleet, TRAFFIC, burst[:, None], settling)
    return belief, error * np.sqrt(_unknown(learned))


def _follow(learned: Floats, fleet: Floats, beyond: Floats, settling: Bools, weights: Floats) -> Floats:
    """Move the offsets towards what usage shows beyond the cost of traffic; returns the standard error that is left, (n,)."""
    noise = _noise_of(learned, fleet, COST)
    before = learned[:, OFFSET]
    new = beyond - before
    run = _count_run(learned, COST, new, noise, settling)
    gain = np.maximum(_gain(noise), 1.0 / (learned[:, ROUNDS, None] + 1.0))
    gain = np.where(np.abs(run) >= LASTING_ROUNDS, 1.0, gain)
    most = np.where(np.abs(run) <= 1, BEYOND_NOISES * noise, np.inf)
    step = gain * np.clip(new, -most, most)
    learned[:, OFFSET] = np.where(settling[:, None], before, before + step)
    _learn_noise(learned, fleet, COST, new, settling)
    error = noise * _averaged_share(gain, _lasting_share(fleet, COST))
    return _largest(error, weights) * np.sqrt(_unknown(learned))


def _gain(noise: Floats) -> Floats:
    found: Floats = MOST_GAIN / np.maximum(noise / QUIET_POINTS, 1.0) ** 2
    return found


def _unknown(learned: Floats) -> Floats:
    found: Floats = 1.0 + UNKNOWN_ROUNDS / (learned[:, ROUNDS] + 1.0)
    return found


def _count_run(learned: Floats, kind: Residual, found: Floats, noise: Floats, settling: Bools) -> Floats:
    """For how many rounds a residual has been beyond noise, (n, columns), negative below; counted in place."""
    run = learned[:, kind.run]
    side = np.sign(found) * (np.abs(found) > BEYOND_NOISES * noise)
    counted = np.where(side == 0, 0.0, np.where(side == np.sign(run), run + side, side))
    counted = np.where(settling[:, None], run, np.clip(counted, -LASTING_ROUNDS, LASTING_ROUNDS))
    learned[:, kind.run] = counted
    return counted


def _noise_of(learned: Floats, fleet: Floats, kind: Residual) -> Floats:
    """Noise of each broker as the rounds before show it, (n, columns): its own or the group's, whichever is larger."""
    if not fleet[kind.noise].any():
        fleet[kind.noise] = FIRST_NOISE_POINTS**2
        fleet[kind.together] = FIRST_LASTING * FIRST_NOISE_POINTS**2
    noise: Floats = np.sqrt(np.maximum(fleet[kind.noise], learned[:, kind.variance]))
    return noise


def _learn_noise(learned: Floats, fleet: Floats, kind: Residual, found: Floats, settling: Bools) -> None:
    """Learn from this round's residuals, in place.

    The group's noise is a median, so that a broker that stands out does not count. A broker's own noise is a mean, so that it does,
    but of the differences from one round to the next: a level that has changed is no noise.
    """
    counts = ~settling & (learned[:, ROUNDS] > 1)
    last = learned[:, kind.last].copy()
    learned[:, kind.last] = np.where(settling[:, None], last, found)
    if not counts.any():
        return
    found, last = found[counts], last[counts]
    steps = found - last
    step = _MEDIAN_TO_DEVIATION * np.median(np.abs(steps), axis=0)
    scale = np.minimum(
        _MEDIAN_TO_DEVIATION * np.median(np.abs(found - np.median(found, axis=0)), axis=0), 2.0 * step
    )
    scale = np.maximum(scale, step / np.sqrt(2.0))
    usual = 2.5 * np.sqrt(fleet[kind.noise])
    products = np.clip(found, -usual, usual) * np.clip(last, -usual, usual)
    together = np.cumsum(products, axis=0)[-1] / len(products)
    rounds = fleet[kind.rounds] + 1.0
    fleet[kind.rounds] = rounds
    kept = np.minimum(NOISE_FADES, 1.0 - 1.0 / (rounds + FIRST_NOISE_ROUNDS))
    fleet[kind.noise] = np.maximum(kept * fleet[kind.noise] + (1 - kept) * scale**2, LEAST_NOISE_POINTS**2)
    fleet[kind.together] = kept * fleet[kind.together] + (1 - kept) * together
    most = BEYOND_NOISES * np.sqrt(np.maximum(fleet[kind.noise], learned[counts][:, kind.variance]))
    own = np.clip(steps, -most, most) ** 2 / (2.0 * np.maximum(1.0 - _lasting_share(fleet, kind), 0.25))
    learned[np.ix_(counts, np.arange(learned.shape[1])[kind.variance])] = (
        NOISE_FADES * learned[counts][:, kind.variance] + (1.0 - NOISE_FADES) * own
    )


def _lasting_share(fleet: Floats, kind: Residual) -> Floats:
    """Which share of a round's noise is still there in the next one, (columns,)."""
    found: Floats = np.clip(fleet[kind.together] / fleet[kind.noise], 0.0, MOST_LASTING)
    return found


def _averaged_share(weight: Floats | float, lasts: Floats | float) -> Floats:
    """How much of a noise that lasts some rounds is left, as a share of it, in an average to which each round adds with this weight."""
    kept = (1.0 - weight) * lasts
    share: Floats = np.sqrt(weight / (2.0 - weight) * (1.0 + kept) / (1.0 - kept))
    return share


def _score(points: Floats, weights: Floats) -> Floats:
    found: Floats = (points * weights).max(axis=-1)
    return found


def _largest(errors: Floats, weights: Floats) -> Floats:
    found: Floats = np.where(weights > 0, errors * weights, 0.0).max(axis=-1)
    return found


def _owned_rates(view: RoundView) -> tuple[Floats, Floats]:
    """Running averages and present traffic of each broker's bundles, (n, 4) each."""
    rows = np.arange(len(view.bundles))
    return _sum_owned(view, view.bundles.rates), _sum_owned(view, _present_rates(view, rows))


def _sum_owned(view: RoundView, column: Floats) -> Floats:
    """Sums over each broker's bundles, (n, ...), added one after the other, so that they are the same on every processor."""
    starts = view.bundles.starts
    found = np.zeros((len(view.brokers), *column.shape[1:]))
    has_some = np.diff(starts) > 0
    if has_some.any():
        found[has_some] = np.add.reduceat(column, starts[:-1][has_some], axis=0)
    return found


def _present_rates(view: RoundView, rows: Ints) -> Floats:
    """Traffic of bundles in this round alone, (k, 4); averages where only these are known."""
    return view.bundles.rates[rows] if view.present_rates is None else view.present_rates(rows)


def _first_costs(view: RoundView, present: Floats) -> Costs:
    brokers = view.brokers
    return learn(
        CostMemory(), brokers.names, percents=brokers.percents, limits=brokers.limits, rates=present
    )[1]


def _expect_moves(view: RoundView, rates: Floats) -> tuple[Floats, Bools]:
    """Traffic of each broker once everything in flight has arrived, (n, 4), and which brokers it concerns, (n,).

    A bundle whose destination Pulsar chooses is counted where it still is.
    """
    after, concerned = rates.copy(), np.zeros(len(rates), dtype=np.bool_)
    moves = view.in_flight()
    row_of = {name: row for row, name in enumerate(view.brokers.names)} if moves else {}
    for move in moves:
        source, destination = row_of.get(move.source), row_of.get(move.destination or "")
        for broker in (source, destination):
            if broker is not None:
                concerned[broker] = True
        if destination is None:
            continue
        bundle = None if source is None else _find_bundle(view, source, move.bundle)
        if bundle is not None and source is not None:
            after[source] = np.maximum(after[source] - view.bundles.rates[bundle], 0.0)
            after[destination] += view.bundles.rates[bundle]
        elif move.traffic is not None:  # it has left its source, and its destination has not reported since
            after[destination] += np.array(move.traffic).repeat(2) / 2
    return after, concerned


def _find_bundle(view: RoundView, broker: int, name: str) -> int | None:
    """Row of a broker's bundle; None where it is not there."""
    rows = view.bundles.rows_of(broker)
    row = bisect_left(view.bundles.names, name, rows.start, rows.stop)
    return row if row < rows.stop and view.bundles.names[row] == name else None
