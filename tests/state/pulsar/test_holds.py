"""Why no action of a kind happens in a round of a Pulsar cluster, which other balancer acts on it, and when brokers come and go."""

from collections.abc import Sequence
from typing import Any

import pytest

from state.events import Event
from state.facts import Facts
from state.memory import MembersChange
from state.pulsar.holds import balancer_at_work, find_calm, holds_of, other_balancers
from state.settings import ClusterSettings, GuardSettings, PulsarSettings
from state.summary import join_names
from tests.state.building import control, guarded, seen
from tests.state.traces import BUNDLES, load, run, settings_of


def facts(**fields: Any) -> Facts:
    usual: dict[str, Any] = {"shedding_brokers": [], "splitting_brokers": [], "unknown_brokers": []}
    return Facts(**usual | {"isolation": [], "anti_affinity": {}} | fields)


BESIDE = facts(shedding_brokers=["b1"])
PAUSED = control()
RESTRICTED = facts(restricted_brokers=["b1"])
BUSY = facts(restricted_brokers=["b1"], splitting_brokers=["b1"])


@pytest.mark.parametrize(
    ("header", "fields", "expected"),
    [
        ({}, {}, (None, None)),
        ({}, {"record": PAUSED}, ("paused", "paused")),
        ({"error_held_since_ms": 1}, {}, ("failing", "failing")),
        ({"facts": BESIDE}, {}, ("two-balancers", "two-balancers")),
        ({"facts": BESIDE}, {"mode": "dry-run"}, (None, None)),
        ({"facts": BESIDE}, {"settings": guarded(hold_beside_other_balancer=False)}, (None, None)),
        ({"facts": BESIDE}, {"record": PAUSED}, ("paused", "paused")),
        ({"facts": facts(unknown_brokers=["b1"])}, {}, (None, None)),
        ({"facts": RESTRICTED}, {}, (None, "restricted-split")),
        ({"facts": BUSY}, {}, ("two-balancers", "two-balancers")),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09 unloads",))}, ("quiet-hours", None)),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09 splits",))}, (None, "quiet-hours")),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09",))}, ("quiet-hours", "quiet-hours")),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:08",))}, (None, None)),
    ],
    ids=str,
)
def test_a_round_is_held_by_the_first_reason_that_applies(
    header: dict[str, Any], fields: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    """The round ends at 00:08."""
    held = holds_of(seen(load("b1", 470), header=header, **fields).context)
    assert (held.unload and held.unload.reason, held.split and held.split.reason) == expected


@pytest.mark.parametrize(("zone", "is_quiet"), [("Asia/Tokyo", True), ("Asia/Kolkata", False)])
def test_quiet_hours_are_read_in_the_zones_of_the_settings(zone: str, *, is_quiet: bool) -> None:
    """At 00:08 UTC it is 09:08 in Tokyo and 05:38 in Kolkata."""
    offsets = {"Asia/Tokyo": ((0, 540),), "Asia/Kolkata": ((0, 330),)}
    pulsar = PulsarSettings(guards=GuardSettings(quiet_hours=(f"09:00-10:00 {zone}",)))
    context = seen(load("b1", 470), settings=ClusterSettings(pulsar=pulsar, zones=offsets)).context
    assert (holds_of(context).unload is not None) == is_quiet


@pytest.mark.parametrize(("changed_in", "is_calm"), [(6, True), (5, False)])
def test_a_change_of_brokers_makes_the_rounds_after_it_calm(changed_in: int, *, is_calm: bool) -> None:
    """Two rounds are calm, the one that shows the change included; this is round 7."""
    header = {"members_change": MembersChange(changed_in, "b3", "")}
    context = seen(load("b1", 470), header=header, settings=guarded(calm_after_change_rounds=2)).context
    assert (find_calm(context).hold_of(0.0) is not None) == is_calm


def test_shedding_is_named_before_splitting_with_the_key_that_switches_it_off() -> None:
    both = facts(shedding_brokers=["b1", "b2"], splitting_brokers=["b3"])
    assert balancer_at_work(both) == (
        "Pulsar's own shedding is on at b1, b2: set loadBalancerSheddingEnabled=false at every broker"
    )
    assert balancer_at_work(facts(splitting_brokers=["b3"])) == (
        "Pulsar's own splitting is on at b3: set loadBalancerAutoBundleSplitEnabled=false at every broker"
    )
    assert balancer_at_work(facts()) is None
    assert balancer_at_work(None) is None


def test_the_first_three_brokers_are_named_and_the_others_counted() -> None:
    assert join_names([]) == ""
    assert join_names(["a", "b", "c"]) == "a, b, c"
    assert join_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_the_summary_has_every_list_or_nothing_where_nobody_looked() -> None:
    assert other_balancers(None) is None
    found = other_balancers(facts(shedding_brokers=["a"], splitting_brokers=["b"], unknown_brokers=["c"]))
    assert found is not None
    assert (found.shedding_brokers, found.splitting_brokers, found.unknown_brokers) == (["a"], ["b"], ["c"])


SETTINGS = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
}


def reports(number: int, brokers: Sequence[str], *, cpu: float = 80.0) -> list[Event]:
    """b1 has more than enough to give away in every round."""
    hot = dict.fromkeys(BUNDLES[:4], 20.0)
    return [
        load(
            name,
            10 * number + 5,
            cpu=cpu if name == "b1" else 10.0,
            bundles=hot if name == "b1" else {},
            rate=90.0 if name == "b1" else 1.0,
        )
        for name in brokers
    ]


def outcomes(rounds: dict[int, Sequence[str]], *, rounds_count: int = 2, cpu: float = 80.0) -> list[str]:
    """``moved``, ``calm`` or ``neither`` for each round; every round in a batch of its own."""
    guards = {"calm_after_change_rounds": rounds_count, "bundle_cooldown_s": 0}
    batches = [reports(number, brokers, cpu=cpu) for number, brokers in rounds.items()]
    found = []
    for summary in run(batches, settings_of(**SETTINGS, guards=guards)).summaries:
        seen = summary["candidates"]["outcomes"]
        assert not {"acted", "calm-after-change"} <= seen.keys()
        found.append("calm" if "calm-after-change" in seen else "moved" if "acted" in seen else "neither")
    return found


TWO, THREE = ("b1", "b2"), ("b1", "b2", "b3")


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ({0: TWO, 1: TWO}, ["moved", "moved"]),
        ({0: TWO, 1: THREE, 2: THREE, 3: THREE}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 2: TWO, 3: TWO}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 2: THREE, 3: THREE, 4: THREE}, ["moved", "calm", "calm", "calm", "moved"]),
        ({0: THREE, 2: TWO, 3: TWO, 4: TWO}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 3: TWO}, ["moved", "calm", "moved"]),
        ({0: TWO, 40: THREE, 41: THREE}, ["moved", "moved", "moved"]),
    ],
    ids=[
        "the first round of a cluster changes nothing",
        "a broker joins",
        "a broker leaves",
        "a broker is restarted: each change counts anew",
        "a round without reports in between",
        "rounds without reports count as rounds",
        "after a long silence there is nothing to compare with",
    ],
)
def test_nothing_moves_for_some_rounds_after_a_broker_joined_or_left(
    rounds: dict[int, Sequence[str]], expected: list[str]
) -> None:
    assert outcomes(rounds) == expected
    assert set(outcomes(rounds, rounds_count=0)) == {"moved"}


def test_a_broker_above_the_overload_threshold_does_not_wait() -> None:
    rounds = {0: TWO, 1: THREE}
    assert outcomes(rounds, cpu=84.0) == ["moved", "calm"]
    assert outcomes(rounds, cpu=86.0) == ["moved", "moved"]


def test_the_summary_says_who_came_and_went_and_how_long_it_waits() -> None:
    guards = {"calm_after_change_rounds": 3}
    batches = [reports(0, ("b1", "b2", "b4")), reports(1, THREE)]
    row = run(batches, settings_of(**SETTINGS, guards=guards)).summaries[1]["candidates"]["heaviest"]
    assert "b3 joined and b4 left in round 1: nothing moves before round 4" in {
        each["detail"] for each in row
    }
