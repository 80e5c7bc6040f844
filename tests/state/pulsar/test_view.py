"""The view of a round, and its groups: each decides and remembers as if it were a cluster of its own."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shedding.registry import POLICIES as SHEDDING_POLICIES
from policies.shedding.registry import find_policy
from policies.shedding.view import RoundView, UnloadInFlight
from state.events import Event, Tick
from state.facts import Isolation
from state.ledger import HOUR_MS, CheckedPromise, Decision, Ledger, Verdict, end_watch
from state.memory import OpenRound
from state.outputs import ShadowRow
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar import groups
from state.pulsar.groups import Groups, host_of
from state.pulsar.masks import unload_mask, unsettled_brokers
from state.pulsar.memory import ShadowMoves
from state.pulsar.view import PolicyView, policy_view, shadowed_view
from tests.state.building import (
    END_MS,
    Seen,
    decision,
    guarded,
    ledger_of,
    open_to_all,
    seen,
)
from tests.state.traces import ISOLATED, Run, facts, load, run, seeds, settings_of

A, B, C, D = (f"t/{name}/0x0_0x1" for name in ("a", "b", "c", "d"))
WINDOW = MaintenanceWindow(since=moment_at(0))


def cluster(**options: Any) -> Seen:
    """b1 is at 100 % with A of 60 and B of 20 messages/s, b2 idles with C of 10, b3 is at 12.5 % with D of 30."""
    return seen(
        load("b1", 470, cpu=100.0, bundles={A: 60.0, B: 20.0}),
        load("b2", 470, cpu=0.0, bundles={C: 10.0}),
        load("b3", 470, cpu=12.5, bundles={D: 30.0}),
        **options,
    )


def measured(*, ledger: Ledger | None = None, **fields: Any) -> PolicyView:
    context = cluster(header={"ledger": ledger or Ledger()}, **fields).context
    unsettled = unsettled_brokers(context)
    return policy_view(context, unload_mask(context, unsettled), unsettled)


def movable(table: PolicyView) -> list[str]:
    bundles = table.view.bundles
    return [name for name, may_go in zip(bundles.names, bundles.movable.tolist(), strict=True) if may_go]


def test_the_view_has_brokers_with_their_bundles_and_what_may_move() -> None:
    view = measured().view
    assert view.brokers.names == ("b1", "b2", "b3")
    assert list(view.bundles.names) == [A, B, C, D]
    assert view.bundles.starts.tolist() == [0, 2, 3, 4]
    assert movable(measured()) == [A, B, C, D]
    assert view.brokers.may_receive.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("reports", "moved"),
    [
        pytest.param({"b1": {A: 60.0, B: 20.0}, "b2": {C: 10.0}}, {"b1": 0.0, "b2": 0.0}, id="nothing"),
        pytest.param({"b1": {A: 60.0}, "b2": {B: 5.0, C: 10.0}}, {"b1": 20.0, "b2": 20.0}, id="B"),
        pytest.param({"b1": {B: 20.0}, "b2": {A: 60.0}}, {"b1": 60.0, "b2": 60.0}, id="A, and C is gone"),
        pytest.param({"b2": {A: 60.0, B: 20.0, C: 10.0}}, {"b2": 80.0}, id="both, and b1 is silent"),
        pytest.param(
            {"b1": {A: 60.0, B: 20.0, D: 30.0}, "b2": {C: 10.0}}, {"b1": 0.0, "b2": 0.0}, id="D is new"
        ),
    ],
)
def test_a_broker_is_known_to_have_got_or_lost_what_its_bundles_carried_on_average(
    reports: dict[str, dict[str, float]], moved: dict[str, float]
) -> None:
    before = seen(
        load("b1", 410, cpu=50.0, bundles={A: 60.0, B: 20.0}), load("b2", 410, cpu=50.0, bundles={C: 10.0})
    )
    found = seen(
        *(load(broker, 470, cpu=50.0, bundles=bundles) for broker, bundles in reports.items()),
        before=before.advanced.fleet,
    )
    rates = found.table.view.moved_rates
    assert rates is not None
    assert dict(zip(found.table.view.brokers.names, rates[:, 0].tolist(), strict=True)) == moved


def test_brokers_that_wait_for_their_unload_give_and_receive_nothing() -> None:
    on_its_way = ledger_of(decision(bundle=A, decided_ms=END_MS, expires_ms=END_MS + 1, destination="b3"))
    table = measured(ledger=on_its_way, settings=guarded(hold_unsettled_brokers=True))
    assert movable(table) == [C]
    assert table.view.brokers.may_receive.tolist() == [False, True, False]
    free = measured(ledger=on_its_way)
    assert (movable(free), free.view.brokers.may_receive.tolist()) == ([B, C, D], [True] * 3)


ASKED = OpenRound(tick=Tick(1, "t", ("b9", "b1", "b4", "b7", "b8"), ()))


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, []),
        ({"open_round": ASKED}, ["b4", "b7", "b8", "b9"]),
        ({"open_round": ASKED, "settings": guarded(excluded_brokers=("b7",))}, ["b4", "b8", "b9"]),
        (
            {
                "open_round": ASKED,
                "overlay": ControlData(maintenance_brokers={"b8": WINDOW}, drained_brokers={"b9": WINDOW}),
            },
            ["b4", "b7"],
        ),
    ],
    ids=["nobody was asked", "four are silent", "b7 is excluded", "b8 rests and b9 is drained"],
)
def test_a_broker_is_missing_that_takes_part_was_asked_and_did_not_report(
    fields: dict[str, Any], missing: list[str]
) -> None:
    assert measured(**fields).view.missing == missing


def counted(moves: ShadowMoves, **fields: Any) -> PolicyView | None:
    context = cluster(shadow=moves, mode="dry-run", **fields).context
    return shadowed_view(context, open_to_all(context), ())


@pytest.mark.parametrize("moves", [{}, {"t/gone/0x0_0x1": ("b1", "b2")}, {C: ("b1", "b2")}])
def test_where_no_bundle_counts_elsewhere_the_measured_view_stands(moves: ShadowMoves) -> None:
    assert counted(moves) is None


def test_a_bundle_that_the_dry_run_moved_counts_at_its_destination_with_what_it_costs() -> None:
    """A message takes 1.25 points of CPU, so 25 of the 100 points of b1 are at b2: 75, 25 and 12.5 points, 37.5 on the mean."""
    found = counted({B: ("b1", "b2")})
    assert found is not None
    assert found.shadow is not None
    view = found.view
    assert found.loads.usage_ratio.tolist() == view.brokers.usage_ratio.tolist() == [0.75, 0.25, 0.125]
    assert view.brokers.messages_per_s.tolist() == [60.0, 30.0, 30.0]
    assert list(view.bundles.names) == [A, B, C, D]
    assert view.bundles.starts.tolist() == [0, 1, 3, 4]
    assert (found.shadow.count, found.shadow.heaviest) == (
        1,
        [ShadowRow(bundle=B, broker="b1", shadow_broker="b2")],
    )
    assert (found.shadow.usage.mean_points, found.shadow.usage.max_points) == (37.5, 75.0)


@pytest.mark.parametrize(
    ("fields", "names", "mean_points"),
    [
        ({"settings": guarded(excluded_brokers=("b3",))}, ("b1", "b2"), 50.0),
        ({"overlay": ControlData(maintenance_brokers={"b3": WINDOW})}, ("b1", "b2"), 50.0),
        ({"overlay": ControlData(drained_brokers={"b1": WINDOW})}, ("b2", "b3"), 18.75),
    ],
    ids=["excluded", "under maintenance", "drained"],
)
def test_usage_with_the_shadow_is_that_of_the_brokers_that_take_part(
    fields: dict[str, Any], names: tuple[str, ...], mean_points: float
) -> None:
    found = counted({B: ("b1", "b2")}, **fields)
    assert found is not None
    assert found.shadow is not None
    assert found.view.brokers.names == names
    assert found.shadow.usage.mean_points == mean_points


def test_where_no_broker_takes_part_nothing_counts_elsewhere() -> None:
    everyone = guarded(excluded_brokers=("b1", "b2", "b3"))
    assert counted({B: ("b1", "b2")}, settings=everyone) is None


def past(*decisions: Decision, end_ms: int) -> RoundView:
    context = seen(load("b1", 470), header={"ledger": ledger_of(*decisions)}, end_ms=end_ms).context
    return policy_view(context, open_to_all(context), ()).view


@pytest.mark.parametrize(("checked_ms", "expected"), [(10_001, ["failed"]), (10_000, [])])
def test_a_promise_counts_for_an_hour_after_it_was_checked(checked_ms: int, expected: list[str]) -> None:
    moved = decision("a", promise=CheckedPromise(checked_ms, "failed"))
    end_watch(moved, Verdict("effective", 4000, "b2", 1))
    assert past(moved, end_ms=10_000 + HOUR_MS).promises() == expected


def test_unloads_on_their_way_come_by_bundle() -> None:
    found = past(
        decision("b", bundle=B, source="b3"), decision("a", bundle=A, destination=None), end_ms=END_MS
    )
    assert found.in_flight() == [
        UnloadInFlight(A, "b1", None),
        UnloadInFlight(B, "b3", "b2"),
    ]


def test_a_bundle_that_counts_at_its_destination_is_not_on_its_way_there_as_well() -> None:
    moves = [
        decision(bundle=each, decided_ms=END_MS, expires_ms=END_MS + 1, destination="b2") for each in (A, B)
    ]
    found = counted({A: ("b1", "b2")}, header={"ledger": ledger_of(*moves)})
    assert found is not None
    assert [each.bundle for each in found.view.in_flight()] == [B]


POLICIES = (
    Isolation("blue", ["blue/.*", "t/shared"], [r"blue-\d", "b9"]),
    Isolation("red", ["red/.*", "t/.*"], [".*"]),
)


@pytest.mark.parametrize(
    ("broker", "group"),
    [
        ("blue-1:8080", "blue"),
        ("b9", "blue"),
        ("blue-12:8080", "red"),
        ("xblue-1", "red"),
        ("[::1]:8080", "red"),
    ],
)
def test_a_broker_is_of_the_first_policy_that_names_its_host(broker: str, group: str):
    groups = Groups(POLICIES)
    assert [groups.name_of(found) for found in groups.of_brokers([broker])] == [group]


def test_a_broker_that_no_policy_names_is_of_the_default_group():
    groups = Groups(POLICIES[:1])
    assert [groups.name_of(found) for found in groups.of_brokers(["b1", "blue-1"])] == [None, "blue"]


@pytest.mark.parametrize(
    ("namespace", "group"),
    [("blue/n", "blue"), ("t/shared", "blue"), ("t/shared2", "red"), ("u/n", None), ("xblue/n", None)],
)
def test_a_namespace_is_of_the_first_policy_that_names_it_whole(namespace: str, group: str | None):
    groups = Groups(POLICIES)
    assert [groups.name_of(found) for found in groups.of_namespaces([namespace])] == [group]


@pytest.mark.parametrize(
    ("broker", "host"),
    [("b1:8080", "b1"), ("b1", "b1"), ("a.b:c", "a.b:c"), ("[::1]:8080", "[::1]"), ("b1:", "b1:")],
)
def test_the_host_is_what_stands_before_the_port(broker: str, host: str):
    assert host_of(broker) == host


FREE: dict[str, Any] = {
    "rounds": {"warmup_rounds": 0, "quorum_ratio": 0.0},
    "guards": {
        "bundle_cooldown_s": 0.0,
        "max_unloads_per_round_count": 0,
        "max_unloads_per_hour_count": 0,
        "keep_sole_bundle": False,
    },
    "bundle_average_samples": 2,
    "avg_shedder": {
        "low_hit_count": 3,
        "high_hit_count": 2,
        "min_unload_messages_per_s": 1.0,
        "min_unload_bytes_per_s": 1.0,
    },
    "threshold_shedder": {"min_unload_bytes_per_s": 1.0, "lower_boundary_shedding": True},
    "uniform_load_shedder": {"min_unload_messages_per_s": 1.0, "min_unload_bytes_per_s": 1.0},
    "overload_shedder": {"threshold_points": 60.0},
    "split": {
        "enabled": True,
        "hit_count": 1,
        "max_messages_per_s": 1e9,
        "average_samples": 2,
        "bundle_cooldown_s": 0.0,
        "without_topic_stats": "range",
        "max_splits_per_round_count": 0,
    },
}
CHOICES = [
    {"shedding_policy": "avg-shedder"},
    {"shedding_policy": "threshold-shedder", "placement": "least-resource-usage"},
    {"shedding_policy": "uniform-load-shedder", "placement": "broker"},
    {"shedding_policy": "overload-shedder", "placement": "least-long-term-message-rate"},
]
GROUPS = {"t/a": ["b1", "b2", "b5"], "t/b": ["b3", "b4"]}
ISOLATION = [Isolation("a", ["t/a"], ["b[125]"])]


def some_rounds(random: Random) -> list[Event]:
    """Twelve rounds of two groups; a broker is left out now and then, but never all of a group."""
    events: list[Event] = []
    for number in range(12):
        for namespace, brokers in GROUPS.items():
            bundles = [f"{namespace}/0x{i}0000000_0x{i + 1}0000000" for i in range(8)]
            random.shuffle(bundles)
            silent = random.choice([*brokers, None, None])
            for place, broker in enumerate(brokers):
                own = bundles[place :: len(brokers)]
                if broker != silent:
                    rates = {bundle: random.choice([0.0, 5.0, 20.0, 30.0, 100.0]) for bundle in own}
                    cpu = random.choice([0.0, 20.0, 30.0, 50.0, 80.0, 90.0, 100.0])
                    events.append(load(broker, 10 * number + 5, cpu=cpu, bundles=rates, topics_count=4))
    return events


def decided(found: Run) -> set[tuple[int, str, str, str, float | None]]:
    """Unloads and splits, each with its source and its destination or boundaries; and the limit that a split was measured by."""
    return {
        (
            each["round"],
            each["bundle"],
            each.get("source_broker", each.get("broker")),
            str(each.get("destination_broker", each.get("boundaries"))),
            each["evidence"].get("limit"),
        )
        for each in found.actions
    }


@pytest.mark.parametrize("choice", CHOICES, ids=[choice["shedding_policy"] for choice in CHOICES])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=seeds)
def test_a_group_decides_as_if_it_were_a_cluster_of_its_own(choice: dict[str, str], seed: int):
    source = settings_of(**FREE, **choice)
    events = some_rounds(Random(seed))  # noqa: S311
    whole = run([[facts(5, isolation=ISOLATION), *events]], source)
    alone = [
        run([[event for event in events if getattr(event, "broker", "") in brokers]], source)
        for brokers in GROUPS.values()
    ]
    assert decided(whole) == set().union(*map(decided, alone))
    for together, *apart in zip(whole.summaries, *(each.summaries for each in alone), strict=True):
        for section in ("examined", "candidates"):
            assert together[section]["count"] == sum(each[section]["count"] for each in apart)


def test_the_rounds_of_that_test_do_unload_in_both_groups():
    seen: set[str] = set()

    @settings(max_examples=10, deadline=None, derandomize=True, database=None)
    @given(seeds, st.sampled_from(CHOICES))
    def look(seed: int, choice: dict[str, str]) -> None:
        found = run(
            [[facts(5, isolation=ISOLATION), *some_rounds(Random(seed))]],  # noqa: S311
            settings_of(**FREE, **choice),
        )
        seen.update(f"{each['policy']} {each['evidence'].get('group')}" for each in found.actions)
        seen.update(f"split {each['bundle'][:3]}" for each in found.actions if "boundaries" in each)

    look()
    wanted = {f"{choice['shedding_policy']} {group}" for choice in CHOICES for group in ("a", None)}
    assert seen == {*wanted, "split t/a", "split t/b", "bundle-split None"}


@pytest.mark.parametrize("policy", [each.name for each in SHEDDING_POLICIES])
def test_a_broker_that_is_alone_in_its_group_keeps_no_other_group_from_deciding(policy: str):
    lone, others = Isolation("lone", ["t/a"], ["b1"]), ("b2", "b3")
    events = [
        event
        for number in range(12)
        for event in (
            load("b1", 10 * number + 5, cpu=90.0, bundles={"t/a/0x0_0x1": 40.0, "t/a/0x1_0x2": 40.0}),
            *pair(10 * number + 5, others, "t/b", apart=True),
        )
    ]
    source = settings_of(**FREE, shedding_policy=policy)
    whole = run([[facts(5, isolation=[lone]), *events]], source)
    apart = run([[event for event in events if getattr(event, "broker", "") in others]], source)
    assert {summary["outcome"] for summary in whole.summaries} == {"decided"}
    assert {source for _, _, source, _, _ in decided(whole)} == {
        source for _, _, source, _, _ in decided(apart)
    }


def pair(time_s: float, brokers: tuple[str, str], namespace: str, *, apart: bool) -> list[Event]:
    high, low = brokers
    return [
        load(
            high,
            time_s,
            cpu=80.0 if apart else 50.0,
            bundles={f"{namespace}/0x0_0x1": 40.0, f"{namespace}/0x1_0x2": 40.0},
        ),
        load(low, time_s, cpu=30.0 if apart else 50.0, bundles={f"{namespace}/0x2_0x3": 1.0}),
    ]


LONG = settings_of(rounds={"warmup_rounds": 0}, avg_shedder={"low_hit_count": 9, "high_hit_count": 9})


def test_facts_count_from_the_round_of_their_time_on_whenever_they_come_in_it():
    events = [*pair(5, ("b1", "b2"), "t/a", apart=True), *pair(15, ("b1", "b2"), "t/a", apart=True)]
    found = run([[*events, facts(19, isolation=ISOLATED)]], LONG)
    groups = [{row["group"] for row in summary["examined"]["heaviest"]} for summary in found.summaries]
    assert groups == [{None}, {"a"}]


AVG, THRESHOLD = find_policy("avg-shedder"), find_policy("threshold-shedder")
assert AVG is not None
assert THRESHOLD is not None
ONE = Groups(())
BLUE = Groups((Isolation("blue", ["blue/.*"], ["b[12]"]),))
"""Brokers b1 and b2, and the others."""
HITS = {"avg-shedder": {"low_hits": {"b1": 1, "b2": 2, "b3": 3}, "high_hits": {"b3": 9}}}


def test_each_group_recalls_what_was_remembered_of_its_brokers() -> None:
    default, blue = groups.recall_policy(HITS, AVG, BLUE, [0, 1])
    assert (dict(default.low_hits), dict(default.high_hits)) == ({"b3": 3}, {"b3": 9})
    assert (dict(blue.low_hits), dict(blue.high_hits)) == ({"b1": 1, "b2": 2}, {})
    (whole,) = groups.recall_policy(HITS, AVG, ONE, [0])
    assert dict(whole.low_hits) == {"b1": 1, "b2": 2, "b3": 3}
    (nothing,) = groups.recall_policy({}, AVG, ONE, [0])
    assert nothing == AVG.memory()


def test_a_group_that_did_not_run_keeps_what_is_remembered_of_it() -> None:
    after = {1: AVG.memory(low_hits={"b1": 5}, high_hits={"b2": 1})}
    found = groups.remember_policy(HITS, AVG, BLUE, after)
    assert found == {"avg-shedder": {"low_hits": {"b3": 3, "b1": 5}, "high_hits": {"b3": 9, "b2": 1}}}


def test_without_groups_what_is_remembered_is_what_the_round_left() -> None:
    after = {0: AVG.memory(low_hits={"b1": 5}, high_hits={})}
    assert groups.remember_policy(HITS, AVG, ONE, after) == {
        "avg-shedder": {"low_hits": {"b1": 5}, "high_hits": {}}
    }


def test_only_the_policy_in_force_is_remembered() -> None:
    assert groups.keep_policy(HITS, AVG) == HITS
    assert groups.keep_policy(HITS, THRESHOLD) == {}


def test_every_broker_that_is_remembered_is_known_once_in_order() -> None:
    assert groups.remembered_brokers(HITS) == ["b1", "b2", "b3"]
    assert groups.remembered_brokers({}) == []
    assert groups.remembered_brokers({"gone-shedder": {"low_hits": {"b1": 1}}}) == [], (
        "of a policy that was removed"
    )


def test_brokers_that_are_gone_are_forgotten_everywhere() -> None:
    assert groups.keep_brokers(HITS, lambda name: name != "b3") == {
        "avg-shedder": {"low_hits": {"b1": 1, "b2": 2}, "high_hits": {}}
    }


def test_a_broker_that_changes_its_group_begins_anew() -> None:
    assert groups.forget_moved_brokers(HITS, ONE, BLUE) == {
        "avg-shedder": {"low_hits": {"b3": 3}, "high_hits": {"b3": 9}}
    }
    assert groups.forget_moved_brokers(HITS, BLUE, BLUE) == HITS


def test_a_group_that_is_gone_is_forgotten() -> None:
    (name,) = THRESHOLD.broker_fields[:1] or THRESHOLD.group_fields[:1]
    kept = {"threshold-shedder": {name: {"b1": 0.5, "b3": 0.7}}}
    found = groups.forget_moved_brokers(kept, BLUE, ONE)
    assert found == {"threshold-shedder": {name: {"b3": 0.7}}}
