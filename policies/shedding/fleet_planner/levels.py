"""How much each broker is really used, and how sure that is.

A broker's level is what the running averages of its bundles' traffic cost there, times the change that the traffic of all brokers has in
common at the moment. Neither a spike of CPU nor a minute's burst changes it, and a bundle that moves takes its part along at once. Where
reports show another level for long enough, the level follows them (``evidence``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Bools, Floats
from policies.shedding.fleet_planner.costs import (
    Costs,
    factor_errors_of,
    factors_of,
    idle_of,
    learn_factors,
    learn_rule,
    limits_of,
)
from policies.shedding.fleet_planner.evidence import (
    CLIPPED_NOISES,
    FIRST_NOISE_POINTS,
    OF_COST,
    OF_TRAFFIC,
    add_evidence,
    average_error,
    carry_shift,
    known_noise,
    learn_noise,
)
from policies.shedding.fleet_planner.memory import (
    CALM,
    EVIDENCE,
    FINISHING,
    FLEET_ROUNDS,
    LAST_SEEN,
    ROUNDS,
    SETTLING,
    FleetPlannerMemory,
    broker_columns,
    fleet_values,
    remember,
)
from policies.shedding.fleet_planner.traffic import common_change, expect_moves, figures_of, owned_rates
from policies.shedding.view import RoundView

SETTLING_ROUNDS = 2
"""Rounds after a move whose reports still show the past, or clients that reconnect."""
CALM_ROUNDS = 3
"""Rounds without a plan after a broker joined: brokers are added, and restarted, one after another."""
FINISHING_ROUNDS = 15
"""Rounds after a plan in which less certainty is enough for what is left of the difference: that there is one was certain."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """What is known of the group in a round."""

    points: Floats
    """Level of each resource, (n, resources), percent."""
    score: Floats
    """Weighted maximum of them, (n,), points."""
    error: Floats
    """Standard error of each score, (n,), points."""
    noise_points: float
    """Standard deviation of a report."""
    costs: Costs
    common: Floats
    """How the present traffic of all brokers differs from the running averages, as a factor of each rate, (4,)."""
    has_shifted: Bools
    """Brokers whose present traffic counts instead of the running averages, (n,)."""
    is_calm: bool
    """Whether a broker joined so lately that others may follow."""
    is_finishing: bool
    """Whether a plan was made so lately that what is left of the difference is likely to be real."""
    memory: FleetPlannerMemory


def judge(view: RoundView, memory: FleetPlannerMemory) -> Levels:
    """Learn from a round's reports, and give each broker's level once the bundles in flight have arrived."""
    learned, fleet = broker_columns(memory, view.brokers.names), fleet_values(memory)
    owned = owned_rates(view)
    arriving, concerned = expect_moves(view, owned)
    settling = _note_changes(learned, fleet, concerned)
    common = common_change(view, owned, settling)
    owned, arriving = owned * common, arriving * common
    reported = figures_of(_reported_rates(view, owned))
    costs = _begin_costs(view, learned, fleet, reported, settling)

    by_traffic = _score(view, costs.points(reported))
    traffic = by_traffic - _score(view, costs.points(figures_of(owned)))
    cost = 100.0 * view.brokers.usage_ratio - by_traffic
    noise, cost_noise = (known_noise(fleet, learned, kind) for kind in (OF_TRAFFIC, OF_COST))
    costs = _learn_costs(view, learned, costs, reported, cost, cost_noise, settling)

    of_traffic = add_evidence(learned, fleet, OF_TRAFFIC, traffic, noise, settling)
    of_cost = add_evidence(learned, fleet, OF_COST, cost, cost_noise, settling)
    learn_noise(fleet, learned, OF_TRAFFIC, traffic, noise, settling)
    learn_noise(fleet, learned, OF_COST, cost, cost_noise, settling)
    trails = (of_traffic.points + of_cost.points)[:, None] * _is_largest(view)
    points = np.maximum(costs.points(figures_of(arriving)) + trails, 0.0)
    errors = (
        of_traffic.error,
        of_cost.error,
        average_error(fleet, learned, OF_TRAFFIC, noise),
        average_error(fleet, learned, OF_COST, cost_noise),
    )
    return Levels(
        points=points,
        score=_score(view, points),
        error=np.sqrt(sum((each * each for each in errors), np.zeros(len(points)))),
        noise_points=math.hypot(*np.sqrt(fleet[[OF_TRAFFIC.noise, OF_COST.noise]]).tolist()),
        costs=costs,
        common=common,
        has_shifted=of_traffic.is_shift,
        is_calm=bool(fleet[CALM] > 0),
        is_finishing=bool(fleet[FINISHING] > 0),
        memory=remember(memory, view.brokers.names, learned, fleet),
    )


def remember_moves(
    memory: FleetPlannerMemory, shifts: Mapping[str, float], noise_points: float
) -> FleetPlannerMemory:
    """The memory once bundles have moved; ``shifts`` has, by broker, how many points their traffic is off their averages."""
    fleet = fleet_values(memory)
    fleet[FINISHING] = FINISHING_ROUNDS
    names = [name for name, points in shifts.items() if abs(points) > noise_points and name in memory.learned]
    learned = broker_columns(memory, names)
    for row, name in zip(learned, names, strict=True):
        carry_shift(row, shifts[name])
    return remember(memory, names, learned, fleet)


def _note_changes(learned: Floats, fleet: Floats, concerned: Bools) -> Bools:
    """Brokers whose reports do not show the present, (n,); brokers that joined and bundles in flight are noted in place."""
    rounds = fleet[FLEET_ROUNDS]
    joined = learned[:, LAST_SEEN] < rounds - 1  # a single missing report is no absence
    fleet[CALM] = CALM_ROUNDS if joined.any() and rounds > 0 else max(fleet[CALM] - 1, 0)
    fleet[FINISHING] = max(fleet[FINISHING] - 1, 0)
    fleet[FLEET_ROUNDS] = rounds + 1
    learned[:, LAST_SEEN] = rounds + 1
    learned[:, SETTLING] = np.where(concerned, SETTLING_ROUNDS + 1, np.maximum(learned[:, SETTLING] - 1, 0))
    settling: Bools = learned[:, SETTLING] > 0
    return settling


def _reported_rates(view: RoundView, owned: Floats) -> Floats:
    """Traffic of the same reports that the usage is from, (n, 4): in and out in the proportion of the averages."""
    found = owned.copy()
    brokers = view.brokers
    for first, reported in ((0, brokers.messages_per_s), (2, brokers.bytes_per_s)):
        total = owned[:, first] + owned[:, first + 1]
        scale = np.divide(reported, total, out=np.ones_like(total), where=total > 0)
        found[:, first : first + 2] *= scale[:, None]
    return found


def _begin_costs(view: RoundView, learned: Floats, fleet: Floats, reported: Floats, settling: Bools) -> Costs:
    """Costs as they were known before the round; those of new brokers as far as their first report can be trusted."""
    brokers = view.brokers
    limit, idle = limits_of(brokers), idle_of(brokers)
    used = np.maximum(brokers.percents / 100.0 * limit - idle, 0.0)
    rule = learn_rule(fleet, reported, used, brokers.measured & ~settling[:, None])
    costs = Costs(
        limit=limit,
        idle=idle,
        used=used,
        rule=rule,
        factor=factors_of(learned),
        factor_error=factor_errors_of(learned),
        measured=brokers.measured,
    )
    is_new = learned[:, ROUNDS] == 0
    if not is_new.any():
        return costs
    explained, most = costs.explained_points(reported), CLIPPED_NOISES * FIRST_NOISE_POINTS
    believed = np.clip(costs.used_points(), np.maximum(explained - most, 0.0), explained + most)
    learn_factors(learned, believed, explained, counts=is_new)
    return _renew_factors(costs, learned)


def _learn_costs(
    view: RoundView,
    learned: Floats,
    costs: Costs,
    reported: Floats,
    residual: Floats,
    noise: Floats,
    settling: Bools,
) -> Costs:
    """Costs after the round's reports; a spike counts only up to the size of noise."""
    excess = residual - np.clip(residual, -CLIPPED_NOISES * noise, CLIPPED_NOISES * noise)
    believed = np.maximum(costs.used_points() - excess[:, None] * _is_largest(view), 0.0)
    is_new = learned[:, ROUNDS] == 0
    learn_factors(
        learned,
        believed,
        costs.explained_points(reported),
        counts=~settling & ~is_new,
        is_wrong=np.abs(learned[:, OF_COST.columns[EVIDENCE]]) >= OF_COST.enough,
    )
    learned[:, ROUNDS] += 1
    return _renew_factors(costs, learned)


def _renew_factors(costs: Costs, learned: Floats) -> Costs:
    return replace(costs, factor=factors_of(learned), factor_error=factor_errors_of(learned))


def _score(view: RoundView, points: Floats) -> Floats:
    found: Floats = (points * view.usage_weights).max(axis=1)
    return found


def _is_largest(view: RoundView) -> Bools:
    """The resource that a broker's usage comes from, (n, resources)."""
    weighted = view.brokers.percents * view.usage_weights
    found: Bools = np.arange(weighted.shape[1]) == weighted.argmax(axis=1)[:, None]
    return found
