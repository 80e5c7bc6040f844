"""The rules of a round as the facts, the guards and the ledger give them: how much may be moved, and who spends it first."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.shedding.rules import Forbidden, Rules
from policies.shedding.view import NOBODY
from state.facts import Isolation
from state.pulsar.budgets import limits_of
from state.pulsar.shedding import shed
from state.settings import ClusterSettings
from tests.state.building import END_MS, guarded, ruled, seen, spent, told_to_leave
from tests.state.traces import FIRING, load, settings_of

A, B, C, D = (f"t/{name}/0x0_0x1" for name in "abcd")
REPORTS = (
    load("b1", 470, cpu=90.0, bundles={A: 30.0, B: 30.0}),
    load("b2", 470, cpu=10.0, bundles={C: 10.0}),
    load("b3", 470, cpu=10.0, bundles={D: 10.0}),
)


def test_the_rules_begin_with_what_the_ledger_counts_and_what_was_told_to_leave() -> None:
    _, rules = ruled(
        seen(*REPORTS),
        hour_count=3,
        drained_count=2,
        leaving={"b1": {B}, "b2": {"t/gone/0x0_0x1"}, "b9": {A}},
    )
    assert spent(rules) == {"unloads_per_round": 0, "unloads_per_hour": 3, "drain_unloads_per_hour": 2}
    assert (told_to_leave(rules), rules.staying_counts.tolist()) == ([1], [1, 1, 1])


def test_a_busy_bundle_of_pulsars_own_is_one_that_its_broker_keeps() -> None:
    """It is of ``pulsar/system`` and has traffic. Pulsar counts every bundle that a broker lists."""
    busy = msgspec.structs.replace(REPORTS[1], report=replace(REPORTS[1].report, busy_system_count=1))
    _, rules = ruled(seen(REPORTS[0], busy, REPORTS[2]))
    assert rules.staying_counts.tolist() == [2, 2, 1]
    assert [rules.keeps(row) is None for row in (2, 3)] == [True, False]


def test_a_limit_of_0_is_off() -> None:
    off = {
        f"max_{name}_count": 0 for name in ("unloads_per_round", "unloads_per_hour", "drain_unloads_per_hour")
    }
    assert ruled(seen(*REPORTS), **off)[1].limits == ()


def test_where_no_group_is_known_nothing_is_worked_out() -> None:
    _, rules = ruled(seen(*REPORTS), domains={"east": ["b1"]})
    assert (rules.spread, rules.namespace) == (None, None)
    assert rules.bars(0, 1) is None


def test_a_drained_broker_and_its_bundles_come_after_those_of_the_view() -> None:
    """b2 takes no part; its bundle may leave for b1, which has the other namespace of its group, only if it has one as well."""
    found = seen(*REPORTS, apart=("b2",))
    _, rules = ruled(found, drained=("b2",), groups={"spread": ["t/a", "t/c"]})
    assert (list(rules.brokers), rules.first_row_of("b2")) == (["b1", "b3", "b2"], 3)
    assert rules.bars(3, 1) is None
    assert rules.bars(3, 0) == Forbidden(
        "anti-affinity", "b1 owns bundles of 1 other namespaces of anti-affinity group spread, b2 of 0"
    )


def test_a_drained_broker_without_bundles_or_without_a_report_is_no_matter() -> None:
    empty = msgspec.structs.replace(REPORTS[1], report=load("b2", 470, bundles={}).report)
    found = seen(REPORTS[0], empty, REPORTS[2], apart=("b2",))
    _, rules = ruled(found, drained=("b2", "silent"), groups={"spread": ["t/a", "t/d"]})
    assert rules.allowed(np.array([0, 1]), np.array([1])).tolist() == [[False], [True]]


def test_what_one_isolation_group_wants_counts_for_the_next_and_not_in_the_round() -> None:
    red = Isolation("red", ["t/d"], ["b3", "b4"])
    of_red, of_default = ({f"t/{name}/0x{at}_0x{at + 1}": 10.0 for at in range(4)} for name in "da")
    found = seen(
        load("b1", 470, cpu=90.0, bundles=of_default),
        REPORTS[1],
        load("b3", 470, cpu=90.0, bundles=of_red),
        load("b4", 470, cpu=10.0),
        isolation=[red],
        settings=ClusterSettings(pulsar=settings_of(**FIRING).base("c").pulsar),
    )
    table, rules = ruled(found)
    wanted = shed(found.context, table)
    assert len(wanted.parts) == 2
    (first, second) = (part.view.rules for part in wanted.parts)
    assert all(len(part.plan.unload_rows) for part in wanted.parts)
    count = len(wanted.plan.unload_rows)
    assert first is not None
    assert second is not None
    assert spent(first)["unloads_per_round"] == spent(second)["unloads_per_round"] == count
    assert spent(rules)["unloads_per_round"] == 0


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
def test_an_unset_count_grows_with_bundles_for_the_planner_and_a_set_one_is_a_cap(
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
        "max_moved_per_hour_ratio",
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
