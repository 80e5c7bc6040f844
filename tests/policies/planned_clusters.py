"""Simulated brokers for tests of the fleet planner: their usage follows their bundles' traffic, and moves happen at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.columns import Floats
from policies.costs import CostMemory, learn
from policies.shedding.fleet_planner import POLICY, FleetPlannerSettings
from policies.shedding.fleet_planner.levels import FleetPlannerMemory
from policies.shedding.rules import Rules
from policies.shedding.view import Promise, RoundView, UnloadInFlight
from tests.policies.fleets import (
    Broker,
    Bundle,
    Unload,
    decide,
    examined_of,
    snapshot_of,
    tried_of,
    unloads_of,
)

IDLE_POINTS = 3.0
BYTES_PER_MESSAGE = 1000.0
BUNDLES = {"b1": 20, "b2": 20, "b3": 20, "b4": 20, "b5": 20}


class Cluster:
    """Brokers whose CPU follows their bundles' messages: one point per 100 messages/s unless ``points`` says otherwise."""

    def __init__(
        self,
        rates: Mapping[str, Sequence[float]],
        points: Mapping[str, float] | None = None,
        *,
        most_points: float = 100.0,
    ) -> None:
        self.bundles = {
            f"t/{broker}/{place:03d}": [broker, rate]
            for broker, owned in rates.items()
            for place, rate in enumerate(owned)
        }
        self.brokers = list(rates)
        self.points_per_message = {broker: (points or {}).get(broker, 0.01) for broker in rates}
        self.memory, self.costs = FleetPlannerMemory(), CostMemory()
        self.settings = FleetPlannerSettings()
        self.most_points = most_points
        self.in_flight: list[UnloadInFlight] = []
        self.promises: list[Promise] = []
        self.lags = False
        """Whether reports show bundles as they are, and usage as it was in the round before."""
        self._shown: tuple[dict[str, str], dict[str, float]] = ({}, {})
        """Owners and usage in the round before."""
        self.present: dict[str, float] = {}
        """By broker, the present traffic of its bundles as a multiple of their averages; 1 for a broker that is not in it."""

    def view(self, noise: Mapping[str, float] | None = None, masked: Sequence[str] = ()) -> RoundView:
        """The round's columns; noise is in points of CPU."""
        fleet = {}
        for broker in self.brokers:
            own = {name: rate for name, (owner, rate) in self.bundles.items() if owner == broker}
            level = self.level(broker)
            usage = self._shown[1].get(broker, level) if self.lags else level
            usage += (noise or {}).get(broker, 0.0)
            present = self.present.get(broker, 1.0) * sum(own.values())
            fleet[broker] = Broker(
                usage={"cpu": (max(0.0, usage), 100.0)},
                messages_per_s=present,
                bytes_per_s=BYTES_PER_MESSAGE * present,
                bundles={
                    name: Bundle(
                        messages_per_s=rate, bytes_per_s=BYTES_PER_MESSAGE * rate, movable=name not in masked
                    )
                    for name, rate in own.items()
                },
            )
        view = snapshot_of(fleet)
        brokers, bundles = view.brokers, view.bundles
        moved = self._moved_rates(brokers.names)
        share = np.array([self.present.get(name, 1.0) for name in brokers.names])
        rates = bundles.rates * share[bundles.owners_of(np.arange(len(bundles)))][:, None]
        carried = [rates[bundles.rows_of(row)].sum(axis=0) for row in range(len(brokers))]
        self.costs, costs = learn(
            self.costs,
            brokers.names,
            percents=brokers.percents,
            limits=brokers.limits,
            rates=np.array(carried),
            counts=~moved.any(axis=1) if self.lags else None,
        )
        return replace(
            view,
            costs=costs,
            in_flight=lambda: self.in_flight,
            promises=lambda: self.promises,
            present_rates=rates.__getitem__,
            moved_rates=moved,
        )

    def _moved_rates(self, names: Sequence[str]) -> Floats:
        owners = {name: str(owner) for name, (owner, _) in self.bundles.items()}
        moved = np.zeros((len(names), 4))
        for bundle, (_, rate) in self.bundles.items():
            before = self._shown[0].get(bundle, owners[bundle])
            for broker in {before, owners[bundle]} if before != owners[bundle] else ():
                moved[names.index(broker)] += (rate, 0.0, BYTES_PER_MESSAGE * rate, 0.0)
        self._shown = owners, {broker: self.level(broker) for broker in self.brokers}
        return moved

    def level(self, broker: str) -> float:
        """CPU without noise, at most ``most_points``."""
        rate = sum(rate for owner, rate in self.bundles.values() if owner == broker)
        rate *= self.present.get(broker, 1.0)
        return min(self.most_points, IDLE_POINTS + self.points_per_message[broker] * rate)

    def round(
        self, noise: Mapping[str, float] | None = None, masked: Sequence[str] = (), *, moves: bool = True
    ) -> list[Unload]:
        """The unloads that one round decides; unless ``moves`` is false they are done before the next round."""
        view = self.view(noise, masked)
        self.plan, self.memory = decide(POLICY, view, self.memory, self.settings)
        self.examined, self.tried = examined_of(view, self.plan), tried_of(view, self.plan)
        found = unloads_of(view, self.plan)
        for bundle, _, destination in found if moves else ():
            assert destination is not None
            self.bundles[bundle][0] = destination
        return found

    def spread(self) -> float:
        """Points between the most and the least used broker."""
        levels = [self.level(broker) for broker in self.brokers]
        return max(levels) - min(levels)


def even(points: Mapping[str, float], bundles: int = 20) -> dict[str, list[float]]:
    """Equal bundles that make up these levels of CPU."""
    return {broker: [(level - IDLE_POINTS) * 100 / bundles] * bundles for broker, level in points.items()}


def one_hot(hot: float = 80.0) -> Cluster:
    """Five brokers at 40 %, the first of them hot."""
    return Cluster(even({"b1": hot, "b2": 40.0, "b3": 40.0, "b4": 40.0, "b5": 40.0}))


def rules_of(view: RoundView, **given: object) -> Rules:
    """Rules of a view without anti-affinity."""
    whole: dict[str, object] = {
        "brokers": view.brokers.names,
        "starts": view.bundles.starts,
        "movable": view.bundles.movable,
        "may_receive": view.brokers.may_receive,
        "leaving": np.zeros(len(view.bundles), dtype=np.bool_),
        "staying_counts": np.diff(view.bundles.starts),
    }
    return Rules(**{**whole, **given})  # type: ignore[arg-type]
