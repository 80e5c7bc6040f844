"""FleetPlanner: learn what traffic costs each broker, wait until a difference is certain, and plan the whole round at once.

Our own. It compares each broker of a group with the least used one that it may give to, by levels that noise and its own moves do not
disturb (``levels``), acts when a distance is certainly above what is acceptable, and then searches for the moves that bring the whole
group within half of that (``search``), with what each bundle will cost at its new broker (``policies.costs``) and within the rules that
say which broker may receive which bundle. From the literature: churn has a budget of its own (Slicer, OSDI 2016), and no move may make
its destination hotter than its source was (Cruise Control's goals).

Known to do badly: brokers above 80 % do not show how far above it their load is, so that more moves are needed; usage that no
traffic of a broker explains (another program on its machine) is taken for the cost of its traffic; and where every bundle is new, it
has to wait until their averages mean something.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.columns import Bools, Code, Codes, Floats, Ints, empty_rows, first_code
from policies.costs import SATURATED_POINTS
from policies.shedding.contract import (
    ADMITTED,
    POSTPONED,
    BundleOutcome,
    Evidence,
    Examined,
    Headline,
    OutcomeText,
    Proposal,
    SheddingPlan,
    SheddingPolicy,
    stand_by,
)
from policies.shedding.fleet_planner.levels import (
    AVERAGED_ROUNDS,
    EVIDENCE,
    ROUNDS,
    UNFINISHED,
    WAITED,
    FleetPlannerMemory,
    FleetPlannerSettings,
    Levels,
    carry,
    judge,
    note_unfinished,
    remember,
)
from policies.shedding.fleet_planner.search import Fleet, Found, search
from policies.shedding.plan import FEWEST_BROKERS, PlanBuilder, candidates, examine_nothing
from policies.shedding.view import DESTINATION_RISES, NOBODY, SOURCE_FALLS, RoundView

OUTCOME_TEXTS: Final[Mapping[str, OutcomeText]] = {
    "within-spread": OutcomeText(
        meaning="its level is within the acceptable spread",
        remedy="its broker has to be further above the least used one than the acceptable spread",
    ),
    "receiving": OutcomeText(
        meaning="bundles of hotter brokers go there in this round",
        remedy="its broker takes bundles of hotter brokers in this round",
    ),
    "not-sure": OutcomeText(
        meaning="it stands out by the first number of points, and the second is needed to be certain",
        advice="wait, or lower `noise_multiple`",
        remedy="its broker has to stand out more, or for longer, or noise_multiple has to be lower",
        example="not-sure 16.1/17.3",
    ),
    "no-better-place": OutcomeText(
        meaning="it stands out, but no bundle that may move would help",
        advice="see the outcomes of its bundles; allow splits: `[pulsar.split]`; if they have no traffic, declare `topics_count` or "
        "`sessions_count` in `[pulsar.capacity]`, small enough that it shows above CPU",
        remedy="another bundle of its broker has to help, or splits have to be on ([pulsar.split]), or, if its bundles have no traffic, "
        "topics_count or sessions_count has to be declared in [pulsar.capacity]",
    ),
    "every-broker-hot": OutcomeText(
        meaning="it stands out, no move helps, and even the coldest broker is above 85 %",
        advice="add brokers",
        remedy="another broker has to have room for its bundles: add brokers",
    ),
    "no-comparable-broker": OutcomeText(
        meaning="it is far above a broker that does not measure what its bundles load, and above none that does",
        advice="declare what the colder one can carry: `[pulsar.capacity.brokers]`; see the finding `not-measured`",
        remedy="a much colder broker has to measure what its bundles load: declare [pulsar.capacity.brokers]",
    ),
    "budget-spent": OutcomeText(
        meaning="it stands out, and a budget allows no more moves now",
        advice="wait, or raise the limit of `[pulsar.guards]` that the outcomes of its bundles name",
        remedy="a budget has to allow more moves: it is that of a round or of an hour",
    ),
    "promises-failed": OutcomeText(
        meaning="most of the last unloads did not help as they should have",
        advice="see the finding `promises-failed`, and the [runbook](../run/runbooks/promises-failed.md)",
        remedy="unloads have to help again, see the finding promises-failed, or: `trimtab resume`",
    ),
}


NAME: Final = "fleet-planner"


class Outcome(Code):
    """What became of a row that was examined."""

    FIRED = 0
    RECEIVING = 1
    WITHIN_SPREAD = 2
    NOT_SURE = 3
    NO_BETTER_PLACE = 4
    EVERY_BROKER_HOT = 5
    BUDGET_SPENT = 6
    PROMISES_FAILED = 7
    NO_COMPARABLE_BROKER = 8
    SOLE_BROKER = 9


OUTCOMES = Outcome.names()

TRIGGERS = ("", "spread")
_SHOWN_DIGITS = 6
_FEW_BROKERS = 10
MOST_REMEMBERED_RATIO = 0.9
"""Most of the evidence that is needed which may be left from earlier rounds: no plan is made of a round that shows no spread. It is less
while a broker is new: its first reports count in every level, so that the errors of these are not independent."""
HOT_POINTS = 85.0
"""Usage from which on a fleet needs brokers: where even the coldest is above it and no move helps, it says so."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spread:
    """How far each broker is above the coldest one that it may give to."""

    cold: Ints
    """That broker, (n,); itself where there is none."""
    apart: Floats
    """Points above it, (n,)."""
    coldest: int
    """The coldest broker that may receive, comparable or not; 0 where none may."""
    above_coldest: Floats
    """Points above that one, (n,); below 0 where there is none."""
    error: Floats
    """Standard error of ``apart``, (n,)."""
    needed_points: Floats
    """Points from which on the difference is certainly above the acceptable one, (n,)."""
    evidence: Floats
    """By how many errors it was above the acceptable one, added up over the rounds, (n,)."""

    @property
    def is_certain(self) -> Bools:
        """Where the difference is certain, (n,)."""
        return (self.apart >= self.needed_points) & (self.apart > 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pending:
    """The memory of a round before it is known which moves happen."""

    memory: FleetPlannerMemory
    brokers: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Source and destination of each move."""
    excess_points: tuple[Floats, Floats] = (np.zeros((0, 0)), np.zeros((0, 0)))
    """What the traffic of each move's bundle costs them beyond its running averages, (u, resources) each."""


def plan(view: RoundView, memory: FleetPlannerMemory, settings: FleetPlannerSettings) -> Proposal[_Pending]:
    """Decide one round."""
    if not len(view.brokers):
        return Proposal(PlanBuilder().build(examine_nothing(OUTCOMES, TRIGGERS)), _Pending(memory=memory))
    levels = judge(view, memory)
    spread = _spread(view, levels, settings)
    hold = _why_nobody_gives(view, spread, settings)
    found = Found() if hold is not None else search(view, levels, spread.cold, settings)
    examined, place = _examine(view, levels, spread, found, settings, hold)
    levels.learned[:, EVIDENCE] = spread.evidence
    waits = hold is not None or levels.learned[:, WAITED].any()
    if found.is_cut or not (waits and (spread.apart > settings.goal_points).any()):
        levels.fleet[UNFINISHED] = found.is_cut
    is_alone = len(view.brokers) < FEWEST_BROKERS
    after = memory if is_alone else remember(memory, view.brokers.names, levels.learned, levels.fleet)
    sketch = _plan(view, levels, found, settings, examined, place)
    return Proposal(sketch, _pending(view, levels, sketch, after))


def _pending(view: RoundView, levels: Levels, sketch: SheddingPlan, memory: FleetPlannerMemory) -> _Pending:
    rows, names = sketch.unload_rows, view.brokers.names
    if not len(rows):
        return _Pending(memory=memory)
    owners, destinations = view.bundles.owners_of(rows), sketch.unload_destinations
    return _Pending(
        memory=memory,
        brokers=([names[row] for row in owners.tolist()], [names[row] for row in destinations.tolist()]),
        excess_points=(
            levels.excess_points(view, rows, owners, owners),
            levels.excess_points(view, rows, owners, destinations),
        ),
    )


def settle(proposal: Proposal[_Pending], fates: Codes) -> FleetPlannerMemory:
    """The memory of the round, with what moves along; a plan of which some moves have to wait goes on in the next one."""
    pending, admitted = proposal.pending, fates == ADMITTED
    memory = pending.memory
    if admitted.any():
        memory = carry(memory, pending.brokers, pending.excess_points, admitted)
    return note_unfinished(memory) if (fates == POSTPONED).any() else memory


def _spread(view: RoundView, levels: Levels, settings: FleetPlannerSettings) -> _Spread:
    """How far apart brokers are, and whether that is certain.

    By how many errors a broker is above the acceptable spread is added up over the rounds (a sequential test, Page's CUSUM): a large
    difference is certain at once, one near the limit after some rounds, and noise around a smaller one never adds up. A plan that was
    cut short goes on to its goal: it was certain already.
    """
    fleet = Fleet(view, levels)
    cold, room = fleet.coldest(), np.where(fleet.may_receive, levels.score, np.inf)
    usage = np.maximum(100.0 * view.brokers.usage_ratio, SATURATED_POINTS)
    # a full broker's load is known, but it shows only in part
    shown = np.minimum(levels.score, usage)
    apart = shown - levels.score[cold]
    error = np.hypot(levels.error, levels.error[cold])
    multiple = settings.noise_multiple * _largest_of(len(error))
    before, enough = levels.learned[:, EVIDENCE], settings.acceptable_spread_points
    if levels.fleet[UNFINISHED]:
        before, enough = np.maximum(before, MOST_REMEMBERED_RATIO * multiple), settings.goal_points
    needed = enough + error * np.maximum(multiple - before, 0.0)
    known_ratio = np.minimum(levels.learned[:, ROUNDS] / AVERAGED_ROUNDS, 1.0)
    most = MOST_REMEMBERED_RATIO * known_ratio * settings.noise_multiple
    errors = np.divide(apart - enough, error, out=np.zeros_like(error), where=error > 0)
    evidence = np.clip(before + errors, 0.0, most)
    return _Spread(
        cold=cold,
        apart=apart,
        coldest=int(np.argmin(room)),
        above_coldest=shown - room.min(),
        error=error,
        needed_points=needed,
        evidence=evidence,
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
    outcome = np.full(count, Outcome.WITHIN_SPREAD, dtype=np.int8)
    stands_out = spread.apart > settings.acceptable_spread_points
    if hold is not None:
        outcome[stands_out] = hold
    elif found.is_cut:
        outcome[stands_out] = Outcome.BUDGET_SPENT
    outcome[stands_out & ~levels.is_clear] = Outcome.NOT_SURE
    stuck = sorted(found.stuck)
    outcome[stuck] = np.where(
        levels.score[spread.cold[stuck]] >= HOT_POINTS, Outcome.EVERY_BROKER_HOT, Outcome.NO_BETTER_PLACE
    )
    outcome[sorted(found.waiting)] = Outcome.BUDGET_SPENT
    is_unlike = ~stands_out & (spread.above_coldest > settings.acceptable_spread_points)
    outcome[~stands_out] = Outcome.WITHIN_SPREAD if count >= FEWEST_BROKERS else Outcome.SOLE_BROKER
    outcome[is_unlike] = Outcome.NO_COMPARABLE_BROKER
    low = np.where(spread.cold == np.arange(count), NOBODY, spread.cold)
    low[is_unlike] = spread.coldest
    for move in reversed(found.moves):
        outcome[move.destination] = Outcome.RECEIVING
        low[move.source] = move.destination
    outcome[[move.source for move in found.moves]] = Outcome.FIRED
    columns = {
        "level_points": levels.score,
        "coldest_points": levels.score[spread.cold],
        "apart_points": spread.apart,
        "acceptable_spread_points": np.full(count, settings.acceptable_spread_points),
        "goal_points": np.full(count, settings.goal_points),
        "needed_points": spread.needed_points,
        "error_points": spread.error,
        "noise_points": np.full(count, levels.noise_points),
    }
    examined = Examined(
        high=order,
        low=low[order],
        outcome=outcome[order],
        outcomes=OUTCOMES,
        trigger=np.where(stands_out | (outcome == Outcome.FIRED), 1, 0).astype(np.int8)[order],
        triggers=TRIGGERS,
        evidence={name: _round_shown(column[order]) for name, column in columns.items()},
    )
    return examined, place


def _why_nobody_gives(view: RoundView, spread: _Spread, settings: FleetPlannerSettings) -> int | None:
    """Outcome of brokers that stand out in a round without a plan; None where a plan is made."""
    if not spread.is_certain.any():
        return Outcome.NOT_SURE
    return Outcome.PROMISES_FAILED if _have_promises_failed(view, settings) else None


def _have_promises_failed(view: RoundView, settings: FleetPlannerSettings) -> bool:
    last = view.promises()[-settings.promises_count :] if settings.promises_count else []
    failed_count = sum(not promise.is_kept for promise in last)
    return failed_count > 0 and failed_count >= settings.failed_promises_ratio * settings.promises_count


def _plan(
    view: RoundView,
    levels: Levels,
    found: Found,
    settings: FleetPlannerSettings,
    examined: Examined,
    place: Ints,
) -> SheddingPlan:
    sources = np.array([move.source for move in found.moves], dtype=np.int64)
    rows = np.array([move.bundle for move in found.moves], dtype=np.int64)
    tried_rows, tried_examined = empty_rows(), empty_rows()
    gives = np.flatnonzero(
        np.isin(
            examined.outcome,
            (Outcome.FIRED, Outcome.NO_BETTER_PLACE, Outcome.EVERY_BROKER_HOT, Outcome.BUDGET_SPENT),
        )
    )
    if len(gives):
        tried = candidates(view.bundles, fired=gives, brokers=examined.high[gives])
        tried, _ = tried.heaviest_first(view.bundles.bytes_per_s[tried.rows])
        tried_rows, tried_examined = tried.rows, tried.examined
    shown = {
        "source_after_points": [move.source_points for move in found.moves],
        "destination_after_points": [move.destination_points for move in found.moves],
        SOURCE_FALLS: [move.falls_points for move in found.moves],
        DESTINATION_RISES: [move.rises_points for move in found.moves],
    }
    return SheddingPlan(
        examined=examined,
        unload_rows=rows,
        unload_destinations=np.array([move.destination for move in found.moves], dtype=np.int64),
        unload_examined=place[sources] if len(sources) else empty_rows(),
        unload_swap_group=rows,
        unload_evidence={name: _round_shown(np.array(column)) for name, column in shown.items()},
        tried_rows=tried_rows,
        tried_outcomes=_tried_outcomes(view, levels, found, tried_rows, examined, tried_examined),
        tried_examined=tried_examined,
        too_heavy=frozenset(_too_heavy(view, levels, found, settings)),
        barred=found.barred,
    )


def _too_heavy(
    view: RoundView, levels: Levels, found: Found, settings: FleetPlannerSettings
) -> Iterator[int]:
    """The heaviest bundle of each broker that would miss the goal because of it even if all that may move beside it left."""
    fleet = Fleet(view, levels)
    for broker in sorted({move.source for move in found.moves}):
        span, receivers = view.bundles.rows_of(broker), fleet.receivers(broker, 0.0)
        points = fleet.amounts(np.arange(span.start, span.stop), broker) * fleet.unit[broker]
        heaviest = int(np.argmin(fleet.scores_after(broker, -points)))
        leaves = view.bundles.movable[span].copy()
        leaves[heaviest] = False
        lowest = float(fleet.scores_after(broker, -points[leaves].sum(axis=0)))
        arrives = (float(fleet.score[broker]) - lowest) / len(receivers)
        if lowest > float(fleet.score[receivers].mean()) + arrives + settings.goal_points:
            yield span.start + heaviest


def _tried_outcomes(
    view: RoundView, levels: Levels, found: Found, tried: Ints, examined: Examined, tried_examined: Ints
) -> Codes:
    """Outcome of each tried bundle; of a broker that could not be helped, which of its bundles are too small or too big and which have no place."""
    outcomes = np.full(len(tried), BundleOutcome.NEED_MET, dtype=np.int8)
    if not len(tried):
        return outcomes
    fleet, bundles = Fleet(view, levels), view.bundles
    owners = examined.high[tried_examined]
    if found.is_cut:
        after = levels.score.copy()
        for move in found.moves:
            after[[move.source, move.destination]] = move.source_points, move.destination_points
        wants_more = after[owners] > after.min() + examined.evidence["goal_points"][tried_examined]
        outcomes[wants_more] = BundleOutcome.ROUND_FULL
    outcomes[np.isin(owners, sorted(found.waiting))] = BundleOutcome.BUDGET
    for broker in np.unique(owners[np.isin(owners, sorted(found.stuck))]).tolist():
        of_broker = owners == broker
        why = _why_it_stays(fleet, tried[of_broker], broker)
        if broker in found.not_worth_it:
            why[why == BundleOutcome.NO_DESTINATION] = BundleOutcome.TOO_LITTLE_BENEFIT
        outcomes[of_broker] = why
    loads = bundles.messages_per_s[tried] + bundles.bytes_per_s[tried] <= 0
    for owner in np.unique(owners[loads]).tolist():
        idle = loads & (owners == owner)
        takes = (fleet.amounts(tried[idle], owner) * fleet.unit[owner]).max(axis=1) > 0
        outcomes[np.flatnonzero(idle)[~takes]] = BundleOutcome.NO_TRAFFIC
    outcomes[~bundles.movable[tried]] = BundleOutcome.MASKED
    outcomes[np.isin(tried, [move.bundle for move in found.moves])] = BundleOutcome.ACTED
    return outcomes


def _why_it_stays(fleet: Fleet, rows: Ints, broker: int) -> Codes:
    """Why each bundle of a broker that could not be helped stays, (k,)."""
    receivers = fleet.receivers(broker, 0.0)
    if not len(receivers):
        return np.full(len(rows), BundleOutcome.NO_DESTINATION, dtype=np.int8)
    amounts, before = fleet.amounts(rows, broker), fleet.score[broker]
    falls = before - fleet.scores_after(broker, -amounts * fleet.unit[broker])
    tests = [
        (falls < fleet.least_fall(broker), BundleOutcome.TOO_LITTLE_BENEFIT),
        (fleet.lowest_with(receivers, amounts) >= before, BundleOutcome.TOO_BIG),
    ]
    return first_code(tests, BundleOutcome.NO_DESTINATION)


def _round_shown(column: Floats) -> Floats:
    """The values as they are shown, equal on every processor."""
    return np.round(column, _SHOWN_DIGITS) + 0.0


def _describe_source(source: str, _partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} is at {evidence['level_points']:.1f} %, {evidence['apart_points']:.1f} points above the least used broker"
        f"{_describe_cause(evidence)}; after the move {source} is expected at {evidence.get('source_after_points', 0):.1f} % "
        f"and the bundle's new broker at {evidence.get('destination_after_points', 0):.1f} %"
    )


def _describe_cause(evidence: Evidence) -> str:
    """What makes it stand out, or, where it does not by itself, to what the plan goes on."""
    apart, needed, acceptable = (
        float(evidence[name]) for name in ("apart_points", "needed_points", "acceptable_spread_points")
    )
    if apart < needed or needed < acceptable:
        return f", and the plan goes on to bring the group within {evidence['goal_points']:g} points"
    return f" ({acceptable:g} acceptable, {needed:.1f} needed to be sure with noise of {evidence['noise_points']:.1f})"


def _describe_not_sure(evidence: Evidence) -> str:
    apart, needed = float(evidence["apart_points"]), float(evidence["needed_points"])
    return (
        f"not-sure {apart:.1f}/{needed:.1f}"
        if apart < needed
        else "not-sure, its last reports contradict its level or leave much of it out"
    )


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=FleetPlannerSettings,
    memory=FleetPlannerMemory,
    plan=plan,
    settle=settle,
    outcomes=OUTCOMES,
    outcome_texts=OUTCOME_TEXTS,
    calm_outcomes=("within-spread", "receiving", "sole-broker"),
    triggers=TRIGGERS,
    sentences={TRIGGERS[1]: _describe_source},
    details={"not-sure": _describe_not_sure},
    headline=Headline(
        meaning="the level of the most used broker less that of the least used one",
        stand_of=stand_by("apart_points", "needed_points"),
    ),
    plans_rounds=True,
)
