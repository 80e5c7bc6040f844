"""Anti-affinity over domains and brokers, and a choice that a rule forbids round after round, which is a finding."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from state.events import Event
from state.overlay import MaintenanceWindow, moment_at
from state.pulsar.budgets import FORBIDDEN_ROUNDS
from tests.state.traces import Run, facts, load, overlay, run, settings_of, sweep

A, B, C = (f"t/{name}/0x0_0x1" for name in "abc")
SPREAD = {"spread": ["t/a", "t/b"]}


def played(
    rounds_count: int,
    *,
    groups: dict[str, list[str]] = SPREAD,
    silent_rounds: Collection[int] = (),
    calm_rounds: Collection[int] = (),
    free_round: int | None = None,
    control: Sequence[Event] = (),
    **avg_shedder: Any,
) -> Run:
    """b1 is hot and has nothing to give but A and an idle bundle; b2, its partner, has B of the same group. In ``free_round`` A may go."""
    hits = {"low_hit_count": 1, "high_hit_count": 1, "min_unload_messages_per_s": 1} | avg_shedder
    source = settings_of(
        avg_shedder=hits,
        bundle_average_samples=1,
        rounds={"warmup_rounds": 0, "quorum_ratio": 0.0},
        guards={"bundle_cooldown_s": 0.0},
    )
    events: list[Event] = [facts(1, anti_affinity=groups), *control]
    for number in range(rounds_count):
        at_s = 10 * number + 5
        if number == free_round:
            events.append(facts(at_s - 1, anti_affinity={}))
        elif free_round is not None and number == free_round + 1:
            events.append(facts(at_s - 1, anti_affinity=groups))
        cpu = 15.0 if number in calm_rounds else 90.0
        events.append(load("b1", at_s, cpu=cpu, bundles={A: 10.0, C: 0.0}, rate=40.0))
        if number not in silent_rounds:
            events.append(load("b2", at_s, cpu=10.0, bundles={B: 1.0}, rate=1.0))
    ordered = sorted(events, key=lambda event: event.time_ms)
    return run([[*ordered, sweep(10 * rounds_count + 6)]], source)


def planned(rounds_count: int, groups: dict[str, list[str]]) -> Run:
    """The same for the fleet planner: b1 has three bundles of a group of which b2 owns another namespace."""
    rounds = {"warmup_rounds": 0, "quorum_ratio": 0.0}
    source = settings_of(
        shedding_policy="fleet-planner",
        rounds=rounds,
        bundle_average_samples=1,
        guards={"bundle_cooldown_s": 0.0},
    )
    heavy = {f"t/a/0x{at}_0x{at + 1}": 10.0 for at in range(3)}
    events: list[Event] = [facts(1, anti_affinity=groups)]
    for number in range(rounds_count):
        at_s = 10 * number + 5
        events.append(load("b1", at_s, cpu=62.0, bundles=heavy))
        events.append(load("b2", at_s, cpu=12.0, bundles={B: 5.0}))
    return run([[*events, sweep(10 * rounds_count + 6)]], source)


def test_the_planner_names_the_rule_that_keeps_the_bundle_that_would_help_most() -> None:
    assert planned(20, {}).actions
    found = planned(30, SPREAD)
    assert not found.actions
    last = found.summaries[-1]
    assert last["candidates"]["outcomes"] == {"anti-affinity": 1, "no-destination": 2}
    assert found_in(found)[-1] == last["round"]
    (row,) = last["findings"]["heaviest"]
    assert (row["subject"].startswith("t/a/"), row["broker"]) == (True, "b1")
    assert row["advice"].startswith(
        "its move would help most, and the rule anti-affinity forbids it since round "
    )
    assert row["advice"].endswith("No bundle leaves b1 meanwhile, and nothing else that may move would help")


def found_in(found: Run) -> list[int]:
    """Rounds whose summary has the finding."""
    return [
        each["round"]
        for each in found.summaries
        if any(row["kind"] == "forbidden" for row in each["findings"]["heaviest"])
    ]


def test_a_choice_forbidden_for_ten_rounds_is_a_finding_with_rule_bundle_and_brokers() -> None:
    found = played(13)
    assert not found.actions
    assert all(each["candidates"]["outcomes"].get("anti-affinity") for each in found.summaries)
    assert found_in(found) == [9, 10, 11, 12]
    (row,) = found.summaries[-1]["findings"]["heaviest"]
    assert (row["subject"], row["broker"]) == (A, "b1")
    assert row["advice"] == (
        "avg-shedder chooses it, or others of its broker, again and again, and the rule anti-affinity forbids it since round 0: b2 owns bundles of 1 other "
        "namespaces of anti-affinity group spread, b1 of 0. No bundle leaves b1 meanwhile. The fleet-planner asks this rule while "
        "it plans, and takes another bundle or broker where one may"
    )


def test_a_policy_that_counts_eight_hits_between_its_choices_is_seen_as_well() -> None:
    found = played(26, low_hit_count=8, high_hit_count=8)
    held = [each["round"] for each in found.summaries if each["candidates"]["outcomes"].get("anti-affinity")]
    assert held == [7, 15, 23]
    assert found_in(found) == [23, 24, 25]


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"groups": {}}, []),
        ({"free_round": 5}, [15]),
        ({"silent_rounds": (4,)}, [9, 10, 11, 12, 13, 14, 15]),
        ({"calm_rounds": range(2, 11)}, [11, 12, 13, 14, 15]),
        ({"calm_rounds": range(2, 13)}, []),
        ({"rounds_count": 24, "calm_rounds": range(10, 24)}, list(range(9, 20))),
    ],
    ids=[
        "no rule",
        "a bundle left meanwhile",
        "a report is missing once",
        "it is wanted again within ten rounds",
        "nothing was wanted for more than ten rounds",
        "it lasts ten rounds longer",
    ],
)
def test_it_is_over_when_a_bundle_leaves_or_when_nothing_was_forbidden_for_as_many_rounds(
    options: dict[str, Any], rounds: list[int]
) -> None:
    assert FORBIDDEN_ROUNDS == 10
    assert found_in(played(**{"rounds_count": 16} | options)) == rounds


def test_what_a_rule_forbids_is_said_of_the_policy_that_chose_it_and_ends_with_that_policy() -> None:
    """The fleet planner, which asks the rules, is in force from the round that begins at 130 s, ten seconds after the event."""
    planner = overlay(120, settings={"pulsar": {"shedding_policy": "fleet-planner"}})
    found = played(24, control=[planner])
    assert [each["policy"] for each in found.summaries[12:14]] == ["avg-shedder", "fleet-planner"]
    assert found_in(found) == [9, 10, 11, 12]


def test_the_last_bundle_of_a_broker_from_which_others_were_told_to_leave_is_no_finding() -> None:
    source = settings_of(
        avg_shedder={"low_hit_count": 1, "high_hit_count": 1, "min_unload_messages_per_s": 1},
        bundle_average_samples=1,
        rounds={"warmup_rounds": 0},
    )
    events: list[Event] = []
    for at_s in range(5, 135, 10):
        events.append(load("b1", at_s, cpu=90.0, bundles={A: 10.0, C: 8.0}, rate=60.0))
        events.append(load("b2", at_s, cpu=10.0, bundles={B: 1.0}, rate=1.0))
    found = run([[*events, sweep(136)]], source)
    assert [each["bundle"] for each in found.actions] == [A]
    held = [each["candidates"]["outcomes"].get("sole-bundle") for each in found.summaries]
    assert sum(filter(None, held)) >= FORBIDDEN_ROUNDS
    assert found_in(found) == []


SETTINGS = settings_of(
    avg_shedder={"low_hit_count": 1, "high_hit_count": 1, "min_unload_messages_per_s": 1},
    bundle_average_samples=1,
)
GROUP = {"spread": ["t/a", "t/b", "t/c"]}
MOVED, FILLER = "t/a/0x0_0x1", "t/z/0x0_0x1"
CPU = {"b1": 90.0, "b2": 40.0, "b3": 40.0, "b4": 5.0}
"""The hot b1 gives to the idle b4, which it is paired with; b2 and b3 are in balance."""


def decided(
    bundles: Mapping[str, list[str]], domains: Mapping[str, list[str]] | None
) -> tuple[list[str], str | None]:
    """Bundles that are unloaded, and why the one that fits was held, if it was."""
    owned = {"b1": [MOVED, FILLER], **bundles}
    events = [
        facts(11, anti_affinity=GROUP, failure_domains=domains),
        *(
            load(
                broker,
                time_s,
                cpu=cpu,
                bundles={name: 10.0 if name == MOVED else 0.0 for name in owned.get(broker, [])},
                rate=100.0 if broker == "b1" else 0.0,
            )
            for time_s in (1, 12)
            for broker, cpu in CPU.items()
        ),
        sweep(26),
    ]
    found = run([events], SETTINGS)
    (row,) = (each for each in found.summaries[1]["candidates"]["heaviest"] if each["bundle"] == MOVED)
    unloaded = [each["bundle"] for each in found.actions]
    return unloaded, row["detail"] if row["outcome"] == "anti-affinity" else None


NEIGHBOUR = {"b3": ["t/b/0x0_0x1"]}
"""A namespace of the group at the broker beside the destination."""


@pytest.mark.parametrize(
    ("bundles", "domains", "why"),
    [
        pytest.param(
            NEIGHBOUR,
            {"east": ["b1", "b2"], "west": ["b3", "b4"]},
            "brokers of failure domain west own bundles of 1 other namespaces of anti-affinity group spread, those of "
            "failure domain east of 0",
            id="the destination's domain has one already",
        ),
        pytest.param(
            {"b2": ["t/b/0x0_0x1", "t/c/0x0_0x1"], "b4": ["t/b/0x1_0x2"]},
            {"east": ["b1", "b2"], "west": ["b3", "b4"]},
            None,
            id="a better domain counts more than a better broker",
        ),
    ],
)
def test_a_group_is_not_gathered_in_a_domain(
    bundles: Mapping[str, list[str]], domains: Mapping[str, list[str]] | None, why: str | None
) -> None:
    assert decided(bundles, domains) == ([] if why else [MOVED], why)


@pytest.mark.parametrize(
    ("domains", "why"),
    [
        pytest.param(
            None, "b3 owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0", id="brokers"
        ),
        pytest.param(
            {"east": ["b1"], "west": ["b3"]},
            "brokers of failure domain west own bundles of 1 other namespaces of anti-affinity group spread, those of failure "
            "domain east of 0",
            id="domains",
        ),
    ],
)
def test_a_drain_gathers_no_group_and_says_where_it_would(
    domains: Mapping[str, list[str]] | None, why: str
) -> None:
    owned = {"b1": [MOVED], "b3": ["t/b/0x0_0x1"]}
    window = MaintenanceWindow(since=moment_at(0), who="ann", why="a test")
    events = [
        overlay(-30, drained_brokers={"b1": window}),
        facts(11, anti_affinity=GROUP, failure_domains=domains),
        *(
            load(broker, time_s, bundles=dict.fromkeys(owned[broker], 10.0), rate=10.0)
            for time_s in (1, 12)
            for broker in owned
        ),
        sweep(26),
    ]
    (left,) = run([events], SETTINGS).summaries[1]["maintenance"]["bundles_left"]["heaviest"]
    assert (left["bundle"], left["outcome"], left["detail"]) == (MOVED, "anti-affinity", why)
