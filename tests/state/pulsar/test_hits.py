"""A hit count is spent by a decision that goes out, or that says the bundle itself cannot go; never by one that has to wait."""

from collections.abc import Sequence
from typing import Any

import pytest

from state.closing import Identity, MemoryStart
from state.events import Event
from tests.state.traces import Run, facts, load, overlay, run, settings_of, sweep

ROUNDS_COUNT = 6
HITS = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 2, "low_hit_count": 9, "min_unload_messages_per_s": 1.0},
}
HOT = {f"t/a/0x{i}0000000_0x{i + 1}0000000": 20.0 for i in range(4)}
COLD = {"t/b/0x00000000_0x10000000": 5.0, "t/b/0x10000000_0x20000000": 5.0}
KEPT = ["hit-count", "fired", "fired", "fired", "fired", "fired"]
SPENT = ["hit-count", "fired", "hit-count", "fired", "hit-count", "fired"]


def reports(number: int, hot: dict[str, float] = HOT, cold: dict[str, float] = COLD) -> list[Event]:
    at_s = 10 * number + 5
    return [
        load("b1", at_s, cpu=90.0, bundles=dict(hot), rate=100.0),
        load("b2", at_s, cpu=10.0, bundles=dict(cold), rate=10.0),
    ]


def played(pulsar: dict[str, Any] | None = None, *extra: Event, hot: dict[str, float] = HOT) -> Run:
    loads = [each for number in range(ROUNDS_COUNT) for each in reports(number, hot)]
    events = sorted([*extra, *loads, sweep(10 * ROUNDS_COUNT + 6)], key=lambda event: event.age_key)
    return run([events], settings_of(**HITS | (pulsar or {})))


def found_by_round(found: Run) -> list[str]:
    """The outcome of the one pair in each round."""
    return [next(iter(each["examined"]["outcomes"])) for each in found.summaries]


@pytest.mark.parametrize(
    ("pulsar", "extra", "reason"),
    [
        ({}, [overlay(-10, paused=True)], "paused"),
        ({"guards": {"quiet_hours": ["00:00-00:02"]}}, [], "quiet-hours"),
        ({}, [facts(1, shedding=["b2"])], "two-balancers"),
    ],
)
def test_what_holds_the_whole_cluster_leaves_a_pair_its_hits(
    pulsar: dict[str, Any], extra: Sequence[Event], reason: str
) -> None:
    found = played(pulsar, *extra)
    assert found_by_round(found) == KEPT
    assert not found.actions
    assert found.summaries[-1]["candidates"]["outcomes"][reason]


@pytest.mark.parametrize(
    ("start", "acts_in"),
    [
        (MemoryStart(40_000), 4),
        (MemoryStart(39_999), 3),
        (MemoryStart(10_000, is_fresh=True), 4),
        (MemoryStart(60_000), None),
    ],
)
def test_a_start_without_memory_counts_and_acts_in_no_round_of_the_time_before_it(
    start: MemoryStart, acts_in: int | None
) -> None:
    """Rounds of 10 s; the hits are complete in round 1. After ``--fresh`` the cooldown of 30 s has to pass, too."""
    events = [each for number in range(ROUNDS_COUNT) for each in reports(number)]
    settings = settings_of(**HITS, guards={"bundle_cooldown_s": 30.0}, split={"bundle_cooldown_s": 30.0})
    identity = Identity(mode="act", memory_start=start)
    found = run([[*events, sweep(10 * ROUNDS_COUNT + 6)]], settings, identity=identity)
    assert min((each["round"] for each in found.actions), default=None) == acts_in


def test_the_first_round_without_a_hold_acts() -> None:
    found = played({"guards": {"quiet_hours": ["00:00-00:01"]}})
    assert {each["round"] for each in found.actions} == {5}, "the first that ends at 00:01"


def test_a_budget_that_holds_every_unload_of_a_pair_leaves_its_hits() -> None:
    """Two pairs fire in round 1 and one unload is allowed a round: the first pair's."""
    events: list[Event] = []
    for number in range(3):
        at_s = 10 * number + 5
        for name, cpu, letter in (("b1", 95.0, "a"), ("b2", 90.0, "b"), ("b3", 20.0, "c"), ("b4", 10.0, "d")):
            bundles = {f"t/{letter}/0x{i}0000000_0x{i + 1}0000000": cpu / 10 for i in range(8)}
            events.append(load(name, at_s, cpu=cpu, bundles=bundles, rate=cpu))
    guards = {"max_unloads_per_round_count": 1}
    found = run([[*events, sweep(36)]], settings_of(**HITS, guards=guards))
    outcomes = [
        {row["high_broker"]: row["outcome"] for row in each["examined"]["heaviest"]}
        for each in found.summaries
    ]
    assert outcomes == [
        {"b1": "hit-count", "b2": "hit-count"},
        {"b1": "fired", "b2": "fired"},
        {"b1": "hit-count", "b2": "fired"},
    ]
    assert [each["source_broker"] for each in found.actions] == ["b1", "b2"]


@pytest.mark.parametrize(
    ("pulsar", "extra", "hot", "reason"),
    [
        ({}, [], dict.fromkeys(HOT, 70.0), "too-big"),
        ({"guards": {"min_unload_benefit_points": 95.0}}, [], HOT, "too-little-benefit"),
        ({}, [facts(1, anti_affinity={"spread": ["t/a", "t/b"]})], HOT, "anti-affinity"),
        ({"guards": {"bundle_cooldown_s": 600.0}}, [], HOT, "in-flight"),
    ],
)
def test_what_says_that_the_bundles_cannot_go_spends_the_hits_as_in_pulsar(
    pulsar: dict[str, Any], extra: Sequence[Event], hot: dict[str, float], reason: str
) -> None:
    found = played(pulsar, *extra, hot=hot)
    assert found_by_round(found) == SPENT
    assert found.summaries[-1]["candidates"]["outcomes"][reason]


def test_a_dry_run_spends_hits_as_acting_does() -> None:
    events = [each for number in range(ROUNDS_COUNT) for each in reports(number)]
    found = run([[*events, sweep(66)]], settings_of(shadow=False, **HITS), identity=Identity(mode="dry-run"))
    assert found_by_round(found) == SPENT


def test_a_policy_that_is_switched_off_remembers_nothing_when_it_is_switched_on_again() -> None:
    """Round 0 counts a hit, the threshold shedder has rounds 2 and 3; in round 4 counting begins at 1 again."""
    other = overlay(1, settings={"pulsar": {"shedding_policy": "threshold-shedder"}})
    back = overlay(25, settings={})
    pulsar = HITS | {"avg_shedder": HITS["avg_shedder"] | {"high_hit_count": 4}}
    found = played(pulsar, other, back)
    counts = {
        each["round"]: row["evidence"].get("hit_count")
        for each in found.summaries
        for row in each["examined"]["heaviest"][:1]
    }
    assert [counts[0], counts[1], counts[4], counts[5]] == [1, 2, 1, 2]
