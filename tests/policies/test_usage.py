"""From usage and limit to one score: single precision, weights, declared capacity."""

import numpy as np
import pytest

from policies.usage import (
    NOT_MEASURED,
    RESOURCES,
    BrokerCapacity,
    CapacitySettings,
    UsageSettings,
    compared,
    percent,
    weighted_maximum_ratio,
)
from tests.policies.fleets import Broker, Bundle, Fleet, at, snapshot_of


def percent_of(usage: float, limit: float) -> float:
    return float(percent(np.array([usage]), np.array([limit]))[0])


def points_of(fleet: Fleet, **settings: float) -> list[float]:
    return (100.0 * snapshot_of(fleet, usage=UsageSettings(**settings)).brokers.usage_ratio).tolist()


@pytest.mark.parametrize(
    ("usage", "limit", "expected"),
    [
        pytest.param(
            30.0, 100.0, 30.000001907348633, id="30 of 100 is a little more than 30 in single precision"
        ),
        pytest.param(60.0, 100.0, 60.000003814697266, id="60 of 100 is a little more than 60"),
        pytest.param(70.0, 100.0, 70.0, id="70 of 100 is exactly 70"),
        pytest.param(140.0, 100.0, 140.0, id="above the limit is not clamped"),
        pytest.param(400.0, 800.0, 50.0, id="a limit of eight cores counts all eight"),
        pytest.param(1.0, 3.0, 33.333335876464844, id="a third has single-precision digits"),
        pytest.param(16777217.0, 33554432.0, 50.0, id="usage itself is rounded to single precision first"),
        pytest.param(0.0, 100.0, 0.0, id="nothing used is 0"),
        pytest.param(NOT_MEASURED, NOT_MEASURED, 0.0, id="a resource that was not read counts as 0"),
        pytest.param(12.0, 0.0, 0.0, id="a NIC of unknown speed counts as 0"),
        pytest.param(12.0, -5.0, 0.0, id="any negative limit counts as 0"),
    ],
)
def test_percent_is_computed_as_pulsar_computes_it(usage: float, limit: float, expected: float) -> None:
    assert percent_of(usage, limit) == expected


SINGLE_PRECISION_TRAPS = {
    15: [(42, 27), (45, 30), (53, 38), (59, 44), (69, 54), (75, 60)],
    40: [(53, 13), (55, 15), (59, 19), (67, 27), (70, 30), (94, 54), (100, 60)],
}
"""Pairs of integer usages of a limit of 100 on which single and double precision disagree about a threshold."""


@pytest.mark.parametrize("threshold", SINGLE_PRECISION_TRAPS)
def test_whole_points_meet_a_threshold_exactly_where_single_precision_says_so(threshold: int) -> None:
    single = points_of({f"{points:03}": at(points) for points in range(101)})
    differing = [
        (high, low)
        for high in range(101)
        for low in range(high)
        if (single[high] - single[low] >= threshold) != (100 * (high / 100) - 100 * (low / 100) >= threshold)
    ]
    assert differing == SINGLE_PRECISION_TRAPS[threshold]


def test_70_against_30_is_less_than_40_points() -> None:
    busy, idle = points_of({"a": at(70), "b": at(30)})
    assert busy - idle == 39.99999809265137


def test_the_mean_of_10_20_and_30_percent_is_the_number_system_bundles_tests_assert() -> None:
    ratios = snapshot_of({"a": at(10), "b": at(20), "c": at(30)}).brokers.usage_ratio.tolist()
    assert sum(ratios) / 3 == 0.2000000063578288


MIXED = Broker(
    usage={
        "cpu": (40.0, 100.0),
        "bandwidth-in": (50.0, 100.0),
        "bandwidth-out": (25.0, 100.0),
        "direct-memory": (90.0, 100.0),
    }
)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param({}, 50.0, id="the largest resource counts, direct memory aside"),
        pytest.param({"direct_memory_weight": 1.0}, 90.0, id="direct memory counts once it has a weight"),
        pytest.param({"bandwidth_in_weight": 0.0}, 40.0, id="a weight of 0 leaves a resource out"),
        pytest.param({"bandwidth_out_weight": 4.0}, 100.0, id="a weight above 1 amplifies"),
        pytest.param(
            {"bandwidth_in_weight": 0.5}, 40.0, id="weights multiply the percentage before the largest"
        ),
        pytest.param(
            {"cpu_weight": 0.0, "bandwidth_in_weight": 0.0, "bandwidth_out_weight": 0.0},
            0.0,
            id="without any weight nothing is used",
        ),
    ],
)
def test_the_score_is_the_largest_weighted_percentage(weights: dict[str, float], expected: float) -> None:
    assert points_of({"a": MIXED}, **weights) == [expected]


def test_weights_are_applied_in_double_precision() -> None:
    percents = np.array([[30.000001907348633]])
    assert weighted_maximum_ratio(percents, np.array([0.1]))[0] == 30.000001907348633 * 0.1 / 100.0


def test_a_broker_that_measures_nothing_scores_0() -> None:
    assert points_of({"a": Broker()}) == [0.0]


def test_a_fleet_of_nobody_has_no_scores() -> None:
    assert weighted_maximum_ratio(np.zeros((0, 5)), np.ones(5)).shape == (0,)


OWN = {
    "a": BrokerCapacity(messages_per_s=500.0),
    "b": BrokerCapacity(bytes_per_s=8000.0),
    "c": BrokerCapacity(),
}


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        pytest.param(CapacitySettings(), [0.0, 0.0, 0.0], id="undeclared capacity counts nothing"),
        pytest.param(
            CapacitySettings(messages_per_s=1000.0), [25.0, 25.0, 25.0], id="a default holds for all"
        ),
        pytest.param(
            CapacitySettings(bytes_per_s=4000.0), [50.0, 50.0, 50.0], id="bytes alone may be declared"
        ),
        pytest.param(
            CapacitySettings(messages_per_s=1000.0, bytes_per_s=4000.0),
            [50.0, 50.0, 50.0],
            id="the larger of messages and bytes counts",
        ),
        pytest.param(
            CapacitySettings(messages_per_s=1000.0, bytes_per_s=4000.0, brokers=OWN),
            [50.0, 25.0, 50.0],
            id="a broker's own value replaces that field only",
        ),
        pytest.param(CapacitySettings(brokers=OWN), [50.0, 25.0, 0.0], id="single brokers may declare alone"),
        pytest.param(
            CapacitySettings(messages_per_s=1000.0, brokers={"a": BrokerCapacity(messages_per_s=0.0)}),
            [0.0, 25.0, 25.0],
            id="a capacity of 0 takes one broker out",
        ),
        pytest.param(
            CapacitySettings(
                messages_per_s=1000.0, brokers={"elsewhere": BrokerCapacity(messages_per_s=1.0)}
            ),
            [25.0, 25.0, 25.0],
            id="a broker that is not there is of no account",
        ),
        pytest.param(
            CapacitySettings(messages_per_s=200.0), [125.0, 125.0, 125.0], id="above capacity is not clamped"
        ),
    ],
)
def test_declared_capacity_turns_traffic_into_a_resource(
    capacity: CapacitySettings, expected: list[float]
) -> None:
    fleet = {name: Broker(messages_per_s=250.0, bytes_per_s=2000.0) for name in "abc"}
    ratios = snapshot_of(fleet, capacity=capacity).brokers.usage_ratio
    assert (100.0 * ratios).tolist() == expected


def test_capacity_has_a_weight_and_competes_with_the_measured_resources() -> None:
    fleet = {"a": at(40, messages_per_s=500.0)}
    capacity = CapacitySettings(messages_per_s=1000.0)
    for weight, expected in ((1.0, 50.0), (0.5, 40.0), (0.0, 40.0)):
        snapshot = snapshot_of(fleet, usage=UsageSettings(capacity_weight=weight), capacity=capacity)
        assert 100.0 * snapshot.brokers.usage_ratio[0] == expected


def test_topics_and_sessions_are_resources_only_where_their_capacity_is_declared() -> None:
    bundles = {"t/a": Bundle(topics_count=30, sessions_count=10), "t/b": Bundle(topics_count=20)}
    fleet = {"a": Broker(usage={"cpu": (5.0, 100.0)}, bundles=bundles)}
    for declared, expected in (({}, 5.0), ({"topics_count": 100.0}, 50.0), ({"sessions_count": 40.0}, 25.0)):
        capacity = CapacitySettings(brokers={"a": BrokerCapacity(**declared)})
        assert 100.0 * snapshot_of(fleet, capacity=capacity).brokers.usage_ratio[0] == expected


NETWORK = ("bandwidth-in", "bandwidth-out")
NO_NETWORK = {"bandwidth_in_weight": 0.0, "bandwidth_out_weight": 0.0}


@pytest.mark.parametrize(
    ("measured", "weights", "expected"),
    [
        pytest.param(("cpu",), {}, ("cpu",), id="only what is measured"),
        pytest.param(("bytes",), {}, (*NETWORK, "bytes"), id="declared bytes stand for bandwidth"),
        pytest.param(NETWORK, {}, (*NETWORK, "bytes"), id="bandwidth stands for declared bytes"),
        pytest.param(NETWORK[:1], {}, NETWORK[:1], id="one direction alone stands for nothing"),
        pytest.param(NETWORK, NO_NETWORK, (), id="bandwidth without a weight stands for nothing"),
        pytest.param(("bytes",), {"capacity_weight": 0.0}, (), id="nor do bytes without one"),
        pytest.param(("cpu", "topics"), {}, ("cpu", "topics"), id="nothing stands for topics"),
    ],
)
def test_measured_bandwidth_and_a_declared_capacity_of_bytes_stand_for_each_other(
    measured: tuple[str, ...], weights: dict[str, float], expected: tuple[str, ...]
) -> None:
    row = np.array([[resource in measured for resource in RESOURCES]])
    known = compared(row, UsageSettings(**weights).weights())[0]
    assert {name for name, is_known in zip(RESOURCES, known, strict=True) if is_known} == {*expected}


@pytest.mark.parametrize("name", ["cpu_weight", "direct_memory_weight", "capacity_weight"])
def test_a_negative_weight_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1.0; expected from 0 to"):
        UsageSettings(**{name: -1.0})


@pytest.mark.parametrize("settings", [CapacitySettings, BrokerCapacity])
def test_a_negative_capacity_is_refused_by_name(settings: type[CapacitySettings | BrokerCapacity]) -> None:
    with pytest.raises(ValueError, match=r"bytes_per_s is -2.0; expected 0 "):
        settings(bytes_per_s=-2.0)
