"""Problems of single brokers and of whole groups, by what brokers report for some rounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from state.events import Event, LoadReport, Published
from state.facts import Isolation
from tests.state.pulsar.reporting_brokers import RESOURCES, advice_in, found_in, report
from tests.state.traces import BUNDLES, CLUSTER, facts, load


def cpu_of(*percents: float | None, limit: float = 100.0) -> list[list[Event]]:
    """Rounds in which b1 reports these percentages of CPU, None is not at all; b2 always reports 50."""
    return [
        [
            *([] if percent is None else [report("b1", 10 * at + 5, cpu=(percent * limit / 100, limit))]),
            report("b2", 10 * at + 5, cpu=(50, 100), bundles={BUNDLES[1]: 1.0}),
        ]
        for at, percent in enumerate(percents)
    ]


CPU = [("cpu", "b1")]


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        pytest.param([106, 106, 106, 106], [0, 0, 1, 1], id="three rounds"),
        pytest.param([105, 105, 105, 105], [0, 0, 0, 0], id="not above"),
        pytest.param(
            [150, 150, 104, 150, 150], [0, 0, 0, 0, 0], id="a round at a possible usage begins anew"
        ),
        pytest.param([150, 150, 150, 104], [0, 0, 1, 0], id="it ends with the first possible usage"),
        pytest.param([150, None, 150, 150], [0, 0, 0, 1], id="a report that is missing once changes nothing"),
        pytest.param(
            [150, 150, None, None, None, 150, 150], [0] * 7, id="a broker that was away for long begins anew"
        ),
    ],
)
def test_usage_above_105_percent_for_three_rounds_is_a_wrong_limit(
    percents: list[float | None], expected: list[int]
) -> None:
    assert found_in(cpu_of(*percents), "above-limit") == [CPU * count for count in expected]


@pytest.mark.parametrize("limit", [-1.0, 0.0])
def test_a_usage_without_a_limit_is_never_above_it_and_a_round_without_one_is_a_gap(limit: float) -> None:
    def rounds(*limits: float) -> list[list[Event]]:
        return [[report("b1", 10 * at + 5, cpu=(150, each))] for at, each in enumerate(limits)]

    assert found_in(rounds(limit, limit, limit, limit), "above-limit") == [[]] * 4
    assert found_in(rounds(100, limit, 100, 100), "above-limit") == [[], [], [], CPU]


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_measured_resource_counts_whatever_its_weight_and_declared_capacity_never(
    resource: str,
) -> None:
    used = {resource.replace("-", "_"): (120.0, 100.0)}
    rounds = [[report("b1", 10 * at + 5, **used)] for at in range(3)]
    usage = {f"{resource.replace('-', '_')}_weight": 0.0}
    assert found_in(rounds, "above-limit", usage=usage, capacity={"messages_per_s": 0.5})[-1] == [
        (resource, "b1")
    ]


METAL = {"cpu": (20.0, 100.0), "bandwidth_in": (50.0, 100.0), "bandwidth_out": (50.0, 100.0)}
VM = {"cpu": (20.0, 100.0)}
NETWORK = "bandwidth-in, bandwidth-out"


def unlike(rounds_count: int = 3, **brokers: Mapping[str, tuple[float, float]]) -> list[list[Event]]:
    """Rounds in which brokers measure what they measure."""
    return [
        [
            report(name, 10 * at + 5, bundles={BUNDLES[row % len(BUNDLES)]: 1.0}, **used)
            for row, (name, used) in enumerate(sorted(brokers.items()))
        ]
        for at in range(rounds_count)
    ]


@pytest.mark.parametrize(
    ("brokers", "pulsar", "expected"),
    [
        pytest.param({"m1": METAL, "v1": VM}, {}, [(NETWORK, "v1")], id="one broker"),
        pytest.param(
            {"m1": METAL, "v1": VM, "v2": VM}, {}, [(NETWORK, "")], id="two brokers that lack the same"
        ),
        pytest.param({"m1": METAL, "m2": METAL}, {}, [], id="all measure the same"),
        pytest.param({"v1": VM, "v2": VM}, {}, [], id="nobody measures it"),
        pytest.param(
            {"m1": METAL, "v1": VM | {"bandwidth_in": (1.0, 0.0), "bandwidth_out": (1.0, 0.0)}},
            {},
            [(NETWORK, "v1")],
            id="a limit of 0 is none",
        ),
        pytest.param(
            {"m1": METAL, "v1": VM},
            {"usage": {"bandwidth_in_weight": 0.0, "bandwidth_out_weight": 0.0}},
            [],
            id="without a weight",
        ),
        pytest.param(
            {"m1": METAL, "v1": VM, "v2": VM},
            {"capacity": {"brokers": {"v1": {"bytes_per_s": 1e6}, "v2": {"bytes_per_s": 1e6}}}},
            [],
            id="declared capacities mend it",
        ),
        pytest.param(
            {"v1": VM, "v2": VM},
            {"capacity": {"brokers": {"v1": {"bytes_per_s": 1e6}}}},
            [("bytes", "v2")],
            id="declared for some only",
        ),
        pytest.param({"m1": METAL, "v1": {}}, {}, [("cpu, bandwidth-in, bandwidth-out", "v1")], id="nothing"),
        pytest.param({"m1": METAL, "v1": VM}, {"guards": {"excluded_brokers": ["v1"]}}, [], id="excluded"),
    ],
)
def test_brokers_that_do_not_measure_what_others_do_are_named(
    brokers: Any, pulsar: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert found_in(unlike(**brokers), "not-measured", **pulsar)[-1] == expected


def test_what_is_not_measured_names_all_such_brokers_and_the_setting() -> None:
    [advice] = advice_in(unlike(m1=METAL, v1=VM, v2=VM), shedding_policy="fleet-planner")
    assert advice.startswith("v1, v2 do not measure bandwidth-in and bandwidth-out, and can only be compared")
    [advice] = advice_in(unlike(m1=METAL, v1=VM))
    assert advice.startswith(
        "v1 does not measure bandwidth-in and bandwidth-out, which avg-shedder takes for 0 %"
    )
    assert "fleet-planner does not" in advice
    assert "[pulsar.capacity.brokers]" in advice
    many = {f"v{number}": VM for number in range(10, 35)}
    told = advice_in(unlike(m1=METAL, **many), rounds={"warmup_rounds": 0})
    assert any("v29 and 5 more do not measure" in advice for advice in told)


MANY = [f"t/n/0x{at:x}_0x{at + 1:x}" for at in range(12)]


def publishing(published_count: int, *, told_count: int, at_s: float) -> LoadReport:
    """A broker of the extensible load manager: the statistics of so many of its bundles are known, and so many it published itself."""
    bundles = {name: 1.0 if row < told_count else None for row, name in enumerate(MANY)}
    found = load("b1", at_s, cpu=9.0, bundles=bundles, topics_count=100)
    top = sorted(MANY)[:published_count]
    published = Published(
        usage_ratio=0.1, bytes_per_s=1.0, updated_ms=0, top_bundles=top, top_bytes_per_s=np.ones(len(top))
    )
    return msgspec.structs.replace(found, report=replace(found.report, published=published))


@pytest.mark.parametrize(
    ("published_count", "told_count", "expected"),
    [(10, 10, [("topics", "b1")]), (10, 12, []), (9, 9, []), (0, 0, [("topics", "b1")])],
    ids=["it left some out", "the collector read all", "the others have no topic", "it said nothing"],
)
def test_topics_of_which_only_a_part_is_known_are_not_measured_and_that_is_said(
    published_count: int, told_count: int, expected: list[tuple[str, str]]
) -> None:
    rounds = [[publishing(published_count, told_count=told_count, at_s=10 * at + 5)] for at in range(4)]
    capacity = {"topics_count": 2000.0}
    assert found_in(rounds, "not-measured", capacity=capacity)[-1] == expected
    if expected:
        assert 'topic_stats = "all"' in advice_in(rounds, capacity=capacity)[-1]


def test_a_limit_that_is_missing_for_a_moment_is_no_finding() -> None:
    rounds = unlike(2, m1=METAL, v1=VM)
    assert found_in(rounds, "not-measured") == [[], []]


def test_brokers_of_different_groups_are_not_compared() -> None:
    isolated = facts(1, isolation=[Isolation("metal", ["t/a"], ["m1"])])
    rounds = unlike(3, m1=METAL, v1=VM)
    assert found_in([[isolated, *rounds[0]], *rounds[1:]], "not-measured")[-1] == []


def hot(*rounds: Mapping[str, float | None], limit: float = 100.0) -> list[list[Event]]:
    """Rounds in which brokers report these percentages of CPU; None: they measure nothing. Who is not in it does not report."""
    return [
        [
            report(name, 10 * at + 5, bundles={BUNDLES[int(name[1:])]: 1.0})
            if points is None
            else report(
                name, 10 * at + 5, bundles={BUNDLES[int(name[1:])]: 1.0}, cpu=(points * limit / 100, limit)
            )
            for name, points in sorted(each.items())
        ]
        for at, each in enumerate(rounds)
    ]


FULL = {"b1": 85.0, "b2": 97.0}


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        pytest.param([FULL] * 4, [0, 0, 1, 1], id="three rounds"),
        pytest.param([{"b1": 84.9, "b2": 97.0}] * 4, [0] * 4, id="one of them is not"),
        pytest.param([FULL, FULL, {"b1": 84.0, "b2": 97.0}, FULL, FULL], [0] * 5, id="it begins anew"),
        pytest.param([FULL] * 3 + [{"b1": 84.0, "b2": 97.0}], [0, 0, 1, 0], id="it ends"),
        pytest.param([FULL, {"b2": 97.0}, FULL, FULL], [0, 0, 0, 1], id="a missing report is a gap"),
        pytest.param(
            [{"b1": 20.0, "b2": 97.0}, *[{"b2": 97.0}] * 2], [0, 0, 0], id="the cold one is missing for once"
        ),
        pytest.param([FULL | {"b1": None}] * 4, [0] * 4, id="unknown is not hot"),
        pytest.param([FULL, FULL | {"b1": None}, FULL, FULL], [0, 0, 0, 1], id="unknown is a gap"),
        pytest.param([FULL | {"b1": 106.0}] * 4, [0] * 4, id="a limit that is wrong proves nothing"),
    ],
)
def test_a_group_of_which_every_broker_is_hot_for_three_rounds_needs_one_more(
    rounds: list[Mapping[str, float | None]], expected: list[int]
) -> None:
    found = found_in(hot(*rounds), "every-broker-hot")
    assert found == [[(CLUSTER, "")] * count for count in expected]


def test_usage_without_a_weight_is_not_hot_and_a_declared_capacity_may_be_exceeded() -> None:
    assert found_in(hot(*[FULL] * 4), "every-broker-hot", usage={"cpu_weight": 0.0})[-1] == []
    busy = {"capacity": {"messages_per_s": 0.5}}
    assert found_in(hot(*[{"b1": 20.0}] * 4), "every-broker-hot", **busy)[-1] == [(CLUSTER, "b1")]


def test_each_group_is_looked_at_by_itself_and_the_advice_names_it() -> None:
    isolated = facts(1, isolation=[Isolation("gold", ["t/a"], ["b1"])])
    first, *rest = hot(*[{"b1": 96.0, "b2": 25.0}] * 4)
    batches = [[isolated, *first], *rest]
    assert found_in(batches, "every-broker-hot")[-1] == [("gold", "b1")]
    (advice,) = advice_in(batches)
    assert advice.startswith(
        "b1, the only broker of isolation group gold, has been at 85 % or more for 3 rounds"
    )
    assert advice.endswith("add a broker to isolation group gold")


def test_an_excluded_broker_is_no_room_for_the_others() -> None:
    excluded = {"guards": {"excluded_brokers": ["b2"]}}
    assert found_in(hot(*[{"b1": 90.0, "b2": 20.0}] * 4), "every-broker-hot", **excluded)[-1] == [
        (CLUSTER, "b1")
    ]


def carrying(*megabytes_per_s: float, cpu: float = 30.0, **used: tuple[float, float]) -> list[list[Event]]:
    """Four rounds in which brokers carry so much each; b1 is at this CPU, the others are at 30 %."""
    return [
        [
            report(
                f"b{row}",
                10 * at + 5,
                bundles={BUNDLES[row]: 1e5 * volume},
                cpu=(cpu if row == 1 else 30.0, 100.0),
                **used,
            )
            for row, volume in enumerate(megabytes_per_s, 1)
        ]
        for at in range(4)
    ]


NO_NETWORK = {"usage": {"bandwidth_in_weight": 0.0, "bandwidth_out_weight": 0.0}}


@pytest.mark.parametrize(
    ("rounds", "pulsar", "expected"),
    [
        pytest.param(carrying(900, 2, 2, 2), {}, ["b1"], id="many times as much"),
        pytest.param(carrying(2, 900, 2, 2, cpu=8.0), {}, ["b2"], id="any of them"),
        pytest.param(carrying(401, 100, 100), {}, ["b1"], id="more than four times"),
        pytest.param(carrying(400, 100, 100), {}, [], id="four times"),
        pytest.param(carrying(24, 1, 1), {}, [], id="little for any network"),
        pytest.param(carrying(25, 0, 0), {}, ["b1"], id="a tenth of a gigabit both ways"),
        pytest.param(carrying(900, 2, cpu=45.1), {}, [], id="usage shows it"),
        pytest.param(carrying(900, 2, cpu=44.9), {}, ["b1"], id="usage hardly shows it"),
        pytest.param(carrying(900), {}, [], id="nobody beside it"),
        pytest.param(carrying(900, 2, bandwidth_in=(1.0, 100.0)), {}, [], id="bandwidth is measured"),
        pytest.param(carrying(900, 2), {"capacity": {"bytes_per_s": 1e9}}, [], id="bytes are declared"),
        pytest.param(carrying(900, 2), NO_NETWORK, [], id="bandwidth is not to count"),
    ],
)
def test_bytes_that_no_usage_shows_are_said_where_one_broker_carries_most(
    rounds: list[list[Event]], pulsar: dict[str, Any], expected: list[str]
) -> None:
    found = found_in(rounds, "uneven-bytes", **pulsar)
    assert found[1] == []
    assert found[-1] == [(broker, broker) for broker in expected]


def test_the_advice_about_uneven_bytes_says_how_much_and_what_to_declare() -> None:
    (advice,) = advice_in(carrying(900, 2, 2, 2))
    assert advice.startswith("it carries 900 MB/s, and the others of its group carry 2 MB/s on average")
    assert "bytes_per_s" in advice
