"""How much may be moved: counts, shares of the bundles and of the traffic, and what can be carried out in time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.shedding.rules import Rules
from policies.shedding.view import NOBODY
from state.pulsar.budgets import limits_of
from tests.state.building import END_MS, guarded, ruled, seen
from tests.state.traces import load

LIFETIME_S = 180.0
COUNTS = ("max_unloads_per_round_count", "max_unloads_per_hour_count")


def limits_by_name(bundles_count: int, lifetime_s: float | None, **guards: Any) -> dict[str, float]:
    """The limits by name, of a cluster that has so many bundles, four brokers and nothing moved yet."""
    found = seen(
        load("b1", 470.0, bundles={"t/n/0x0_0x1": 1.0}),
        settings=guarded("avg-shedder" if lifetime_s is None else "fleet-planner", **guards),
        expires_ms=END_MS + round(1000 * (lifetime_s or 0.0)),
    )
    bundles = found.table.view.bundles
    limits = limits_of(found.context, bundles, brokers_count=4, bundles_count=bundles_count)
    return {each.name: each.most for each in limits}


@pytest.mark.parametrize(
    ("bundles_count", "lifetime_s", "guards", "expected"),
    [
        pytest.param(160, None, {}, (20, 60), id="Pulsar's policies, few bundles"),
        pytest.param(2600, None, {}, (20, 60), id="Pulsar's policies, many bundles"),
        pytest.param(100, 180.0, {}, (20, 60), id="the planner, few bundles"),
        pytest.param(480, 180.0, {}, (24, 192), id="the planner, 120 bundles a broker"),
        pytest.param(2600, 180.0, {}, (130, 1040), id="the planner, 650 bundles a broker"),
        pytest.param(2600, 180.0, dict.fromkeys(COUNTS, 7), (7, 7), id="a count that is set is a hard cap"),
        pytest.param(10, 180.0, dict.fromkeys(COUNTS, 50), (50, 50), id="also where it is larger"),
        pytest.param(2600, 180.0, dict.fromkeys(COUNTS, 0), (None, None), id="0 is off"),
    ],
)
def test_an_unset_count_grows_with_the_bundles_for_the_planner_alone_and_a_set_one_is_a_hard_cap(
    bundles_count: int, lifetime_s: float | None, guards: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    found = limits_by_name(bundles_count, lifetime_s, **guards)
    assert tuple(found.get(name) for name in COUNTS) == expected


@pytest.mark.parametrize(("lifetime_s", "most"), [(180.0, 180), (30.5, 30), (0.2, 1), (None, None)], ids=str)
def test_a_plan_has_no_more_moves_than_can_be_carried_out_before_they_expire(
    lifetime_s: float | None, most: int | None
) -> None:
    assert limits_by_name(65_000, lifetime_s).get("action_ttl_s") == most


def fleet(*rates: float | None, **options: Any) -> Rules:
    """Rules of a broker with bundles of these rates, and an idle one; nothing is limited but what is asked for."""
    bundles = {f"t/n/0x{at:02x}_0x{at + 1:02x}": rate for at, rate in enumerate(rates)}
    found = seen(load("b1", 470.0, bundles=bundles), load("b2", 470.0))
    _, rules = ruled(found, **{"keep_sole_bundle": False, **dict.fromkeys(COUNTS, 0)} | options)
    return rules


def moved(rules: Rules, *rows: int) -> list[int]:
    """Which of these bundles may move, one after the other."""
    found = []
    for row in rows:
        if rules.keeps(row) is None:
            rules.take(row, NOBODY)
            found.append(row)
    return found


@pytest.mark.parametrize(
    ("rates", "rows", "expected"),
    [
        pytest.param([10.0] * 100, range(100), list(range(40)), id="40 of 100 equal bundles"),
        pytest.param([10.0] * 30, range(30), list(range(20)), id="the first 20 of an hour may carry more"),
        pytest.param([500.0] + [10.0] * 50, range(51), list(range(20)), id="also with half of the traffic"),
        pytest.param(
            [10.0] * 99 + [None], [99, *range(99)], [99, *range(39)], id="unknown counts as average"
        ),
        pytest.param([None] * 100, range(100), list(range(40)), id="all unknown"),
        pytest.param([0.0] * 30, range(30), list(range(30)), id="no traffic at all"),
    ],
)
def test_an_hours_moves_carry_at_most_their_share_of_the_traffic_and_the_first_may_carry_more(
    rates: list[float | None], rows: list[int], expected: list[int]
) -> None:
    assert moved(fleet(*rates, max_moved_per_hour_ratio=0.4), *rows) == expected


def test_a_hold_for_traffic_has_its_numbers() -> None:
    rules = fleet(*[10.0] * 30, max_moved_per_hour_ratio=0.4)
    moved(rules, *range(20))
    assert rules.keeps(20) == (
        "budget",
        "max_moved_per_hour_ratio 0.4 is spent: 0.667 of the fleet's traffic was moved within the hour, and this bundle carries 0.0333",
    )


def test_what_is_on_its_way_and_the_round_leave_so_many_moves() -> None:
    rules = fleet(*[1.0] * 9, hour_count=3, max_unloads_per_round_count=5, lifetime_s=4.0)
    assert rules.left_count == 1, "4 within 4 s, and 3 are in flight"
    assert moved(rules, 0, 1) == [0]
    assert rules.left_count == 0
    assert fleet(1.0).left_count is None


@given(
    counts=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    hour_count=st.integers(0, 9),
    rates=st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    lifetime_s=st.sampled_from([None, LIFETIME_S]),
)
def test_a_count_that_the_operator_sets_is_never_exceeded(
    counts: tuple[int, int], hour_count: int, rates: list[float], lifetime_s: float | None
) -> None:
    guards = dict(zip(COUNTS, counts, strict=True))
    rules = fleet(*rates, hour_count=hour_count, lifetime_s=lifetime_s, **guards)
    count = len(moved(rules, *range(len(rates))))
    assert count == min(len(rates), counts[0], max(0, counts[1] - hour_count))
