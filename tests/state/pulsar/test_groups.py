"""Groups of brokers and namespaces: which belong together, and that each decides as if it were a cluster of its own."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shedding.registry import POLICIES as SHEDDING_POLICIES
from state.events import Event
from state.facts import Isolation
from state.pulsar.groups import Groups, host_of
from tests.state.traces import ISOLATED, Run, facts, load, run, seeds, settings_of

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


def hits(found: Run, group: str | None) -> list[int]:
    return [
        row["evidence"]["hit_count"]
        for summary in found.summaries
        for row in summary["examined"]["heaviest"]
        if row["group"] == group
    ]


LONG = settings_of(rounds={"warmup_rounds": 0}, avg_shedder={"low_hit_count": 9, "high_hit_count": 9})


def test_a_calm_group_clears_its_own_counters_only():
    events = [
        event
        for number in range(4)
        for event in (
            *pair(10 * number + 5, ("b1", "b2"), "t/a", apart=True),
            *pair(10 * number + 5, ("b3", "b4"), "t/b", apart=number != 2),
        )
    ]
    found = run([[facts(5, isolation=ISOLATED), *events]], LONG)
    assert hits(found, "a") == [1, 2, 3, 4]
    assert hits(found, None) == [1, 2, 0, 1]


def test_a_group_that_is_silent_for_a_round_keeps_its_hits():
    events = [
        event
        for number in range(4)
        for event in (
            *(pair(10 * number + 5, ("b1", "b2"), "t/a", apart=True) if number != 2 else ()),
            *pair(10 * number + 5, ("b3", "b4"), "t/b", apart=True),
        )
    ]
    found = run(
        [[facts(5, isolation=ISOLATED), *events]],
        settings_of(
            rounds={"warmup_rounds": 0, "quorum_ratio": 0.0},
            avg_shedder={"low_hit_count": 9, "high_hit_count": 9},
        ),
    )
    assert hits(found, "a") == [1, 2, 3]
    assert hits(found, None) == [1, 2, 3, 4]


def test_a_broker_that_changes_its_group_begins_anew_and_the_others_do_not():
    events = [
        event
        for number in range(4)
        for event in (
            *pair(10 * number + 5, ("b1", "b2"), "t/a", apart=True),
            *pair(10 * number + 5, ("b3", "b4"), "t/b", apart=True),
        )
    ]
    swapped = [Isolation("a", ["t/a"], ["b[23]"])]
    found = run(
        [[facts(5, isolation=ISOLATED), *events[:8], facts(25, isolation=swapped), *events[8:]]], LONG
    )
    first = [summary["examined"]["heaviest"] for summary in found.summaries]
    assert {(row["group"], row["evidence"]["hit_count"]) for row in first[1]} == {("a", 2), (None, 2)}
    assert {(row["high_broker"], row["low_broker"]) for row in first[2]} == {("b1", "b4"), ("b3", "b2")}
    assert {row["evidence"]["hit_count"] for row in first[2]} == {3}, (
        "b4 and b2 stayed, and count for their pairs"
    )
    renamed = [Isolation("z", ["t/a"], ["b[12]"])]
    found = run(
        [[facts(5, isolation=ISOLATED), *events[:8], facts(25, isolation=renamed), *events[8:]]], LONG
    )
    assert hits(found, "z") == [1, 2], "a group of another name is another group"
    assert hits(found, None) == [1, 2, 3, 4]


def test_facts_count_from_the_round_of_their_time_on_whenever_they_come_in_it():
    events = [*pair(5, ("b1", "b2"), "t/a", apart=True), *pair(15, ("b1", "b2"), "t/a", apart=True)]
    found = run([[*events, facts(19, isolation=ISOLATED)]], LONG)
    groups = [{row["group"] for row in summary["examined"]["heaviest"]} for summary in found.summaries]
    assert groups == [{None}, {"a"}]


def test_the_newest_facts_of_a_round_count_and_late_ones_do_not():
    newest, older = facts(6, shedding=["b1"], id_="x"), facts(6, id_="w")
    found = run(
        [
            [
                newest,
                older,
                *pair(7, ("b1", "b2"), "t/a", apart=True),
                *pair(25, ("b1", "b2"), "t/a", apart=True),
                facts(8),
            ]
        ],
        LONG,
    )
    shown = [summary["other_balancers"]["shedding_brokers"] for summary in found.summaries]
    assert shown == [["b1"], ["b1"]]
    counted = {result: count for (kind, result), count in found.results.items() if kind is type(newest)}
    assert counted == {"used": 1, "superseded": 1, "late": 1}
