"""A simulated fleet as it really is: traffic, usage, and bundles that move, tick by tick.

Time is in seconds since the beginning. A move takes effect some ticks after it was ordered: the bundle has another owner at once, its
clients are not served for some seconds, they send in the next tick what they could not send, and their return costs CPU. If no
destination is named, or a broker leaves, Pulsar's placement chooses the broker with the lowest message rate, as its brokers know
it, which is with a delay.
"""

import math
from dataclasses import dataclass

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.splitting.ranges import BadRange
from streaming.simulator.setup import CPU, Happening, Setup, Traffic, rates_of, saturate

TICK_S = 10.0
KNOWN_AFTER_TICKS = 6
"""Age of the message rates that Pulsar's placement uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A move that was asked for."""

    id: str
    """Id of the action; empty for a move without an action of the controller."""
    bundle: str
    destination: int | None
    """Row of a broker; None: Pulsar chooses."""
    begins_s: float
    fails: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What became of an order."""

    bundle: str
    id: str = ""
    succeeded: bool
    time_s: float
    source: int = -1
    destination: int = -1
    messages_per_s: float = 0.0
    """The bundle's messages per second, in + out."""
    outage_s: float = 0.0


class Fleet:
    """Time advances by ``tick`` only."""

    def __init__(self, setup: Setup, *, traffic: np.random.Generator, moves: np.random.Generator) -> None:
        self.setup = setup
        self.bundles = setup.bundles
        self.alive: Bools = setup.alive.copy()
        self.time_s = 0.0
        self.rates: Floats = np.zeros((0, 5))
        """Traffic of each bundle in the last tick, (m, 5)."""
        self.usage_points: Floats = np.zeros((0, 4))
        """Usage of each broker in the last tick, (n, 4)."""
        self.structural: Floats = np.zeros((0, 5))
        """Traffic of each bundle without noise, (m, 5)."""
        self._flows: tuple[Floats, Floats] = np.zeros((0, 5)), np.zeros((0, 5))
        """Structural and real traffic of each source, (r, 5)."""
        self._traffic = Traffic(setup.sources, traffic, tick_s=TICK_S)
        self._rng = moves
        self._orders: list[Order] = []
        self._now: dict[int, float] = {}
        """By the row of a bundle whose clients come back in this tick, how many times its traffic it has."""
        self._next: dict[int, float] = {}
        """The same of the next tick."""
        self._happenings = sorted(setup.happenings, key=lambda each: each.at_s)
        self._known: list[Floats] = []
        self._other_s = math.inf if setup.other_balancer_s is None else setup.other_balancer_s

    def order(self, bundle: str, destination: int | None, id_: str = "") -> None:
        """Ask for a move; whether it fails is drawn now."""
        moving = self.setup.moving
        begins_s = self.time_s + moving.order_s * self._rng.random()
        fails = bool(self._rng.random() < moving.failed_ratio)
        self._orders.append(
            Order(id=id_, bundle=bundle, destination=destination, begins_s=begins_s, fails=fails)
        )

    def split(self, bundle: str, boundaries: list[int]) -> bool:
        """Cut a bundle at once; False where it is not there any more, or cannot be cut there."""
        if self.bundles.row_of(bundle) is None:
            return False
        try:
            self.bundles.split(bundle, boundaries)
        except BadRange:
            return False
        self._share_out()
        return True

    def tick(self) -> list[Moved]:
        """Advance by one tick; returns what became of the orders that were due in it."""
        self.time_s += TICK_S
        self._now, self._next = self._next, {}
        while self._happenings and self._happenings[0].at_s < self.time_s:
            self._apply_happening(self._happenings.pop(0))
        self._let_other_balancer_act()
        due = [each for each in self._orders if each.begins_s < self.time_s]
        self._orders = [each for each in self._orders if each.begins_s >= self.time_s]
        moved = [self._carry_out(each) for each in due]
        self._flow()
        return moved

    def placed_demand(self, rates: Floats) -> Floats:
        """Demand of each broker for traffic of the bundles, (n, 4)."""
        return self.setup.machines.demand_points(rates, self.bundles.owner)

    def structural_points(self) -> Floats:
        """Usage of each broker without noise, the largest resource, (n,)."""
        usage: Floats = saturate(self.placed_demand(self.structural)).max(axis=1)
        return usage

    def messages_per_s(self) -> float:
        """Message rate of the fleet without noise, in + out."""
        return float(self.structural[:, :2].sum())

    def _flow(self) -> None:
        sources = self.setup.sources
        structural, real = self._traffic.step(self.time_s)
        self._flows = rates_of(sources, structural), rates_of(sources, real)
        self._share_out()
        for row, factor in self._now.items():
            self.rates[row] *= factor
        demand = self.placed_demand(self.rates)
        if self._now:
            rows = np.array(sorted(self._now), dtype=np.int64)
            owner = self.bundles.owner[rows]
            extra = self.setup.machines.cost_points(self.structural[rows], owner)[:, CPU]
            np.add.at(demand[:, CPU], owner, self.setup.moving.reconnect_ratio * extra)
        self.usage_points = saturate(demand)
        self._known.append(self._messages(self.rates))
        del self._known[:-KNOWN_AFTER_TICKS]

    def _share_out(self) -> None:
        """Set the traffic of each bundle from that of the sources."""
        bundles = self.bundles
        share = bundles.share[:, None]
        self.structural, self.rates = (each[bundles.source] * share for each in self._flows)

    def _messages(self, rates: Floats) -> Floats:
        messages = np.zeros(len(self.alive))
        messages += np.bincount(
            self.bundles.owner, weights=rates[:, 0] + rates[:, 1], minlength=len(self.alive)
        )
        return messages

    def _carry_out(self, order: Order) -> Moved:
        row, there = self.bundles.row_of(order.bundle), order.destination
        gone = there is not None and not self.alive[there]
        if row is None or order.fails or gone:
            return Moved(bundle=order.bundle, id=order.id, succeeded=False, time_s=self.time_s)
        source = int(self.bundles.owner[row])
        destination = self._place(self._rate_of(row)) if there is None else there
        outage_s = self._move(row, destination)
        return Moved(
            bundle=order.bundle,
            id=order.id,
            succeeded=True,
            time_s=self.time_s,
            source=source,
            destination=destination,
            messages_per_s=self._rate_of(row),
            outage_s=outage_s,
        )

    def _rate_of(self, row: int) -> float:
        return float(self.structural[row, 0] + self.structural[row, 1])

    def _move(self, row: int, destination: int) -> float:
        outage_s = self.setup.moving.outage_s * float(self._rng.random())
        self.bundles.owner[row] = destination
        lost = outage_s / TICK_S
        self._now[row], self._next[row] = max(0.0, 1.0 - lost), 1.0 + lost
        return outage_s

    def _place(self, messages_per_s: float) -> int:
        """The broker with the lowest message rate as it is known; it counts as having the bundle from then on."""
        known = self._known[0] if self._known else self._messages(self.structural)
        best = int(np.argmin(np.where(self.alive, known, np.inf)))
        for each in self._known:
            each[best] += messages_per_s
        return best

    def _apply_happening(self, happening: Happening) -> None:
        broker = happening.broker
        self.alive[broker] = happening.joins
        if happening.joins:
            for known in self._known:
                known[broker] = 0.0
            return
        rows = np.flatnonzero(self.bundles.owner == broker)
        for row in self._rng.permutation(rows).tolist():
            self._move(row, self._place(self._rate_of(row)))

    def _let_other_balancer_act(self) -> None:
        every_s = self.setup.other_balancer_s
        if every_s is None or self.time_s < self._other_s or not len(self.structural):
            return
        self._other_s += every_s
        messages = np.where(self.alive, self._messages(self.structural), -1.0)
        busiest = int(np.argmax(messages))
        rows = np.flatnonzero(self.bundles.owner == busiest)
        heaviest = rows[np.argmax(self.structural[rows, 0])]
        self.order(self.bundles.names[int(heaviest)], None)

    def rows_by_broker(self) -> list[Ints]:
        """Bundle rows of each broker, ascending by name."""
        order = np.argsort(self.bundles.owner, kind="stable")
        edges = np.searchsorted(self.bundles.owner[order], np.arange(len(self.alive) + 1))
        return [order[edges[row] : edges[row + 1]] for row in range(len(self.alive))]
