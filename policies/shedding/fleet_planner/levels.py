"""How much each broker is really used, and how sure that is.

A broker's level is what the running averages of its bundles' traffic cost there, and two offsets: what the present traffic costs beyond
these averages, and what its usage shows beyond the cost of the present traffic. Bundles that come or go, and those on their way, change
the level at once, because their averages go with them.

Both offsets follow what reports show, but not at once: traffic comes in bursts, and usage has errors and spikes. The noise of both is
measured, and the more there is, the less a single report counts. A difference beyond ``BEYOND_NOISES`` that lasts for
some rounds is no noise, and counts fully.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from struct import iter_unpack
from typing import Annotated, Final, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from policies.bounds import NotNegative, Ratio, check_bounds
from policies.columns import Bools, Floats, Ints, sum_runs
from policies.costs import SATURATED_POINTS, CostMemory, Costs, figures_of, is_much, learn
from policies.shedding.view import RoundView
from policies.usage import RESOURCES

GOAL_RATIO: Final = 0.5
"""Where a plan ends, as a share of the acceptable spread: half of it, so that the spread does not soon come back."""
MOST_PROMISES: Final = 10
"""How many of the last unloads are remembered with what became of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlannerSettings:
    """How far apart brokers may be, how sure it has to be, and how much may move."""

    acceptable_spread_points: NotNegative = 15.0
    """Percentage points between the most and the least used broker that need no action. A plan goes on to half of it, so
    that the spread does not soon come back. Not in Pulsar."""
    noise_multiple: NotNegative = 2.5
    """By how many times its uncertainty a spread has to be above the acceptable one, added up over the rounds in which it is. The
    uncertainty is computed from the measured noise: a large difference is acted on at once, one near the limit once it has lasted.
    A larger value acts less and later. Not in Pulsar."""
    min_gain_points: NotNegative = 0.5
    """Percentage points by which a plan as a whole has to lower one of its brokers; a single move may bring less, however small
    bundles are. Not in Pulsar."""
    max_moved_ratio: Ratio = 0.2
    """Share of the fleet's traffic that one round may move; every client of what moves reconnects. The first move of a round always
    goes, however much it carries: at 0 one move a round. Not in Pulsar."""
    failed_promises_ratio: Ratio = 0.6
    """Share of the last ``promises_count`` unloads. If so many have settled and brought less than half of what they
    promised, nothing is planned until an hour has passed or a person resumes the cluster. Not in Pulsar."""
    promises_count: Annotated[int, Ge(0), Le(MOST_PROMISES)] = 10
    """How many of the last unloads ``failed_promises_ratio`` looks at, at most 10; 0: it never stops a plan. Not in Pulsar."""

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def goal_points(self) -> float:
        """Spread at which a plan ends."""
        return GOAL_RATIO * self.acceptable_spread_points


_R = len(RESOURCES)


class Residual(NamedTuple):
    """Where one of the two differences between reports and levels is remembered, by resource: columns of a broker, then values of the group."""

    offset: slice
    """What the level has of it."""
    last: slice
    """What the last report showed."""
    variance: slice
    run: slice
    """For how many rounds it has been beyond noise on one side."""
    noise: slice
    """Variance of the group."""
    steps: slice
    """Half the variance of what differs from one round to the next: what of the noise does not last."""
    rounds: int
    """Rounds that this was learned from."""


def _residual(column: int, value: int) -> Residual:
    offset, last, variance, run = (slice(column + at * _R, column + (at + 1) * _R) for at in range(4))
    noise, steps = (slice(value + at * _R, value + (at + 1) * _R) for at in range(2))
    return Residual(offset, last, variance, run, noise, steps, value + 2 * _R)


ROUNDS, SETTLING, EVIDENCE, WAITED = range(4)
"""Columns of a broker: rounds it was seen, rounds until its reports show the present again, the evidence that it is above the coldest by
more than is acceptable, and rounds in a row in which absent bundles were waited for."""
TRAFFIC = _residual(4, 0)
"""What the present traffic costs beyond its running averages, in points."""
COST = _residual(4 + 4 * _R, 1 + 2 * _R)
"""What usage shows beyond the cost of the present traffic, in points."""
BROKER_COLUMNS = 4 + 8 * _R
UNFINISHED = 2 + 4 * _R
"""Value of the group: 1 while the last plan was cut short."""
FLEET_VALUES = UNFINISHED + 1
_VALUE = np.dtype("<f8")
_ROW_BYTES = BROKER_COLUMNS * _VALUE.itemsize
_DIGITS = 9
"""Decimal places that are kept: what differs beyond them between processors is not remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlannerMemory:
    """What was learned about each broker, and about the group."""

    learned: Mapping[str, bytes] = field(default_factory=dict)
    """By broker, ``BROKER_COLUMNS`` values of eight bytes each, little-endian: lists of floats would take longer than a calm round."""
    fleet: Sequence[float] = ()
    """``FLEET_VALUES`` values; empty at the beginning."""


def broker_columns(memory: FleetPlannerMemory, names: Sequence[str]) -> Floats:
    """A row for each broker, (n, columns); zeros for one that is new or was remembered in another layout."""
    nothing = bytes(_ROW_BYTES)
    rows = [memory.learned.get(name, nothing) for name in names]
    if set(map(len, rows)) != {_ROW_BYTES}:
        rows = [row if len(row) == _ROW_BYTES else nothing for row in rows]
    return np.frombuffer(b"".join(rows), dtype=_VALUE).reshape(-1, BROKER_COLUMNS).astype(np.float64)


def fleet_values(memory: FleetPlannerMemory) -> Floats:
    """The group's values, (values,)."""
    if len(memory.fleet) != FLEET_VALUES:
        return np.zeros(FLEET_VALUES)
    return np.array(memory.fleet, dtype=np.float64)


def remember(
    memory: FleetPlannerMemory, names: Sequence[str], columns: Floats, fleet: Floats
) -> FleetPlannerMemory:
    """The next memory; brokers that did not report keep what was learned about them."""
    values = np.round(columns, _DIGITS).astype(_VALUE).tobytes()
    rows = chain.from_iterable(iter_unpack(f"{_ROW_BYTES}s", values))
    learned = {**memory.learned, **dict(zip(names, rows, strict=True))}
    return FleetPlannerMemory(learned=learned, fleet=np.round(fleet, _DIGITS).tolist())


def note_unfinished(memory: FleetPlannerMemory) -> FleetPlannerMemory:
    """The memory of a plan that goes on in the next round."""
    fleet = fleet_values(memory)
    fleet[UNFINISHED] = True
    return replace(memory, fleet=fleet.tolist())


SETTLING_ROUNDS = 2
"""Rounds after a move, whoever made it, whose reports still show usage of the past, or clients that reconnect. Pulsar measures usage over
a minute, once a minute, and lists bundles at once."""
MOST_GAIN, QUIET_POINTS = 0.5, 2.0
"""Share of a report's difference that counts at once where noise is at most so many points; with more noise it is less by the square, as
the gain of a Kalman filter whose level wanders little."""
BEYOND_NOISES = 3.0
"""A difference of so many noises is hardly ever noise; a first one counts up to that much, for it may be a spike."""
TRAFFIC_LASTS_ROUNDS, COST_LASTS_ROUNDS = 3, 4
"""Rounds after which such a difference on one side counts fully: traffic is counted, usage has spikes."""
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
LEAST_LOAD_RATIO = 0.05
"""Share of what a broker's bundles load most up to which another resource does not matter: a broker that receives them is loaded more by
the former, even if it has a tenth of the latter."""
MOST_WAITED_ROUNDS = 3
"""For how many rounds in a row: by default so long a bundle is kept that nobody lists."""
HIDDEN_POINTS = 20.0
"""By how much the load of a broker above ``SATURATED_POINTS`` may be higher than what it shows."""
MOST_STEPS = 2.0
"""Most that the whole noise may be, as a multiple of what differs from round to round; three quarters of it then last into the next."""
MOST_GROWTH = 2.0
"""How many times the known noise a round counts at most: what is more is a change of the load of all brokers."""
_MEDIAN_TO_DEVIATION = 1.4826
"""Factor from the median of absolute deviations from the median to the standard deviation, for normal noise of many values."""
_FEW_VALUES = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.2, 1.14, 1.129, 1.107)
"""What that factor is to be multiplied by for so many values (Croux and Rousseeuw, *Time-efficient algorithms for two highly robust
estimators of scale*, 1992); for more it is n / (n - 0.8)."""


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
    """Resources with a weight that a broker measures and its bundles load noticeably, (n, resources)."""
    belief: Floats
    """How far each broker's bundles are taken to have their present traffic and not the running averages, (n,), 0 to 1."""
    is_clear: Bools
    """Brokers whose last reports neither contradict their level nor leave much out, (n,): it is not yet clear what is up with the others."""
    learned: Floats
    """What is remembered of each broker, (n, columns)."""
    fleet: Floats
    """What is remembered of the group, (values,)."""

    def rates(self, view: RoundView, rows: Ints, owners: Ints | int) -> Floats:
        """Traffic of bundle rows, (k, 4), each at the belief of its owner."""
        average = view.bundles.rates[rows]
        if view.present_rates is None:
            return average
        share = self.belief[owners] if isinstance(owners, int) else self.belief[owners][:, None]
        return average + share * (view.present_rates(rows) - average)

    def excess_points(self, view: RoundView, rows: Ints, owners: Ints, brokers: Ints) -> Floats:
        """What the traffic of bundles costs a broker each beyond the running averages, in points, (k, resources)."""
        excess = self.rates(view, rows, owners) - view.bundles.rates[rows]
        return self.costs.points_at(brokers, figures_of(excess))


def judge(view: RoundView, memory: FleetPlannerMemory) -> Levels:
    """Learn from a round's reports, and give each broker's level once the bundles in flight have arrived."""
    brokers, weights, everyone = view.brokers, view.usage_weights, slice(None)
    learned, fleet = broker_columns(memory, brokers.names), fleet_values(memory)
    average, present = _owned_rates(view)
    counts = _owned_counts(view)
    costs = view.costs or _first_costs(view, present)
    arrived, concerned = _expect_moves(view, average, counts)
    if view.moved_rates is not None:
        moved = (costs.points_at(everyone, figures_of(view.moved_rates)) * weights).max(axis=1)
        concerned |= moved > QUIET_POINTS
    learned[:, SETTLING] = np.where(concerned, SETTLING_ROUNDS + 1, np.maximum(learned[:, SETTLING] - 1, 0))
    settling: Bools = learned[:, SETTLING] > 0

    idle = costs.idle_points()
    by_average, by_report, by_arrival = (
        costs.points_at(everyone, figures)
        for figures in (figures_of(average, counts), figures_of(present, counts), arrived)
    )
    beyond = np.where(brokers.measured, brokers.percents - idle - by_report, 0.0)
    hidden = np.clip(learned[:, COST.offset], beyond, beyond + HIDDEN_POINTS)
    beyond = np.where(brokers.percents >= SATURATED_POINTS, hidden, beyond)
    learned[:, TRAFFIC.offset] *= 1.0 - 1.0 / AVERAGED_ROUNDS  # the averages have taken up that much since
    # what left with its bundles, whoever moved them, does not burst here any more
    learned[:, TRAFFIC.offset] = np.clip(learned[:, TRAFFIC.offset], -by_arrival, by_arrival)
    burst = by_report - by_average
    waits = _waits(view, average, learned)
    errors = (
        _follow(learned, fleet, TRAFFIC, burst, settling[:, None]),
        # usage has fallen already where absent bundles are gone, and their averages are to go, too
        _follow(learned, fleet, COST, beyond, (settling | waits)[:, None]),
    )
    learned[:, ROUNDS] += 1

    points = idle + by_arrival + learned[:, TRAFFIC.offset] + learned[:, COST.offset]
    points = np.where(brokers.measured, np.maximum(points, 0.0), 0.0)
    loads = by_arrival * weights
    largest = np.argmax(np.where(weights > 0, points * weights, -1.0), axis=1)[:, None]
    noise = np.sqrt(fleet[TRAFFIC.noise] + fleet[COST.noise])
    is_clear = ~waits
    for kind in (TRAFFIC, COST):
        run = np.abs(np.take_along_axis(learned[:, kind.run], largest, axis=1)[:, 0])
        is_clear &= (run == 0) | (run >= _lasting_rounds(kind))
    return Levels(
        points=points,
        score=(points * weights).max(axis=1),
        error=np.take_along_axis(np.hypot(*errors) * weights, largest, axis=1)[:, 0],
        noise_points=float(np.median(noise[largest])),
        costs=costs,
        is_loaded=loads > LEAST_LOAD_RATIO * loads.max(axis=1, keepdims=True),
        belief=_belief(learned, burst, largest),
        is_clear=is_clear,
        learned=learned,
        fleet=fleet,
    )


def _waits(view: RoundView, average: Floats, learned: Floats) -> Bools:
    """Brokers whose absent bundles are waited for, (n,), as they carry much; the rounds are counted in place.

    Without them a plan would move several smaller ones.
    """
    waits = np.zeros(len(average), dtype=np.bool_)
    if view.absent is not None:
        absent = sum_runs(view.bundles.starts, np.where(view.absent[:, None], view.bundles.rates, 0.0))
        waits = is_much(absent, average)
    waits &= learned[:, WAITED] < MOST_WAITED_ROUNDS
    learned[:, WAITED] = np.where(waits, learned[:, WAITED] + 1.0, 0.0)
    return waits


def _belief(learned: Floats, burst: Floats, largest: Ints) -> Floats:
    """How much of the present burst is in the level, (n,)."""
    offset, now = (
        np.take_along_axis(column, largest, axis=1)[:, 0] for column in (learned[:, TRAFFIC.offset], burst)
    )
    share: Floats = np.divide(offset, now, out=np.zeros_like(now), where=np.abs(now) > LEAST_NOISE_POINTS)
    return np.clip(share, 0.0, 1.0)


def _follow(learned: Floats, fleet: Floats, kind: Residual, shown: Floats, is_false: Bools) -> Floats:
    """Move the offsets towards what reports show, in place; returns the standard error that is left, (n, resources).

    Reports that show the past (``is_false``, (n, 1)) move nothing.
    """
    noise, before = _noise_of(learned, fleet, kind), learned[:, kind.offset].copy()
    new = shown - before
    run = _count_run(learned, kind, new, noise, is_false)
    gain = np.maximum(_gain(noise), 1.0 / (learned[:, ROUNDS, None] + 1.0))
    gain = np.where(np.abs(run) >= _lasting_rounds(kind), 1.0, gain)
    most = np.where(np.abs(run) <= 1, BEYOND_NOISES * noise, np.inf)
    learned[:, kind.offset] = np.where(is_false, before, before + gain * np.clip(new, -most, most))
    _learn_noise(learned, fleet, kind, shown, new, is_false)
    unknown = 1.0 + UNKNOWN_ROUNDS / (learned[:, ROUNDS, None] + 1.0)
    weight = gain if kind is COST else gain + (1.0 - gain) / AVERAGED_ROUNDS
    return noise * _averaged_share(weight, _lasting_share(fleet, kind)) * np.sqrt(unknown)


def carry(
    memory: FleetPlannerMemory,
    brokers: tuple[Sequence[str], Sequence[str]],
    excess_points: tuple[Floats, Floats],
    happens: Bools,
) -> FleetPlannerMemory:
    """The memory once bundles have moved: what their traffic costs beyond its averages leaves the source and comes to the destination."""
    names = sorted({name for side in brokers for name in side})
    row_of = {name: row for row, name in enumerate(names)}
    learned = broker_columns(memory, names)
    for side, points, sign in zip(brokers, excess_points, (-1.0, 1.0), strict=True):
        rows = np.array([row_of[name] for name in side], dtype=np.int64)
        np.add.at(learned[:, TRAFFIC.offset], rows[happens], sign * points[happens])
    return remember(memory, names, learned, fleet_values(memory))


def _lasting_rounds(kind: Residual) -> int:
    return COST_LASTS_ROUNDS if kind is COST else TRAFFIC_LASTS_ROUNDS


def _gain(noise: Floats) -> Floats:
    return MOST_GAIN / np.maximum(noise / QUIET_POINTS, 1.0) ** 2


def _count_run(learned: Floats, kind: Residual, new: Floats, noise: Floats, is_false: Bools) -> Floats:
    """For how many rounds reports have been beyond noise, (n, resources), negative below; counted in place."""
    run = learned[:, kind.run].copy()
    side = np.sign(new) * (np.abs(new) > BEYOND_NOISES * noise)
    counted = np.where(side == 0, 0.0, np.where(side == np.sign(run), run + side, side))
    counted = np.where(is_false, 0.0, np.clip(counted, -COST_LASTS_ROUNDS, COST_LASTS_ROUNDS))
    learned[:, kind.run] = counted
    return counted


def _noise_of(learned: Floats, fleet: Floats, kind: Residual) -> Floats:
    """Noise of each broker as the rounds before show it, (n, resources): its own or the group's, whichever is larger."""
    if not fleet[kind.noise].any():
        fleet[kind.noise] = FIRST_NOISE_POINTS**2
        fleet[kind.steps] = (1.0 - FIRST_LASTING) * FIRST_NOISE_POINTS**2
    return np.sqrt(np.maximum(fleet[kind.noise], learned[:, kind.variance]))


def _learn_noise(
    learned: Floats, fleet: Floats, kind: Residual, shown: Floats, new: Floats, is_false: Bools
) -> None:
    """Learn from this round's reports, in place.

    What all brokers show at once, such as the traffic of a morning, is no noise: their differences do not change with it. The group's
    noise is a median, so that a broker that stands out does not count, and at most ``MOST_STEPS`` of what differs from one round to the
    next: what lasts longer is a change of the load. A broker's own is a mean, so that it does count, but of these differences alone.
    """
    last, variance = learned[:, kind.last].copy(), learned[:, kind.variance].copy()
    learned[:, kind.last] = np.where(is_false, last, shown)
    counts = ~np.any(is_false, axis=1) & (learned[:, ROUNDS] > 1)
    if np.count_nonzero(counts) < 2:  # noqa: PLR2004  one broker differs from none
        return
    steps, beyond = (each - np.median(each, axis=0) for each in ((shown - last)[counts], new[counts]))
    step, whole = _deviation(steps) ** 2 / 2.0, _deviation(beyond) ** 2
    whole = np.clip(whole, step, MOST_STEPS**2 * step)
    fleet[kind.rounds] += 1.0
    kept = min(NOISE_FADES, 1.0 - 1.0 / (fleet[kind.rounds] + FIRST_NOISE_ROUNDS))
    for at, now in ((kind.noise, whole), (kind.steps, step)):
        fleet[at] = kept * fleet[at] + (1.0 - kept) * np.minimum(now, MOST_GROWTH**2 * fleet[at])
        fleet[at] = np.maximum(fleet[at], LEAST_NOISE_POINTS**2)
    most = BEYOND_NOISES * np.sqrt(np.maximum(fleet[kind.noise], variance[counts]))
    squares = np.clip(steps, -most, most) ** 2 / (2.0 * (1.0 - _lasting_share(fleet, kind)))
    variance[counts] = NOISE_FADES * variance[counts] + (1.0 - NOISE_FADES) * squares
    learned[:, kind.variance] = variance


def _deviation(apart: Floats) -> Floats:
    """Standard deviation of columns whose median is 0, (resources,)."""
    count = len(apart)
    few = _FEW_VALUES[count] if count < len(_FEW_VALUES) else count / (count - 0.8)
    deviation: Floats = _MEDIAN_TO_DEVIATION * few * np.median(np.abs(apart), axis=0)
    return deviation


def _lasting_share(fleet: Floats, kind: Residual) -> Floats:
    """Which share of a round's noise is still there in the next one, (resources,)."""
    return np.clip(1.0 - fleet[kind.steps] / fleet[kind.noise], 0.0, 1.0 - MOST_STEPS**-2)


def _averaged_share(weight: Floats | float, lasts: Floats | float) -> Floats:
    """How much of a noise that lasts some rounds is left, as a share of it, in an average to which each round adds with this weight."""
    kept = (1.0 - weight) * lasts
    return np.sqrt(weight / (2.0 - weight) * (1.0 + kept) / (1.0 - kept))


def _owned_rates(view: RoundView) -> tuple[Floats, Floats]:
    """Running averages and present traffic of each broker's bundles, (n, 4) each."""
    average = sum_runs(view.bundles.starts, view.bundles.rates)
    if view.present_rates is None:
        return average, average
    return average, sum_runs(view.bundles.starts, view.present_rates(np.arange(len(view.bundles))))


def _owned_counts(view: RoundView) -> Floats | None:
    """Topics and sessions of each broker, (n, 2); None where nobody declares how many it can carry."""
    if not (view.brokers.limits[:, -2:] > 0).any():
        return None
    return sum_runs(view.bundles.starts, view.bundles.counts.astype(np.float64))


def _first_costs(view: RoundView, present: Floats) -> Costs:
    brokers = view.brokers
    return learn(
        CostMemory(), brokers.names, percents=brokers.percents, limits=brokers.limits, rates=present
    )[1]


def _expect_moves(view: RoundView, rates: Floats, counts: Floats | None) -> tuple[Floats, Bools]:
    """Figures of each broker's traffic and counts once everything in flight has arrived, (n, resources, 2), and whom it concerns, (n,).

    A bundle whose destination Pulsar chooses is counted where it still is.
    """
    bundles, concerned = view.bundles, np.zeros(len(rates), dtype=np.bool_)
    moves = view.in_flight()
    if not moves:
        return figures_of(rates, counts), concerned
    after = np.column_stack([rates, np.zeros((len(rates), 2)) if counts is None else counts])
    row_of = {name: row for row, name in enumerate(view.brokers.names)}
    for move in moves:
        source, destination = row_of.get(move.source), row_of.get(move.destination or "")
        concerned[[row for row in (source, destination) if row is not None]] = True
        if destination is None:
            continue
        bundle = None if source is None else bundles.row_of(source, move.bundle)
        if bundle is not None:
            carried = np.concatenate([bundles.rates[bundle], bundles.counts[bundle]])
            after[source] = np.maximum(after[source] - carried, 0.0)
            after[destination] += carried
        elif move.traffic is not None and bundles.row_of(destination, move.bundle) is None:
            after[destination, :4] += (
                np.array(move.traffic).repeat(2) / 2
            )  # not reported since it left its source
    return figures_of(after[:, :4], None if counts is None else after[:, 4:]), concerned
