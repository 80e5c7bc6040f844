"""FleetPlanner: learn what traffic costs each broker, wait until a difference is certain, and plan the whole round at once.

Our own. It compares the most used broker of a group with the least used one, by levels that noise and its own moves do not disturb
(``levels``), acts when their distance is certainly above what is acceptable, and then searches for the moves that bring the whole group
within half of that (``search``): from the hottest to the coldest, the biggest steps first, with what each bundle will cost at its
new broker (``costs``). From the literature: churn has a budget of its own (Slicer, OSDI 2016), and no move may make its
destination hotter than its source was (Cruise Control's goals).

Known to do badly: brokers above 80 % do not show how far above it their load is, so that more moves are needed; usage that no
traffic of a broker explains (another program on its machine) is taken for the cost of its traffic; and where every bundle is new, it
has to wait until their averages mean something.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.columns import Bools, Codes, Floats, Ints, empty_rows
from policies.shedding.contract import (
    ACTED,
    ADMITTED,
    MASKED,
    NEED_MET,
    NO_TRAFFIC,
    TOO_BIG,
    Evidence,
    Examined,
    Headline,
    Proposal,
    SheddingPlan,
    SheddingPolicy,
    Stand,
    fading_rounds,
)
from policies.shedding.fleet_planner.costs import FLEET_FADES
from policies.shedding.fleet_planner.levels import FINISHING_ROUNDS, Levels, judge, remember_moves
from policies.shedding.fleet_planner.memory import FleetPlannerMemory
from policies.shedding.fleet_planner.search import HOT_POINTS, Found, search
from policies.shedding.fleet_planner.settings import FleetPlannerSettings
from policies.shedding.fleet_planner.words import OUTCOME_TEXTS
from policies.shedding.plan import FEWEST_BROKERS, PlanBuilder, candidates, examine_nothing
from policies.shedding.view import DESTINATION_RISES, NOBODY, SOURCE_FALLS, RoundView

NAME: Final = "fleet-planner"

OUTCOMES = (
    "fired",
    "receives",
    "within-spread",
    "not-sure",
    "no-better-place",
    "every-broker-hot",
    "broker-joined",
    "promises-failed",
)
(
    FIRED,
    RECEIVES,
    WITHIN_SPREAD,
    NOT_SURE,
    NO_BETTER_PLACE,
    EVERY_BROKER_HOT,
    BROKER_JOINED,
    PROMISES_FAILED,
) = range(len(OUTCOMES))
TRIGGERS = ("", "spread")
_SHOWN_DIGITS = 6
_FEW_BROKERS = 10
_FINISHING_RATIO = 0.5
"""Share of the usual certainty that is enough to move what an earlier plan left over."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spread:
    """The most and the least used broker."""

    cold: int
    needed_points: Floats
    """By how many points a broker has to be above the coldest for the difference to be certain, (n,)."""
    apart: Floats
    """By how many points it is above the coldest, (n,)."""

    @property
    def is_certain(self) -> bool:
        """Whether the difference is certain for some broker."""
        return bool((self.apart >= self.needed_points).any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pending:
    """The memory of a round before it is known which moves happen."""

    memory: FleetPlannerMemory
    shifts: tuple[dict[str, float], ...] = ()
    """For each move, by broker, by how many points its level will differ from the averages of its bundles."""
    noise_points: float = 0.0


def plan(view: RoundView, memory: FleetPlannerMemory, settings: FleetPlannerSettings) -> Proposal[_Pending]:
    """Decide one round."""
    if len(view.brokers) < FEWEST_BROKERS:
        return Proposal(PlanBuilder().build(examine_nothing(OUTCOMES, TRIGGERS)), _Pending(memory=memory))
    levels = judge(view, memory)
    spread = _spread(view, levels, settings)
    hold = _why_nobody_gives(view, levels, spread, settings)
    found = search(view, levels, settings) if hold is None else Found()
    examined, order = _examine(view, levels, spread, found, settings, hold)
    names = view.brokers.names
    pending = _Pending(
        memory=levels.memory,
        shifts=tuple(
            {names[move.source]: move.shift_points[0], names[move.destination]: move.shift_points[1]}
            for move in found.moves
        ),
        noise_points=levels.noise_points,
    )
    return Proposal(_plan(view, found, examined, order), pending)


def settle(proposal: Proposal[_Pending], fates: Codes) -> FleetPlannerMemory:
    """The memory with what was learned and, for the moves that happen, the shifts that go along with their bundles."""
    pending, total = proposal.pending, dict[str, float]()
    for shifts, fate in zip(pending.shifts, fates.tolist(), strict=True):
        for broker, points in shifts.items() if fate == ADMITTED else ():
            total[broker] = total.get(broker, 0.0) + points
    if not (fates == ADMITTED).any():
        return pending.memory
    return remember_moves(pending.memory, total, pending.noise_points)


def _spread(view: RoundView, levels: Levels, settings: FleetPlannerSettings) -> _Spread:
    may_receive = view.brokers.may_receive
    reachable = may_receive if may_receive.any() else np.ones_like(may_receive)
    cold = int(np.argmin(np.where(reachable, levels.score, np.inf)))
    apart = levels.score - levels.score[cold]
    error = np.sqrt(levels.error**2 + levels.error[cold] ** 2)
    multiple = settings.noise_multiple * _largest_of(len(error))
    if levels.is_finishing:
        multiple *= _FINISHING_RATIO
    return _Spread(
        cold=cold,
        needed_points=settings.acceptable_spread_points + multiple * error,
        apart=apart,
    )


def _largest_of(count: int) -> float:
    """Factor of the noise where the farthest of ``count`` brokers is looked at; 1 for ten or fewer.

    The expected largest of n normal values grows as √(2 ln n).
    """
    return math.sqrt(math.log(max(count, _FEW_BROKERS)) / math.log(_FEW_BROKERS))


def _examine(
    view: RoundView,
    levels: Levels,
    spread: _Spread,
    found: Found,
    settings: FleetPlannerSettings,
    hold: int | None,
) -> tuple[Examined, Ints]:
    """Every broker, the most used first, and the row of ``examined`` of each broker."""
    count = len(view.brokers)
    order = np.argsort(-levels.score, kind="stable")
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    outcome = np.full(count, WITHIN_SPREAD, dtype=np.int8)
    stands_out = spread.apart > settings.acceptable_spread_points
    outcome[stands_out] = _why_nothing_helps(levels, spread) if hold is None else hold
    low = np.full(count, spread.cold, dtype=np.int64)
    for move in reversed(found.moves):
        outcome[move.destination] = RECEIVES
        low[move.source] = move.destination
    if found.moves:
        outcome[(outcome == NO_BETTER_PLACE) & ~_members(found.stuck, count)] = WITHIN_SPREAD
    outcome[[move.source for move in found.moves]] = FIRED
    low[spread.cold] = NOBODY
    error = np.sqrt(levels.error**2 + levels.error[spread.cold] ** 2)
    columns = {
        "level_points": levels.score,
        "coldest_points": np.full(count, levels.score[spread.cold]),
        "apart_points": spread.apart,
        "acceptable_spread_points": np.full(count, settings.acceptable_spread_points),
        "needed_points": spread.needed_points,
        "error_points": error,
        "noise_points": np.full(count, levels.noise_points),
    }
    examined = Examined(
        high=order,
        low=low[order],
        outcome=outcome[order],
        outcomes=OUTCOMES,
        trigger=np.where(stands_out | (outcome == FIRED), 1, 0).astype(np.int8)[order],
        triggers=TRIGGERS,
        evidence={name: _round_shown(column[order]) for name, column in columns.items()},
    )
    return examined, place


def _why_nobody_gives(
    view: RoundView, levels: Levels, spread: _Spread, settings: FleetPlannerSettings
) -> int | None:
    """Outcome of brokers that stand out in a round without a plan; None where a plan is made."""
    if not spread.is_certain:
        return NOT_SURE
    if levels.is_calm:
        return BROKER_JOINED
    return PROMISES_FAILED if _have_promises_failed(view, settings) else None


def _have_promises_failed(view: RoundView, settings: FleetPlannerSettings) -> bool:
    promises = [each.promise for each in view.judged() if each.promise is not None]
    last = promises[-settings.promises_count :] if settings.promises_count else []
    failed_count = sum(not each.is_kept for each in last)
    return failed_count > 0 and failed_count >= settings.failed_promises_ratio * settings.promises_count


def _why_nothing_helps(levels: Levels, spread: _Spread) -> int:
    """Outcome of a broker from which the search found no move."""
    return EVERY_BROKER_HOT if levels.score[spread.cold] >= HOT_POINTS else NO_BETTER_PLACE


def _members(rows: set[int], count: int) -> Bools:
    found = np.zeros(count, dtype=np.bool_)
    found[sorted(rows)] = True
    return found


def _plan(view: RoundView, found: Found, examined: Examined, place: Ints) -> SheddingPlan:
    sources = np.array([move.source for move in found.moves], dtype=np.int64)
    rows = np.array([move.bundle for move in found.moves], dtype=np.int64)
    tried_rows, tried_examined = empty_rows(), empty_rows()
    gives = np.flatnonzero(np.isin(examined.outcome, (FIRED, NO_BETTER_PLACE)))
    if len(gives):
        tried = candidates(view.bundles, fired=gives, brokers=examined.high[gives])
        tried, _ = tried.heaviest_first(view.bundles.bytes_per_s[tried.rows])
        tried_rows, tried_examined = tried.rows, tried.examined
    return SheddingPlan(
        examined=examined,
        unload_rows=rows,
        unload_destinations=np.array([move.destination for move in found.moves], dtype=np.int64),
        unload_examined=place[sources] if len(sources) else empty_rows(),
        unload_for=rows,
        unload_evidence={
            "source_after_points": _round_shown(np.array([move.source_points for move in found.moves])),
            "destination_after_points": _round_shown(
                np.array([move.destination_points for move in found.moves])
            ),
            SOURCE_FALLS: _round_shown(np.array([move.falls_points for move in found.moves])),
            DESTINATION_RISES: _round_shown(np.array([move.rises_points for move in found.moves])),
        },
        tried_rows=tried_rows,
        tried_outcomes=_tried_outcomes(view, tried_rows, rows, found, examined, tried_examined),
        tried_examined=tried_examined,
    )


def _tried_outcomes(
    view: RoundView, tried: Ints, unloaded: Ints, found: Found, examined: Examined, tried_examined: Ints
) -> Codes:
    """Outcome of each tried bundle: too big for every destination if its broker could not be helped, else not needed."""
    bundles = view.bundles
    outcomes = np.full(len(tried), NEED_MET, dtype=np.int8)
    owners = examined.high[tried_examined] if len(tried) else empty_rows()
    outcomes[_members(found.stuck, len(view.brokers))[owners]] = TOO_BIG
    outcomes[bundles.messages_per_s[tried] + bundles.bytes_per_s[tried] <= 0] = NO_TRAFFIC
    outcomes[~bundles.movable[tried]] = MASKED
    outcomes[np.isin(tried, unloaded)] = ACTED
    return outcomes


def _round_shown(column: Floats) -> Floats:
    """The values as they are shown, equal on every processor."""
    return np.round(column, _SHOWN_DIGITS) + 0.0


def _describe_source(source: str, _partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} is at {evidence['level_points']:.1f} %, {evidence['apart_points']:.1f} points above the least used broker "
        f"({evidence['acceptable_spread_points']:g} acceptable, {evidence['needed_points']:.1f} needed to be sure with noise of "
        f"{evidence['noise_points']:.1f}); after the move {source} is expected at {evidence.get('source_after_points', 0):.1f} % "
        f"and the bundle's new broker at {evidence.get('destination_after_points', 0):.1f} %"
    )


def _describe_not_sure(evidence: Evidence) -> str:
    return f"not-sure {evidence['apart_points']:.1f}/{evidence['needed_points']:.1f}"


def _stand(evidence: Evidence) -> Stand:
    return Stand(
        difference_points=float(evidence["apart_points"]),
        threshold_points=float(evidence["needed_points"]),
    )


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=FleetPlannerSettings,
    memory=FleetPlannerMemory,
    plan=plan,
    settle=settle,
    outcomes=OUTCOMES,
    outcome_texts=OUTCOME_TEXTS,
    calm_outcomes=("within-spread", "receives"),
    triggers=TRIGGERS,
    evidence=(
        "level_points",
        "coldest_points",
        "apart_points",
        "acceptable_spread_points",
        "needed_points",
        "error_points",
        "noise_points",
    ),
    sentences={TRIGGERS[1]: _describe_source},
    details={"not-sure": _describe_not_sure},
    headline=Headline(
        meaning="the level of the most used broker less that of the least used one", stand_of=_stand
    ),
    remembers_rounds=lambda _settings: max(fading_rounds(FLEET_FADES), FINISHING_ROUNDS),
    splits_first=True,
    keeps_absent_bundles=True,
)
