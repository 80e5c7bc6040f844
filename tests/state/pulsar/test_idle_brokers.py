"""Brokers that carry next to nothing beside others that do."""

from collections.abc import Mapping
from typing import Any

import pytest

from state.events import Event, LoadReport
from state.facts import Isolation
from tests.state.pulsar.reporting_brokers import DRY_RUN, advice_in, found_in, report
from tests.state.traces import BUNDLES, facts, load, run, settings_of

QUARTER: dict[str, Any] = {"rounds": {"length_s": 150.0, "max_report_age_s": 325.0}}
"""A quarter of an hour is six rounds; a broker that is missing twice is remembered."""


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
    ("rate", "topics_count", "expected"),
    [(0.02, 0, IDLE), (0.021, 0, []), (0.0, 20, IDLE), (0.0, 21, []), (0.02, 20, IDLE), (0.021, 20, [])],
    ids=["2 % of the traffic", "more", "2 % of the topics", "more topics", "2 % of both", "more of one"],
)
def test_less_than_2_percent_of_what_others_carry_is_as_good_as_nothing(
    rate: float, topics_count: int, expected: list[tuple[str, str]]
) -> None:
    rounds = quarters(*[None] * 6, other={BUNDLES[0]: 1.0}, topics_count=1000)
    for at, events in enumerate(rounds):
        events.append(
            load("b2", 150 * at + 75, cpu=1.0, bundles={BUNDLES[1]: rate}, topics_count=topics_count)
        )
    assert found_in(rounds, "idle-broker", **QUARTER)[-1] == expected
    if expected:
        (advice,) = advice_in(rounds, **QUARTER)
        assert advice.startswith("it has carried less than 2 % of what others do since 1970-01-01T00:00:00Z")


def test_only_what_others_of_its_group_carry_is_compared() -> None:
    rounds = quarters(*[{BUNDLES[4]: 1.0}] * 6, other={BUNDLES[0]: 1000.0})
    assert found_in(rounds, "idle-broker", **QUARTER)[-1] == IDLE
    isolated = facts(1, isolation=[Isolation("own", ["t/b"], ["b2", "b3"])])
    beside = [
        [*events, load("b3", 150 * at + 75, bundles={BUNDLES[5]: 2.0})] for at, events in enumerate(rounds)
    ]
    assert found_in([[isolated, *beside[0]], *beside[1:]], "idle-broker", **QUARTER)[-1] == []


ONLY_PLANNER = "set shedding_policy to fleet-planner, which alone moves bundles for"
SMALL_ENOUGH = "small enough that it shows above the others' CPU"


@pytest.mark.parametrize(
    ("policy", "cpu_points", "topics_count", "said", "unsaid"),
    [
        pytest.param("avg-shedder", 9, 1000, [ONLY_PLANNER, "by hand"], [], id="Pulsar's"),
        pytest.param("avg-shedder", 42, 1000, ["41.0 points above", ONLY_PLANNER], [], id="usage shows it"),
        pytest.param("avg-shedder", 42, 999, ["41.0 points above"], [ONLY_PLANNER], id="not for its topics"),
        pytest.param("fleet-planner", 9, 1000, [SMALL_ENOUGH, "by hand"], [ONLY_PLANNER], id="the planner"),
        pytest.param(
            "fleet-planner", 42, 1000, ["41.0 points above", SMALL_ENOUGH], [ONLY_PLANNER], id="and shown"
        ),
        pytest.param("fleet-planner", 42, 999, ["say why"], ["topics_count"], id="the planner with traffic"),
    ],
)
def test_what_is_advised_for_an_idle_broker_is_what_helps_with_the_policy_in_force(
    policy: str, cpu_points: float, topics_count: int, said: list[str], unsaid: list[str]
) -> None:
    rounds = quarters(*[{}] * 6, cpu_points=cpu_points, topics_count=topics_count)
    (advice,) = advice_in(rounds, shedding_policy=policy, **QUARTER)
    assert [each for each in said if each not in advice] == []
    assert [each for each in unsaid if each in advice] == []


@pytest.mark.parametrize("shadow", [True, False])
def test_a_broker_that_bundles_are_moved_to_in_a_dry_run_is_not_idle(*, shadow: bool) -> None:
    """Without a shadow the same is decided again and again, and each time the bundles are on their way."""
    chosen = QUARTER | {"shedding_policy": "fleet-planner", "shadow": shadow}
    other = dict.fromkeys(BUNDLES[:4], 100.0)
    rounds = quarters(*[{}] * 9, cpu_points=60.0, other=other)
    played = run(rounds, settings_of(**chosen), identity=DRY_RUN)
    assert played.actions
    assert found_in(rounds, "idle-broker", **chosen) == [[]] * 9


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
