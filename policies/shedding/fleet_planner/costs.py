"""What traffic costs: one rule for the fleet, and for each broker and resource how far it is from that rule.

The fleet's rule says how much of a resource (core percent, Kbit/s) each of two figures of traffic takes; it is fitted to all brokers and
the last rounds. A broker's own factor is the ratio of its usage above idle to what the rule explains, over the last rounds; it is close
to 1 while the broker has had little traffic. So when a bundle moves, its usage moves along at once, at the costs of its new broker.
"""

from dataclasses import dataclass

import numpy as np

from policies.columns import Bools, Floats
from policies.shedding.fleet_planner.memory import COST_SUMS, PRODUCT, SQUARE
from policies.shedding.fleet_planner.traffic import CPU
from policies.shedding.view import BrokerTable
from policies.usage import RESOURCES

IDLE_CPU_POINTS = 3.0
"""CPU of a broker without traffic, in percent; the rule explains what is measured above it."""
FLEET_FADES = 0.97
"""Share of the fleet's sums that is kept each round."""
BROKER_FADES = 0.9
"""The same for a broker: its costs are those of the last ten rounds."""
WRONG_FADES = 0.5
SATURATED_POINTS, SATURATED_WEIGHT = 80.0, 0.1
"""Usage above which more traffic shows only in part, and its weight: it says little about costs."""
LEAST_FACTOR, MOST_FACTOR = 0.2, 5.0
"""How far a broker may be from the fleet's rule."""
_RIDGE = 0.3
"""Weight of the assumption that both figures explain half, against what a round says."""
UNLIKE_RATIO = 0.3
"""Standard deviation of the factors of brokers about which nothing is known."""
_TRUST_POINTS = 10.0
"""Points of usage that the rule has to explain in one round before a broker's own factor counts as much as the fleet's: about the
error of a report divided by the share by which like machines differ."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """How much of each resource a broker's traffic takes."""

    limit: Floats
    """How much of each resource a broker has, (n, resources)."""
    idle: Floats
    """How much of that it uses without traffic, (n, resources)."""
    used: Floats
    """How much it reported to use beyond that, (n, resources)."""
    rule: Floats
    """How much one unit of each figure takes in the fleet, (resources, 2)."""
    factor: Floats
    """How many times as much it takes at a broker, (n, resources)."""
    factor_error: Floats
    """How uncertain the factor is, as a share of it, (n, resources)."""
    measured: Bools
    """Whether each resource was measured, (n, resources)."""

    def points(self, figures: Floats) -> Floats:
        """Percent of each resource that brokers use with this traffic, (n, resources), from (n, resources, 2)."""
        return self._percent(self.idle + self.factor * explain(figures, self.rule), slice(None))

    def used_points(self) -> Floats:
        """Percent that brokers were reported to use beyond their idle part, (n, resources)."""
        return self._percent(self.used, slice(None))

    def explained_points(self, figures: Floats) -> Floats:
        """Percent that the traffic takes by the fleet's rule, without idle usage and factors, (n, resources)."""
        return self._percent(explain(figures, self.rule), slice(None))

    def points_at(self, broker: int, figures: Floats) -> Floats:
        """Percent that traffic takes at one broker beside its other traffic, (k, resources), from (k, resources, 2)."""
        return self._percent(self.factor[broker] * explain(figures, self.rule), broker)

    def most_points_at(self, broker: int, figures: Floats) -> Floats:
        """The same plus its uncertainty: the most that it is likely to take, for a destination."""
        found: Floats = self.points_at(broker, figures) * (1.0 + self.factor_error[broker])
        return found

    def _percent(self, used: Floats, broker: int | slice) -> Floats:
        limit, measured = self.limit[broker], self.measured[broker]
        found: Floats = np.where(measured, 100.0 * used / np.where(measured, limit, 1.0), 0.0)
        return found


def explain(figures: Floats, rule: Floats) -> Floats:
    """What traffic takes by the fleet's rule, (k, resources), from (k, resources, 2)."""
    found: Floats = figures[..., 0] * rule[:, 0] + figures[..., 1] * rule[:, 1]
    return found


def limits_of(brokers: BrokerTable) -> Floats:
    """How much of each resource each broker has, (n, resources); capacity is known only in percent."""
    return np.column_stack([brokers.limits, np.full(len(brokers), 100.0)])


def idle_of(brokers: BrokerTable) -> Floats:
    """How much of each resource each broker uses without traffic, (n, resources)."""
    idle = np.zeros((len(brokers), len(RESOURCES)))
    idle[:, CPU] = IDLE_CPU_POINTS / 100.0 * np.maximum(brokers.limits[:, CPU], 0.0)
    return idle


def learn_rule(fleet: Floats, figures: Floats, used: Floats, measured: Bools) -> Floats:
    """Add a round to the group's sums, in place, and fit the rule, (resources, 2)."""
    sums = fleet[COST_SUMS:].reshape(len(RESOURCES), 5)
    first, second = (np.where(measured, figures[:, :, at], 0.0) for at in (0, 1))
    use = np.where(measured, used, 0.0)
    products = (first * first, first * second, second * second, first * use, second * use)
    sums *= FLEET_FADES
    for column, product in enumerate(products):
        sums[:, column] += (1.0 - FLEET_FADES) * _sums(product)
    return np.array([_fit(*row) for row in sums.tolist()])


def _sums(columns: Floats) -> Floats:
    """Sum of each column, added one by one, so that it is the same on every processor."""
    found: Floats = np.cumsum(columns, axis=0)[-1]
    return found


def _fit(xx: float, xz: float, zz: float, xy: float, zy: float) -> tuple[float, float]:
    """Least squares of two figures without a constant, drawn towards each of them explaining half; neither result is below 0.

    The figures are scaled to equal size first, so that neither unit weighs more.
    """
    if xx <= 0 or zz <= 0:
        return (xy / xx if xx > 0 else 0.0, zy / zz if zz > 0 else 0.0)
    size = (xx**0.5, zz**0.5)
    between, first, second = xz / (size[0] * size[1]), xy / size[0], zy / size[1]
    half = (first + second) / 2 / (1 + between)
    a, b = 1 + _RIDGE, between
    right = (first + _RIDGE * half, second + _RIDGE * half)
    whole = a * a - b * b
    one, two = (a * right[0] - b * right[1]) / whole, (a * right[1] - b * right[0]) / whole
    if one < 0:
        one, two = 0.0, max(0.0, second)
    elif two < 0:
        one, two = max(0.0, first), 0.0
    return one / size[0], two / size[1]


def factors_of(learned: Floats) -> Floats:
    """Each broker's own factor, (n, resources); 1 for one about which nothing is known."""
    found: Floats = (learned[:, PRODUCT] + _TRUST_POINTS**2) / (learned[:, SQUARE] + _TRUST_POINTS**2)
    return np.minimum(np.maximum(found, LEAST_FACTOR), MOST_FACTOR)


def factor_errors_of(learned: Floats) -> Floats:
    """How uncertain each factor is, as a share of it, (n, resources)."""
    found: Floats = UNLIKE_RATIO * np.sqrt(_TRUST_POINTS**2 / (learned[:, SQUARE] + _TRUST_POINTS**2))
    return found


def learn_factors(
    learned: Floats,
    used_points: Floats,
    explained_points: Floats,
    *,
    counts: Bools,
    is_wrong: Bools | None = None,
) -> None:
    """Add a round to the sums of the brokers whose reports count, in place; both (n, resources).

    Where the costs are known to be wrong, what was learned fades sooner.
    """
    fades = (
        np.full(len(learned), BROKER_FADES)
        if is_wrong is None
        else np.where(is_wrong, WRONG_FADES, BROKER_FADES)
    )
    fades = np.where(counts, fades, 1.0)[:, None]
    weight = np.where(used_points > SATURATED_POINTS, SATURATED_WEIGHT, 1.0) * counts[:, None]
    learned[:, PRODUCT] = learned[:, PRODUCT] * fades + weight * used_points * explained_points
    learned[:, SQUARE] = learned[:, SQUARE] * fades + weight * explained_points**2
