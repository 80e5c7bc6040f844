"""What reports leave out or list twice: bundles that stay at their owner, and ranges that overlap."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.closing import Identity
from state.events import BrokerReport, Event, LoadReport, Published
from state.facts import Isolation
from state.layouts import seal
from state.pulsar.memory import Fleet
from state.pulsar.overlaps import covers, find_overlaps, members_of
from state.systems import decode_memory
from tests.state.building import AGE_MS, Seen, seen
from tests.state.traces import facts, load, run, seeds, settings_of, statistics

A, B, C = "t/a/0x00000000_0x80000000", "t/b/0x00000000_0x80000000", "t/c/0x00000000_0x80000000"
LEFT, RIGHT = "t/a/0x00000000_0x40000000", "t/a/0x40000000_0x80000000"


def report(broker: str, time_s: float, **fields: Any) -> LoadReport:
    return load(broker, time_s, topics_count=3, **fields)


def rounds(
    *each_round: Mapping[str, Mapping[str, float | None]], left: frozenset[str] | None = frozenset()
) -> list[Seen]:
    """What each round of 60 s sees: by broker the bundles that it lists, with their messages/s; ``left`` were unloaded by us."""
    found: list[Seen] = []
    fleet = Fleet()
    for number, listed in enumerate(each_round):
        reports = [report(broker, 60 * number, bundles=bundles) for broker, bundles in listed.items()]
        found.append(seen(*reports, before=fleet, left=left, end_ms=60_000 * number))
        fleet = decode_memory("pulsar", seal(found[-1].advanced.fleet))
    return found


def owners(of: Seen) -> dict[str, str]:
    """Broker of each bundle in the view."""
    view = of.table.view
    rows = np.arange(len(view.bundles))
    return dict(
        zip(
            view.bundles.names,
            [view.brokers.names[at] for at in view.bundles.owners_of(rows).tolist()],
            strict=True,
        )
    )


def absent(of: Seen) -> list[str]:
    rows = np.flatnonzero(of.advanced.is_absent).tolist()
    return [of.advanced.fleet.bundles[row] for row in rows]


def test_a_bundle_that_two_brokers_listed_is_where_it_is_still_listed_after_two_gaps() -> None:
    """b2 lists A for two rounds, so it counts there; then b1 alone goes on to list it."""
    both = {"b1": {A: 10.0, B: 20.0}, "b2": {A: 10.0, C: 30.0}}
    seen_rounds = rounds(FULL, both, both, FULL, FULL, FULL)
    assert [owners(each)[A] for each in seen_rounds] == ["b1", "b1", "b2", "b2", "b1", "b1"]
    assert [absent(each) for each in seen_rounds] == [[], [], [], [A], [], []]


FULL = {"b1": {A: 10.0, B: 20.0}, "b2": {C: 30.0}}
WITHOUT_A = {"b1": {B: 20.0}, "b2": {C: 30.0}}


def test_a_bundle_that_its_owner_leaves_out_stays_with_its_averages_and_gives_no_sample() -> None:
    first, gap, after = rounds(FULL, WITHOUT_A, FULL)
    assert owners(first) == owners(gap) == owners(after) == {A: "b1", B: "b1", C: "b2"}
    assert [absent(each) for each in (first, gap, after)] == [[], [A], []]
    row = gap.table.view.bundles.names.index(A)
    assert gap.table.view.bundles.messages_per_s[row] == 10.0
    assert gap.table.view.bundles.sampled[row]
    present = gap.table.view.present_rates
    assert present is not None
    assert present(np.array([row])).tolist() == [[10.0, 0.0, 100.0, 0.0]]
    samples = [
        dict(zip(each.advanced.fleet.bundles, each.advanced.fleet.samples, strict=True))
        for each in (gap, after)
    ]
    assert [each[A] for each in samples] == [1, 2]
    assert [each[B] for each in samples] == [2, 3]
    assert not after.advanced.fleet.owed_skip.any()


def test_its_broker_carries_what_it_carried_before() -> None:
    first, gap = rounds(FULL, WITHOUT_A)
    for each in (first, gap):
        assert each.table.view.brokers.messages_per_s.tolist() == [30.0, 30.0]
        assert each.table.view.brokers.bytes_per_s.tolist() == [300.0, 300.0]
    assert gap.advanced.unreported["b1"] == (10.0, 100.0, 3, 3)
    assert gap.advanced.counts.tolist() == [[3, 3]] * 3


def test_traffic_that_the_broker_still_reports_does_not_count_twice() -> None:
    before = rounds(FULL)[0].advanced.fleet
    for total, expected in ((30.0, 30.0), (26.0, 30.0), (20.0, 30.0), (45.0, 45.0)):
        reports = report("b1", 60, bundles={B: 20.0}, rate=total), report("b2", 60, bundles={C: 30.0})
        found = seen(*reports, before=before, left=(), end_ms=60_000)
        assert found.table.view.brokers.messages_per_s.tolist() == [expected, 30.0]


def test_what_a_broker_publishes_about_itself_needs_no_completion() -> None:
    before = rounds(FULL)[0].advanced.fleet
    top = Published(
        usage_ratio=0.2,
        bytes_per_s=200.0,
        updated_ms=60_000,
        top_bundles=[B],
        top_bytes_per_s=np.array([200.0]),
    )
    event = report("b1", 60, bundles={A: None, B: 20.0})
    reports = (
        msgspec.structs.replace(event, report=replace(event.report, published=top)),
        report("b2", 60, bundles={C: 30.0}),
    )
    found = seen(*reports, before=before, left=(), end_ms=60_000)
    assert found.table.view.brokers.messages_per_s.tolist() == [20.0, 30.0]


def test_a_bundle_that_is_listed_without_traffic_counts_with_its_averages_too() -> None:
    gap = rounds(FULL, {"b1": {A: None, B: 20.0}, "b2": {C: 30.0}})[-1]
    assert gap.table.view.brokers.messages_per_s.tolist() == [30.0, 30.0]
    assert absent(gap) == []


@pytest.mark.parametrize(
    ("last", "expected", "kept"),
    [
        pytest.param(
            {"b1": {B: 20.0}, "b2": {A: 10.0, C: 30.0}}, {A: "b2", B: "b1", C: "b2"}, [], id="moved"
        ),
        pytest.param(
            {"b1": {B: 20.0, LEFT: 5.0, RIGHT: 5.0}, "b2": {C: 30.0}},
            {B: "b1", LEFT: "b1", RIGHT: "b1", C: "b2"},
            [],
            id="split",
        ),
        pytest.param(
            {"b1": {B: 20.0, LEFT: 5.0}, "b2": {C: 30.0, RIGHT: 5.0}},
            {B: "b1", LEFT: "b1", RIGHT: "b2", C: "b2"},
            [],
            id="split and one part moved",
        ),
        pytest.param(
            {"b1": {B: 20.0, LEFT: 5.0}, "b2": {C: 30.0}},
            {A: "b1", B: "b1", LEFT: "b1", C: "b2"},
            [A],
            id="only one part is listed yet",
        ),
        pytest.param(
            {"b1": {}, "b2": {C: 30.0}}, {A: "b1", B: "b1", C: "b2"}, [A, B], id="nothing is listed"
        ),
        pytest.param({"b2": {C: 30.0}}, {C: "b2"}, [], id="its broker does not report"),
    ],
)
def test_an_absent_bundle_stays_until_it_is_known_to_be_elsewhere_or_split(
    last: Mapping[str, Mapping[str, float | None]], expected: dict[str, str], kept: list[str]
) -> None:
    found = rounds(FULL, last)[-1]
    assert owners(found) == expected
    assert absent(found) == kept


def test_an_absent_bundle_that_we_unloaded_is_gone_and_does_not_come_back() -> None:
    gone = rounds(FULL, WITHOUT_A, WITHOUT_A, left=frozenset({A}))
    assert [A in owners(each) for each in gone] == [True, False, False]
    reports = report("b1", 120, bundles={B: 20.0}), report("b2", 120, bundles={C: 30.0})
    later = seen(*reports, before=gone[1].advanced.fleet, left=(), end_ms=120_000)
    assert A not in owners(later)


def test_an_absent_bundle_is_gone_when_nobody_lists_it_for_the_age_of_a_report() -> None:
    found = rounds(FULL, *[WITHOUT_A] * 4, FULL)
    assert [60_000 * at <= AGE_MS for at in range(1, 5)] == [True, True, True, False]
    assert [A in owners(each) for each in found] == [True, True, True, True, False, True]


def test_a_stale_listing_of_the_former_owner_does_not_take_an_absent_bundle_back() -> None:
    stale = {"b1": {A: 10.0, B: 20.0}, "b2": {A: 10.0, C: 30.0}}
    found = rounds(FULL, stale, stale, FULL, stale)
    assert [owners(each)[A] for each in found] == ["b1", "b1", "b2", "b2", "b2"]
    assert found[-1].advanced.runs_begun_ms("b2")[found[-1].advanced.row_of("b2", A) or 0] == 60_000


def test_a_bundle_that_is_absent_while_its_broker_falls_silent_is_forgotten_in_time() -> None:
    found = rounds(FULL, WITHOUT_A, *[{"b2": {C: 30.0}}] * 3, WITHOUT_A)
    assert owners(found[-1]) == {B: "b1", C: "b2"}


def test_pulsars_policies_see_the_reports_as_they_are() -> None:
    gap = rounds(FULL, WITHOUT_A, left=None)[-1]
    assert owners(gap) == {B: "b1", C: "b2"}
    assert gap.table.view.brokers.messages_per_s.tolist() == [20.0, 30.0]


def test_a_broker_whose_report_left_out_a_bundle_with_traffic_and_lists_it_again_is_named() -> None:
    silent = {"b2": {C: 30.0}}
    for left in (None, frozenset[str]()):
        found = rounds(FULL, WITHOUT_A, FULL, silent, FULL, left=left)
        assert [dict(each.advanced.returned) for each in found] == [{}, {}, {"b1": [A]}, {}, {}]
    idle = {"b1": {A: 0.0, B: 20.0}, "b2": {C: 30.0}}
    assert not rounds(idle, WITHOUT_A, idle)[-1].advanced.returned
    moved = {"b1": {B: 20.0}, "b2": {A: 10.0, C: 30.0}}
    assert not rounds(FULL, WITHOUT_A, moved)[-1].advanced.returned


def rounds_of_a(*shown: tuple[float, int]) -> list[Seen]:
    """b1 lists A alone, round by round with these messages/s, and with these topics and sessions."""
    found: list[Seen] = []
    for at, (rate, count) in enumerate(shown):
        before = found[-1].advanced.fleet if found else None
        one = load("b1", 60 * at, bundles={A: rate}, topics_count=count)
        found.append(seen(one, before=before, left=(), end_ms=60_000 * at))
    return found


def test_a_bundle_that_loses_all_it_had_at_once_keeps_its_load_for_three_rounds_at_most() -> None:
    found = rounds_of_a((10.0, 3), *[(0.0, 0)] * 5)
    assert [absent(each) for each in found] == [[], [A], [A], [A], [], []]
    for each in found[1:4]:
        assert each.table.view.brokers.messages_per_s.tolist() == [10.0]
        assert each.advanced.counts.tolist() == [[3, 3]]
        assert each.table.view.bundles.messages_per_s.tolist() == [10.0]
    for each, average in zip(found[4:], (5.0, 10 / 3), strict=True):
        assert each.table.view.brokers.messages_per_s.tolist() == [0.0]
        assert each.advanced.counts.tolist() == [[0, 0]]
        assert each.table.view.bundles.messages_per_s.tolist() == pytest.approx([average])


def test_a_round_of_zeros_gives_no_sample_and_three_more_rounds_count_from_the_next_one_on() -> None:
    found = rounds_of_a((10.0, 3), (0.0, 0), (10.0, 3), *[(0.0, 0)] * 4)
    assert [absent(each) for each in found] == [[], [A], [], [A], [A], [A], []]
    assert [each.advanced.fleet.samples.tolist() for each in found] == [[1], [1], [2], [2], [2], [2], [3]]


@pytest.mark.parametrize("shown", [(0.0, 3), (5.0, 0)], ids=["topics", "traffic"])
def test_a_bundle_that_still_shows_topics_or_traffic_is_believed(shown: tuple[float, int]) -> None:
    last = rounds_of_a((10.0, 3), shown)[-1]
    assert absent(last) == []
    assert last.table.view.brokers.messages_per_s.tolist() == [shown[0]]
    assert last.advanced.counts.tolist() == [[shown[1]] * 2]


def test_bundles_that_are_deleted_are_taken_off_the_level_of_their_broker_once() -> None:
    """Half of what b1 has is deleted in the twelfth round: from 60 % it falls to 31.5 %, and it receives when the bundles are forgotten."""
    events: list[Event] = []
    for number in range(24):
        for broker in ("b1", "b2", "b3"):
            count = 5 if broker == "b1" and number >= 12 else 10
            bundles = {f"t/{broker}/0x{at}0000000_0x{at + 1}0000000": 1000.0 for at in range(count)}
            events.append(report(broker, 10 * number + 1, cpu=3.0 + 5.7 * count, bundles=bundles))
    source = settings_of(shedding_policy="fleet-planner", rounds={"max_report_age_s": 35.0})
    first, *_ = run([events], source).actions
    assert (first["round"], first["destination_broker"]) == (15, "b1")
    assert first["evidence"]["coldest_points"] == pytest.approx(31.5, abs=2.5)


def _without(event: LoadReport, bundles: set[str]) -> LoadReport:
    """The same report without some of its bundles; what the broker carries in all is without them, too."""
    old = event.report
    kept = np.array([name not in bundles for name in old.bundles], dtype=np.bool_)
    traffic = old.traffic[kept]
    changed: BrokerReport = replace(
        old,
        bundles=[name for name in old.bundles if name not in bundles],
        traffic=traffic,
        has_traffic=old.has_traffic[kept],
        counts=old.counts[kept],
        messages_per_s=float(traffic[:, :2].sum()),
        bytes_per_s=float(traffic[:, 2:].sum()),
    )
    return msgspec.structs.replace(event, report=changed)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seeds)
def test_single_missing_reports_and_bundles_change_no_owner_no_average_and_no_row(seed: int) -> None:
    random = Random(seed)  # noqa: S311  tests, not secrets
    names = [f"t/{random.choice('ab')}/0x{at}0000000_0x{at + 1}0000000" for at in range(9)]
    homes = {name: random.choice(["b1", "b2", "b3"]) for name in names}
    whole, holed = Fleet(), Fleet()
    for number in range(12):
        reports = [
            report(
                broker,
                60 * number,
                bundles={name: float(at + 1) for at, name in enumerate(names) if homes[name] == broker},
            )
            for broker in ("b1", "b2", "b3")
        ]
        is_gap = number % 2 == 1  # what is missing comes back in the next round
        dropped = {name for name in names if is_gap and random.random() < 0.3}
        silent = random.choice(["b1", "b2", "b3", "", ""]) if is_gap else ""
        all_of_it = seen(*reports, before=whole, left=(), end_ms=60_000 * number)
        rest = [_without(each, dropped) for each in reports if each.broker != silent]
        found = seen(*rest, before=holed, left=(), end_ms=60_000 * number)
        whole, holed = all_of_it.advanced.fleet, decode_memory("pulsar", seal(found.advanced.fleet))
        assert owners(found) == {name: at for name, at in owners(all_of_it).items() if at != silent}
        assert not holed.owed_skip.any()
        for each, name in enumerate(holed.bundles):
            assert holed.brokers[holed.owner[each]] == homes[name]
            row = whole.bundles.index(name)
            np.testing.assert_allclose(holed.averages[each], whole.averages[row])
        shown = all_of_it.table.view.brokers
        at = [shown.names.index(name) for name in found.table.view.brokers.names]
        np.testing.assert_allclose(found.table.view.brokers.messages_per_s, shown.messages_per_s[at])
        np.testing.assert_allclose(found.table.view.brokers.bytes_per_s, shown.bytes_per_s[at])


def _trace(*, has_gaps: bool) -> list[Event]:
    """b1 is at 60 % and b2 at 40 %; every second report of b1 leaves its two heaviest bundles out."""
    found: list[Event] = []
    for at in range(24):
        heavy = {f"t/a/0x{place}0000000_0x{place + 1}0000000": 100.0 + place for place in range(8)}
        light = {f"t/b/0x{place}0000000_0x{place + 1}0000000": 60.0 + place for place in range(8)}
        if has_gaps and at % 2:
            heavy = dict(list(heavy.items())[:-2])
        found += [
            report("b1", 10 * at + 1, cpu=60.0, bundles=heavy),
            report("b2", 10 * at + 1, cpu=40.0, bundles=light),
        ]
    return found


def test_gaps_add_no_move_and_are_a_finding() -> None:
    source = settings_of(shedding_policy="fleet-planner")
    full, holed = (run([_trace(has_gaps=has_gaps)], source) for has_gaps in (False, True))
    kinds = [
        {each["kind"] for each in found.summaries[-2]["findings"]["heaviest"]} for found in (full, holed)
    ]
    assert ["gaps-in-reports" in each for each in kinds] == [False, True]
    assert 0 < len(holed.actions) <= len(full.actions)


HEAVY = ([10_000.0] * 2 + [2_600.0] * 8, [7_000.0] * 3 + [2_600.0] * 8)
"""What the bundles of the hot b1 carry, the heavy ones first."""


def _moved(rates: list[float], *, left_out: Mapping[int, Collection[int]]) -> list[tuple[int, int]]:
    """Rounds and places of the bundles of b1 that a dry-run moves; ``left_out`` has those that a round's report leaves out.

    b1 is at 72 %, b2 and b3 are at 30 %. A broker of another group comes before them by name.
    """
    names = [f"t/a/0x{at:x}0000000_0x{at + 1:x}0000000" for at in range(len(rates))]
    events: list[Event] = [facts(0, isolation=[Isolation("z", ["t/z"], ["a0"])])]
    for number in range(24):
        listed = {
            name: rate
            for at, (name, rate) in enumerate(zip(names, rates, strict=True))
            if at not in left_out.get(number, ())
        }
        events += [report("b1", 10 * number + 1, cpu=72.0, bundles=listed)]
        events += [
            report(
                broker,
                10 * number + 1,
                cpu=30.0,
                bundles={f"t/{namespace}/0x{at}0000000_0x{at + 1}0000000": 1_700.0 for at in range(10)},
            )
            for broker, namespace in (("a0", "z"), ("b2", "c"), ("b3", "d"))
        ]
    source = settings_of(shedding_policy="fleet-planner", rounds={"max_report_age_s": 35.0})
    found = run([events], source, identity=Identity(mode="dry-run"))
    return [(each["round"], names.index(each["bundle"])) for each in found.actions]


@pytest.mark.parametrize("rates", HEAVY, ids=["two of ten", "three of eleven"])
@pytest.mark.parametrize("parity", [0, 1], ids=["even rounds", "odd rounds"])
def test_heavy_bundles_that_are_absent_are_waited_for_and_no_small_ones_go_for_them(
    rates: list[float], parity: int
) -> None:
    heavy = range(len(rates) - 8)
    whole = _moved(rates, left_out={})
    holed = _moved(rates, left_out=dict.fromkeys(range(2 + parity, 24, 2), heavy))
    assert [at for _, at in holed] == [at for _, at in whole] == [0, 1]
    assert all(number % 2 != parity for number, _ in holed)


def test_a_broker_whose_reports_always_leave_much_out_is_waited_for_three_rounds_at_most() -> None:
    """From the third round on, one of its two heavy bundles is always absent."""
    first, *_ = _moved(HEAVY[0], left_out={number: [number % 2] for number in range(2, 24)})
    assert first[0] == 5


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


def rounds_of_ranges(*listings: dict[str, float], left: frozenset[str] | None = frozenset()) -> list[Seen]:
    """b1 lists these bundles round by round, b2 always the same one."""
    found: list[Seen] = []
    for at, bundles in enumerate(listings):
        reports = report("b1", 60 * at, bundles=bundles), report("b2", 60 * at, bundles={REST: 7.0})
        before = found[-1].advanced.fleet if found else None
        found.append(seen(*reports, before=before, left=left, end_ms=60_000 * at))
    return found


BOTH = {P: 10.0, C1: 6.0, C2: 4.0}


def carried(of: Seen) -> tuple[dict[str, float], list[float]]:
    """Messages/s of each bundle and of each broker, as the policy counts them."""
    view = of.table.view
    bundles = dict(zip(view.bundles.names, view.bundles.messages_per_s.tolist(), strict=True))
    assert view.brokers.bytes_per_s.tolist() == [10 * rate for rate in view.brokers.messages_per_s.tolist()]
    return bundles, view.brokers.messages_per_s.tolist()


def test_a_range_covered_by_its_parts_never_counts_and_is_left_alone_from_the_second_round_on() -> None:
    found = rounds_of_ranges({P: 10.0}, BOTH, BOTH, BOTH)
    assert [dict(each.advanced.overlaps) for each in found] == [{}, {}, {P: [C1, C2]}, {P: [C1, C2]}]
    for each in found[1:]:
        assert owners(each) == {P: "b1", C1: "b1", C2: "b1", REST: "b2"}
        assert carried(each) == ({P: 0.0, C1: 6.0, C2: 4.0, REST: 7.0}, [10.0, 7.0])
        present = each.table.view.present_rates
        assert present is not None
        at = each.table.view.bundles.names.index(P)
        assert present(each.table.fleet_rows[[at]]).tolist() == [[0.0] * 4]


def test_a_range_that_overlaps_without_being_covered_counts_for_one_round_only() -> None:
    _, first, second = rounds_of_ranges({P: 10.0}, *[{P: 10.0, C1: 6.0}] * 2)
    assert [dict(each.advanced.overlaps) for each in (first, second)] == [{}, {P: [C1]}]
    assert carried(first) == ({P: 10.0, C1: 6.0, REST: 7.0}, [16.0, 7.0])
    assert carried(second) == ({P: 0.0, C1: 6.0, REST: 7.0}, [6.0, 7.0])


def test_an_overlap_that_comes_and_goes_is_known_at_once_and_is_no_gap_in_the_reports() -> None:
    """It is remembered for three rounds, as long as a report counts."""
    partly = {P: 10.0, C1: 6.0}
    found = rounds_of_ranges({C1: 6.0}, *[partly, {C1: 6.0}] * 3, *[{C1: 6.0}] * 3, partly)
    flapping = [{}, {P: [C1]}, {P: [C1]}]
    assert [dict(each.advanced.overlaps) for each in found[1:7:2]] == flapping
    assert not any(each.advanced.overlaps for each in found[:7:2])
    assert not any(each.advanced.returned for each in found[:7])
    assert not found[-1].advanced.overlaps


OLD = {C1: 0.0, C2: 0.0}


@pytest.mark.parametrize(
    ("b1", "uncounted", "messages_per_s"),
    [
        pytest.param({P: 10.0, **OLD}, {C1: [P], C2: [P]}, 10.0, id="only the wide one has traffic"),
        pytest.param({P: 0.0, C1: 6.0, C2: 4.0}, {P: [C1, C2]}, 10.0, id="only the finer ones have"),
        pytest.param({P: 10.0, C1: 6.0, C2: 0.0}, {P: [C1, C2]}, 6.0, id="one of the finer ones has"),
        pytest.param({P: 0.0, **OLD}, {P: [C1, C2]}, 0.0, id="none has"),
    ],
)
def test_of_ranges_that_overlap_those_with_traffic_count_and_of_these_the_finer_ones(
    b1: dict[str, float], uncounted: dict[str, list[str]], messages_per_s: float
) -> None:
    last = rounds_of_ranges(b1, b1)[-1]
    assert last.advanced.overlaps == uncounted
    assert carried(last)[1] == [messages_per_s, 7.0]
    assert {name for name, rate in carried(last)[0].items() if not rate} >= uncounted.keys()


def test_old_ranges_that_another_broker_goes_on_to_list_take_no_load_off_the_new_one() -> None:
    """A namespace was made anew as one bundle at b1; its old ones were at b1 and b2, and b2 goes on to list both."""
    found: list[Seen] = []
    listed = [({C1: 6.0}, {C2: 4.0}), *[({P: 10.0}, OLD)] * 3]
    for at, (b1, b2) in enumerate(listed):
        reports = report("b1", 60 * at, bundles=b1), report("b2", 60 * at, bundles=b2)
        before = found[-1].advanced.fleet if found else None
        found.append(seen(*reports, before=before, left=(), end_ms=60_000 * at))
    assert [carried(each)[1] for each in found] == [[6.0, 4.0], *[[10.0, 0.0]] * 3]
    for each in found[1:]:
        assert carried(each)[0] == {P: 10.0, C1: 0.0, C2: 0.0}


def test_pulsars_policies_see_both_ranges_and_all_their_traffic() -> None:
    last = rounds_of_ranges(BOTH, BOTH, BOTH, left=None)[-1]
    assert last.advanced.overlaps == {P: [C1, C2]}
    assert last.table.view.brokers.messages_per_s.tolist() == [20.0, 7.0]
    assert last.table.view.bundles.messages_per_s.tolist() == [6.0, 10.0, 4.0, 7.0]


def test_an_absent_bundle_overlaps_nothing_and_does_again_when_it_comes_back_for_two_rounds() -> None:
    found = rounds_of_ranges({P: 10.0}, {C1: 6.0}, {C1: 6.0}, {P: 10.0, C1: 6.0}, {P: 10.0, C1: 6.0})
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
    for row in rows:
        assert (row["messages"], row["topics"]) == pytest.approx((10.0, 20.0))


@pytest.mark.parametrize("policy", ["avg-shedder", "threshold-shedder", "fleet-planner"])
def test_nothing_is_done_to_overlapping_ranges_and_a_finding_names_them(policy: str) -> None:
    found = run([_events(20)], settings_of(shedding_policy=policy, **FREE))
    assert not [each for each in found.actions if each["bundle"].startswith("t/hot/")]
    rows = found.summaries[-1]["findings"]["heaviest"]
    [finding] = [row for row in rows if row["kind"] != "no-results"]
    assert (finding["kind"], finding["broker"]) == ("overlapping-ranges", "b1")
    assert finding["subject"] == name(0, 8, "t/hot")
    assert name(0, 4, "t/hot") in finding["advice"]
    outcomes = {name for each in found.summaries for name in each["candidates"]["outcomes"]}
    assert "overlapping" in outcomes
    splits = {name for each in found.summaries for name in each["splits"]["outcomes"]}
    assert "overlapping" in splits
