"""Problems of single brokers and of whole groups, by what brokers report for some rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from state.closing import Identity
from state.events import Event, LoadReport, Published
from state.facts import Isolation
from tests.state.traces import BUNDLES, facts, load, run, settings_of

DRY_RUN = Identity(mode="dry-run")
NOT_MEASURED = (-1.0, -1.0)
RESOURCES = ("cpu", "bandwidth-in", "bandwidth-out", "direct-memory")
QUARTER: dict[str, Any] = {"rounds": {"length_s": 150.0, "max_report_age_s": 325.0}}
"""A quarter of an hour is six rounds; a broker that is missing twice is remembered."""


def report(
    broker: str,
    time_s: float,
    *,
    bundles: Mapping[str, float | None] | None = None,
    topics_count: int = 1,
    **used: tuple[float, float],
) -> LoadReport:
    """A load report with usage and limit of some resources (``_`` for ``-``); the others are not measured."""
    found = load(broker, time_s, bundles=bundles or {BUNDLES[0]: 1.0}, topics_count=topics_count)
    resources = np.array([used.get(name.replace("-", "_"), NOT_MEASURED) for name in RESOURCES])
    return msgspec.structs.replace(found, report=replace(found.report, resources=resources))


def found_in(batches: Sequence[Sequence[Event]], kind: str, **pulsar: Any) -> list[list[tuple[str, str]]]:
    """Subject and broker of the findings of a kind in each round; every round is a batch of its own, so the memory is stored."""
    played = run(batches, settings_of(**pulsar), identity=DRY_RUN)
    return [
        [
            (each["subject"], each["broker"])
            for each in summary["findings"]["heaviest"]
            if each["kind"] == kind
        ]
        for summary in played.summaries
    ]


def advice_in(batches: Sequence[Sequence[Event]], **pulsar: Any) -> list[str]:
    """The advice of the last round's findings."""
    last = run(batches, settings_of(**pulsar), identity=DRY_RUN).summaries[-1]
    return [each["advice"] for each in last["findings"]["heaviest"]]


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
    [advice] = advice_in(unlike(m1=METAL, v1=VM, v2=VM))
    assert advice.startswith("v1, v2 do not measure bandwidth-in and bandwidth-out, and can only be compared")
    assert "[pulsar.capacity.brokers]" in advice
    many = {f"v{number}": VM for number in range(10, 35)}
    [advice] = advice_in(unlike(m1=METAL, **many), rounds={"warmup_rounds": 0})
    assert "v29 and 5 more do not measure" in advice


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


def quarters(
    *idle: Mapping[str, float | None] | None,
    topics_count: int = 1,
    other: Mapping[str, float | None] | None = None,
    cpu_points: float = 9,
) -> list[list[Event]]:
    """Rounds of two and a half minutes in which b2, at 1 %, lists these bundles, None is not at all; b1 lists ``other``."""
    return [
        [
            report(
                "b1",
                150 * at + 75,
                bundles=other or {BUNDLES[0]: 1.0},
                topics_count=topics_count,
                cpu=(cpu_points, 100),
            ),
            *([] if listed is None else [_listing("b2", 150 * at + 75, listed)]),
        ]
        for at, listed in enumerate(idle)
    ]


def _listing(broker: str, time_s: float, bundles: Mapping[str, float | None]) -> LoadReport:
    return load(broker, time_s, cpu=1.0, bundles=bundles)


IDLE = [("b2", "b2")]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param([{}] * 7, [0, 0, 0, 0, 0, 1, 1], id="nothing for a quarter of an hour"),
        pytest.param([{BUNDLES[1]: 0.0}] * 6, [0, 0, 0, 0, 0, 1], id="a bundle without a topic"),
        pytest.param([{BUNDLES[1]: None}] * 7, [0] * 7, id="a bundle without statistics is not empty"),
        pytest.param(
            [{}, {}, {}, {BUNDLES[1]: None}, {}, {}, {}],
            [0, 0, 0, 0, 0, 1, 1],
            id="unknown for a moment is a gap",
        ),
        pytest.param([*[{}] * 6, {BUNDLES[1]: None}], [0, 0, 0, 0, 0, 1, 0], id="unknown now is not said"),
        pytest.param([{}, {}, None, {}, {}, {}, {}], [0, 0, 0, 0, 0, 1, 1], id="a missing report is a gap"),
        pytest.param([{}, {}, None, None, None, *[{}] * 6], [0] * 10 + [1], id="away for long: begins anew"),
        pytest.param(
            [{}] * 5 + [{BUNDLES[1]: 1.0}] + [{}] * 2, [0] * 8, id="traffic for a round begins anew"
        ),
        pytest.param(
            [{}] * 6 + [{BUNDLES[1]: 1.0}], [0, 0, 0, 0, 0, 1, 0], id="it ends with the first bundle"
        ),
    ],
)
def test_a_broker_that_has_carried_nothing_for_a_quarter_of_an_hour_is_named(
    listed: list[Mapping[str, float | None] | None], expected: list[int]
) -> None:
    assert found_in(quarters(*listed), "idle-broker", **QUARTER) == [IDLE * count for count in expected]


@pytest.mark.parametrize(
    ("other", "topics_count", "expected"),
    [
        ({BUNDLES[0]: 0.0}, 1000, IDLE),
        ({BUNDLES[0]: 0.0}, 999, []),
        ({BUNDLES[0]: 0.1}, 1, IDLE),
        ({BUNDLES[0]: None}, 0, []),
    ],
    ids=["thousands of topics", "a few topics", "traffic", "not known"],
)
def test_it_is_idle_only_beside_brokers_with_traffic_or_many_topics(
    other: Mapping[str, float | None], topics_count: int, expected: list[tuple[str, str]]
) -> None:
    rounds = quarters(*[{}] * 6, other=other, topics_count=topics_count)
    assert found_in(rounds, "idle-broker", **QUARTER)[-1] == expected


@pytest.mark.parametrize(
    ("cpu_points", "expected"), [(15.9, "usage may not show"), (16.0, "the outcomes of this round say why")]
)
def test_where_usage_shows_that_a_broker_is_idle_no_capacity_is_asked_for(
    cpu_points: float, expected: str
) -> None:
    (advice,) = advice_in(quarters(*[{}] * 6, cpu_points=cpu_points), **QUARTER)
    assert expected in advice
    assert ("topics_count" in advice) == (cpu_points < 16)


def test_an_excluded_broker_and_one_of_a_group_of_its_own_are_not_idle() -> None:
    excluded = QUARTER | {"guards": {"excluded_brokers": ["b2"]}}
    assert found_in(quarters(*[{}] * 7), "idle-broker", **excluded)[-1] == []
    isolated = facts(1, isolation=[Isolation("own", ["t/b"], ["b2"])])
    first, *rest = quarters(*[{}] * 7)
    assert found_in([[isolated, *first], *rest], "idle-broker", **QUARTER)[-1] == []
