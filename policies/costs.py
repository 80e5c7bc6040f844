"""What traffic costs brokers: the one model that the fleet planner, the shadow of a dry-run, promises and the backtest share.

Each resource by itself. What a broker carries (messages, bytes, topics, sessions) is exact. Bandwidth and CPU follow a rule of the
fleet: how much of the resource two figures of traffic take, fitted to all brokers and the last rounds. The rule of bandwidth begins at
one byte for one byte, that of CPU at messages and bytes taking half each. A broker's own factor says how far it is from the rule; it
is close to 1 while the broker has had little traffic. Direct memory follows caches, so no traffic explains it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.usage import REPORTED_COUNT, RESOURCES

CPU, BANDWIDTH_IN, BANDWIDTH_OUT, DIRECT_MEMORY = range(REPORTED_COUNT)
LEARNED_COUNT: Final = DIRECT_MEMORY
"""How many resources have costs that are learned, the first ones."""
FIGURES_COUNT: Final = 2
IDLE_CPU_POINTS = 3.0
"""CPU of a broker without traffic, in percent; the rule explains what is measured above it."""
KBIT_PER_BYTE = 0.008
"""Brokers report bandwidth in Kbit/s."""
RULE_FADES = 0.97
"""Share of the fleet's sums that is kept each round: the rule is that of the last half hour."""
FACTOR_FADES = 0.9
"""The same for a broker's own factor: its costs are those of the last ten rounds."""
SATURATED_POINTS, SATURATED_WEIGHT = 80.0, 0.1
"""Usage above which more traffic shows only in part, and its weight: it says little about costs."""
LEAST_FACTOR, MOST_FACTOR = 0.2, 5.0
"""How far a broker may be from the fleet's rule."""
UNLIKE_RATIO = 0.3
"""Standard deviation of the factors of brokers about which nothing is known."""
MOST_SURPRISE_POINTS = 10.0
"""How far a report counts beyond what was known, two and a half times the usual noise: what goes beyond is a spike for now."""
MOST_TIMES = 2.0
"""How many times what the rule explains a usage teaches the rule, beyond that surprise: a false one hardly does, and what traffic takes
from now on is learned in half an hour."""
MUCH_RATIO = 0.1
"""Share of a broker's messages or bytes from which on a part of them is much."""
_RIDGE = 0.3
"""Weight of what is assumed of the rule, against what a round says."""
_TRUST_POINTS = 10.0
"""Points of usage that the rule has to explain in one round before a broker's own factor counts as much as the fleet's: about the
error of a report divided by the share by which like machines differ."""
_DIGITS = 9
"""Decimal places that are kept: what differs beyond them between processors is not remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class CostMemory:
    """What was learned about the fleet and about each broker."""

    sums: Floats = field(default_factory=lambda: np.zeros((LEARNED_COUNT, 5)))
    """Fading sums of the products of two figures and the usage, (learned resources, 5)."""
    names: Sequence[str] = ()
    """Brokers of the rows below."""
    factors: Floats = field(default_factory=lambda: np.zeros((0, 2 * LEARNED_COUNT)))
    """Fading sums, in squares of points, of what the rule explains times the usage, then times itself, (brokers, 2 x learned)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """How much of each resource the traffic of n brokers takes."""

    limits: Floats
    """How much of each resource a broker has, (n, resources); 0 or less: not measured."""
    rule: Floats
    """How much one unit of each figure takes in the fleet, (resources, 2)."""
    factor: Floats
    """How many times as much it takes at a broker, (n, resources)."""
    factor_error: Floats
    """How uncertain the factor is, as a share of it, (n, resources)."""

    def amounts_at(self, brokers: Ints | slice, figures: Floats) -> Floats:
        """How much of each resource traffic takes at a broker each, (k, resources), from (k, resources, 2)."""
        return self.factor[brokers] * explain(figures, self.rule)

    def points_at(self, brokers: Ints | slice, figures: Floats) -> Floats:
        """The same in percent of the limits; 0 where a resource is not measured."""
        return percent_of(self.amounts_at(brokers, figures), self.limits[brokers])

    def idle_points(self) -> Floats:
        """Percent of each resource that brokers use without traffic, (n, resources)."""
        points = np.zeros_like(self.limits)
        points[:, CPU] = np.where(self.limits[:, CPU] > 0, IDLE_CPU_POINTS, 0.0)
        return points

    def part(self, rows: Ints) -> "Costs":
        """The costs of some brokers."""
        return replace(
            self, limits=self.limits[rows], factor=self.factor[rows], factor_error=self.factor_error[rows]
        )


def figures_of(rates: Floats, counts: Floats | Ints | None = None) -> Floats:
    """The two figures that explain each resource, (k, resources, 2), of rates, (k, 4), and counts of topics and sessions, (k, 2).

    Sums of at most two values, so that they are the same on every processor.
    """
    figures = np.zeros((len(rates), len(RESOURCES), FIGURES_COUNT))
    messages, volume = rates[:, 0] + rates[:, 1], rates[:, 2] + rates[:, 3]
    figures[:, CPU, 0], figures[:, CPU, 1] = messages, volume
    figures[:, BANDWIDTH_IN] = rates[:, 2:]
    figures[:, BANDWIDTH_OUT] = rates[:, :1:-1]
    figures[:, REPORTED_COUNT, 0], figures[:, REPORTED_COUNT + 1, 0] = messages, volume
    if counts is not None:
        figures[:, REPORTED_COUNT + 2 :, 0] = counts
    return figures


def explain(figures: Floats, rule: Floats) -> Floats:
    """What traffic takes by the fleet's rule, (k, resources), from (k, resources, 2)."""
    return figures[..., 0] * rule[:, 0] + figures[..., 1] * rule[:, 1]


def percent_of(amounts: Floats, limits: Floats) -> Floats:
    """Amounts in percent of limits; 0 where a resource is not measured."""
    measured = limits > 0
    return np.where(measured, 100.0 * amounts / np.where(measured, limits, 1.0), 0.0)


def is_much(part: Floats, whole: Floats) -> Bools:
    """Whether a part of each broker's traffic is much of its messages or its bytes, (n,); both are rates as bundles have them, (n, 4)."""
    messages, its_bytes = slice(0, 2), slice(2, 4)
    sums = [(part[:, each].sum(axis=1), whole[:, each].sum(axis=1)) for each in (messages, its_bytes)]
    much: Bools = np.any([(some > 0) & (some >= MUCH_RATIO * all_) for some, all_ in sums], axis=0)
    return much


def learn(
    memory: CostMemory,
    names: Sequence[str],
    *,
    percents: Floats,
    limits: Floats,
    rates: Floats,
    counts: Bools | None = None,
    kept: Sequence[str] | None = None,
) -> tuple[CostMemory, Costs]:
    """Learn from a round's reports, and give the costs of its brokers: as they were known before, of a new broker as they are now.

    ``percents`` and ``limits`` are (n, resources), ``rates`` the traffic of the same reports, (n, 4). Brokers outside ``counts``,
    (n,), whose reports do not show the present, teach nothing. ``kept`` are the brokers to be remembered; None: these.
    """
    measured = (limits > 0)[:, :LEARNED_COUNT]
    if counts is not None:
        measured &= counts[:, None]
    figures = figures_of(rates)
    share = percents[:, :LEARNED_COUNT] / 100.0
    share[:, CPU] = np.maximum(share[:, CPU] - IDLE_CPU_POINTS / 100.0, 0.0)
    weight = _credible_share(memory.sums, figures[:, :LEARNED_COUNT])
    used = np.minimum(
        share * limits[:, :LEARNED_COUNT],
        _most_used(memory.sums, figures[:, :LEARNED_COUNT], limits[:, :LEARNED_COUNT]),
    )
    sums = _add_round(memory.sums, figures[:, :LEARNED_COUNT] * weight[:, :, None], used * weight, measured)
    measured &= weight == 1.0
    rule = _rule_of(sums)
    before = _rows_of(memory, names)
    learned = before.copy()
    explained = percent_of(
        explain(figures[:, :LEARNED_COUNT], rule[:LEARNED_COUNT]), limits[:, :LEARNED_COUNT]
    )
    expected = _costs_of(limits, rule, learned).factor[:, :LEARNED_COUNT] * explained
    points = np.clip(100.0 * share, expected - MOST_SURPRISE_POINTS, expected + MOST_SURPRISE_POINTS)
    weight = np.where(points > SATURATED_POINTS, SATURATED_WEIGHT, 1.0)
    for columns, product in (
        (slice(LEARNED_COUNT), points * explained),
        (slice(LEARNED_COUNT, None), explained**2),
    ):
        now = learned[:, columns]
        learned[:, columns] = np.where(measured, FACTOR_FADES * now + weight * product, now)
    learned = np.round(learned, _DIGITS)
    remembered = _remember(memory, sums, names, learned, names if kept is None else kept)
    is_new: Bools = ~np.any(before[:, LEARNED_COUNT:], axis=1)
    return remembered, _costs_of(limits, rule, np.where(is_new[:, None], learned, before))


def _costs_of(limits: Floats, rule: Floats, learned: Floats) -> Costs:
    product, square = learned[:, :LEARNED_COUNT], learned[:, LEARNED_COUNT:]
    factor, error = np.ones_like(limits), np.zeros_like(limits)
    trusted = _TRUST_POINTS**2 / (square + _TRUST_POINTS**2)
    factor[:, :LEARNED_COUNT] = np.clip(
        (product + _TRUST_POINTS**2) / (square + _TRUST_POINTS**2), LEAST_FACTOR, MOST_FACTOR
    )
    error[:, :LEARNED_COUNT] = UNLIKE_RATIO * np.sqrt(trusted)
    return Costs(limits=limits, rule=rule, factor=factor, factor_error=error)


def _credible_share(sums: Floats, figures: Floats) -> Floats:
    """Share by which each report counts in what is learned, (n, learned); 1 but for one out of all proportion.

    No report adds more than all of the last half hour's did: a false one is soon forgotten, a load that grew is learned in some rounds.
    """
    known, now = sums[:, [0, 2]], (1.0 - RULE_FADES) * figures**2
    most = np.divide(known, now, out=np.ones_like(now), where=(known > 0) & (now > known))
    share: Floats = np.sqrt(most.min(axis=2))
    return share


def _most_used(sums: Floats, figures: Floats, limits: Floats) -> Floats:
    """How much of each resource a report counts with in the fleet's rule at most, (n, learned); of a rule that is not known yet, without end."""
    explained = explain(figures, _rule_of(sums)[:LEARNED_COUNT])
    is_known = (sums[:, 0] > 0) | (sums[:, 2] > 0)
    return np.where(is_known, MOST_TIMES * explained + MOST_SURPRISE_POINTS / 100.0 * limits, np.inf)


def _add_round(sums: Floats, figures: Floats, used: Floats, measured: Bools) -> Floats:
    first, second = (np.where(measured, figures[:, :, at], 0.0) for at in range(FIGURES_COUNT))
    use = np.where(measured, used, 0.0)
    new_sums = RULE_FADES * sums
    for column, product in enumerate(
        (first * first, first * second, second * second, first * use, second * use)
    ):  # added one by one, so that a sum is the same on every processor
        new_sums[:, column] += (1.0 - RULE_FADES) * np.cumsum(product, axis=0)[-1]
    return new_sums


def _rule_of(sums: Floats) -> Floats:
    """The fleet's rule, (resources, 2)."""
    rule = np.zeros((len(RESOURCES), FIGURES_COUNT))
    rule[REPORTED_COUNT:, 0] = 1.0
    xx, xz, zz, xy, zy = sums[CPU].tolist()
    half = _half_each(xx, xz, zz, xy, zy)
    rule[CPU] = _fit(xx, xz, zz, xy, zy, half)
    for resource in (BANDWIDTH_IN, BANDWIDTH_OUT):
        xx, xz, zz, xy, zy = sums[resource].tolist()
        rule[resource] = _fit(xx, xz, zz, xy, zy, (KBIT_PER_BYTE, 0.0))
    return rule


def _half_each(xx: float, xz: float, zz: float, xy: float, zy: float) -> tuple[float, float]:
    """Factors by which both figures explain the same part of the usage."""
    if xx <= 0 or zz <= 0:
        return (xy / xx if xx > 0 else 0.0, zy / zz if zz > 0 else 0.0)
    size = (xx**0.5, zz**0.5)
    half = (xy / size[0] + zy / size[1]) / 2 / (1 + xz / (size[0] * size[1]))
    return half / size[0], half / size[1]


def _fit(
    xx: float, xz: float, zz: float, xy: float, zy: float, assumed: tuple[float, float]
) -> tuple[float, float]:
    """Least squares of two figures without a constant; neither result is below 0.

    What is assumed draws the share of each figure, not what both explain together: that is measured. The figures are scaled to equal
    size first, so that neither unit weighs more.
    """
    if xx <= 0 or zz <= 0:
        return (xy / xx if xx > 0 else assumed[0], zy / zz if zz > 0 else assumed[1])
    size = (xx**0.5, zz**0.5)
    between, first, second = xz / (size[0] * size[1]), xy / size[0], zy / size[1]
    a, b = 1 + _RIDGE, between
    right = (first + _RIDGE * assumed[0] * size[0], second + _RIDGE * assumed[1] * size[1])
    whole = a * a - b * b
    one, two = (a * right[0] - b * right[1]) / whole, (a * right[1] - b * right[0]) / whole
    if one < 0:
        one, two = 0.0, max(0.0, right[1] / a)
    elif two < 0:
        one, two = max(0.0, right[0] / a), 0.0
    square = one * one + 2 * one * two * between + two * two
    scale = (one * first + two * second) / square if square > 0 else 1.0
    return scale * one / size[0], scale * two / size[1]


def _rows_of(memory: CostMemory, names: Sequence[str]) -> Floats:
    """What was learned about brokers, (n, 2 x learned); zeros for new ones."""
    if tuple(memory.names) == tuple(names):
        return memory.factors
    row_of = {name: row for row, name in enumerate(memory.names)}
    factors = np.zeros((len(names), 2 * LEARNED_COUNT))
    known = [(row, row_of[name]) for row, name in enumerate(names) if name in row_of]
    if known:
        factors[[row for row, _ in known]] = memory.factors[[row for _, row in known]]
    return factors


def _remember(
    memory: CostMemory, sums: Floats, names: Sequence[str], learned: Floats, kept: Sequence[str]
) -> CostMemory:
    """The next memory; brokers that did not report keep what was learned about them."""
    if tuple(names) == tuple(kept):
        return CostMemory(sums, tuple(names), learned)
    rows = _rows_of(memory, kept).copy()
    row_of = {name: row for row, name in enumerate(kept)}
    at = [(row_of[name], row) for row, name in enumerate(names) if name in row_of]
    if at:
        rows[[there for there, _ in at]] = learned[[row for _, row in at]]
    return CostMemory(sums, tuple(kept), rows)
