"""Who balances a simulated fleet, one run of it, and many of them in as many processes as there are processors.

A player is the controller with some settings, a balancer that knows the true load, or nobody. The same seed and the same player
give the same bytes.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgspec
import numpy as np

from state.closing import Identity
from state.controller import Controller
from state.events import Event
from state.outputs import Output, Split, Unload
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.settings import SettingsSource
from state.store import DictStore
from streaming.simulator.fleet import TICK_S, Fleet
from streaming.simulator.reporting import Reporter
from streaming.simulator.score import BALANCED_POINTS, Counter, Run, series_of
from streaming.simulator.setup import Build, saturate

CLUSTER = "simulated"
ACTING = Identity(mode="act")
"""The identity with which a controller that balances a simulated fleet is started."""
_GOAL_POINTS = BALANCED_POINTS / 2
ROUND_TICKS = 6
_MOST_MOVES_A_ROUND = 200
_SMALLEST_GAIN_POINTS = 0.5
_UNLOAD, _SPLIT = msgspec.json.Decoder(Unload), msgspec.json.Decoder(Split)


class UnloadRequest(NamedTuple):
    """An unload that a balancer decided."""

    bundle: str
    destination: str | None
    """None: Pulsar chooses."""
    id: str


class SplitRequest(NamedTuple):
    """A split that a balancer decided."""

    bundle: str
    boundaries: list[int]
    id: str


Requests = tuple[list[UnloadRequest], list[SplitRequest]]


class Player(Protocol):
    """Looks at what arrives, or at the fleet itself, and decides what to move."""

    def play(self, events: Sequence[Event], fleet: Fleet) -> Requests:
        """What to do after a tick."""


class NullBaseline:
    """Leaves everything as it is."""

    def play(self, events: Sequence[Event], fleet: Fleet) -> Requests:  # noqa: ARG002
        """No actions."""
        return [], []


class Live:
    """The controller as it runs live, from events to actions."""

    def __init__(self, settings: SettingsSource) -> None:
        self._controller = Controller(CLUSTER, DictStore(), identity=ACTING, settings=settings)

    def play(self, events: Sequence[Event], fleet: Fleet) -> Requests:  # noqa: ARG002
        """The actions of the rounds that the events close."""
        outputs: list[Output] = []
        for event in events:
            step = self._controller.step(event)
            assert step.rejection is None, step.rejection
            outputs += step.outputs
        return requests_of(outputs)


def requests_of(outputs: Sequence[Output]) -> Requests:
    """The unloads and splits among the outputs of a controller."""
    unloads: list[UnloadRequest] = []
    splits: list[SplitRequest] = []
    for output in outputs:
        if output.type == UNLOAD_TYPE:
            unload = _UNLOAD.decode(output.data)
            unloads.append(UnloadRequest(unload.bundle, unload.destination_broker, output.id))
        elif output.type == SPLIT_TYPE:
            split = _SPLIT.decode(output.data)
            splits.append(SplitRequest(split.bundle, split.boundaries, output.id))
    return unloads, splits


class Perfect:
    """Knows the structural load of every bundle and broker, and what a move does; it acts once a minute."""

    def __init__(self) -> None:
        self._ticks = 0

    def play(self, events: Sequence[Event], fleet: Fleet) -> Requests:  # noqa: ARG002
        """The moves after which the fleet is well balanced; none while it is balanced."""
        self._ticks += 1
        if self._ticks % ROUND_TICKS or spread_points(fleet) <= BALANCED_POINTS:
            return [], []
        names = fleet.setup.machines.names
        return [
            UnloadRequest(fleet.bundles.names[row], names[broker], "")
            for row, broker in _plan_perfectly(fleet)
        ], []


def spread_points(fleet: Fleet) -> float:
    """Structural usage of the hottest broker less that of the coldest."""
    points = fleet.structural_points()[fleet.alive]
    return float(points.max() - points.min())


def _plan_perfectly(fleet: Fleet) -> list[tuple[int, int]]:
    machines = fleet.setup.machines
    demand, owner = fleet.placed_demand(fleet.structural), fleet.bundles.owner.copy()
    moves: list[tuple[int, int]] = []
    while len(moves) < _MOST_MOVES_A_ROUND:
        usage = saturate(demand).max(axis=1)
        hot = int(np.argmax(np.where(fleet.alive, usage, -1.0)))
        cold = int(np.argmin(np.where(fleet.alive, usage, np.inf)))
        rows = np.flatnonzero(owner == hot)
        if usage[hot] - usage[cold] <= _GOAL_POINTS or not len(rows):
            break
        at_hot = machines.cost_points(fleet.structural[rows], np.full(len(rows), hot))
        at_cold = machines.cost_points(fleet.structural[rows], np.full(len(rows), cold))
        worse = np.maximum((demand[hot] - at_hot).max(axis=1), (demand[cold] + at_cold).max(axis=1))
        best = int(np.argmin(worse))
        if demand[hot].max() - worse[best] < _SMALLEST_GAIN_POINTS:
            break
        demand[hot] -= at_hot[best]
        demand[cold] += at_cold[best]
        owner[rows[best]] = cold
        moves.append((int(rows[best]), cold))
    return moves


START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: a fleet that does not exist begins on a day that is easy to read."""


def generators(name: str, seed: int, count: int) -> list[np.random.Generator]:
    """Independent sources of randomness for a scenario and a seed."""
    root = np.random.SeedSequence([seed, crc32(name.encode())])
    return [np.random.default_rng(each) for each in root.spawn(count)]


def run(
    name: str,
    seed: int,
    build: Build,
    player: Player,
    *,
    with_topics: bool,
    are_published: bool = False,
) -> Counter:
    """Play a scenario to its end; the brokers publish their load (``are_published``), or report it."""
    built, traffic, moves, reports = generators(name, seed, 4)
    setup = build(built)
    fleet = Fleet(setup, traffic=traffic, moves=moves)
    reporter = Reporter(
        fleet, reports, start_ms=START_MS, with_topics=with_topics, are_published=are_published
    )
    counter = Counter(fleet, setup.machines.names, disturbed_s=setup.disturbed_s)
    rows = {each: row for row, each in enumerate(setup.machines.names)}
    for tick in range(1, int(setup.hours * 3600 / TICK_S) + 1):
        moved = fleet.tick()
        for each in moved:
            counter.note_moved(each)
        if tick % ROUND_TICKS == 0:
            counter.end_round()
        unloads, splits = player.play(reporter.take(moved), fleet)
        for unload in unloads:
            counter.note_decision(unload.bundle)
            destination = None if unload.destination is None else rows[unload.destination]
            fleet.order(unload.bundle, destination, unload.id)
        for split in splits:
            succeeded = fleet.split(split.bundle, split.boundaries)
            counter.note_split(succeeded=succeeded)
            reporter.answer(split.id, succeeded=succeeded)
    return counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A balancer to compare."""

    name: str
    settings: SettingsSource | None = None
    """Of a controller; None: it has none."""
    baseline: Callable[[], Player] = NullBaseline
    """Who plays where there is no controller."""

    def player(self) -> Player:
        """A new player, which remembers nothing."""
        return self.baseline() if self.settings is None else Live(self.settings)

    @property
    def splits(self) -> bool:
        """Whether it splits bundles, and so needs to know topics."""
        return self.settings is not None and self.settings.base(CLUSTER).pulsar.split.enabled

    @property
    def needs_published(self) -> bool:
        """Whether its policy uses what brokers with the extensible load manager publish."""
        return self.settings is not None and self.settings.base(CLUSTER).pulsar.policy.reads_published


NOBODY = Candidate(name="nobody acts")
PERFECT = Candidate(name="perfect information", baseline=Perfect)


RunT = TypeVar("RunT")


def jobs_of(
    scenarios: Sequence[tuple[str, Build]], seeds: Sequence[int], candidates: Sequence[Candidate]
) -> list[Callable[[], Run]]:
    """Every scenario with every seed and candidate; the runs with the first seed are plotted."""
    return [
        partial(play, name, build, seed, candidate, with_series=seed == seeds[0])
        for name, build in scenarios
        for seed in seeds
        for candidate in candidates
    ]


def play(scenario: str, build: Build, seed: int, candidate: Candidate, *, with_series: bool) -> Run:
    """Make a run."""
    counter = run(
        scenario,
        seed,
        build,
        candidate.player(),
        with_topics=candidate.splits,
        are_published=candidate.needs_published,
    )
    return Run(
        scenario=scenario,
        candidate=candidate.name,
        seed=seed,
        score=counter.score(),
        series=series_of(counter) if with_series else None,
    )


def play_all(
    jobs: Sequence[Callable[[], RunT]],
    processes_count: int | None = None,
    advance: Callable[[int], None] = lambda _count: None,
) -> list[RunT]:
    """The result of every job, in their order; ``advance`` is called with 1 when one has ended."""
    count = min(processes_count or os.cpu_count() or 1, len(jobs))
    if count <= 1:
        runs = []
        for job in jobs:
            runs.append(job())
            advance(1)
        return runs
    context = multiprocessing.get_context("spawn")  # a fork would copy whatever threads the program has
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            with _deaf_children():
                futures = [pool.submit(job) for job in jobs]
            for done in as_completed(futures):
                done.result()
                advance(1)
            return [done.result() for done in futures]
        except BaseException:  # the pool would first finish what runs, which takes minutes
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            raise


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that are started inside hear neither Ctrl-C, which a terminal sends to all of them, nor SIGTERM, from their first moment.

    A request to stop that comes meanwhile counts after the block: within it a process may have been started that nobody knows yet.
    Only for the main thread.
    """
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    heard: list[int] = []
    handlers = [signal.signal(number, lambda number, _: heard.append(number)) for number in numbers]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    if heard:
        raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Let this worker end when the program was killed: it would wait for its next job for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
