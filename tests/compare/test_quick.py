"""The comparison of balancers judges as its page says, and one cell of it runs."""

from itertools import pairwise
from pathlib import Path

import pytest

from policies.splitting.ranges import Bundle, BundleRange
from tests.compare.balancers import BALANCERS
from tests.compare.judging import Move, Seen, judge
from tests.compare.running import Length, run
from tests.compare.scenarios import MESSAGES_PER_S_PER_POINT, SCENARIOS, Scenario, traffic_of
from tests.support.network import IS_POSSIBLE

STEP_S = 5.0


def seen_of(spreads: list[float], *moves: Move) -> Seen:
    """Two brokers, one at 40 points, and from second 0 on the other that far above it; before, both are alike."""
    before = 3
    return Seen(
        happened_s=100.0,
        times_s=[100.0 + STEP_S * (place - before) for place in range(before + len(spreads))],
        usage_points=[{1: 40.0, 2: 40.0 + spread} for spread in [0.0] * before + spreads],
        messages_per_s=[{1: 100.0, 2: 100.0}] * (before + len(spreads)),
        bundles_count=[12] * (before + len(spreads) - 1) + [13],
        moves=list(moves),
    )


def move(second: float, source: int, destination: int, *, is_forced: bool = False) -> Move:
    return Move(
        time_s=100.0 + second, bundle="b", source=source, destination=destination, is_forced=is_forced
    )


def test_a_cluster_is_balanced_once_the_mean_of_half_a_minute_stays_within_15_points():
    found = judge(seen_of([30.0] * 6 + [0.0] * 18))
    # after the last 30 the mean of six falls by 5 a step: 25, 20, 15
    assert (found["balanced_after_s"], found["unbalanced_ratio"]) == (40, round(8 / 24, 3))
    assert judge(seen_of([30.0] * 24))["balanced_after_s"] is None
    assert judge(seen_of([5.0] * 24))["balanced_after_s"] == 0


def test_moves_of_a_broker_that_left_are_nobodys_and_those_of_the_calm_count_apart():
    moves = [move(-5, 1, 2), move(10, 2, 1), move(20, 1, 2), move(25, 1, 2, is_forced=True)]
    found = judge(seen_of([0.0] * 24, *moves))
    counts = {
        name: found[name] for name in ("unloads", "sent_back", "moved_twice", "moved_while_calm", "splits")
    }
    assert counts == {"unloads": 2, "sent_back": 1, "moved_twice": 1, "moved_while_calm": 1, "splits": 1}


def test_a_bundle_that_nobody_answers_for_while_its_broker_restarts_was_not_unloaded():
    seen, processes = Seen(), {1: 11, 2: 22}
    for owner in (1, None, 2):
        seen.see_owner("b", owner, processes.get, time_s=0.0)
        processes[1] = 33  # it is back before anybody says where the bundle went
    seen.see_owner("b", 1, processes.get, time_s=0.0)
    assert [(each.source, each.destination, each.is_forced) for each in seen.moves] == [
        (1, 2, True),
        (2, 1, False),
    ]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_every_scenario_begins_calm_and_the_seed_alone_decides_its_traffic(scenario: Scenario):
    count = 12 * scenario.brokers_count
    edges = [0xFFFFFFFF * place // count for place in range(count + 1)]
    bundles = [Bundle("shop/orders", BundleRange(low, high)) for low, high in pairwise(edges)]
    traffic = traffic_of(scenario, bundles, seed=1)
    assert traffic == traffic_of(scenario, bundles, seed=1)
    assert traffic != traffic_of(scenario, bundles, seed=2)
    total = sum(traffic.calm_messages_per_s.values())
    assert total == pytest.approx(scenario.usage_points * MESSAGES_PER_S_PER_POINT * scenario.brokers_count)


@pytest.mark.slow
@pytest.mark.skipif(not IS_POSSIBLE, reason="network namespaces need root, ip and tc")
def test_a_short_run_of_one_cell_has_a_row_of_figures(tmp_path: Path):
    length = Length(calm_s=20, window_s=45)
    row = run(BALANCERS["trimtab-fleet-planner"], SCENARIOS["hot-broker"], 1, length, tmp_path)
    assert (
        row["unbalanced_ratio"] > 0.5
    )  # a round takes a minute; the first step is from before the traffic grew
    assert row["published"] > 0
    assert (row["lost"], row["repeated"], row["failed"]) == (0, 0, {})
