"""Which bundle has to be cut because moving it cannot help."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.shedding import avg_shedder, fleet_planner, overload_shedder, threshold_shedder
from policies.shedding.avg_shedder import AvgShedderMemory, AvgShedderSettings
from policies.shedding.contract import NoMemory, SheddingPlan, SheddingPolicy
from policies.shedding.fleet_planner import FleetPlannerSettings
from policies.shedding.overload_shedder import OverloadShedderSettings
from policies.shedding.rules import Limit
from policies.shedding.threshold_shedder import ThresholdShedderMemory, ThresholdShedderSettings
from policies.shedding.view import RoundView
from policies.splitting.plan import TRIGGERS
from policies.splitting.relief import relief
from tests.policies.fleets import Broker, Bundle, at, decide, snapshot_of, unloads_of
from tests.policies.planned_clusters import Cluster, rules_of
from tests.policies.ruled import rules_of as ruled

EAGER = AvgShedderSettings(low_hit_count=1, high_hit_count=1)


def broker(points: float, messages_per_s: Mapping[str, float]) -> Broker:
    """A broker whose traffic is that of its bundles, a kilobyte a message."""
    bundles = {
        name: Bundle(messages_per_s=rate, bytes_per_s=1000 * rate) for name, rate in messages_per_s.items()
    }
    total = sum(messages_per_s.values())
    return at(points, messages_per_s=total, bytes_per_s=1000 * total, bundles=bundles)


def proposed(snapshot: RoundView, plan: SheddingPlan) -> dict[str, str]:
    found = relief(snapshot, plan)
    names = [snapshot.bundles.names[row] for row in found.rows.tolist()]
    return dict(zip(names, (TRIGGERS[code] for code in found.triggers.tolist()), strict=True))


@pytest.mark.parametrize(
    ("fleet", "found"),
    [
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 8000, "t/n/0x1_0x2": 1000}),
                "b2": broker(20, {"t/n/0x2_0x3": 2000}),
            },
            {"t/n/0x0_0x1": "broker-messages"},
            id="wherever it went, that broker would be busier than the one it left",
        ),
        pytest.param(
            {"b1": broker(90, {"t/n/0x0_0x1": 8000}), "b2": broker(20, {"t/n/0x2_0x3": 2000})},
            {"t/n/0x0_0x1": "broker-messages"},
            id="the only bundle of its broker",
        ),
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 4500, "t/n/0x1_0x2": 6000}),
                "b2": broker(20, {"t/n/0x2_0x3": 2000}),
            },
            {"t/n/0x1_0x2": "broker-messages"},
            id="the heaviest only",
        ),
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 3000, "t/n/0x1_0x2": 6000}),
                "b2": broker(20, {"t/n/0x2_0x3": 2000}),
            },
            {},
            id="what is moved away beside it helps: 3,500 above the mean before, 500 after",
        ),
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 1800, "t/n/0x1_0x2": 7000}),
                "b2": broker(20, {"t/n/0x2_0x3": 1600}),
            },
            {"t/n/0x1_0x2": "broker-messages"},
            id="what is moved away beside it does not help enough: 3,600 above the mean before, 1,800 after",
        ),
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 3000, "t/n/0x1_0x2": 3000}),
                "b2": broker(20, {"t/n/0x2_0x3": 2000}),
            },
            {"t/n/0x0_0x1": "broker-messages"},
            id="just too big: without it b1 has 3,000, with it b2 has 5,000",
        ),
        pytest.param(
            {
                "b1": broker(90, {f"t/n/0x{i}_0x{i + 1}": 1500.0 for i in range(6)}),
                "b2": broker(20, {"t/n/0x9_0xa": 2000}),
            },
            {},
            id="it fits b2",
        ),
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 5000, "t/n/0x1_0x2": 5000, "t/n/0x2_0x3": 5000}),
                "b2": broker(20, {"t/n/0x4_0x5": 7500}),
                "b3": broker(20, {"t/n/0x5_0x6": 7500}),
            },
            {"t/n/0x0_0x1": "broker-messages"},
            id="without it its broker is exactly average",
        ),
        pytest.param(
            {
                "b1": broker(90, {"t/n/0x0_0x1": 5100, "t/n/0x1_0x2": 5000, "t/n/0x2_0x3": 6000}),
                "b2": broker(20, {"t/n/0x4_0x5": 7400}),
                "b3": broker(20, {"t/n/0x5_0x6": 6000}),
            },
            {},
            id="without it its broker is still above average",
        ),
        pytest.param(
            {"b1": broker(90, {"t/n/0x0_0x1": 1000}), "b2": broker(20, {"t/n/0x2_0x3": 2000})},
            {},
            id="hot, but not by its traffic",
        ),
    ],
)
def test_a_bundle_is_cut_if_it_alone_overloads_its_broker_and_fits_no_other(
    fleet: dict[str, Broker], found: dict[str, str]
) -> None:
    snapshot = snapshot_of(fleet)
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), EAGER)
    assert proposed(snapshot, plan) == found


def test_what_a_bundle_is_compared_with_is_the_mean_of_the_brokers_that_were_looked_at() -> None:
    fleet = {"b1": broker(90, {"t/n/0x0_0x1": 8000}), "b2": broker(20, {"t/n/0x2_0x3": 2000})}
    plan, _ = decide(avg_shedder.POLICY, snapshot_of(fleet), AvgShedderMemory(), EAGER)
    assert relief(snapshot_of(fleet), plan).means_per_s.tolist() == [5000]


@pytest.mark.parametrize(
    ("policy", "memory", "settings", "has_counted"),
    [
        (avg_shedder.POLICY, AvgShedderMemory(), EAGER, True),
        (overload_shedder.POLICY, NoMemory(), OverloadShedderSettings(threshold_points=70), False),
    ],
    ids=["a policy that counts hits", "one that does not"],
)
def test_a_policy_that_counts_hits_has_counted_them_for_its_splits(
    policy: SheddingPolicy[Any, Any, Any], memory: object, settings: object, *, has_counted: bool
) -> None:
    snapshot = snapshot_of({"b1": broker(90, {"t/n/0x0_0x1": 8000}), "b2": broker(20, {"t/n/0x2_0x3": 2000})})
    plan, _ = decide(policy, snapshot, memory, settings)
    found = relief(snapshot, plan)
    assert (len(found.rows), found.has_counted) == (1, has_counted)


def test_while_the_hits_are_counted_nothing_is_proposed() -> None:
    snapshot = snapshot_of({"b1": broker(90, {"t/n/0x0_0x1": 8000}), "b2": broker(20, {"t/n/0x2_0x3": 2000})})
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), AvgShedderSettings())
    assert proposed(snapshot, plan) == {}


def test_where_only_bytes_tell_the_brokers_apart_they_decide() -> None:
    fleet = {
        "b1": at(
            90,
            messages_per_s=1000,
            bytes_per_s=9e6,
            bundles={
                "t/n/0x0_0x1": Bundle(bytes_per_s=8e6),
                "t/n/0x1_0x2": Bundle(messages_per_s=1000, bytes_per_s=1e6),
            },
        ),
        "b2": at(
            20,
            messages_per_s=1000,
            bytes_per_s=1e6,
            bundles={"t/n/0x2_0x3": Bundle(messages_per_s=1000, bytes_per_s=1e6)},
        ),
    }
    snapshot = snapshot_of(fleet)
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), EAGER)
    assert proposed(snapshot, plan) == {"t/n/0x0_0x1": "broker-bytes"}


def test_the_measure_in_which_a_broker_stands_out_more_says_which_bundle_is_too_big() -> None:
    """b1 has 1.1 times the mean of the messages, and 2.7 times the mean of the bytes."""
    usual = Bundle(messages_per_s=9500, bytes_per_s=10e6)
    hot = {
        "t/n/0x0_0x1": Bundle(messages_per_s=100, bytes_per_s=900e6),
        "t/n/0x1_0x2": Bundle(messages_per_s=2200, bytes_per_s=0.22e6),
        "t/n/0x2_0x3": Bundle(messages_per_s=8800, bytes_per_s=8.8e6),
    }
    fleet = {
        "b1": at(73, messages_per_s=11100, bytes_per_s=909.02e6, bundles=hot),
        "b2": at(12, messages_per_s=9500, bytes_per_s=10e6, bundles={"t/n/0x3_0x4": usual}),
        "b3": at(12, messages_per_s=9500, bytes_per_s=10e6, bundles={"t/n/0x4_0x5": usual}),
    }
    snapshot = snapshot_of(fleet)
    chosen = OverloadShedderSettings(threshold_points=70)
    plan, _ = decide(overload_shedder.POLICY, snapshot, NoMemory(), chosen)
    assert proposed(snapshot, plan) == {"t/n/0x0_0x1": "broker-bytes"}


def test_the_threshold_shedders_unload_of_such_a_bundle_is_proposed_for_a_split_too() -> None:
    snapshot = snapshot_of(
        {
            "b1": broker(90, {"t/n/0x0_0x1": 80000, "t/n/0x1_0x2": 10000}),
            "b2": broker(20, {"t/n/0x2_0x3": 20000}),
        }
    )
    plan, _ = decide(threshold_shedder.POLICY, snapshot, ThresholdShedderMemory(), ThresholdShedderSettings())
    assert [snapshot.bundles.names[row] for row in plan.unload_rows.tolist()] == ["t/n/0x0_0x1"]
    assert proposed(snapshot, plan) == {"t/n/0x0_0x1": "broker-messages"}


@pytest.mark.parametrize(
    ("stays", "found"),
    [
        pytest.param([], {"t/n/0x1_0x2": "broker-messages"}, id="the heaviest, of 6,000"),
        pytest.param([1], {"t/n/0x0_0x1": "broker-messages"}, id="it may not leave: the next, of 4,500"),
        pytest.param([0, 1], {}, id="neither may leave"),
    ],
)
def test_a_bundle_that_may_not_leave_its_broker_is_not_cut_for_its_sake(
    stays: list[int], found: dict[str, str]
) -> None:
    """b1 has 10,500 and b2 2,000, so the mean is 6,250: without either bundle b1 has less."""
    snapshot = snapshot_of(
        {
            "b1": broker(90, {"t/n/0x0_0x1": 4500, "t/n/0x1_0x2": 6000}),
            "b2": broker(20, {"t/n/0x2_0x3": 2000}),
        }
    )
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), EAGER)
    proposals = relief(snapshot, plan, np.isin(np.arange(3), stays))
    names = [snapshot.bundles.names[row] for row in proposals.rows.tolist()]
    assert dict(zip(names, (TRIGGERS[code] for code in proposals.triggers.tolist()), strict=True)) == found


@pytest.mark.parametrize(
    ("together", "parts_count", "barred"),
    [
        pytest.param((), 3, "", id="b2 takes thirds"),
        pytest.param(("t/hot", "t/y"), 3, "", id="b3 may not receive them, b2 may"),
        pytest.param(("t/hot", "t/x"), 4, "", id="b2 may not receive them, b3 takes quarters"),
        pytest.param(
            ("t/hot", "t/x", "t/y"),
            0,
            "b2 owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0",
            id="nobody may",
        ),
    ],
)
def test_parts_are_as_large_as_a_broker_can_take_that_anti_affinity_lets_receive_them(
    together: tuple[str, ...], parts_count: int, barred: str
) -> None:
    """b1 has 8,000 in one bundle, b2 2,000 and b3 3,000: 8,000 less 2,000 is twice 3,000, less 3,000 twice 2,500."""
    hot, x, y = "t/hot/0x0_0x1", "t/x/0x0_0x1", "t/y/0x0_0x1"
    snapshot = snapshot_of(
        {"b1": broker(90, {hot: 8000}), "b2": broker(20, {x: 2000}), "b3": broker(20, {y: 3000})}
    )
    rules = ruled([hot], [x], [y], groups={"spread": list(together)} if together else {})
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), EAGER)
    found = relief(replace(snapshot, rules=rules), plan)
    assert (found.boundaries_counts + 1).tolist() == [max(1, parts_count)]
    assert found.barred == ({0: barred} if barred else {})


def test_a_broker_that_may_not_receive_is_no_way_out() -> None:
    crowd = {
        "b1": broker(90, {"t/n/0x0_0x1": 4000, "t/n/0x1_0x2": 2000}),
        "b2": broker(40, {"t/n/0x2_0x3": 3500}),
        "b3": at(5, may_receive=False),
    }
    snapshot = snapshot_of(crowd)
    plan, _ = decide(
        threshold_shedder.POLICY,
        snapshot,
        ThresholdShedderMemory(),
        ThresholdShedderSettings(min_unload_bytes_per_s=1),
    )
    assert proposed(snapshot, plan) == {"t/n/0x0_0x1": "broker-messages"}


def parts(fleet: dict[str, Broker]) -> list[int]:
    """Into how many parts each proposed bundle is to be cut."""
    snapshot = snapshot_of(fleet)
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), EAGER)
    return [count + 1 for count in relief(snapshot, plan).boundaries_counts.tolist()]


@pytest.mark.parametrize(
    ("idlest_messages_per_s", "count"),
    [(2000, [3]), (0, [2]), (3000, [4]), (4000, [4]), (4100, [])],
)
def test_it_is_cut_into_as_few_parts_as_the_idlest_broker_can_take_one_by_one_or_not_at_all(
    idlest_messages_per_s: float, count: list[int]
) -> None:
    hot, idle = {"t/n/0x0_0x1": 8000.0}, {"t/n/0x2_0x3": idlest_messages_per_s}
    assert parts({"b1": broker(90, hot), "b2": broker(20, idle)}) == count


def test_what_else_the_policy_moves_away_may_be_enough() -> None:
    fleet = {
        "b1": broker(90, {"t/n/0x0_0x1": 4000, "t/n/0x1_0x2": 2900, "t/n/0x2_0x3": 100}),
        "b2": broker(20, {"t/n/0x3_0x4": 500}),
    }
    snapshot = snapshot_of(fleet)
    plan, _ = decide(avg_shedder.POLICY, snapshot, AvgShedderMemory(), EAGER)
    assert [snapshot.bundles.names[row] for row in plan.unload_rows.tolist()] == [
        "t/n/0x1_0x2",
        "t/n/0x2_0x3",
    ]
    assert proposed(snapshot, plan) == {}


def big_beside_small() -> Cluster:
    """b1 at 73 %: a bundle of 44 points and 160 of 0.16; the others at 28 %. Small ones that leave bring it to 48 %."""
    return Cluster({"b1": [4400.0, *[16.25] * 160], "b2": [12.5] * 200, "b3": [12.5] * 200})


@pytest.mark.parametrize("most", ["max_moved_ratio", "max_unloads_per_round_count"])
def test_no_bundle_is_cut_while_a_plan_that_helps_without_goes_on_in_later_rounds(most: str) -> None:
    cluster, counts = big_beside_small(), []
    if most == "max_moved_ratio":
        cluster.settings = FleetPlannerSettings(max_moved_ratio=0.04)
    for _ in range(12):
        view = cluster.view()
        if most == "max_unloads_per_round_count":
            limit = Limit(most, 27, np.zeros(1))
            view = replace(view, rules=rules_of(view, limits=(limit,)))
        plan, cluster.memory = decide(fleet_planner.POLICY, view, cluster.memory, cluster.settings)
        counts.append(len(plan.unload_rows))
        for bundle, _, destination in unloads_of(view, plan):
            cluster.bundles[bundle][0] = str(destination)
        assert proposed(view, plan) == {}
    assert sum(map(bool, counts)) > 3, "the plan goes on"
    assert cluster.spread() <= 7.5


def test_a_bundle_is_cut_at_once_where_no_move_beside_it_is_left_to_wait_for() -> None:
    cluster = big_beside_small()
    small = [name for name in cluster.bundles if name.startswith("t/b1/") and name != "t/b1/000"]
    found = {}
    for _ in range(12):
        view = cluster.view(masked=small)
        cluster.round(masked=small)
        found |= proposed(view, cluster.plan)
    assert set(found) == {"t/b1/000"}


def hot_bundle(points: float, small_count: int = 10) -> Cluster:
    """b1 has a bundle of so many points and small ones of 2; the others are at 33 %."""
    return Cluster({"b1": [100 * points, *[200.0] * small_count], "b2": [300.0] * 10, "b3": [300.0] * 10})


@pytest.mark.parametrize(
    ("cluster", "max_moved_ratio", "replaced"),
    [
        pytest.param(hot_bundle(50.0), 0.2, 10, id="b1 would end at 53 %, the others at 43 %"),
        pytest.param(hot_bundle(50.0), 0.1, 6, id="the same, and a budget cuts the plan short"),
        pytest.param(
            hot_bundle(46.0), 0.2, 0, id="b1 would end at 49 %, the others at 43 %: within the goal"
        ),
        pytest.param(hot_bundle(56.0, 5), 0.2, 0, id="five moves are fewer than two for each of three parts"),
        pytest.param(hot_bundle(56.0, 6), 0.2, 6, id="six moves are two for each of three parts"),
        pytest.param(big_beside_small(), 0.2, 0, id="the other bundles are enough"),
    ],
)
def test_a_bundle_is_cut_in_place_of_many_moves_that_cannot_reach_the_goal_without(
    cluster: Cluster, max_moved_ratio: float, replaced: int
) -> None:
    cluster.settings = FleetPlannerSettings(max_moved_ratio=max_moved_ratio)
    found, moves = [], 0
    for _ in range(3):
        view = cluster.view()
        moves = len(cluster.round(moves=False))
        found = relief(view, cluster.plan).replaced_counts.tolist()
        if moves:
            break
    assert moves > 0
    assert [count for count in found if count] == ([replaced] if replaced else [])
    assert replaced in (0, moves)
