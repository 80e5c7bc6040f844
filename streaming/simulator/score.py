"""What is counted of a run, and the score card: means over the seeds, for each scenario and over all of them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from policies.columns import Bools, Floats
from streaming.simulator.fleet import Moved

_MINUTE_S = 60.0
_LAST_ROUNDS_COUNT = 10
"""Rounds at the end that have to be balanced for a run to count as ended balanced."""


class ObservedFleet(Protocol):
    """A fleet, as far as ``Counter`` reads it; n brokers."""

    @property
    def alive(self) -> Bools:
        """Brokers that are there, (n,)."""

    def structural_points(self) -> Floats:
        """Usage of each broker, (n,)."""

    def messages_per_s(self) -> float:
        """Message rate of the fleet, in + out."""


class Score(msgspec.Struct, kw_only=True):
    """Figures of one run. ``Counter`` adds up the actions while it goes on, and fills in the figures of its rounds at its end."""

    rounds: int = 0
    """Rounds played; minutes of a simulated fleet."""
    unbalanced_rounds: int = 0
    """Rounds that ended with a structural spread above 15 points."""
    ended_balanced: bool = False
    """Whether the last ten rounds were balanced."""
    unloads: int = 0
    """Moves that the balancer asked for."""
    failed: int = 0
    """Moves that it asked for and that did not happen."""
    splits: int = 0
    needless: int = 0
    """Unloads while the structural spread was at most 15 points."""
    moved_twice: int = 0
    """Unloads of a bundle that had been unloaded before."""
    sent_back: int = 0
    """Unloads that returned a bundle to where its previous unload had taken it from."""
    wrong_sign: int = 0
    """Unloads whose destination was hotter than their source."""
    moved_messages_ratio: float = 0.0
    """Message rate of everything moved, as a multiple of the fleet's."""
    disrupted_messages: float = 0.0
    """Messages whose clients had to wait."""
    recovery_rounds: list[int | None] = []
    """Rounds from each disturbance until the fleet was first balanced again, 0 if it stayed so; None: not before the next one."""
    hottest_points: float = 0.0
    """Mean of the hottest broker's structural usage."""
    spread_points: float = 0.0
    """Mean of the structural spread."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A move, for the plot."""

    minute: float
    source: int
    destination: int


class Counter:
    """Counts while a run goes on."""

    def __init__(
        self,
        fleet: ObservedFleet,
        brokers: tuple[str, ...],
        *,
        round_s: float = _MINUTE_S,
        disturbed_s: tuple[float, ...] = (0.0,),
    ) -> None:
        self._fleet, self._disturbed_s = fleet, disturbed_s
        self.brokers, self.round_s = brokers, round_s
        self.points: list[Floats] = []
        """Structural usage of every broker at the end of each round; NaN where it is not there."""
        self.marks: list[Mark] = []
        self._score = Score()
        self._came_from: dict[str, int] = {}
        self._asked: dict[str, Floats] = {}

    def note_decision(self, bundle: str) -> None:
        """An unload was decided."""
        points = self._points_now()
        self._score.unloads += 1
        self._score.needless += bool(_spread(points) <= BALANCED_POINTS)
        self._asked[bundle] = points

    def note_split(self, *, succeeded: bool) -> None:
        """A split was carried out, or failed."""
        self._score.splits += succeeded

    def note_moved(self, moved: Moved) -> None:
        """An order ended; moves by other balancers are plotted, not counted."""
        if moved.succeeded:
            minute = moved.time_s / _MINUTE_S
            self.marks.append(Mark(minute=minute, source=moved.source, destination=moved.destination))
        points, score = self._asked.pop(moved.bundle, None), self._score
        if points is None:
            return
        if not moved.succeeded:
            score.failed += 1
            return
        before = self._came_from.get(moved.bundle)
        score.moved_twice += before is not None
        score.sent_back += before == moved.destination
        self._came_from[moved.bundle] = moved.source
        score.wrong_sign += bool(points[moved.destination] > points[moved.source])
        score.moved_messages_ratio += moved.messages_per_s / self._fleet.messages_per_s()
        score.disrupted_messages += moved.messages_per_s * moved.outage_s

    def end_round(self) -> None:
        """A round is over."""
        self.points.append(self._points_now())

    def score(self) -> Score:
        """The figures."""
        spreads, score = [_spread(each) for each in self.points], self._score
        unbalanced = [each > BALANCED_POINTS for each in spreads]
        starts = [int(each // self.round_s) for each in self._disturbed_s]
        spans = pairwise([*starts, len(unbalanced)])
        score.rounds, score.unbalanced_rounds = len(spreads), sum(unbalanced)
        score.ended_balanced = not any(unbalanced[-_LAST_ROUNDS_COUNT:])
        score.recovery_rounds = [_recovery(unbalanced[start:end]) for start, end in spans]
        score.hottest_points = float(np.mean([np.nanmax(each) for each in self.points]))
        score.spread_points = float(np.mean(spreads))
        return score

    def _points_now(self) -> Floats:
        return np.where(self._fleet.alive, self._fleet.structural_points(), np.nan)


def _spread(points: Floats) -> float:
    return float(np.nanmax(points) - np.nanmin(points))


def _recovery(unbalanced: list[bool]) -> int | None:
    """Rounds until the first unbalanced span is over, 0 without one; None where it is not over at the end."""
    if not any(unbalanced):
        return 0
    first = unbalanced.index(True)
    return next((place for place in range(first, len(unbalanced)) if not unbalanced[place]), None)


BALANCED_POINTS = 15.0
"""Structural spread up to which a fleet counts as balanced."""


_MOST_POINTS = 1500
"""Most points of a line in a plot, more than its pixels; in a longer run every point is the mean of several rounds."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A run over time, for the plot."""

    brokers: list[str]
    points: list[list[float | None]]
    """Structural usage of each broker; None while it is not there."""
    marks: list[Mark]
    point_minutes: float = 1.0
    """Minutes from one point to the next."""
    start_ms: int | None = None
    """When it begins; None for a fleet that does not exist."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one scenario with one seed and one balancer."""

    scenario: str
    candidate: str
    seed: int
    score: Score
    series: Series | None


def series_of(counter: Counter, *, start_ms: int | None = None) -> Series:
    """The points and marks of a run for its plot, round by round or thinned out."""
    points = np.array(counter.points)
    every = -(-len(points) // _MOST_POINTS)
    if every > 1:
        points = np.array([_mean(points[at : at + every]) for at in range(0, len(points), every)])
    columns = np.round(points.T, 1)
    return Series(
        brokers=list(counter.brokers),
        points=[[None if np.isnan(each) else float(each) for each in column] for column in columns],
        marks=counter.marks,
        point_minutes=every * counter.round_s / 60.0,
        start_ms=start_ms,
    )


def _mean(points: Floats) -> Floats:
    """Mean of the known values of each column; NaN for a column without any."""
    known = ~np.isnan(points)
    total = np.where(known, points, 0.0).sum(axis=0)
    found: Floats = np.divide(
        total, known.sum(axis=0), out=np.full(points.shape[1], np.nan), where=known.any(axis=0)
    )
    return found


ALL = "all scenarios"
Figures = dict[str, float | None]


class Column(NamedTuple):
    """A figure of the card."""

    key: str
    title: str
    meaning: str
    digits: int = 1
    value: Callable[[Score], float | None] | None = None
    """None: the figure of that name."""

    def value_of(self, score: Score) -> float | None:
        """The figure of one run; None where it is not known."""
        found: float | None = getattr(score, self.key) if self.value is None else self.value(score)
        return found


def _mean_recovery(score: Score) -> float | None:
    known = [each for each in score.recovery_rounds if each is not None]
    return fmean(known) if known else None


COLUMNS = (
    Column(
        "unbalanced_percent",
        "unbalanced %",
        "rounds that ended with more than 15 points between the hottest and the coldest broker, noise left out",
        value=lambda score: 100.0 * score.unbalanced_rounds / score.rounds,
    ),
    Column("unloads", "unloads", "moves that were decided"),
    Column("needless", "needless", "unloads while the fleet was within 15 points", 2),
    Column("sent_back", "sent back", "unloads back to where the bundle came from", 2),
    Column("moved_twice", "twice", "unloads of a bundle that had been unloaded before"),
    Column("wrong_sign", "uphill", "unloads to a broker that was hotter than the source"),
    Column("splits", "splits", "bundles cut"),
    Column(
        "moved_percent",
        "moved %",
        "message rate of everything moved, in percent of the fleet's",
        value=lambda score: 100.0 * score.moved_messages_ratio,
    ),
    Column("disrupted_messages", "disrupted", "messages that had to wait for a move", 0),
    Column(
        "recovery_rounds",
        "recovery",
        "rounds from a disturbance until the fleet was balanced, where it was before the next one",
        value=_mean_recovery,
    ),
    Column(
        "ended_balanced_percent",
        "ends balanced %",
        "runs whose last ten rounds were balanced",
        0,
        lambda score: 100.0 * score.ended_balanced,
    ),
    Column("hottest_points", "hottest", "mean usage of the hottest broker"),
    Column("spread_points", "spread", "points between the hottest and the coldest broker, mean"),
)


def card(runs: Sequence[Run]) -> dict[str, dict[str, Figures]]:
    """Figures by scenario (all of them first) and candidate, in the order of the runs."""
    found = {ALL: _by_candidate(runs)}
    for scenario in dict.fromkeys(run.scenario for run in runs):
        found[scenario] = _by_candidate([run for run in runs if run.scenario == scenario])
    return found


def _by_candidate(runs: Sequence[Run]) -> dict[str, Figures]:
    names = dict.fromkeys(run.candidate for run in runs)
    return {name: _figures([run.score for run in runs if run.candidate == name]) for name in names}


def _figures(scores: Sequence[Score]) -> Figures:
    found: Figures = {}
    for column in COLUMNS:
        values = [value for score in scores if (value := column.value_of(score)) is not None]
        found[column.key] = round(fmean(values), 3) if values else None
    return found


def show(value: float | None, column: Column) -> str:
    """A figure as text; a dash where there is none."""
    return "-" if value is None else f"{value:,.{column.digits}f}"
