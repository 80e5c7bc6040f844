"""Which broker owns a bundle that several list, and since when a broker has listed it without a break."""

from typing import NamedTuple

import numpy as np
import pytest

from state.events import LoadReport
from state.pulsar.listings import Listings, first_rows, listings_of, owner_rows, pick
from state.pulsar.memory import Fleet
from tests.state.building import AGE_MS, seen
from tests.state.traces import load

A, B, C, D = (f"t/n/0x{at}_0x{at + 1}" for at in range(4))
FIRST_S, SECOND_S = 400, 460
FIRST_MS, SECOND_MS = 1000 * FIRST_S, 1000 * SECOND_S


class Shown(NamedTuple):
    """A listing in words."""

    broker: int
    bundle: str
    since_ms: int


def report(broker: str, time_s: float, *bundles: str) -> LoadReport:
    return load(broker, time_s, bundles=dict.fromkeys(bundles, 1.0))


def before(*reports: LoadReport) -> Fleet:
    """The fleet after a round with these reports."""
    return seen(*reports).advanced.fleet


BEFORE = before(report("b1", FIRST_S, A, B), report("b2", FIRST_S, C))


def listed(fleet: Fleet, *reports: LoadReport, max_age_ms: int = AGE_MS) -> Listings:
    found = seen(*reports).context.reports
    return listings_of(fleet, found, sorted(found), max_age_ms)


def shown(found: Listings) -> list[Shown]:
    return [
        Shown(*each)
        for each in zip(found.broker.tolist(), found.bundles, found.run_start_ms.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param(
            (report("b1", SECOND_S, A, B), report("b2", SECOND_S, C)),
            [(0, A, FIRST_MS), (0, B, FIRST_MS), (1, C, FIRST_MS)],
            id="as before",
        ),
        pytest.param(
            (report("b1", SECOND_S, A), report("b2", SECOND_S, B, C)),
            [(0, A, FIRST_MS), (1, B, SECOND_MS), (1, C, FIRST_MS)],
            id="b2 lists B for the first time",
        ),
        pytest.param(
            (report("b1", SECOND_S, A, B), report("b2", SECOND_S, B, C)),
            [(0, A, FIRST_MS), (0, B, FIRST_MS), (1, B, SECOND_MS), (1, C, FIRST_MS)],
            id="both list B",
        ),
        pytest.param(
            (report("b2", SECOND_S, C), report("b3", SECOND_S, D)),
            [(0, C, FIRST_MS), (1, D, SECOND_MS)],
            id="b1 is silent and b3 is new",
        ),
        pytest.param(
            (report("b1", SECOND_S), report("b2", SECOND_S, C)), [(1, C, FIRST_MS)], id="b1 has none left"
        ),
        pytest.param((report("b1", SECOND_S), report("b2", SECOND_S)), [], id="nobody lists anything"),
    ],
)
def test_a_run_of_listings_goes_on_while_the_broker_lists_the_bundle(
    reports: tuple[LoadReport, ...], expected: list[tuple[int, str, int]]
) -> None:
    assert shown(listed(BEFORE, *reports)) == [Shown(*each) for each in expected]


def test_a_run_goes_on_over_a_report_that_is_missing_and_ends_when_the_broker_was_silent_too_long() -> None:
    reports = report("b1", SECOND_S, A, B), report("b2", SECOND_S, C)
    silent_ms = SECOND_MS - FIRST_MS
    kept = listed(BEFORE, *reports, max_age_ms=silent_ms)
    assert [each.since_ms for each in shown(kept)] == [FIRST_MS] * 3
    assert kept.is_as_before
    beside = listed(BEFORE, *reports, report("b3", SECOND_S, D), max_age_ms=silent_ms)
    assert [each.since_ms for each in shown(beside)] == [*[FIRST_MS] * 3, SECOND_MS]
    anew = listed(BEFORE, *reports, max_age_ms=silent_ms - 1)
    assert [each.since_ms for each in shown(anew)] == [SECOND_MS] * 3
    assert not anew.is_as_before


def test_a_run_that_was_interrupted_by_one_report_begins_anew() -> None:
    without_b = seen(report("b1", SECOND_S, A), before=BEFORE).advanced.fleet
    again = listed(without_b, report("b1", 470, A, B))
    assert shown(again) == [(0, A, FIRST_MS), (0, B, 470_000)]


def test_each_broker_is_judged_by_its_own_silence() -> None:
    fleet = before(report("b1", FIRST_S, A), report("b2", FIRST_S + 50, C))
    found = listed(fleet, report("b1", SECOND_S, A), report("b2", SECOND_S, C), max_age_ms=20_000)
    assert shown(found) == [(0, A, SECOND_MS), (1, C, FIRST_MS + 50_000)]


@pytest.mark.parametrize(
    ("reports", "is_as_before"),
    [
        ((report("b1", SECOND_S, A, B), report("b2", SECOND_S, C)), True),
        ((report("b1", SECOND_S, A, B),), False),
        ((report("b1", SECOND_S, A, B), report("b2", SECOND_S, C), report("b3", SECOND_S)), False),
        ((report("b1", SECOND_S, A), report("b2", SECOND_S, B, C)), False),
        ((report("b1", SECOND_S, A, B), report("b2", SECOND_S, D)), False),
        ((report("b1", SECOND_S, A, B), report("b2", SECOND_S, C, D)), False),
    ],
    ids=["the same", "a broker less", "a broker more", "B moved", "another bundle", "a bundle more"],
)
def test_a_round_is_as_before_if_the_same_brokers_list_the_same_bundles(
    reports: tuple[LoadReport, ...], *, is_as_before: bool
) -> None:
    assert listed(BEFORE, *reports).is_as_before is is_as_before


def test_a_round_is_not_as_before_where_two_brokers_listed_a_bundle() -> None:
    """Then the listings are not in the order of the fleet's rows, one for each bundle."""
    both = report("b1", FIRST_S, A, B), report("b2", FIRST_S, B, C)
    found = listed(before(*both), report("b1", SECOND_S, A, B), report("b2", SECOND_S, B, C))
    assert not found.is_as_before
    assert [each.since_ms for each in shown(found)] == [FIRST_MS] * 4


def test_a_bundle_that_is_only_remembered_and_comes_back_begins_anew() -> None:
    """The fleet's rows are A, B and D, which are also the listings of the last round; but before it b2 had B and not D."""
    first = before(report("b1", FIRST_S, A), report("b2", FIRST_S, D))
    fleet = seen(report("b1", 430, A, B), report("b2", 430, B), before=first).advanced.fleet
    assert fleet.bundles == [A, B, D]
    found = listed(fleet, report("b1", SECOND_S, A, B), report("b2", SECOND_S, D))
    assert shown(found) == [(0, A, FIRST_MS), (0, B, 430_000), (1, D, SECOND_MS)]


def test_a_listing_has_time_traffic_and_counts_of_its_report() -> None:
    reports = (
        load("b2", 470, bundles={C: 7.0}, topics_count=5),
        load("b1", 460, bundles={A: None, B: 3.0}, topics_count=2),
    )
    found = listed(Fleet(), *reports)
    assert (found.broker.tolist(), found.bundles) == ([0, 0, 1], [A, B, C])
    assert found.time_ms.tolist() == [460_000, 460_000, 470_000]
    assert found.traffic.tolist() == [[0.0] * 4, [3.0, 0.0, 30.0, 0.0], [7.0, 0.0, 70.0, 0.0]]
    assert found.has_traffic.tolist() == [False, True, True]
    assert found.counts.tolist() == [[2, 2], [2, 2], [5, 5]]
    assert found.run_start_ms.tolist() == [460_000, 460_000, 470_000]


def listing(*rows: Shown, is_as_before: bool = False) -> Listings:
    count = len(rows)
    return Listings(
        broker=np.array([each.broker for each in rows]),
        bundles=[each.bundle for each in rows],
        run_start_ms=np.array([each.since_ms for each in rows]),
        time_ms=np.zeros(count, dtype=np.int64),
        traffic=np.zeros((count, 4)),
        has_traffic=np.ones(count, dtype=np.bool_),
        counts=np.zeros((count, 2), dtype=np.int64),
        is_absent=np.zeros(count, dtype=np.bool_),
        is_as_before=is_as_before,
    )


@pytest.mark.parametrize(
    ("rows", "owners"),
    [
        pytest.param([(0, A, 5), (0, B, 5), (1, C, 5)], [0, 1, 2], id="each bundle at one broker"),
        pytest.param([(0, A, 1), (0, B, 1), (1, B, 2)], [0, 2], id="the later run owns it"),
        pytest.param([(0, A, 1), (0, B, 2), (1, B, 1)], [0, 1], id="also at the lesser broker"),
        pytest.param([(0, B, 2), (1, B, 2), (2, C, 9)], [1, 2], id="of equal runs the greater broker's"),
        pytest.param([(0, A, 3), (1, A, 1), (2, A, 2)], [0], id="three list it"),
        pytest.param([(0, A, 1), (0, B, 9), (1, A, 9), (1, B, 1)], [1, 2], id="two bundles at both"),
        pytest.param([], [], id="none"),
    ],
)
def test_of_the_brokers_that_list_a_bundle_the_one_that_began_last_owns_it(
    rows: list[tuple[int, str, int]], owners: list[int]
) -> None:
    assert owner_rows(listing(*(Shown(*each) for each in rows))).tolist() == owners


def test_if_all_is_as_before_each_listing_owns_its_bundle() -> None:
    found = listing(Shown(0, A, 9), Shown(1, B, 1), is_as_before=True)
    assert owner_rows(found).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([], []),
        ([2], [C]),
        ([1, 2, 3], [B, C, D]),
        ([0, 2, 3], [A, C, D]),
        ([2, 1, 0], [C, B, A]),
        ([0, 2, 1, 3], [A, C, B, D]),
        ([1, 1], [B, B]),
    ],
    ids=str,
)
def test_names_are_picked_in_the_order_of_the_rows(rows: list[int], names: list[str]) -> None:
    assert pick([A, B, C, D], np.array(rows, dtype=np.int64)) == names


def test_the_first_rows_are_in_order() -> None:
    assert first_rows(3).tolist() == [0, 1, 2]
    assert first_rows(0).tolist() == []
