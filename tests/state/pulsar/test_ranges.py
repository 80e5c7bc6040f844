"""Ranges that reports list and that cannot be there at once: found, counted once, left alone and named."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.events import Event
from state.pulsar.listings import covers, find_overlaps, members_of
from tests.state.building import Seen, seen
from tests.state.pulsar.test_gaps import owners, report
from tests.state.traces import load, run, settings_of, statistics

NAMESPACE = "t/a"


def name(lower: int, upper: int, namespace: str = NAMESPACE) -> str:
    return f"{namespace}/0x{lower:08x}_0x{upper:08x}"


P, C1, C2, REST = name(0, 8), name(0, 4), name(4, 8), name(8, 16)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([P, REST], {}),
        ([P, C1, C2, REST], {P: [C1, C2]}),
        ([P, C2], {P: [C2]}),
        ([name(0, 6), name(4, 12)], {name(4, 12): [name(0, 6)]}),
        (
            [P, C1, C2, name(0, 2), name(2, 4)],
            {C1: [name(0, 2), name(2, 4)], P: [name(0, 2), name(2, 4), C2]},
        ),
        ([name(0, 8, "t/b"), C1, C2], {}),
        (
            [name(0, 0xFFFFFFFF), name(0x80000000, 0xFFFFFFFF)],
            {name(0, 0xFFFFFFFF): [name(0x80000000, 0xFFFFFFFF)]},
        ),
        ([name(8, 4), P], {}),
        ([], {}),
    ],
    ids=[
        "beside",
        "parent and children",
        "one child",
        "crossing",
        "grandchildren",
        "another namespace",
        "to the end",
        "no range",
        "nothing",
    ],
)
def test_the_wider_of_overlapping_ranges_is_named_with_the_finer_ones(
    listed: list[str], expected: dict[str, list[str]]
) -> None:
    assert find_overlaps(listed) == expected
    assert find_overlaps(reversed(listed)) == expected


@given(st.sets(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=12))
def test_those_that_count_never_overlap_and_all_that_overlap_are_found(drawn: set[tuple[int, int]]) -> None:
    ranges = {name(lower, lower + width): (lower, lower + width) for lower, width in drawn}
    overlaps = find_overlaps(ranges)
    clashing = {
        each
        for one, other in combinations(ranges, 2)
        if ranges[one][0] < ranges[other][1] and ranges[other][0] < ranges[one][1]
        for each in (one, other)
    }
    counted = set(ranges) - set(overlaps)
    for wide, finer in overlaps.items():
        assert finer == [
            each
            for each in sorted(counted)
            if ranges[each][0] < ranges[wide][1] and ranges[wide][0] < ranges[each][1]
        ]
    assert members_of(overlaps) == clashing
    assert not any(
        ranges[one][0] < ranges[other][1] and ranges[other][0] < ranges[one][1]
        for one, other in combinations(counted, 2)
    )


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([C1, C2], True),
        ([C1], False),
        ([C2], False),
        ([name(0, 16)], True),
        ([name(0, 3), C2], False),
        ([], False),
    ],
)
def test_a_range_is_covered_by_the_union_of_others(listed: list[str], *, expected: bool) -> None:
    assert covers(listed, P) is expected


def rounds(*listings: dict[str, float], left: frozenset[str] | None = frozenset()) -> list[Seen]:
    """b1 lists these bundles round by round, b2 always the same one."""
    found: list[Seen] = []
    for at, bundles in enumerate(listings):
        reports = report("b1", 60 * at, bundles=bundles), report("b2", 60 * at, bundles={REST: 7.0})
        before = found[-1].advanced.fleet if found else None
        found.append(seen(*reports, before=before, left=left, end_ms=60_000 * at))
    return found


BOTH = {P: 10.0, C1: 6.0, C2: 4.0}


def test_a_range_that_overlaps_for_one_round_is_nothing_and_in_the_second_it_counts_once() -> None:
    first, second, third, fourth, fifth, sixth = rounds({P: 10.0}, BOTH, BOTH, BOTH, {C1: 6.0, C2: 4.0}, BOTH)
    assert [dict(each.advanced.overlaps) for each in (first, second, fifth, sixth)] == [{}] * 4
    for each in (third, fourth):
        assert each.advanced.overlaps == {P: [C1, C2]}
        assert owners(each) == {P: "b1", C1: "b1", C2: "b1", REST: "b2"}
        assert each.table.view.brokers.messages_per_s.tolist() == [10.0, 7.0]
        assert each.table.view.brokers.bytes_per_s.tolist() == [100.0, 70.0]
        rates = dict(zip(each.table.view.bundles.names, each.table.view.bundles.messages_per_s, strict=True))
        assert rates == {P: 0.0, C1: 6.0, C2: 4.0, REST: 7.0}
        present = each.table.view.present_rates
        assert present is not None
        at = each.table.view.bundles.names.index(P)
        assert present(each.table.fleet_rows[[at]]).tolist() == [[0.0] * 4]


def test_pulsars_policies_see_both_ranges_and_all_their_traffic() -> None:
    last = rounds(BOTH, BOTH, BOTH, left=None)[-1]
    assert last.advanced.overlaps == {P: [C1, C2]}
    assert last.table.view.brokers.messages_per_s.tolist() == [20.0, 7.0]
    assert last.table.view.bundles.messages_per_s.tolist() == [6.0, 10.0, 4.0, 7.0]


def test_an_absent_bundle_overlaps_nothing_and_does_again_when_it_comes_back_for_two_rounds() -> None:
    found = rounds({P: 10.0}, {C1: 6.0}, {C1: 6.0}, {P: 10.0, C1: 6.0}, {P: 10.0, C1: 6.0})
    assert [dict(each.advanced.overlaps) for each in found] == [{}, {}, {}, {}, {P: [C1]}]


def _events(count: int) -> list[Event]:
    """b1 is hot and lists a parent beside its children from the third round on; b2 and b3 are idle."""
    parent, first, second = (name(at, to, "t/hot") for at, to in ((0, 8), (0, 4), (4, 8)))
    found: list[Event] = []
    for at in range(count):
        listed = {parent: 6000.0, **({first: 3000.0, second: 3000.0} if at > 1 else {})}
        found += [
            load("b1", 10 * at + 1, cpu=90.0, bundles={**listed, name(0, 8, "t/x"): 10.0}),
            load("b2", 10 * at + 1, cpu=20.0, bundles={name(0, 8, "t/y"): 900.0}),
            load("b3", 10 * at + 1, cpu=20.0, bundles={name(0, 8, "t/z"): 900.0}),
            statistics(
                "b1", 10 * at + 2, {parent: {f"persistent://t/hot/{each}": 1000.0 for each in range(6)}}
            ),
        ]
    return found


FREE: dict[str, Any] = {
    "guards": {"bundle_cooldown_s": 0.0},
    "rounds": {"warmup_rounds": 4},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0, "max_unload_ratio": 1.0},
    "threshold_shedder": {"min_unload_bytes_per_s": 1.0, "history_ratio": 0.0},
    "split": {"enabled": True, "max_messages_per_s": 500.0, "hit_count": 1, "bundle_cooldown_s": 0.0},
}


def test_topics_of_ranges_that_overlap_count_once_as_their_traffic_does() -> None:
    """10 topics in each of a range and its two halves, of 100 that a broker can carry."""
    parent, *halves = (name(at, to, "t/hot") for at, to in ((0, 8), (0, 4), (4, 8)))
    both = {parent: 10.0, **dict.fromkeys(halves, 5.0)}
    events = [
        load(broker, 10 * at + 1, cpu=5, bundles=bundles, topics_count=10)
        for at in range(3)
        for broker, bundles in (("b1", both), ("b2", {}))
    ]
    capacity = {"topics_count": 100, "messages_per_s": 100}
    found = run([events], settings_of(shedding_policy="fleet-planner", capacity=capacity, **FREE))
    rows = [each["brokers"][0]["resources"] for each in found.summaries if each["brokers"]]
    for row, expected in ((rows[0], (20.0, 30.0)), (rows[-1], (10.0, 20.0))):
        assert (row["messages"], row["topics"]) == pytest.approx(expected)


@pytest.mark.parametrize("policy", ["avg-shedder", "threshold-shedder", "fleet-planner"])
def test_nothing_is_done_to_overlapping_ranges_and_a_finding_names_them(policy: str) -> None:
    found = run([_events(20)], settings_of(shedding_policy=policy, **FREE))
    assert not [each for each in found.actions if each["bundle"].startswith("t/hot/")]
    [finding] = found.summaries[-1]["findings"]["heaviest"]
    assert (finding["kind"], finding["broker"]) == ("overlapping-ranges", "b1")
    assert finding["subject"] == name(0, 8, "t/hot")
    assert name(0, 4, "t/hot") in finding["advice"]
    outcomes = {name for each in found.summaries for name in each["candidates"]["outcomes"]}
    assert "overlapping" in outcomes
    splits = {name for each in found.summaries for name in each["splits"]["outcomes"]}
    assert "overlapping" in splits
