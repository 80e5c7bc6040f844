"""Which brokers the fleet planner compares: brokers that do not measure the same, and one that is alone."""

import pytest

from policies.shedding.fleet_planner import POLICY, FleetPlannerSettings
from policies.shedding.fleet_planner.levels import FleetPlannerMemory
from tests.policies.fleets import Broker, Bundle, Unload, decide, examined_of, snapshot_of, unloads_of

Points = tuple[float, float | None]
"""Percent of CPU and of the network, None: not measured."""
VM: Points = (20.0, None)
NETWORK_KBIT_PER_S = 6e6
"""750 MB/s."""


def broker(name: str, cpu: float, network: float | None) -> Broker:
    """20 equal bundles; one point of CPU above 3 for 100 messages/s. What does not measure its network carries 1 MB/s."""
    messages, volume = 100.0 * (cpu - 3.0), 1e6 if network is None else 7.5e6 * network
    usage = {"cpu": (cpu, 100.0)}
    if network is not None:
        usage["bandwidth-in"] = (network / 100 * NETWORK_KBIT_PER_S, NETWORK_KBIT_PER_S)
    share = Bundle(messages_per_s=messages / 20, bytes_per_s=volume / 20)
    bundles = {f"t/{name}/{row:02d}": share for row in range(20)}
    return Broker(usage=usage, messages_per_s=messages, bytes_per_s=volume, bundles=bundles)


def last_of(rounds: int = 8, **brokers: Points) -> tuple[dict[str, str], list[Unload]]:
    """What is examined in the last round of so many equal ones, or in the first one that moves something, and what moves."""
    view = snapshot_of({name: broker(name, *points) for name, points in brokers.items()})
    memory, moves = FleetPlannerMemory(), list[Unload]()
    for _ in range(rounds):
        plan, memory = decide(POLICY, view, memory, FleetPlannerSettings())
        moves = unloads_of(view, plan)
        if moves:
            break
    return examined_of(view, plan), moves


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        pytest.param({"m1": (20.0, 92.0), "v1": VM}, {"m1>v1": "no-comparable-broker"}, id="a busy network"),
        pytest.param({"m1": (88.0, 40.0), "v1": VM}, {"m1>v1": "no-comparable-broker"}, id="CPU and network"),
        pytest.param(
            {"m1": (20.0, 92.0), "m2": (20.0, 88.0), "v1": VM},
            {"m1>v1": "no-comparable-broker", "m2>v1": "no-comparable-broker"},
            id="a comparable broker is as hot",
        ),
        pytest.param({"m1": (20.0, 34.9), "v1": VM}, {}, id="14.9 points are within the spread"),
        pytest.param({"m1": (20.0, 92.0), "m2": (20.0, 88.0)}, {}, id="nobody is much colder"),
        pytest.param({"m1": (20.0, 20.0), "v1": (10.0, None)}, {}, id="ten points beside an unlike one"),
    ],
)
def test_a_broker_that_is_far_above_unlike_ones_alone_says_that_they_cannot_be_compared(
    brokers: dict[str, Points], expected: dict[str, str]
) -> None:
    examined, moves = last_of(**brokers)
    assert not moves
    assert {pair: outcome for pair, outcome in examined.items() if outcome != "within-spread"} == expected


def test_where_a_comparable_broker_is_cold_bundles_move_there_and_nothing_else_is_said() -> None:
    examined, moves = last_of(m1=(20.0, 92.0), m2=(20.0, 30.0), v1=VM)
    assert {(source, there) for _, source, there in moves} == {("m1", "m2")}
    assert "no-comparable-broker" not in examined.values()


@pytest.mark.parametrize(
    ("network", "moves_on"),
    [(0.0, True), (1.0, True), (4.0, True), (4.5, False), (40.0, False)],
    ids=["nothing", "1 %", "4 % beside 85", "4.5 % beside 85", "much"],
)
def test_a_destination_need_not_measure_what_is_below_a_twentieth_of_what_the_source_loads_most(
    network: float, *, moves_on: bool
) -> None:
    _, moves = last_of(m1=(88.0, network), v1=VM, v2=VM)
    assert {there for _, _, there in moves} == ({"v1", "v2"} if moves_on else set())


def test_a_broker_that_is_alone_is_looked_at_and_nothing_is_learned_of_it() -> None:
    view = snapshot_of({"m1": broker("m1", 96.0, 20.0)})
    plan, memory = decide(POLICY, view, FleetPlannerMemory(), FleetPlannerSettings())
    assert examined_of(view, plan) == {"m1": "sole-broker"}
    assert plan.examined.evidence_of(0)["level_points"] == pytest.approx(96.0)
    assert memory == FleetPlannerMemory()
    assert "sole-broker" in POLICY.calm_outcomes


def test_where_no_broker_is_left_nothing_is_looked_at() -> None:
    view = snapshot_of({})
    plan, _ = decide(POLICY, view, FleetPlannerMemory(), FleetPlannerSettings())
    assert examined_of(view, plan) == {}
