"""What brokers list: ownership and averages on many random traces, and the stored names."""

from itertools import groupby
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shedding.view import BrokerTable, BundleTable, RoundView
from policies.usage import RESOURCES, weighted_maximum_ratio
from state.events import Event, LoadReport, namespace_of
from state.layouts import Names, seal
from state.pulsar.fleet import Sampling, advance
from state.pulsar.listings import Listings, listings_of, pick
from state.pulsar.memory import NOBODY, Fleet
from state.pulsar.owners import owner_rows
from state.systems import decode_memory
from tests.policies.fleets import decide, unloads_of
from tests.state.building import AGE_MS, seen
from tests.state.pulsar.dumb_fleet import Bundle, DumbFleet
from tests.state.traces import EAGER, PULSARS_POLICIES, load, plain_traces, run, settings_of

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


def test_if_all_is_as_before_each_listing_owns_its_bundle() -> None:
    found = listing(Shown(0, A, 9), Shown(1, B, 1), is_as_before=True)
    assert owner_rows(found, Fleet(), [], {}).tolist() == [0, 1]


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


LENGTH_MS, AGE_MS = 10_000, 25_000


def rounds_of(trace: list[Event]) -> list[tuple[int, dict[str, LoadReport]]]:
    """Newest report of each broker, round by round, as the controller would take them."""
    loads = [event for event in trace if isinstance(event, LoadReport)]
    return [
        (
            number,
            {event.broker: event for event in sorted(of_round, key=lambda e: e.age_key)},
        )
        for number, of_round in groupby(loads, key=lambda event: event.time_ms // LENGTH_MS)
    ]


def spelled_out(fleet: Fleet) -> tuple[dict[str, int], dict[str, dict[str, int]], dict[str, Bundle]]:
    runs = {
        broker: {
            fleet.bundles[row]: start
            for row, start in zip(
                fleet.listed_rows[fleet.starts[i] : fleet.starts[i + 1]].tolist(),
                fleet.run_start_ms[fleet.starts[i] : fleet.starts[i + 1]].tolist(),
                strict=True,
            )
        }
        for i, broker in enumerate(fleet.brokers)
    }
    bundles = {
        name: Bundle(
            owner=None if fleet.owner[row] == NOBODY else fleet.brokers[int(fleet.owner[row])],
            last_ms=int(fleet.last_ms[row]),
            samples=int(fleet.samples[row]),
            average=fleet.averages[row].tolist(),
            is_skip_owed=bool(fleet.owed_skip[row]),
            former=None if fleet.former[row] == NOBODY else fleet.brokers[int(fleet.former[row])],
        )
        for row, name in enumerate(fleet.bundles)
    }
    return dict(zip(fleet.brokers, fleet.broker_last_ms.tolist(), strict=True)), runs, bundles


@settings(max_examples=80, deadline=None, derandomize=True)
@given(trace=plain_traces, average_samples=st.integers(1, 4), skips=st.booleans(), is_stored=st.booleans())
def test_the_columns_agree_with_the_plain_telling(
    *, trace: list[Event], average_samples: int, skips: bool, is_stored: bool
):
    dumb = DumbFleet(max_age_ms=AGE_MS, average_samples=average_samples, skips=skips)
    fleet = Fleet()
    for number, reports in rounds_of(trace):
        end_ms = (number + 1) * LENGTH_MS
        dumb.advance(reports, end_ms=end_ms)
        sampling = Sampling(
            samples=average_samples,
            split_samples=average_samples,
            skip_after_move=skips,
            skip_outliers=False,
        )
        advanced = advance(
            fleet,
            reports,
            sampling,
            round_end_ms=end_ms,
            max_report_age_ms=AGE_MS,
            unloads={},
            keeps_absent=False,
        )
        fleet, listed = advanced.fleet, advanced.owned_count
        named = [fleet.namespaces[row] for row in fleet.namespace.tolist()]
        assert named == [namespace_of(bundle) for bundle in fleet.bundles]
        assert sorted(set(named)) == sorted(fleet.namespaces)
        assert fleet.split_samples.tolist() == fleet.samples.tolist()
        sums = np.column_stack([fleet.averages[:, :2].sum(axis=1), fleet.averages[:, 2:].sum(axis=1)])
        np.testing.assert_allclose(fleet.split_averages, sums)
        assert spelled_out(fleet) == (dumb.last_ms, dumb.runs, dumb.bundles)
        assert fleet.bundles[:listed] == dumb.listed
        assert fleet.brokers == sorted(fleet.brokers)
        fleet = decode_memory("pulsar", seal(fleet)) if is_stored else fleet


FREE = {
    "guards": {
        "bundle_cooldown_s": 0.0,
        "keep_sole_bundle": False,
        "max_unloads_per_round_count": 0,
        "max_unloads_per_hour_count": 0,
    },
    "rounds": {"warmup_rounds": 0, "quorum_ratio": 0.0, "max_report_age_s": 1000.0},
    "skip_sample_after_move": False,
    "split": {"enabled": False},
}


def snapshot_of(dumb: DumbFleet, reports: dict[str, LoadReport], weights: list[float]) -> RoundView:
    """What the policy should see, computed by the plain version."""
    names = tuple(sorted(reports))
    found = [reports[name].report for name in names]
    cpu = np.array([each.resources[0, 0] for each in found])
    percents = np.zeros((len(names), len(RESOURCES)))
    percents[:, 0] = (cpu.astype(np.float32) / np.float32(100) * np.float32(100)).astype(np.float64)
    owned = list(dumb.listed)
    averages = np.array([dumb.bundles[name].average for name in owned]).reshape(-1, 4)
    counts = [sum(dumb.bundles[name].owner == broker for name in owned) for broker in names]
    return RoundView(
        brokers=BrokerTable(
            names=names,
            percents=percents,
            limits=np.full((len(names), len(RESOURCES)), 100.0),
            measured=np.ones((len(names), len(RESOURCES)), dtype=np.bool_),
            is_measured=np.ones(len(names), dtype=np.bool_),
            report_age_s=np.zeros(len(names)),
            usage_ratio=weighted_maximum_ratio(percents, np.array(weights)),
            messages_per_s=np.array([each.messages_per_s for each in found]),
            bytes_per_s=np.array([each.bytes_per_s for each in found]),
            listed_bundle_counts=np.array([each.listed_count for each in found]),
            may_receive=np.ones(len(names), dtype=np.bool_),
        ),
        bundles=BundleTable(
            names=owned,
            starts=np.cumsum([0, *counts]),
            rates=averages,
            sampled=np.ones(len(owned), dtype=np.bool_),
            messages_per_s=averages[:, 0] + averages[:, 1],
            bytes_per_s=averages[:, 2] + averages[:, 3],
            counts=np.zeros((len(owned), 2), dtype=np.int64),
            movable=np.array([dumb.bundles[name].samples > 0 for name in owned], dtype=np.bool_),
        ),
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(plain_traces, st.sampled_from(PULSARS_POLICIES))
def test_without_guards_exactly_the_policys_decisions_come_out(trace: list[Event], policy: str):
    source = settings_of(**(EAGER | FREE), shedding_policy=policy)
    pulsar = source.base("").pulsar
    dumb = DumbFleet(max_age_ms=1_000_000, average_samples=pulsar.bundle_average_samples, skips=False)
    chosen = pulsar.policy
    memory = chosen.memory()
    expected = []
    for number, reports in rounds_of(trace):
        dumb.advance(reports, end_ms=(number + 1) * LENGTH_MS)
        snapshot = snapshot_of(dumb, reports, pulsar.usage.weights().tolist())
        plan, memory = decide(chosen, snapshot, memory, pulsar.section_of(chosen))
        unloads = unloads_of(snapshot, plan)
        dumb.unloads |= {bundle: (source, destination) for bundle, source, destination in unloads}
        expected += [(number, *unload) for unload in unloads]
    actions = run([trace], source).actions
    assert [
        (action["round"], action["bundle"], action["source_broker"], action["destination_broker"])
        for action in actions
    ] == expected


@pytest.mark.parametrize(("names", "text"), [([], ""), (["a"], "a"), (["a", "bc"], "a\nbc")])
def test_the_list_and_the_text_say_the_same_whichever_was_given(names: list[str], text: str) -> None:
    assert Names(names).text == text
    assert Names(text=text).each == names


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([], True),
        (["a"], True),
        (["a", "bc"], True),
        (["a", "bc", "d"], True),
        (["a", "b"], False),  # the beginning of a name is another name
        (["a", "bc", "d", "e"], False),
        (["bc"], False),
    ],
)
def test_the_first_names_are_compared_whole(first: list[str], *, expected: bool) -> None:
    names = ["a", "bc", "d"]
    assert Names(names).begin_with(first) is expected
    assert Names(text="\n".join(names)).begin_with(first) is expected


@pytest.mark.parametrize(("first", "expected"), [([], True), (["a"], False)])
def test_without_names_only_none_are_the_first(first: list[str], *, expected: bool) -> None:
    assert Names([]).begin_with(first) is expected


def test_a_fleet_given_other_bundles_stores_those() -> None:
    fleet = Fleet()
    fleet.bundle_names = Names(text="a\nb")
    fleet.bundles = [*fleet.bundles, "c"]
    assert (fleet.bundles, fleet.bundle_names.text) == (["a", "b", "c"], "a\nb\nc")
