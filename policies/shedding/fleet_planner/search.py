"""The search for a plan: again and again the move that lowers the hottest broker most, until the brokers are close enough.

It is bounded: each step looks at the heaviest bundles of one broker and at the coldest few destinations. In one plan a broker gives or
receives, never both: a bundle that would be passed on moves in the next round, when the reports have shown it.
"""

from dataclasses import dataclass, field

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.shedding.fleet_planner.levels import Levels
from policies.shedding.fleet_planner.settings import FleetPlannerSettings
from policies.shedding.fleet_planner.traffic import figures_of, movable_rows, present_rates
from policies.shedding.view import RoundView

GOAL_RATIO = 0.5
"""Where a plan ends, as a share of the acceptable spread."""
MOST_BUNDLES = 64
"""Heaviest bundles of a broker that a step looks at."""
MOST_DESTINATIONS = 3
AS_GOOD_POINTS = 0.3
"""Points of usage up to which moves count as equally good; then the one that moves less traffic is taken."""
MOST_MOVES = 60
"""Most moves of a round."""
HOT_POINTS = 85.0
"""Usage that no move may bring its destination above: where every broker is that hot, no move helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one bundle to another broker, and what is expected of both brokers."""

    bundle: int
    source: int
    destination: int
    source_points: float
    """Score of the source after the move."""
    destination_points: float
    """Score of the destination after the move."""
    most_points: float
    """The same plus its uncertainty: the value that the plan goes on with."""
    falls_points: float
    """By how much the source's score falls."""
    rises_points: float
    """By how much the destination's score is expected to rise."""
    shift_points: tuple[float, float]
    """How many points source and destination will be off what the bundle's averages say."""


@dataclass(slots=True, kw_only=True, eq=False)
class Found:
    """The result of a search."""

    moves: list[Move] = field(default_factory=list)
    stuck: set[int] = field(default_factory=set)
    """Brokers from which no move would gain enough."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Fleet:
    """Levels as the plan changes them."""

    points: Floats
    score: Floats
    may_give: Bools
    """Brokers that have something left that would help, and received nothing in this plan."""
    may_receive: Bools
    """Brokers that may receive, and gave nothing in this plan."""
    moved: set[int] = field(default_factory=set)


def search(view: RoundView, levels: Levels, settings: FleetPlannerSettings) -> Found:
    """Moves in the order in which they help most."""
    fleet = _Fleet(
        points=levels.points.copy(),
        score=levels.score.copy(),
        may_give=np.ones(len(levels.score), dtype=np.bool_),
        may_receive=view.brokers.may_receive.copy(),
    )
    found = Found()
    goal = GOAL_RATIO * settings.acceptable_spread_points
    shares = _shares(view)
    left = settings.max_moved_ratio
    while len(found.moves) < MOST_MOVES:
        pair = _next_pair(fleet, goal)
        if pair is None:
            break
        hot, colds = pair
        move = _best_move(view, levels, fleet, shares, settings, hot, colds)
        if move is None:
            found.stuck.add(hot)
            fleet.may_give[hot] = False
            continue
        if found.moves and shares[move.bundle] > left:
            break
        left -= float(shares[move.bundle])
        _apply(view, levels, fleet, move)
        found.moves.append(move)
    return found


def _next_pair(fleet: _Fleet, goal: float) -> tuple[int, Ints] | None:
    """The hottest broker that can be helped and the coldest ones; None where they are close enough."""
    score = np.where(fleet.may_give, fleet.score, -np.inf)
    hot = int(np.argmax(score))
    room, colds = np.where(fleet.may_receive, fleet.score, np.inf), []
    for _ in range(MOST_DESTINATIONS):
        cold = int(np.argmin(room))
        if not room[cold] < score[hot] - goal:
            break
        colds.append(cold)
        room[cold] = np.inf
    return (hot, np.array(colds)) if colds else None


def _shares(view: RoundView) -> Floats:
    """Each bundle's share of the group's traffic, of messages or bytes, whichever is larger, (m,)."""
    found = np.zeros(len(view.bundles))
    for traffic in (view.bundles.messages_per_s, view.bundles.bytes_per_s):
        total = float(np.cumsum(traffic)[-1]) if len(traffic) else 0.0
        if total > 0:
            found = np.maximum(found, traffic / total)
    return found


def _best_move(
    view: RoundView,
    levels: Levels,
    fleet: _Fleet,
    shares: Floats,
    settings: FleetPlannerSettings,
    hot: int,
    colds: Ints,
) -> Move | None:
    """The move after which the more used side is least used; of moves that are about as good, the one with the least traffic."""
    rows = movable_rows(view, hot)
    rows = rows[[row not in fleet.moved for row in rows.tolist()]] if fleet.moved else rows
    if not len(rows):
        return None
    figures = figures_of(_rates(view, levels, rows, hot))
    at_hot = levels.costs.points_at(hot, figures)
    if len(rows) > MOST_BUNDLES:
        heaviest = np.argsort(-_score(view, at_hot), kind="stable")[:MOST_BUNDLES]
        rows, figures, at_hot = rows[heaviest], figures[heaviest], at_hot[heaviest]
    left = _score(view, np.maximum(fleet.points[hot] - at_hot, 0.0))
    there = np.column_stack(
        [
            _score(view, fleet.points[cold] + levels.costs.most_points_at(cold, figures))
            for cold in colds.tolist()
        ]
    )
    worse = np.where(there <= HOT_POINTS, np.maximum(left[:, None], there), np.inf)
    best = float(worse.min())
    if fleet.score[hot] - best < settings.min_gain_points:
        return None
    cost = np.where(worse <= best + AS_GOOD_POINTS, shares[rows][:, None], np.inf)
    place, at = np.unravel_index(int(np.argmin(cost)), cost.shape)
    row, cold = int(rows[place]), int(colds[at])
    before = fleet.points[[cold]]
    expected = float(_score(view, before + levels.costs.points_at(cold, figures[[place]]))[0])
    return Move(
        bundle=row,
        source=hot,
        destination=cold,
        source_points=float(left[place]),
        destination_points=expected,
        most_points=float(there[place, at]),
        falls_points=float(fleet.score[hot] - left[place]),
        rises_points=expected - float(_score(view, before)[0]),
        shift_points=_shift(view, levels, row, hot, cold),
    )


def _score(view: RoundView, points: Floats) -> Floats:
    found: Floats = (points * view.usage_weights).max(axis=1)
    return found


def _rates(view: RoundView, levels: Levels, rows: Ints, owner: int) -> Floats:
    """Traffic of a broker's bundles, (k, 4): the present one where the broker's traffic has shifted, else the averages."""
    return (
        present_rates(view, rows) if levels.has_shifted[owner] else view.bundles.rates[rows] * levels.common
    )


def _shift(view: RoundView, levels: Levels, row: int, source: int, destination: int) -> tuple[float, float]:
    if not levels.has_shifted[source]:
        return 0.0, 0.0
    rows = np.array([row])
    present, average = (
        figures_of(present_rates(view, rows)),
        figures_of(view.bundles.rates[rows] * levels.common),
    )
    at_source, at_destination = (
        float((levels.costs.points_at(at, present) - levels.costs.points_at(at, average)).max())
        for at in (source, destination)
    )
    return -at_source, at_destination


def _apply(view: RoundView, levels: Levels, fleet: _Fleet, move: Move) -> None:
    figures = figures_of(_rates(view, levels, np.array([move.bundle]), move.source))
    source, destination = fleet.points[move.source], fleet.points[move.destination]
    source[:] = np.maximum(source - levels.costs.points_at(move.source, figures)[0], 0.0)
    destination += levels.costs.most_points_at(move.destination, figures)[0]
    fleet.score[move.source], fleet.score[move.destination] = move.source_points, move.most_points
    fleet.may_give[move.destination] = fleet.may_receive[move.source] = False
    fleet.moved.add(move.bundle)
