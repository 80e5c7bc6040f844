"""The shadow of a dry-run: its own unloads count as if they had been carried out, until something else is known.

Rounds are ten seconds long and a hit is enough. b1 has bundles A to D of 20 messages/s each and is at 90 %, b2 has E and F of 5 and is
at 10 %: a quarter of the difference of traffic is one bundle, so one unload makes them nearly equal.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.costs import CPU, figures_of
from state.closing import Identity
from state.events import Event
from state.pulsar import shadow
from state.pulsar.shadow import Shadow
from tests.state.building import plain_costs
from tests.state.traces import Run, facts, load, overlay, run, settings_of, sweep

A, B, C, D = (f"t/a/0x{i}0000000_0x{i + 1}0000000" for i in range(4))
E, F = (f"t/b/0x{i}0000000_0x{i + 1}0000000" for i in range(2))
RATES = {A: 20.0, B: 20.0, C: 20.0, D: 20.0, E: 5.0, F: 5.0}
LISTED = {"b1": [A, B, C, D], "b2": [E, F]}
DRY_RUN = Identity(mode="dry-run")
SETTINGS: dict[str, Any] = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "low_hit_count": 9, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
    "skip_sample_after_move": False,
}


def reports(number: int, listed: Mapping[str, list[str]] = LISTED) -> list[Event]:
    """Usage follows what a broker really has; its traffic is that of its bundles."""
    found = []
    for name, bundles in listed.items():
        rates = {bundle: RATES[bundle] for bundle in bundles}
        rate = sum(rates.values())
        found.append(load(name, 10 * number + 5, cpu=rate + 10.0, bundles=rates, rate=rate))
    return found


def played(
    *rounds: Mapping[str, list[str]],
    extra: list[Event] | None = None,
    identity: Identity = DRY_RUN,
    cut_at: int | None = None,
    **pulsar: Any,
) -> Run:
    events = [event for number, listed in enumerate(rounds) for event in reports(number, listed)]
    ordered = sorted([*events, *(extra or [])], key=lambda event: event.age_key)
    batches = [ordered[:cut_at], ordered[cut_at:]] if cut_at else [ordered]
    return run([*batches, [sweep(10 * len(rounds) + 6)]], settings_of(**SETTINGS | pulsar), identity=identity)


def moves(found: Run) -> list[tuple[int, str, str, str]]:
    return [
        (each["round"], each["bundle"], each["source_broker"], each["destination_broker"])
        for each in found.actions
    ]


def counted(found: Run) -> list[list[tuple[str, str, str]]]:
    """By round, the bundles that count at another broker."""
    return [
        [
            (row["bundle"], row["broker"], row["shadow_broker"])
            for row in each.get("shadow", {}).get("heaviest", [])
        ]
        for each in found.summaries
    ]


def test_under_the_same_load_a_dry_run_moves_what_acting_moves_and_no_more() -> None:
    """When the cluster acts, the fleet follows: A is at b2 from the second round on."""
    after = {"b1": [B, C, D], "b2": [A, E, F]}
    acting = played(LISTED, *([after] * 5), identity=Identity(mode="act"))
    dry = played(*([LISTED] * 6))
    assert moves(dry) == moves(acting) == [(0, A, "b1", "b2")]
    assert counted(dry) == [[]] + [[(A, "b1", "b2")]] * 5
    without = played(*([LISTED] * 6), shadow=False)
    assert [each[1] for each in moves(without)] == [A, B, C], "all but the last one of the same broker"
    assert all("shadow" not in each for each in without.summaries)


def test_figures_of_brokers_stay_as_measured_and_the_section_says_what_the_policy_saw() -> None:
    summary = played(LISTED, LISTED).summaries[1]
    assert [each["usage_points"] for each in summary["brokers"]] == [90.0, 20.0]
    assert [each["bundles_count"] for each in summary["brokers"]] == [4, 2]
    assert summary["usage"]["max_points"] == 90.0
    # a quarter of b1's traffic carries a quarter of its 87 points above idle to b2
    assert summary["shadow"]["usage"]["max_points"] == pytest.approx(68.25, abs=0.03)
    # b2 has 17 points above idle for an eighth of the traffic, so a message is taken to cost more there
    assert summary["shadow"]["usage"]["mean_points"] == pytest.approx(58.4, abs=0.05)
    (row,) = summary["examined"]["heaviest"]
    seen_points = row["evidence"]["high_usage_points"], row["evidence"]["low_usage_points"]
    assert seen_points == pytest.approx((68.25, 48.5), abs=0.1)


def test_the_reason_of_an_action_says_that_its_figures_are_with_the_shadow() -> None:
    sensitive = {
        "high_hit_count": 1,
        "low_hit_count": 1,
        "low_threshold_points": 5.0,
        "min_unload_messages_per_s": 1.0,
    }
    uneven = {"b1": [A, B, C, D, E], "b2": [F]}
    found = played(uneven, uneven, avg_shedder=sensitive, guards={"max_unloads_per_round_count": 1})
    reasons = [
        (each["round"], " (as if the dry-run had moved 1 bundle): moving" in each["reason"])
        for each in found.actions
    ]
    assert reasons == [(0, False), (1, True)]


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ({"b1": [B, C, D], "b2": [A, E, F]}, "it is where it was to go"),
        ({"b1": [B, C, D], "b2": [E, F], "b3": [A]}, "somebody moved it elsewhere"),
    ],
)
def test_an_entry_ends_when_the_bundle_is_seen_at_another_broker(
    later: Mapping[str, list[str]], why: str
) -> None:
    assert counted(played(LISTED, LISTED, later))[1:] == [[(A, "b1", "b2")], []], why


def test_an_entry_ends_when_its_destination_is_silent_for_too_long() -> None:
    alone = {"b1": LISTED["b1"]}
    found = played(
        LISTED, *([alone] * 4), rounds={"warmup_rounds": 0, "max_report_age_s": 20.0, "quorum_ratio": 0.0}
    )
    assert [len(each) for each in counted(found)] == [0, 1, 0, 0, 0], (
        "b2 reported at 5 s, the third round ends at 30 s"
    )


def test_a_bundle_that_is_gone_counts_nowhere() -> None:
    """It was cut into two, so no broker lists it any more."""
    gone = {"b1": [B, C, D], "b2": [E, F]}
    assert counted(played(LISTED, LISTED, gone))[1:] == [[(A, "b1", "b2")], []]


def test_a_gap_in_the_reports_does_not_take_back_what_a_dry_run_has_moved() -> None:
    """What the fleet planner moves from b1 to b2 never really leaves b1, whose fifth report leaves everything out."""
    gap = {"b1": [], "b2": [E, F]}
    found = played(*([LISTED] * 4), gap, LISTED, shedding_policy="fleet-planner")
    moved = sorted(bundle for _, bundle, _, _ in moves(found))
    assert moved
    assert [[bundle for bundle, _, _ in each] for each in counted(found)][-3:] == [moved] * 3


@pytest.mark.parametrize(
    ("extra", "fourth"),
    [
        pytest.param([], "fired", id="it does not end"),
        pytest.param([overlay(16, mode="act")], "hit-count 1/2", id="the mode becomes act"),
        pytest.param(
            [overlay(16, settings={"pulsar": {"shadow": False}})], "hit-count 1/2", id="it is switched off"
        ),
        pytest.param([facts(35, shedding=["b2"])], "hit-count 1/2", id="another balancer is found shedding"),
    ],
)
def test_when_the_shadow_ends_memory_begins_anew_on_measured_figures(extra: list[Event], fourth: str) -> None:
    """Two hits are needed, and 25 points with the shadow are one hit: if the shadow ends in the fourth round, that hit is lost."""
    settings = {"high_threshold_points": 100.0, "low_hit_count": 2, "min_unload_messages_per_s": 1.0}
    found = played(*([LISTED] * 4), extra=extra, avg_shedder=settings)
    outcomes = [each["examined"]["heaviest"][0]["detail"] for each in found.summaries]
    assert outcomes == ["hit-count 1/2", "fired", "hit-count 1/2", fourth]
    assert [len(each) for each in counted(found)] == [0, 0, 1, 0 if extra else 1]


def test_memory_of_the_shadow_survives_a_restart_between_two_batches() -> None:
    whole = played(*([LISTED] * 4))
    assert played(*([LISTED] * 4), cut_at=5).outputs == whole.outputs


def test_a_destination_that_pulsar_chooses_leaves_no_entry() -> None:
    found = played(
        LISTED, LISTED, shedding_policy="overload-shedder", overload_shedder={"threshold_points": 50.0}
    )
    assert found.actions
    assert counted(found) == [[], []]


def unload(bundle: str, source: str, destination: str | None) -> Any:
    return SimpleNamespace(bundle=bundle, source_broker=source, destination_broker=destination)


def test_a_bundle_that_moves_on_keeps_its_real_owner_and_one_that_comes_back_has_no_entry() -> None:
    once = shadow.record({}, [unload(A, "b1", "b2"), unload(B, "b1", None)])
    assert once == {A: ("b1", "b2")}
    assert shadow.record(once, [unload(A, "b2", "b3")]) == {A: ("b1", "b3")}
    assert shadow.record(once, [unload(A, "b2", "b1")]) == {}


LIMITS = np.array([[100.0, 800.0, -1.0, -1.0, 500.0, -1.0, -1.0, -1.0], [100.0] + [-1.0] * 7])


def shadow_of(*moved: tuple[str, float, float]) -> Shadow:
    """Bundles of a that count elsewhere, each with messages/s and bytes/s that come in."""
    destinations, messages, volume = zip(*moved, strict=True)
    rates = np.column_stack([messages, np.zeros(len(moved)), volume, np.zeros(len(moved))])
    costs = plain_costs(LIMITS, cpu_per_message=0.5)
    costs.factor[1, CPU] = 2.0
    return Shadow(
        bundles=tuple(f"t/n/{number}" for number in range(len(moved))),
        rows=np.arange(len(moved)),
        owners=("a",) * len(moved),
        destinations=destinations,
        figures=figures_of(rates, np.full((len(moved), 2), 3)),
        costs=costs,
    )


@pytest.mark.parametrize(
    ("moved", "source", "destination"),
    [
        pytest.param(
            [("b", 40.0, 10_000.0)], [30.0, 20.0, 60.0, 40_000.0], [60.0, 50.0, 10_000.0],
            id="20 points of CPU, twice as much at the other broker, and 80 of 100 Kbit/s",
        ),
        pytest.param(
            [("gone", 40.0, 0.0)], [30.0, 100.0, 60.0, 50_000.0], [20.0, 10.0, 0.0],
            id="to a broker that is not here",
        ),
        pytest.param(
            [("b", 80.0, 9_000.0), ("b", 80.0, 9_000.0)], [0.0, 0.0, 0.0, 32_000.0], [180.0, 170.0, 18_000.0],
            id="averages that are more than there is leave nothing",
        ),
    ],
)  # fmt: skip
def test_each_resource_moves_by_what_the_bundle_takes_of_it_and_what_is_unmeasured_stays_so(
    moved: list[tuple[str, float, float]], source: list[float], destination: list[float]
) -> None:
    """A is at 50 of 100 of CPU and 100 Kbit/s in, with 100 messages/s and 50000 bytes/s; b at 20 of CPU with 10 and 0."""
    used = np.array(
        [
            [50.0, 100.0, -1.0, -1.0, 100.0, 50_000.0, -1.0, 7.0],
            [20.0, -1.0, -1.0, -1.0, 10.0, 0.0, -1.0, 7.0],
        ]
    )
    shadow_of(*moved).shift(("a", "b"), used, LIMITS)
    sessions = [7.0 - 3.0 * len(moved), 7.0 + 3.0 * sum(each[0] == "b" for each in moved)]
    np.testing.assert_allclose(used[0], [*source[:2], -1.0, -1.0, *source[2:], -1.0, sessions[0]])
    np.testing.assert_allclose(
        used[1], [destination[0], -1.0, -1.0, -1.0, *destination[1:], -1.0, sessions[1]]
    )
