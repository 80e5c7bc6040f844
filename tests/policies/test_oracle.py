"""The policies agree with a naive re-implementation of Pulsar's pseudocode, bundle for bundle, memory included."""

from dataclasses import replace

import numpy as np
import pytest

from policies.placement import LEAST_RESOURCE_USAGE, PLACEMENTS, Placement
from policies.shedding import avg_shedder, overload_shedder, threshold_shedder, uniform_load_shedder
from policies.shedding.contract import NoMemory
from policies.usage import BrokerCapacity, CapacitySettings, UsageSettings
from tests.policies import oracle, placement_oracle
from tests.policies.fleets import Broker, Bundle, Fleet, decide, partly_known, snapshot_of, unloads_of

FLEETS_PER_SEED = 120
ROUNDS_PER_FLEET = 6
SEEDS = range(10)
FEW_SEEDS = range(3)
"""For policies that remember nothing from round to round: each round of a fleet is then a case of its own."""

NAMES = ("broker-10", "broker-2", "zeta", "B", "a", "broker-1", "é", "b")
"""Unordered, and their order by name is not the one by number."""


class Dice:
    """Small, coarse numbers from one seed, so that ties and equalities are common."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def one_of(self, *values: float) -> float:
        return values[int(self.generator.integers(len(values)))]

    def often(self, ratio: float) -> bool:
        return bool(self.generator.random() < ratio)

    def below(self, end: int) -> int:
        return int(self.generator.integers(end))


def random_bundles(dice: Dice, broker: str) -> dict[str, Bundle]:
    scale = dice.one_of(1.0, 1.0, 1 / 3)
    order = dice.generator.permutation(dice.below(9))
    return {
        f"{broker}/{number}": Bundle(
            messages_per_s=dice.below(7) * scale,
            bytes_per_s=dice.below(7) * scale,
            movable=dice.often(0.85),
        )
        for number in order.tolist()
    }


def random_broker(dice: Dice, name: str) -> Broker:
    bundles = random_bundles(dice, name)
    limit = dice.one_of(100.0, 100.0, 100.0, 7.0, 0.0, -1.0)
    return Broker(
        usage={
            "cpu": (float(dice.one_of(0, 10, 20, 30, 35, 45, 50, 55, 60, 70, 85, 100, 140)), 100.0),
            "bandwidth-in": (float(dice.below(8)), limit),
            "direct-memory": (float(dice.below(101)), 100.0),
        },
        messages_per_s=float(dice.below(30)),
        bytes_per_s=float(dice.below(30)),
        bundles=bundles,
        listed_count=len(bundles) + dice.below(2),
        may_receive=dice.often(0.9),
    )


def random_rounds(dice: Dice) -> list[Fleet]:
    """One fleet over several rounds: most brokers stay as they are, some change, some are absent."""
    names = [NAMES[index] for index in dice.generator.permutation(len(NAMES))[: 1 + dice.below(len(NAMES))]]
    fleet = {name: random_broker(dice, name) for name in names}
    rounds = []
    for _ in range(ROUNDS_PER_FLEET):
        fleet = {
            name: random_broker(dice, name) if dice.often(0.3) else broker for name, broker in fleet.items()
        }
        rounds.append({name: broker for name, broker in fleet.items() if dice.often(0.9)})
    return rounds


def random_usage(dice: Dice) -> tuple[UsageSettings, CapacitySettings]:
    usage = UsageSettings(
        cpu_weight=dice.one_of(1.0, 1.0, 0.3), direct_memory_weight=dice.one_of(0.0, 0.0, 1.0, 1.1)
    )
    if dice.often(0.7):
        return usage, CapacitySettings()
    own = {
        "a": BrokerCapacity(messages_per_s=15.0),
        "zeta": BrokerCapacity(bytes_per_s=10.0, messages_per_s=0.0),
    }
    return usage, CapacitySettings(messages_per_s=40.0, brokers=own)


def random_avg_settings(dice: Dice) -> avg_shedder.AvgShedderSettings:
    return avg_shedder.AvgShedderSettings(
        low_threshold_points=dice.one_of(0.0, 15.0, 15.0, 20.0),
        high_threshold_points=dice.one_of(20.0, 40.0, 40.0),
        low_hit_count=1 + dice.below(4),
        high_hit_count=1 + dice.below(3),
        min_unload_messages_per_s=dice.one_of(0.0, 1.0, 3.0, 100.0),
        min_unload_bytes_per_s=dice.one_of(0.0, 1.0, 3.0),
        max_unload_ratio=dice.one_of(0.2, 0.5, 0.5, 1.0),
    )


def random_threshold_settings(dice: Dice) -> threshold_shedder.ThresholdShedderSettings:
    return threshold_shedder.ThresholdShedderSettings(
        threshold_points=dice.one_of(0.0, 5.0, 10.0, 10.0, 25.0),
        history_ratio=dice.one_of(0.0, 0.5, 0.9, 1.0),
        min_unload_bytes_per_s=dice.one_of(0.0, 0.05, 1.0, 2.0),
        lower_boundary_shedding=dice.often(0.6),
        require_current_above_mean=dice.often(0.3),
    )


def random_uniform_settings(dice: Dice) -> uniform_load_shedder.UniformLoadShedderSettings:
    return uniform_load_shedder.UniformLoadShedderSettings(
        rate_difference_percent=dice.one_of(0.0, 50.0, 50.0, 200.0, 2000.0),
        throughput_multiple=dice.one_of(0.0, 2.0, 4.0, 4.0),
        max_unload_ratio=dice.one_of(0.2, 0.2, 0.5, 1.0),
        max_unload_bundles_count=(-1, -1, 1, 2)[dice.below(4)],
        min_unload_messages_per_s=dice.one_of(0.0, 1.0, 2.0, 5.0),
        min_unload_bytes_per_s=dice.one_of(0.0, 1.0, 2.0, 5.0),
    )


def times(fleet: Fleet, factor: float) -> Fleet:
    """The same fleet with all of its traffic multiplied."""
    return {
        name: replace(
            broker,
            messages_per_s=broker.messages_per_s * factor,
            bytes_per_s=broker.bytes_per_s * factor,
            bundles={
                key: replace(
                    bundle,
                    messages_per_s=bundle.messages_per_s * factor,
                    bytes_per_s=bundle.bytes_per_s * factor,
                )
                for key, bundle in broker.bundles.items()
            },
        )
        for name, broker in fleet.items()
    }


def ratios_of(fleet: Fleet, usage: UsageSettings, capacity: CapacitySettings) -> dict[str, float]:
    return {name: oracle.usage_ratio_of(name, broker, usage, capacity) for name, broker in fleet.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_avg_shedder_decides_and_remembers_what_the_naive_one_does(seed: int) -> None:
    dice = Dice(seed)
    acted_count = 0
    for _ in range(FLEETS_PER_SEED):
        settings = random_avg_settings(dice)
        usage, capacity = random_usage(dice)
        memory = avg_shedder.AvgShedderMemory()
        low_hits: dict[str, int] = {}
        high_hits: dict[str, int] = {}
        for fleet in random_rounds(dice):
            snapshot = snapshot_of(fleet, usage=usage, capacity=capacity)
            ratios = ratios_of(fleet, usage, capacity)
            expected = oracle.avg_shedder(fleet, ratios, low_hits, high_hits, settings)
            plan, memory = decide(avg_shedder.POLICY, snapshot, memory, settings)
            assert unloads_of(snapshot, plan) == expected
            assert memory.low_hits == low_hits
            assert memory.high_hits == high_hits
            acted_count += len(expected)
    assert acted_count > FLEETS_PER_SEED


@pytest.mark.parametrize("seed", SEEDS)
def test_threshold_shedder_decides_and_remembers_what_the_naive_one_does(seed: int) -> None:
    dice = Dice(1000 + seed)
    acted_count = 0
    for _ in range(FLEETS_PER_SEED):
        settings = random_threshold_settings(dice)
        usage, capacity = random_usage(dice)
        memory = threshold_shedder.ThresholdShedderMemory()
        history: dict[str, float] = {}
        for fleet in random_rounds(dice):
            snapshot = snapshot_of(fleet, usage=usage, capacity=capacity)
            ratios = ratios_of(fleet, usage, capacity)
            expected = oracle.threshold_shedder(fleet, ratios, history, settings)
            plan, memory = decide(threshold_shedder.POLICY, snapshot, memory, settings)
            assert unloads_of(snapshot, plan) == expected
            assert memory.history_ratio == history
            acted_count += len(expected)
    assert acted_count > FLEETS_PER_SEED


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_overload_shedder_decides_what_the_naive_one_does(seed: int) -> None:
    dice = Dice(2000 + seed)
    acted_count = 0
    for _ in range(FLEETS_PER_SEED):
        settings = overload_shedder.OverloadShedderSettings(
            threshold_points=dice.one_of(0.0, 30.0, 60.0, 85.0, 100.0)
        )
        usage, capacity = random_usage(dice)
        for fleet in random_rounds(dice):
            snapshot = snapshot_of(fleet, usage=usage, capacity=capacity)
            expected = oracle.overload_shedder(fleet, ratios_of(fleet, usage, capacity), settings)
            assert (
                unloads_of(snapshot, decide(overload_shedder.POLICY, snapshot, NoMemory(), settings)[0])
                == expected
            )
            acted_count += len(expected)
    assert acted_count > FLEETS_PER_SEED


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_uniform_load_shedder_decides_what_the_naive_one_does(seed: int) -> None:
    dice = Dice(3000 + seed)
    acted_count = 0
    for _ in range(FLEETS_PER_SEED):
        settings = random_uniform_settings(dice)
        factor = dice.one_of(1.0, 1.0, 1.0, 2.0**27, 2.0**31)
        for shown in random_rounds(dice):
            fleet = times(shown, factor)
            snapshot = snapshot_of(fleet)
            expected = oracle.uniform_load_shedder(fleet, settings)
            assert (
                unloads_of(snapshot, decide(uniform_load_shedder.POLICY, snapshot, NoMemory(), settings)[0])
                == expected
            )
            acted_count += len(expected)
    assert acted_count > FLEETS_PER_SEED


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda each: each.name)
@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_the_destinations_are_those_of_the_naive_placement(seed: int, placement: Placement) -> None:
    dice = Dice(4000 + seed)
    settings = overload_shedder.OverloadShedderSettings(threshold_points=50.0)
    usage, capacity = UsageSettings(), CapacitySettings()
    placed_count = dropped_count = 0
    for fleet in (fleet for _ in range(FLEETS_PER_SEED) for fleet in random_rounds(dice)):
        snapshot, ratios = snapshot_of(fleet), ratios_of(fleet, usage, capacity)
        plan = decide(overload_shedder.POLICY, snapshot, NoMemory(), settings)[0]
        unsampled = {bundle for bundle in snapshot.bundles.names if dice.often(0.1)}
        unmeasured = {name for name in fleet if dice.often(0.1)}
        snapshot = partly_known(snapshot, unsampled=unsampled, unmeasured=unmeasured)
        wanted = unloads_of(snapshot, plan)
        expected = (
            placement_oracle.by_usage(fleet, ratios, wanted, unmeasured=unmeasured)
            if placement is LEAST_RESOURCE_USAGE
            else placement_oracle.by_message_rate(
                fleet, ratios, wanted, unsampled=unsampled, overloaded_ratio=0.85
            )
        )
        placed = placement.place(snapshot, plan, 0.85)
        assert unloads_of(snapshot, placed) == expected
        placed_count += len(expected)
        dropped_count += len(wanted) - len(expected)
    assert placed_count > FLEETS_PER_SEED
    assert dropped_count > 0
