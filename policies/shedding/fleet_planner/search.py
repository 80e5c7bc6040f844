"""The search for a plan: again and again the move that brings the hottest broker and a cold one closest together.

What a move is worth is the fall of the sum of the squares of both levels: it grows with the points that move and with the distance that
they close, so few moves do. Of moves that are worth about the same, the one with the least traffic is taken. A move need not gain
much; the plan as a whole has to. The worse of a move's two sides has to be better after it, however hot both are.

A destination measures every weighted resource that the source measures and its bundles load noticeably: unknown is not zero. Rules (``view.rules``)
are asked for each move, with the moves before it taken. In one plan a broker gives or receives, never both: a bundle that would be
passed on moves in the next round, when the reports have shown it.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.costs import explain, figures_of
from policies.shedding.fleet_planner.levels import FleetPlannerSettings, Levels
from policies.shedding.rules import Rules
from policies.shedding.view import RoundView
from policies.usage import compared

MOST_BUNDLES = 64
"""Heaviest bundles of a broker that a step looks at, of those that are not too heavy to help."""
DESTINATIONS = (3, 32)
"""How many of the coldest brokers a step looks at; the others follow where none of these may take any bundle."""
AS_GOOD_RATIO = 0.1
"""Share of the best move's worth up to which moves count as equally good; then the one that moves less traffic is taken."""
LEAST_POINTS = 0.05
"""Least fall of its source that a move has to bring where bundles are large: the resolution of what brokers report."""
CRUMB_RATIO = 0.5
"""Where bundles are small, the least fall is this share of what a bundle of the broker loads on average: a move that brings less is
not worth a reconnect. So equal bundles move, however small they are, and crumbs beside big ones do not."""
FILLS_RATIO = 0.5
"""Where the best move is more than may still move in a round, a smaller one goes if it brings at least this share of what that would."""
MOST_MOVES = 180
"""Most moves of a round: what an executor surely carries out within the usual lifetime of actions, at one a second."""
LATE_S = 30.0
"""A broker whose report is so much older than the median one receives nothing: it may be about to go."""


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
    falls_points: float
    """By how much the source's score falls."""
    rises_points: float
    """By how much the destination's score is expected to rise."""


@dataclass(slots=True, kw_only=True, eq=False)
class Found:
    """The result of a search."""

    moves: list[Move] = field(default_factory=list)
    stuck: set[int] = field(default_factory=set)
    """Brokers that stand out and from which no move helps."""
    not_worth_it: set[int] = field(default_factory=set)
    """Those of them whose moves would help, but too little as a whole."""
    barred: dict[int, int] = field(default_factory=dict)
    """By bundle that would help most a broker that gives none, were it not for the rules, the broker it would go to."""
    waiting: set[int] = field(default_factory=set)
    """Brokers that stand out and that a spent budget keeps from giving more."""
    is_cut: bool = False
    """Whether it ended because no more may move now."""


class Fleet:
    """The levels as a plan changes them, over the resources that count, and who may receive from whom."""

    def __init__(self, view: RoundView, levels: Levels) -> None:
        self.view, self.levels = view, levels
        self.counts = np.flatnonzero((view.usage_weights > 0) & np.any(view.brokers.measured, axis=0))
        """Resources with a weight that some broker measures; a of them."""
        self.weights = view.usage_weights[self.counts]
        self.measured = view.brokers.measured[:, self.counts]
        limits, factor = levels.costs.limits[:, self.counts], levels.costs.factor[:, self.counts]
        self.unit = np.where(self.measured, 100.0 * factor / np.where(self.measured, limits, 1.0), 0.0)
        """Points of each resource that one unit of it takes at a broker, (n, a)."""
        self.doubt = levels.costs.factor_error[:, self.counts].max(axis=1, initial=0.0)
        """How uncertain that is, as a share of it, (n,)."""
        self.points = levels.points[:, self.counts].copy()
        self.score = levels.score.copy()
        self.order: Ints = np.argsort(self.score, kind="stable")
        """Brokers, the coldest first."""
        self.has_moved = np.zeros(len(view.bundles), dtype=np.bool_)
        ages = view.brokers.report_age_s
        measures: Bools = np.any(self.measured, axis=1)
        self.may_give: Bools = measures & levels.is_clear
        self.may_receive: Bools = view.brokers.may_receive & measures & (ages <= np.median(ages) + LATE_S)
        loads = levels.is_loaded[:, self.counts]
        _, first, self.kind = np.unique(
            loads @ (1 << np.arange(len(self.counts))), return_index=True, return_inverse=True
        )
        known = compared(view.brokers.measured, view.usage_weights)[:, self.counts]
        self.comparable: Bools = ~np.any(loads[first][:, None, :] & ~known, axis=2)
        """Whether a broker measures all that the bundles of a broker of this kind load noticeably, (kinds, n); a declared capacity of bytes
        stands for bandwidth that is not measured, and measured bandwidth for it."""

    def receivers(self, source: int, least_points: float) -> Ints:
        """Brokers so much colder than ``source`` that it may give to, as far as it is known what a bundle would cost there, coldest first."""
        is_open = self.may_receive & self.comparable[self.kind[source]]
        is_open &= self.score < self.score[source] - least_points
        receivers: Ints = self.order[is_open[self.order]]
        return receivers

    def coldest(self) -> Ints:
        """The coldest broker that each may give to, (n,); itself where there is none."""
        cold = np.arange(len(self.score))
        for kind in range(len(self.comparable)):
            room = np.where(self.may_receive & self.comparable[kind], self.score, np.inf)
            coldest = int(np.argmin(room))
            if np.isfinite(room[coldest]):
                cold[self.kind == kind] = coldest
        return cold

    def amounts(self, rows: Ints, owner: int) -> Floats:
        """How much of each resource bundles of a broker take by the fleet's rule, (k, a)."""
        figures = figures_of(self.levels.rates(self.view, rows, owner), self.view.bundles.counts[rows])
        return explain(figures, self.levels.costs.rule)[:, self.counts]

    def least_fall(self, broker: int) -> float:
        """Points by which a move has to lower the score of a broker to count."""
        span = self.view.bundles.rows_of(broker)
        amounts = self.amounts(np.arange(span.start, span.stop), broker)
        sizes = (amounts * self.unit[broker] * self.weights).max(axis=1, initial=0.0)
        sizes = sizes[sizes > 0]
        if not len(sizes):
            return LEAST_POINTS
        return min(LEAST_POINTS, CRUMB_RATIO * float(np.cumsum(sizes)[-1]) / len(sizes))

    def scores_after(self, broker: int, change: Floats) -> Floats:
        """Score of a broker with its points changed, (k,), from (k, a)."""
        scores: Floats = (np.maximum(self.points[broker] + change, 0.0) * self.weights).max(axis=-1)
        return scores

    def with_arrivals(self, receivers: Ints, amounts: Floats) -> tuple[Floats, Floats]:
        """Score of each receiver with each of these amounts, and the most that it may be, (k, r) each."""
        arrives = amounts[:, None, :] * self.unit[receivers]
        after: Floats = ((self.points[receivers] + arrives) * self.weights).max(axis=-1)
        return after, after + (after - self.score[receivers]) * self.doubt[receivers]

    def lowest_with(self, receivers: Ints, amounts: Floats) -> Floats:
        """The lowest that the most is at one of the coldest receivers, of each resource and of all, (k,)."""
        by_resource = receivers[np.argmin(self.points[receivers] * self.weights, axis=0)]
        few = np.unique(np.concatenate([receivers[: DESTINATIONS[-1]], by_resource]))
        lowest: Floats = self.with_arrivals(few, amounts)[1].min(axis=1)
        return lowest


@dataclass(slots=True, eq=False)
class _Source:
    """The bundles of a broker that a step looks at; k of them."""

    rows: Ints
    amounts: Floats
    """How much of each resource they take by the fleet's rule, (k, a)."""
    stays: Bools
    """Which of them have not moved yet, (k,)."""
    least_points: float
    """Least fall of their broker that a move has to bring."""
    is_whole: bool
    """Whether these are all of its movable bundles that can help now: once one has moved, others may, which load another resource."""


def search(view: RoundView, levels: Levels, cold: Ints, settings: FleetPlannerSettings) -> Found:
    """Moves in the order in which they help most; ``cold`` has the coldest broker that each may give to."""
    fleet, found = Fleet(view, levels), Found()
    rules = None if view.rules is None else view.rules.draft()
    fleet.may_give &= fleet.score > fleet.score[cold] + settings.goal_points
    shares, left = traffic_shares(view), settings.max_moved_ratio
    sources: dict[int, _Source] = {}
    while len(found.moves) < MOST_MOVES:
        hot = int(np.argmax(np.where(fleet.may_give, fleet.score, -np.inf)))
        if not fleet.may_give[hot]:
            break
        receivers = fleet.receivers(hot, settings.goal_points)
        if not len(receivers):
            fleet.may_give[hot] = False
            continue
        # with nothing left of the budget there is no need to ask the rules of each bundle and broker
        is_spent = rules is not None and rules.left_count == 0
        move = None if is_spent else _best_move(fleet, sources, shares, rules, hot, receivers)
        if move is None:
            fleet.may_give[hot] = False
            wish = _best_move(fleet, sources, shares, None, hot, receivers)
            kept = None if wish is None or rules is None else rules.keeps(wish.bundle)
            if kept is not None and kept.rule == "budget":
                found.waiting.add(hot)
            else:
                found.stuck.add(hot)
            if wish is not None and all(move.source != hot for move in found.moves):
                found.barred[wish.bundle] = wish.destination
            continue
        if found.moves and shares[move.bundle] > left:
            found.is_cut, best = True, move
            move = _best_move(fleet, sources, shares, rules, hot, receivers, left)
            if move is None or move.falls_points < FILLS_RATIO * best.falls_points:
                break
        left -= float(shares[move.bundle])
        _apply(fleet, sources[hot], move)
        if rules is not None:
            rules.take(move.bundle, move.destination)
        found.moves.append(move)
    found.is_cut |= bool(found.waiting) or len(found.moves) == MOST_MOVES
    if not found.is_cut and not _is_worth_it(levels, found.moves, settings):
        givers = {move.source for move in found.moves}
        return Found(stuck=found.stuck | givers, not_worth_it=givers, barred=found.barred)
    return found


def _is_worth_it(levels: Levels, moves: list[Move], settings: FleetPlannerSettings) -> bool:
    """Whether a plan as a whole lowers one of its brokers by enough."""
    after = {move.source: move.source_points for move in moves}
    falls = [float(levels.score[source]) - points for source, points in after.items()]
    return max(falls, default=0.0) >= settings.min_gain_points


def traffic_shares(view: RoundView) -> Floats:
    """Each bundle's share of the group's traffic, of messages or bytes, whichever is larger, (m,)."""
    shares = np.zeros(len(view.bundles))
    for traffic in (view.bundles.messages_per_s, view.bundles.bytes_per_s):
        total = float(np.cumsum(traffic)[-1]) if len(traffic) else 0.0
        if total > 0:
            shares = np.maximum(shares, traffic / total)
    return shares


def _best_move(
    fleet: Fleet,
    sources: dict[int, _Source],
    shares: Floats,
    rules: Rules | None,
    hot: int,
    receivers: Ints,
    most_share: float = np.inf,
) -> Move | None:
    """The move of a bundle of ``hot``, with at most this share of the traffic, that is worth most; None where none helps."""
    source = sources.get(hot)
    if source is None:
        source = sources[hot] = _bundles_of(fleet, hot, receivers, MOST_BUNDLES)
    edges = [0, *(edge for edge in DESTINATIONS if edge < len(receivers)), len(receivers)]
    for first, last in pairwise(edges):
        move = _best_move_to(fleet, source, shares, rules, hot, receivers[first:last], most_share)
        if move is not None:
            return move
    if source.is_whole:
        return None
    sources[hot] = _bundles_of(fleet, hot, receivers, len(fleet.has_moved))
    return _best_move(fleet, sources, shares, rules, hot, receivers, most_share)


def _bundles_of(fleet: Fleet, broker: int, receivers: Ints, most: int) -> _Source:
    """The heaviest of a broker's movable bundles that would not make every cold broker hotter than theirs is."""
    span = fleet.view.bundles.rows_of(broker)
    rows = np.flatnonzero(fleet.view.bundles.movable[span] & ~fleet.has_moved[span]) + span.start
    amounts, before = fleet.amounts(rows, broker), fleet.score[broker]
    falls = before - fleet.scores_after(broker, -amounts * fleet.unit[broker])
    least_points = fleet.least_fall(broker)
    helps = (falls >= least_points) & (fleet.lowest_with(receivers, amounts) < before)
    rows, amounts, falls = rows[helps], amounts[helps], falls[helps]
    heaviest = np.argsort(-falls, kind="stable")[:most]
    stays = np.ones(len(heaviest), dtype=np.bool_)
    return _Source(rows[heaviest], amounts[heaviest], stays, least_points, len(heaviest) == len(rows))


def _best_move_to(
    fleet: Fleet,
    source: _Source,
    shares: Floats,
    rules: Rules | None,
    hot: int,
    receivers: Ints,
    most_share: float,
) -> Move | None:
    may_go = source.stays & (shares[source.rows] <= most_share)
    if not may_go.any():
        return None
    before, there = fleet.score[hot], fleet.score[receivers]
    left = fleet.scores_after(hot, -source.amounts * fleet.unit[hot])[:, None]
    falls, (after, most) = before - left, fleet.with_arrivals(receivers, source.amounts)
    worth = falls * (before + left) - (after - there) * (after + there)
    helps = (falls >= source.least_points) & (most < before) & (worth > 0) & may_go[:, None]
    if rules is not None:
        helps &= rules.allowed(source.rows, receivers)
    worth = np.where(helps, worth, 0.0)
    best = worth.max()
    if best <= 0:
        return None
    cost = np.where(worth >= (1.0 - AS_GOOD_RATIO) * best, shares[source.rows][:, None], np.inf)
    place, at = divmod(int(np.argmin(cost)), len(receivers))
    return Move(
        bundle=int(source.rows[place]),
        source=hot,
        destination=int(receivers[at]),
        source_points=float(left[place, 0]),
        destination_points=float(after[place, at]),
        falls_points=float(falls[place, 0]),
        rises_points=float(after[place, at] - there[at]),
    )


def _apply(fleet: Fleet, source: _Source, move: Move) -> None:
    place = int(np.flatnonzero(source.rows == move.bundle)[0])
    amounts, hot, cold = source.amounts[place], move.source, move.destination
    fleet.points[hot] = np.maximum(fleet.points[hot] - amounts * fleet.unit[hot], 0.0)
    fleet.points[cold] += amounts * fleet.unit[cold]
    fleet.score[hot], fleet.score[cold] = move.source_points, move.destination_points
    fleet.order = fleet.order[np.argsort(fleet.score[fleet.order], kind="stable")]  # quick: two of them moved
    fleet.may_give[cold] = fleet.may_receive[hot] = False
    fleet.has_moved[move.bundle] = True
    source.stays[place] = source.is_whole = False
