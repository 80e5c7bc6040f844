"""What holds of every trace of a Pulsar cluster, whatever its policies, guards and batches are."""

from collections import Counter
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.controller import LATE, REJECTED, SUPERSEDED, USED
from state.events import ClusterFacts, Event, namespace_of
from state.pulsar.groups import Groups
from state.settings import SettingsSource
from state.store import DictStore
from tests.state.traces import (
    EAGER,
    PULSARS_POLICIES,
    Run,
    arrivals,
    assert_arrival_changes_nothing,
    plain_traces,
    random_trace,
    run,
    seeds,
    settings_of,
    some_reports,
    traces,
    with_results,
)

CHECKED = settings(max_examples=25, deadline=None, derandomize=True)

POLICIES = [*PULSARS_POLICIES, "fleet-planner"]
PLACEMENTS = ["broker", "least-long-term-message-rate", "least-resource-usage"]

SETTINGS = [
    settings_of(**EAGER),
    settings_of(**EAGER, shedding_policy="threshold-shedder"),
    settings_of(**EAGER, shedding_policy="overload-shedder", placement="least-resource-usage"),
    settings_of(**EAGER | {"split": EAGER["split"] | {"hit_count": 0, "without_topic_stats": "hold"}}),
    settings_of(
        **EAGER,
        rounds={"warmup_rounds": 0, "quorum_ratio": 0.0},
        guards={
            "bundle_cooldown_s": 20.0,
            "max_unloads_per_round_count": 1,
            "keep_sole_bundle": False,
            "min_unload_benefit_points": 5.0,
            "calm_after_change_rounds": 1,
        },
    ),
]
JUDGING = settings_of(
    **EAGER,
    guards={
        "bundle_cooldown_s": 20.0,
        "ineffective_after_rounds": 1,
        "ineffective_rest_s": 30.0,
        "failing_actions_count": 1,
    },
)
SETTINGS.append(JUDGING)
some_settings = st.sampled_from(SETTINGS)


@CHECKED
@given(traces, some_settings, st.lists(st.sampled_from(["succeeded", "failed"]), max_size=3), seeds)
def test_order_within_the_lateness_repeats_batches_and_stores_change_nothing(
    trace: list[Event], source: SettingsSource, outcomes: list[str], seed: int
):
    assert_arrival_changes_nothing(with_results(trace, source, outcomes), source, seed)


def test_the_traces_of_these_tests_have_actions_holds_and_rounds_of_every_outcome():
    """A property over traces in which nothing happens would prove nothing."""
    seen: Counter[str] = Counter()

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(traces, some_settings)
    def look(trace: list[Event], source: SettingsSource) -> None:
        found = run([trace], source)
        seen["action"] += len(found.actions)
        for summary in found.summaries:
            seen[summary["outcome"]] += 1
            seen["restarted"] += summary["restarted"]
            seen.update(summary["candidates"]["outcomes"])
            seen.update(f"split {outcome}" for outcome in summary["splits"]["outcomes"])
            seen.update(summary["findings"]["outcomes"])

    look()
    assert seen.keys() >= {
        "action",
        "decided",
        "warm-up",
        "no-quorum",
        "acted",
        "paused",
        "too-big",
        "in-flight",
        "split acted",
        "split hit-count",
        "split in-flight",
        "split no-topic-stats",
        "split paused",
        "split to-be-unloaded",
        "hot-partition",
        "two-balancers",
        "split restricted-split",
        "calm-after-change",
        "too-little-benefit",
        "trimtab-topics",
        "other-group",
        "anti-affinity",
    }
    assert min(seen.values()) > 0


@CHECKED
@given(traces, some_settings, seeds, some_reports)
def test_every_event_ends_as_exactly_one_of_used_superseded_late_and_rejected(
    trace: list[Event], source: SettingsSource, seed: int, strangers: list[Event]
):
    batches = [*arrivals(trace, seed), strangers]
    found = run(batches, source)
    given_ = Counter(type(event) for batch in batches for event in batch)
    counted: Counter[type[Event]] = Counter()
    for (kind, result), count in found.results.items():
        assert result in {USED, SUPERSEDED, LATE, REJECTED}
        counted[kind] += count
    assert counted == given_


def _left(summary: dict[str, Any]) -> dict[str, Any]:
    """The bundles at drained brokers."""
    return summary["maintenance"]["bundles_left"] if "maintenance" in summary else {"heaviest": []}


@CHECKED
@given(traces, some_settings)
def test_everything_looked_at_has_one_outcome_and_the_sums_add_up(trace: list[Event], source: SettingsSource):
    for summary in run([trace], source).summaries:
        for section in (summary["examined"], summary["candidates"], summary["splits"]):
            assert sum(section["outcomes"].values()) == section["count"] == len(section["heaviest"])
            assert section["outcomes"] == dict(Counter(row["outcome"] for row in section["heaviest"]))
        acted = [
            row["bundle"]
            for section in (summary["candidates"], summary["splits"], _left(summary))
            for row in section["heaviest"]
            if row["outcome"] == "acted"
        ]
        assert len(set(acted)) == len(acted), "a bundle is never split and unloaded in one round"
        assert len(acted) == summary["actions_count"] == len(summary["actions"])
        bundles = [row["bundle"] for row in summary["candidates"]["heaviest"]]
        assert len(set(bundles)) == len(bundles)


@CHECKED
@given(traces, some_settings)
def test_a_round_says_its_actions_first_and_its_summary_last(trace: list[Event], source: SettingsSource):
    outputs = run([trace], source).outputs
    numbers = [(each.round, each.place) for each in outputs]
    assert numbers == sorted(set(numbers))
    for each, following in zip(outputs, [*outputs[1:], None], strict=True):
        is_last = following is None or following.round != each.round
        assert (each.kind == "round") == is_last
    assert len({each.id for each in outputs}) == len(outputs)


@CHECKED
@given(traces, some_settings)
def test_feeding_everything_again_says_nothing_new(trace: list[Event], source: SettingsSource):
    store = DictStore()
    first = run([trace], source, store=store)
    again = run([trace], source, store=store)
    assert first.outputs or not trace
    assert [each for each in again.outputs if each.kind == "action"] == []
    assert again.written == []


GUARDED = settings_of(
    **EAGER,
    rounds={"warmup_rounds": 0},
    guards={
        "bundle_cooldown_s": 30.0,
        "excluded_brokers": ("b4",),
        "excluded_namespaces": ("t/b",),
        "max_unloads_per_round_count": 2,
        "max_unloads_per_hour_count": 5,
        "max_unloads_per_broker_count": 1,
    },
)


def check_guards(found: Run) -> None:
    rounds = {summary["round"]: summary for summary in found.summaries}
    unloaded = Counter((each["round"], each.get("source_broker")) for each in found.actions)
    for number, summary in rounds.items():
        for row in summary["brokers"]:
            assert unloaded[number, row["broker"]] < max(1, row["bundles_count"]), (
                "every broker keeps a bundle"
            )
    decided: dict[tuple[str, bool], int] = {}
    hour = 0
    for action in found.actions:
        summary = rounds[action["round"]]
        is_split = "boundaries" in action
        for broker in (
            [action["broker"]] if is_split else [action["source_broker"], action["destination_broker"]]
        ):
            assert broker is None or broker in summary["brokers_reporting"]
            assert broker != "b4"
        assert not summary["paused"]
        assert namespace_of(action["bundle"]) != "t/b"
        before = decided.get((action["bundle"], is_split))
        rest = 4 if is_split else 3
        assert before is None or action["round"] - before >= rest, (
            "a cooldown of 40 or 30 s is four or three rounds"
        )
        decided[action["bundle"], is_split] = action["round"]
        hour += not is_split
    assert hour <= 5
    for summary in rounds.values():
        assert summary["actions_count"] - summary["splits"]["outcomes"].get("acted", 0) <= 2


@CHECKED
@given(plain_traces, st.sampled_from(POLICIES), st.sampled_from(PLACEMENTS))
def test_nothing_paused_missing_excluded_resting_or_beyond_a_budget_is_touched(
    trace: list[Event], policy: str, placement: str
):
    base = GUARDED.base("").pulsar
    source = settings_of(
        **EAGER,
        shedding_policy=policy,
        placement=placement,
        rounds={"warmup_rounds": 0},
        guards={name: getattr(base.guards, name) for name in base.guards.__slots__},
    )
    check_guards(run([trace], source))


@CHECKED
@given(traces, st.sampled_from(POLICIES), st.sampled_from(PLACEMENTS))
def test_nothing_is_done_beside_another_balancer_and_no_unload_leaves_its_group(
    trace: list[Event], policy: str, placement: str
):
    source = settings_of(**EAGER, shedding_policy=policy, placement=placement, rounds={"warmup_rounds": 0})
    found = run([trace], source)
    rounds = {summary["round"]: summary for summary in found.summaries}
    known: list[ClusterFacts] = sorted(
        (event for event in trace if isinstance(event, ClusterFacts)), key=lambda event: event.age_key
    )
    for action in found.actions:
        summary = rounds[action["round"]]
        shown = summary["other_balancers"]
        assert (
            action["dry_run"] or shown is None or not shown["shedding_brokers"] + shown["splitting_brokers"]
        )
        newest = [event for event in known if event.time_ms // 10_000 <= action["round"]]
        groups = Groups.from_facts(newest[-1].facts if newest else None)
        source_broker, destination = action.get("source_broker"), action.get("destination_broker")
        if source_broker is not None:
            own = groups.of_namespaces([namespace_of(action["bundle"])])
            assert action["policy"] == "drain" or groups.of_brokers([source_broker]) == own
            assert destination is None or groups.of_brokers([destination]) == own


some_outcomes = st.lists(st.sampled_from(["succeeded", "failed", "skipped"]), min_size=2, max_size=8)


@CHECKED
@given(traces, some_outcomes)
def test_a_failing_cluster_never_acts_and_only_a_person_ends_it(trace: list[Event], outcomes: list[str]):
    trace = with_results(trace, JUDGING, outcomes)
    summaries = run([trace], JUDGING).summaries
    for before, summary in zip([None, *summaries], summaries, strict=False):
        bad = sum(count for name, count in summary["last_actions"].items() if name != "effective")
        assert sum(summary["last_actions"].values()) <= 10
        kinds = {"failing_since": "candidates", "splits_failing_since": "splits"}
        for since, table in kinds.items():
            if summary.get(since) is not None:
                assert "acted" not in summary[table]["outcomes"]
            else:
                resumed = summary["control"] and summary["control"]["resumed_at"]
                assert before is None or before.get(since) is None or resumed >= before[since]
        held_count = sum(summary.get(since) is not None for since in kinds)
        assert bad == 0 or held_count


HELD_AND_RESUMED = {"resumed", "effective", "failed", "ineffective", "failing", "split failing"}


def test_the_traces_have_failing_clusters_that_are_resumed_and_ineffective_actions():
    seen: Counter[str] = Counter()

    for seed in range(120):
        if seen.keys() >= HELD_AND_RESUMED and min(seen.values()) > 0:
            break
        random = Random(seed)  # noqa: S311  tests, not secrets
        trace = random_trace(random)
        outcomes = random.choices(["succeeded", "failed", "skipped"], k=5)
        summaries = run([with_results(trace, JUDGING, outcomes)], JUDGING).summaries
        for since in ("failing_since", "splits_failing_since"):
            failing = [summary.get(since) is not None for summary in summaries]
            seen["resumed"] += (True, False) in pairwise(failing)
        for summary in summaries:
            seen.update(summary["last_actions"].keys())
            seen.update(summary["candidates"]["outcomes"].keys() & {"failing", "ineffective"})
            seen.update(f"split {name}" for name in summary["splits"]["outcomes"].keys() & {"failing"})
    assert seen.keys() >= HELD_AND_RESUMED
    assert min(seen.values()) > 0


@pytest.mark.parametrize(
    ("policy", "placement"),
    [
        ("avg-shedder", "broker"),
        ("threshold-shedder", "broker"),
        ("overload-shedder", "least-long-term-message-rate"),
        ("uniform-load-shedder", "least-resource-usage"),
    ],
)
@pytest.mark.parametrize(
    "constraint",
    [
        {"max_unloads_per_round_count": 1},
        {"max_unloads_per_hour_count": 1},
        {"max_unloads_per_broker_count": 1},
        {"max_unloads_per_namespace_count": 1},
        {"keep_sole_bundle": True},
        {"min_unload_benefit_points": 10.0},
        {"calm_after_change_rounds": 3},
    ],
    ids=str,
)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(trace=some_reports)
def test_a_budget_only_takes_actions_away(
    policy: str, placement: str, constraint: dict[str, Any], trace: list[Event]
):
    """In the same round only: later ones differ because of what was done before."""
    free = {"keep_sole_bundle": False, "max_unloads_per_round_count": 0, "max_unloads_per_hour_count": 0}
    one_round = {"length_s": 1000.0, "warmup_rounds": 0, "max_report_age_s": 1000.0}
    source = partial(settings_of, **EAGER, shedding_policy=policy, placement=placement, rounds=one_round)
    found = [
        [
            (action["bundle"], action.get("source_broker"), action.get("destination_broker"))
            for action in run([trace], source(guards=guards)).actions
        ]
        for guards in (free, free | constraint)
    ]
    everything, constrained = found
    assert constrained == [action for action in everything if action in constrained]
