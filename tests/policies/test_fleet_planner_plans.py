"""Plans of the fleet planner, what it stores of what it has learned, and the settings that it refuses."""

from collections.abc import Mapping
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.columns import Bools
from policies.shedding.fleet_planner import POLICY, FleetPlannerSettings
from policies.shedding.fleet_planner.levels import FleetPlannerMemory
from policies.shedding.rules import Limit
from policies.shedding.view import RoundView
from policies.usage import BrokerCapacity, CapacitySettings, UsageSettings
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
from tests.policies.planned_clusters import BUNDLES, IDLE_POINTS, Cluster, even, one_hot, rules_of

MEGABYTE = 1e6
WEIGHTS = tuple(field.name for field in fields(UsageSettings))


def plan_of(view: RoundView, rounds: int = 8, **chosen: float) -> list[Unload]:
    """The first plan of a fleet that reports the same round after round."""
    memory = FleetPlannerMemory()
    for _ in range(rounds):
        plan, memory = decide(POLICY, view, memory, FleetPlannerSettings(**chosen))
        if len(plan.unload_rows):
            return unloads_of(view, plan)
    return []


@pytest.mark.parametrize("bundles", [20, 120, 650])
def test_the_size_of_bundles_changes_what_is_moved_by_no_more_than_a_bundle(bundles: int) -> None:
    cluster = Cluster(even({"b1": 50.0, "b2": 20.0, "b3": 20.0, "b4": 20.0}, bundles=bundles))
    moves = [move for _ in range(40) for move in cluster.round()]
    bundle_points = 47.0 / bundles
    moved_points = len(moves) * bundle_points
    assert {source for _, source, _ in moves} == {"b1"}
    assert 15.0 <= moved_points <= 22.5 + bundle_points
    assert cluster.spread() <= 7.5 + bundle_points
    assert all(not cluster.round() for _ in range(20))


@pytest.mark.parametrize(
    ("hot", "others", "bundles", "moved_points"),
    [
        pytest.param(34.0, 12.0, 650, 10.9, id="0.048 points each: 34 - 10.9 is 7.5 above 12 + 10.9 / 3"),
        pytest.param(80.0, 30.0, 2000, 31.9, id="0.039 points each: 80 - 31.9 is 7.5 above 30 + 31.9 / 3"),
    ],
)
def test_equal_bundles_move_however_small_they_are(
    hot: float, others: float, bundles: int, moved_points: float
) -> None:
    rest = even(dict.fromkeys(("b2", "b3", "b4"), others))
    cluster = Cluster({**even({"b1": hot}, bundles=bundles), **rest})
    moves = [move for _ in range(20) for move in cluster.round()]
    assert {source for _, source, _ in moves} == {"b1"}
    assert len(moves) * (hot - IDLE_POINTS) / bundles == pytest.approx(moved_points, abs=0.2)


def test_crumbs_beside_a_bundle_that_is_too_big_stay_with_it() -> None:
    cluster = Cluster({"b1": [4400.0, *[2.0] * 50], **even(dict.fromkeys(("b2", "b3"), 12.0))})
    assert all(not cluster.round() for _ in range(20)), "50 crumbs of 0.02 points are 1 of 45 points"
    assert cluster.examined["b1>b2"] == "no-better-place"
    assert cluster.tried.pop("t/b1/000") == "too-big"
    assert set(cluster.tried.values()) == {"too-little-benefit"}


def test_a_plan_that_gains_less_than_the_least_gain_is_not_made_however_many_moves_it_has() -> None:
    cluster = Cluster(even({"b1": 50.0, "b2": 20.0, "b3": 20.0}, bundles=120))
    cluster.settings = FleetPlannerSettings(min_gain_points=40.0)
    assert all(not cluster.round() for _ in range(20))
    assert cluster.examined["b1>b2"] == "no-better-place"
    assert set(cluster.tried.values()) == {"too-little-benefit"}, "they have a place to go to"


def networks(*, limits: Mapping[str, float]) -> dict[str, Broker]:
    """Three busy networks and three idle ones, whose CPU is the same; a limit of 0: not measured."""
    fleet = {}
    for name, limit in limits.items():
        is_busy = name.startswith("busy")
        volume = (500.0 if is_busy else 50.0) * MEGABYTE
        kbit_per_s = volume * 8 / 1000
        usage = {"cpu": (25.0, 100.0)}
        if limit > 0:
            usage["bandwidth-in"] = (kbit_per_s, limit)
        fleet[name] = Broker(
            usage=usage,
            messages_per_s=1000.0,
            bytes_per_s=volume,
            bundles={
                f"t/{name}/{row}": Bundle(messages_per_s=100.0, bytes_per_s=volume / 10) for row in range(10)
            },
        )
    return fleet


def test_no_bundle_goes_where_it_is_unknown_what_it_would_cost() -> None:
    known = dict.fromkeys(("busy-1", "busy-2", "idle-1", "idle-2"), 6e6)
    assert {there for _, _, there in plan_of(snapshot_of(networks(limits=known)))} == {"idle-1", "idle-2"}
    hidden = {**known, "idle-1": 0.0}
    assert {there for _, _, there in plan_of(snapshot_of(networks(limits=hidden)))} == {"idle-2"}
    assert not plan_of(snapshot_of(networks(limits={**hidden, "idle-2": 0.0})))


def test_brokers_that_declare_bytes_give_to_those_that_measure_their_network() -> None:
    """Two virtual machines at 88 % of the bytes that they declare, and metal that measures 15 % of its network."""
    own = dict.fromkeys(("vm-1", "vm-2"), BrokerCapacity(bytes_per_s=1e9))
    fleet = {}
    for name, volume in {"metal-1": 3e8, "metal-2": 3e8, "vm-1": 8.8e8, "vm-2": 8.8e8}.items():
        usage = {"cpu": (20.0, 100.0)}
        if name not in own:
            usage |= dict.fromkeys(("bandwidth-in", "bandwidth-out"), (1.5e6, 1e7))
        bundles = {f"t/{name}/{row}": Bundle(bytes_per_s=volume / 10) for row in range(10)}
        fleet[name] = Broker(usage=usage, bytes_per_s=volume, bundles=bundles)
    moves = plan_of(snapshot_of(fleet, capacity=CapacitySettings(brokers=own)))
    assert {source for _, source, _ in moves} == {"vm-1", "vm-2"}
    assert {there for _, _, there in moves} == {"metal-1", "metal-2"}


@pytest.mark.parametrize(("cpu_points", "network_points"), [(60.0, 55.0), (55.0, 60.0), (57.0, 60.0)])
def test_a_plan_goes_on_with_bundles_of_another_resource_once_that_is_the_larger(
    cpu_points: float, network_points: float
) -> None:
    fleet = {}
    for name, share in {"hot": 1.0, "cold-1": 1 / 3, "cold-2": 1 / 3}.items():
        messages, volume = 100.0 * cpu_points * share, network_points * MEGABYTE * share
        bundles = {f"t/{name}/cpu-{row:02d}": Bundle(messages_per_s=messages / 20) for row in range(20)}
        bundles |= {f"t/{name}/net-{row:02d}": Bundle(bytes_per_s=volume / 20) for row in range(20)}
        kbit_per_s = volume * 8 / 1000 / 2
        usage = {
            "cpu": (3 + cpu_points * share, 100.0),
            "bandwidth-out": (kbit_per_s, 100 * kbit_per_s / (network_points * share)),
        }
        fleet[name] = Broker(usage=usage, messages_per_s=messages, bytes_per_s=volume, bundles=bundles)
    moves = plan_of(snapshot_of(fleet), max_moved_ratio=1.0)
    assert len(moves) >= 12
    assert {bundle.split("/")[2][:3] for bundle, _, _ in moves} == {"cpu", "net"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weights", [{"cpu_weight": 0.0}, dict.fromkeys(WEIGHTS, 0.0)], ids=["cpu", "all"])
def test_idle_brokers_leave_the_planner_sound_where_resources_have_no_weight(
    weights: Mapping[str, float],
) -> None:
    idle = Broker(usage={"cpu": (3.0, 100.0), "bandwidth-in": (0.0, 1e6)})
    view = replace(snapshot_of({"a": idle, "b": idle}), usage_weights=UsageSettings(**weights).weights())
    plan, memory = decide(
        POLICY, view, FleetPlannerMemory(), FleetPlannerSettings(acceptable_spread_points=0.0)
    )
    assert not len(plan.unload_rows)
    assert all(np.isfinite(np.frombuffer(each)).all() for each in memory.learned.values())
    assert weights.get("capacity_weight") == 0.0 or (plan.examined.evidence["error_points"] > 0).all()


def test_brokers_that_hide_a_resource_are_balanced_by_what_they_measure() -> None:
    fleet = networks(limits={"busy-1": 6e6, "busy-2": 6e6, "idle-1": 0.0, "idle-2": 0.0})
    hot = replace(fleet["idle-1"], usage={"cpu": (70.0, 100.0)})
    moves = plan_of(snapshot_of({**fleet, "idle-1": hot}))
    assert {source for _, source, _ in moves} == {"idle-1"}
    assert "idle-2" in {there for _, _, there in moves}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(10.0, 90.0), st.booleans()), min_size=3, max_size=8))
def test_hiding_a_resource_moves_nothing_from_brokers_that_measure_it(
    brokers: list[tuple[float, bool]],
) -> None:
    fleet = {}
    for row, (share, is_hidden) in enumerate(brokers):
        volume = share / 100 * 750.0 * MEGABYTE
        usage = {"cpu": (10.0 + share / 10, 100.0)}
        if not is_hidden:
            usage["bandwidth-out"] = (share / 100 * 6e6, 6e6)
        bundles = {f"t/{row}/{at}": Bundle(bytes_per_s=volume / 10) for at in range(10)}
        fleet[f"b{row}"] = Broker(usage=usage, bytes_per_s=volume, bundles=bundles)
    is_hidden = {f"b{row}": hidden for row, (_, hidden) in enumerate(brokers)}
    for _, source, there in plan_of(snapshot_of(fleet)):
        assert there is not None
        assert is_hidden[source] or not is_hidden[there]


def test_a_big_bundle_goes_where_its_resource_is_free_though_another_broker_is_the_least_used() -> None:
    """b2 is the least used at 28 % of its network, so that 25 more are too many; b3 and b4 are at 31 % of their CPU, and carry little."""

    def broker(cpu: float, *out_points: float) -> Broker:
        bundles = {
            f"t/{cpu}/{row:02d}": Bundle(bytes_per_s=7500.0 * each) for row, each in enumerate(out_points)
        }
        usage = {"cpu": (cpu, 100.0), "bandwidth-out": (60.0 * sum(out_points), 6000.0)}
        return Broker(usage=usage, bytes_per_s=7500.0 * sum(out_points), bundles=bundles)

    crumbs = [0.25] * 8
    fleet = {
        "b1": broker(12.0, 25.0, 25.0, *crumbs),
        "b2": broker(10.0, 25.0, *crumbs, *crumbs[:4]),
        "b3": broker(31.0, *crumbs),
        "b4": broker(31.5, *crumbs),
    }
    for chosen in (snapshot_of(fleet), snapshot_of({name: fleet[name] for name in ("b1", "b2", "b3")})):
        (move,) = plan_of(chosen)
        assert move == ("t/12.0/00", "b1", "b3")


def test_topics_and_sessions_are_resources_where_their_capacity_is_declared() -> None:
    fleet = {
        name: Broker(
            usage={"cpu": (4.0, 100.0)},
            bundles={
                f"t/{name}/{row:02d}": Bundle(topics_count=100, sessions_count=10) for row in range(bundles)
            },
        )
        for name, bundles in {"b1": 40, "b2": 40, "b3": 0}.items()
    }
    assert not plan_of(snapshot_of(fleet))
    moves = plan_of(snapshot_of(fleet, capacity=CapacitySettings(topics_count=10_000.0)))
    assert {there for _, _, there in moves} == {"b3"}
    assert 18 <= len(moves) <= 27


def test_a_plan_goes_round_brokers_that_may_not_receive_to_the_next_coldest() -> None:
    levels = {"hot": 80.0, **{f"cold-{row:02d}": 20.0 + row for row in range(40)}}
    view = Cluster(even(levels)).view()
    closed: Bools = np.array([name.startswith("cold") and name < "cold-38" for name in view.brokers.names])
    moves = plan_of(replace(view, rules=rules_of(view, may_receive=~closed)))
    assert {there for _, _, there in moves} == {"cold-38", "cold-39"}


def test_a_spent_budget_is_named_and_the_plan_goes_on_when_there_is_room_again() -> None:
    view = Cluster(even({"b1": 80.0, "b2": 20.0, "b3": 20.0})).view()
    memory, chosen = FleetPlannerMemory(), FleetPlannerSettings()
    counts = []
    for most in (3, 3, 3, 0, 3):
        limit = Limit("max_unloads_per_round_count", most, np.zeros(1))
        plan, memory = decide(POLICY, replace(view, rules=rules_of(view, limits=(limit,))), memory, chosen)
        counts.append(len(plan.unload_rows))
        if not most:
            assert examined_of(view, plan)["b1>b2"] == "budget-spent"
            assert set(tried_of(view, plan).values()) == {"budget"}
    assert counts[-2:] == [0, 3]
    assert max(counts) == 3


def test_what_it_learned_survives_being_stored() -> None:
    cluster = one_hot(45.0)
    for _ in range(5):
        cluster.round()
    memory = cluster.memory
    assert set(memory.learned) == set(BUNDLES)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode([memory.learned, memory.fleet]))
    again = FleetPlannerMemory(learned=stored[0], fleet=stored[1])
    view = cluster.view()
    assert (
        decide(POLICY, view, again, cluster.settings)[1] == decide(POLICY, view, memory, cluster.settings)[1]
    )


def test_a_memory_of_another_layout_begins_anew_instead_of_misleading() -> None:
    cluster = one_hot()
    cluster.memory = FleetPlannerMemory(learned={"b1": b"\x01\x02"}, fleet=[3.0])
    assert cluster.round() or cluster.round()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acceptable_spread_points", -1.0),
        ("noise_multiple", -0.1),
        ("min_gain_points", -1.0),
        ("max_moved_ratio", 1.5),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        FleetPlannerSettings(**{name: value})
