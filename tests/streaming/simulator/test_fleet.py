"""The simulated fleet does what its page of docs says: traffic is conserved, moves take time and cost something, seeds repeat."""

from dataclasses import replace

import numpy as np
import pytest

from streaming.simulator.fleet import Fleet
from streaming.simulator.runs import generators, spread_points
from streaming.simulator.scenarios import SCENARIOS, Shape, find_scenario, make_setup
from streaming.simulator.setup import KNEE_POINTS, Happening, Moving, Setup, saturate

SMALL = [each for each in SCENARIOS if each.name != "large-fleet"]


def setup_of(**shape: object) -> Setup:
    """Four brokers with ten bundles each."""
    rng = np.random.default_rng(7)
    return make_setup(rng, Shape(brokers_count=4, bundles_per_broker=10, **shape))  # type: ignore[arg-type]


def fleet_of(setup: Setup, seed: int = 1) -> Fleet:
    """A fleet after its first tick."""
    traffic, moves = generators("test", seed, 2)
    fleet = Fleet(setup, traffic=traffic, moves=moves)
    fleet.tick()
    return fleet


def test_usage_is_proportional_below_the_knee_and_never_above_100() -> None:
    demand = np.array([[0.0, 40.0, KNEE_POINTS], [90.0, 150.0, 1000.0]])
    shown = saturate(demand)
    assert shown[0].tolist() == [0.0, 40.0, KNEE_POINTS]
    assert (np.diff(shown[1]) > 0).all()
    assert (shown <= 100.0).all()


def test_a_move_carries_all_of_a_bundles_traffic_and_what_was_not_sent_follows() -> None:
    setup = setup_of(noise_ratio=0.0, common_noise_ratio=0.0)
    fleet = fleet_of(replace(setup, moving=Moving(order_s=0.1, outage_s=8.0, failed_ratio=0.0)))
    row = int(np.flatnonzero(fleet.bundles.owner == 0)[0])
    before = fleet.rates.sum(axis=0)
    fleet.order(fleet.bundles.names[row], 3, "action")
    moved = fleet.tick()
    during = fleet.rates.sum(axis=0)
    assert [(each.succeeded, each.source, each.destination) for each in moved] == [(True, 0, 3)]
    assert fleet.bundles.owner[row] == 3
    fleet.tick()
    after = fleet.rates.sum(axis=0)
    assert (during < before)[:4].all()  # sessions: there are none
    np.testing.assert_allclose(during + after, 2 * before, rtol=1e-3)


def test_a_move_that_fails_changes_nothing() -> None:
    setup = setup_of()
    fleet = fleet_of(replace(setup, moving=Moving(order_s=0.1, failed_ratio=1.0)))
    owner = fleet.bundles.owner.copy()
    fleet.order(fleet.bundles.names[0], 3, "action")
    assert [each.succeeded for each in fleet.tick()] == [False]
    assert (fleet.bundles.owner == owner).all()


def test_the_bundles_of_a_broker_that_goes_are_placed_and_it_comes_back_empty() -> None:
    setup = setup_of()
    gone = Happening(at_s=15.0, kind="die", broker=0), Happening(at_s=35.0, kind="join", broker=0)
    fleet = fleet_of(replace(setup, happenings=gone))
    fleet.tick()
    assert not fleet.alive[0]
    assert set(fleet.bundles.owner.tolist()) == {1, 2, 3}
    for _ in range(3):
        fleet.tick()
    assert fleet.alive[0]
    assert 0 not in fleet.bundles.owner


def test_a_split_changes_no_traffic_and_its_children_have_its_topics() -> None:
    fleet = fleet_of(setup_of())
    name, traffic = fleet.bundles.names[0], fleet.structural.sum(axis=0)
    topics = int((fleet.bundles.topic_bundle == 0).sum())
    low, high = (int(each, 16) for each in name.rpartition("/")[2].split("_"))
    assert fleet.split(name, [(low + high) // 2])
    assert not fleet.split(name, [(low + high) // 2])
    children = [0, len(fleet.bundles.names) - 1]
    assert sum(int((fleet.bundles.topic_bundle == row).sum()) for row in children) == topics
    np.testing.assert_allclose(fleet.structural.sum(axis=0), traffic)
    fleet.tick()


@pytest.mark.parametrize("scenario", SMALL, ids=lambda each: each.name)
def test_a_scenario_begins_unbalanced_where_it_says_that_something_is_wrong_at_once(scenario: object) -> None:
    found = find_scenario(scenario.name)  # type: ignore[attr-defined]
    assert found is not None
    setup = found.build(np.random.default_rng(3))
    assert set(setup.bundles.owner.tolist()) <= set(np.flatnonzero(setup.alive).tolist())
    assert len(set(setup.bundles.names)) == len(setup.bundles.names)
    fleet = fleet_of(setup)
    if setup.disturbed_s[:1] == (0.0,):
        assert spread_points(fleet) > 15.0
    else:
        assert spread_points(fleet) < 20.0


def test_the_same_seed_makes_the_same_fleet_and_another_seed_another() -> None:
    rates = [fleet_of(setup_of(), seed).rates for seed in (1, 1, 2)]
    assert np.array_equal(rates[0], rates[1])
    assert not np.array_equal(rates[0], rates[2])
