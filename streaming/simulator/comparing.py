"""Several balancers on the same scenarios and seeds, in as many processes as there are processors."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec
import numpy as np

from policies.columns import Floats
from state.settings import SettingsSource
from streaming.simulator.players import CLUSTER, Live, Nobody, Perfect, Player
from streaming.simulator.runs import run
from streaming.simulator.score import Counter, Mark, Score
from streaming.simulator.setup import Setup

Build = Callable[[np.random.Generator], Setup]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A balancer to compare."""

    name: str
    kind: Literal["live", "perfect", "nobody"]
    settings: SettingsSource | None = None
    """The settings of a live one."""

    def player(self) -> Player:
        """A new player, which remembers nothing."""
        if self.kind == "live":
            assert self.settings is not None
            return Live(self.settings)
        return Perfect() if self.kind == "perfect" else Nobody()

    @property
    def splits(self) -> bool:
        """Whether it splits bundles, and so needs to know topics."""
        return self.settings is not None and self.settings.base(CLUSTER).pulsar.split.enabled

    @property
    def needs_published(self) -> bool:
        """Whether its policy uses what brokers with the extensible load manager publish."""
        return self.settings is not None and self.settings.base(CLUSTER).pulsar.policy.reads_published


NOBODY = Candidate(name="nobody acts", kind="nobody")
PERFECT = Candidate(name="perfect information", kind="perfect")


_MOST_POINTS = 1500
"""Most points of a line in a plot, more than its pixels; in a longer run every point is the mean of several rounds."""
JobT = TypeVar("JobT")
RunT = TypeVar("RunT")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run to make."""

    scenario: str
    build: Build
    seed: int
    candidate: Candidate
    with_series: bool


def jobs_of(
    scenarios: Sequence[tuple[str, Build]], seeds: Sequence[int], candidates: Sequence[Candidate]
) -> list[Job]:
    """Every scenario with every seed and candidate; the runs with the first seed are plotted."""
    return [
        Job(scenario=name, build=build, seed=seed, candidate=candidate, with_series=seed == seeds[0])
        for name, build in scenarios
        for seed in seeds
        for candidate in candidates
    ]


def play(job: Job) -> Run:
    """Make a run."""
    candidate = job.candidate
    counter = run(
        job.scenario,
        job.seed,
        job.build,
        candidate.player(),
        with_topics=candidate.splits,
        are_published=candidate.needs_published,
    )
    return Run(
        scenario=job.scenario,
        candidate=job.candidate.name,
        seed=job.seed,
        score=counter.score(),
        series=series_of(counter) if job.with_series else None,
    )


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


def play_all(
    jobs: Sequence[JobT], play_one: Callable[[JobT], RunT], processes_count: int | None = None
) -> Iterator[RunT]:
    """Every run as it ends; in an order that differs from time to time."""
    count = min(processes_count or os.cpu_count() or 1, len(jobs))
    if count <= 1:
        yield from map(play_one, jobs)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy whatever threads the program has
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        for done in as_completed([pool.submit(play_one, job) for job in jobs]):
            yield done.result()


def sort_runs(runs: Sequence[Run], jobs: Sequence[Job]) -> list[Run]:
    """The runs in the order of their jobs."""
    place = {(job.scenario, job.seed, job.candidate.name): at for at, job in enumerate(jobs)}
    return sorted(runs, key=lambda each: place[each.scenario, each.seed, each.candidate])
