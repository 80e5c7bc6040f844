"""What balances a simulated fleet: the controller with some settings, a balancer that knows the true load, or nothing."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from policies.columns import Floats
from state.closing import Identity
from state.controller import Controller
from state.events import Event
from state.outputs import Output, Split, Unload
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.settings import SettingsSource
from state.store import DictStore
from streaming.simulator.fleet import Fleet
from streaming.simulator.machines import saturate

CLUSTER = "simulated"
ACTING = Identity(mode="act")
"""The identity with which a controller that balances a simulated fleet is started."""
BALANCED_POINTS = 15.0
"""Structural spread up to which a fleet counts as balanced."""
_GOAL_POINTS = BALANCED_POINTS / 2
_MOST_MOVES_A_ROUND = 200
_SMALLEST_GAIN_POINTS = 0.5
_UNLOAD, _SPLIT = msgspec.json.Decoder(Unload), msgspec.json.Decoder(Split)


class Wish(NamedTuple):
    """An unload that a balancer decided."""

    bundle: str
    destination: str | None
    """None: Pulsar chooses."""
    id: str


class Cut(NamedTuple):
    """A split that a balancer decided."""

    bundle: str
    boundaries: list[int]
    id: str


Wishes = tuple[list[Wish], list[Cut]]


class Player(Protocol):
    """Looks at what arrives, or at the fleet itself, and decides what to move."""

    def play(self, events: Sequence[Event], fleet: Fleet) -> Wishes:
        """What to do after a tick."""


class Nobody:
    """Leaves everything as it is."""

    def play(self, events: Sequence[Event], fleet: Fleet) -> Wishes:  # noqa: ARG002
        """No actions."""
        return [], []


class Live:
    """The controller as it runs live, from events to actions."""

    def __init__(self, settings: SettingsSource) -> None:
        self._controller = Controller(CLUSTER, DictStore(), identity=ACTING, settings=settings)

    def play(self, events: Sequence[Event], fleet: Fleet) -> Wishes:  # noqa: ARG002
        """The actions of the rounds that the events close."""
        outputs: list[Output] = []
        for event in events:
            step = self._controller.step(event)
            assert step.rejection is None, step.rejection
            outputs += step.outputs
        return wishes_of(outputs)


def wishes_of(outputs: Sequence[Output]) -> Wishes:
    """The unloads and splits among the outputs of a controller."""
    wishes: list[Wish] = []
    cuts: list[Cut] = []
    for output in outputs:
        if output.type == UNLOAD_TYPE:
            unload = _UNLOAD.decode(output.data)
            wishes.append(Wish(unload.bundle, unload.destination_broker, output.id))
        elif output.type == SPLIT_TYPE:
            split = _SPLIT.decode(output.data)
            cuts.append(Cut(split.bundle, split.boundaries, output.id))
    return wishes, cuts


class Perfect:
    """Knows the structural load of every bundle and broker, and what a move does; it acts once a minute."""

    def __init__(self, every_ticks: int = 6) -> None:
        self._every_ticks, self._ticks = every_ticks, 0

    def play(self, events: Sequence[Event], fleet: Fleet) -> Wishes:  # noqa: ARG002
        """The moves after which the fleet is well balanced; none while it is balanced."""
        self._ticks += 1
        if self._ticks % self._every_ticks or spread_points(fleet) <= BALANCED_POINTS:
            return [], []
        names = fleet.setup.machines.names
        return [
            Wish(fleet.bundles.names[row], names[broker], "") for row, broker in _plan_perfectly(fleet)
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
        worse = np.maximum(_largest(demand[hot] - at_hot), _largest(demand[cold] + at_cold))
        best = int(np.argmin(worse))
        if demand[hot].max() - worse[best] < _SMALLEST_GAIN_POINTS:
            break
        demand[hot] -= at_hot[best]
        demand[cold] += at_cold[best]
        owner[rows[best]] = cold
        moves.append((int(rows[best]), cold))
    return moves


def _largest(demand: Floats) -> Floats:
    found: Floats = demand.max(axis=1)
    return found
