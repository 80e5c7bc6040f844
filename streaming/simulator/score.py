"""What is counted of a simulated run."""

from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np

from policies.columns import Bools, Floats
from streaming.simulator.fleet import Moved
from streaming.simulator.players import BALANCED_POINTS

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


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one run."""

    rounds: int
    """Rounds played; minutes of a simulated fleet."""
    unbalanced_rounds: int
    """Rounds that ended with a structural spread above 15 points."""
    ended_balanced: bool
    """Whether the last ten rounds were balanced."""
    unloads: int
    """Moves that the balancer asked for."""
    failed: int
    """Moves that it asked for and that did not happen."""
    splits: int
    needless: int
    """Unloads while the structural spread was at most 15 points."""
    moved_twice: int
    """Unloads of a bundle that had been unloaded before."""
    sent_back: int
    """Unloads that returned a bundle to where its previous unload had taken it from."""
    wrong_sign: int
    """Unloads whose destination was hotter than their source."""
    moved_messages_ratio: float
    """Message rate of everything moved, as a multiple of the fleet's."""
    disrupted_messages: float
    """Messages whose clients had to wait."""
    recovery_rounds: list[int | None]
    """Rounds from each disturbance until the fleet was first balanced again, 0 if it stayed so; None: not before the next one."""
    hottest_points: float
    """Mean of the hottest broker's structural usage."""
    spread_points: float
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
        self.spread: list[float] = []
        self.points: list[Floats] = []
        """Structural usage of every broker at the end of each round; NaN where it is not there."""
        self.marks: list[Mark] = []
        self.unloads = self.splits = self._failed = 0
        self._needless = self._twice = self._back = self._wrong = 0
        self._moved_ratio = self._disrupted = 0.0
        self._came_from: dict[str, int] = {}
        self._asked: dict[str, tuple[bool, Floats]] = {}

    def note_decision(self, bundle: str) -> None:
        """An unload was decided."""
        points = np.where(self._fleet.alive, self._fleet.structural_points(), np.nan)
        self.unloads += 1
        self._needless += bool(np.nanmax(points) - np.nanmin(points) <= BALANCED_POINTS)
        self._asked[bundle] = (True, points)

    def note_moved(self, moved: Moved) -> None:
        """An order ended; moves by other balancers are plotted, not counted."""
        bundle = moved.order.bundle
        if moved.succeeded:
            minute = moved.time_s / _MINUTE_S
            self.marks.append(Mark(minute=minute, source=moved.source, destination=moved.destination))
        asked = self._asked.pop(bundle, None)
        if asked is None:
            return
        if not moved.succeeded:
            self._failed += 1
            return
        _, points = asked
        before = self._came_from.get(bundle)
        self._twice += before is not None
        self._back += before == moved.destination
        self._came_from[bundle] = moved.source
        self._wrong += bool(points[moved.destination] > points[moved.source])
        self._moved_ratio += moved.messages_per_s / self._fleet.messages_per_s()
        self._disrupted += moved.messages_per_s * moved.outage_s

    def end_round(self) -> None:
        """A round is over."""
        points = np.where(self._fleet.alive, self._fleet.structural_points(), np.nan)
        self.points.append(points)
        self.spread.append(float(np.nanmax(points) - np.nanmin(points)))

    def score(self) -> Score:
        """The figures."""
        unbalanced = [each > BALANCED_POINTS for each in self.spread]
        return Score(
            rounds=len(self.spread),
            unbalanced_rounds=sum(unbalanced),
            ended_balanced=not any(unbalanced[-_LAST_ROUNDS_COUNT:]),
            unloads=self.unloads,
            failed=self._failed,
            splits=self.splits,
            needless=self._needless,
            moved_twice=self._twice,
            sent_back=self._back,
            wrong_sign=self._wrong,
            moved_messages_ratio=self._moved_ratio,
            disrupted_messages=self._disrupted,
            recovery_rounds=self._recoveries(unbalanced),
            hottest_points=float(np.mean([np.nanmax(each) for each in self.points])),
            spread_points=float(np.mean(self.spread)),
        )

    def _recoveries(self, unbalanced: list[bool]) -> list[int | None]:
        starts = [int(each // self.round_s) for each in self._disturbed_s]
        spans = pairwise([*starts, len(unbalanced)])
        return [_recovery(unbalanced[start:end]) for start, end in spans]


def _recovery(unbalanced: list[bool]) -> int | None:
    """Rounds until the first unbalanced span is over, 0 without one; None where it is not over at the end."""
    if not any(unbalanced):
        return 0
    first = unbalanced.index(True)
    return next((place for place in range(first, len(unbalanced)) if not unbalanced[place]), None)
