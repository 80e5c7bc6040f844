"""Unloads that empty a drained broker: in which order its bundles leave, where they go, and what keeps them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from policies.shedding.rules import Rules
from policies.shedding.view import Traffic
from state.closing import Hold
from state.events import LoadReport
from state.facts import Isolation
from state.ledger import Ledger, Verdict, end_watch
from state.outputs import LeftRow, Unload
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar import drain_records, drains
from state.pulsar.admission import After
from state.pulsar.drains import Drained
from state.pulsar.drains import decide as decide_drains
from state.pulsar.holds import Holds
from state.pulsar.memory import ShadowMoves
from tests.state.building import (
    END_MS,
    EXPIRES_AT,
    EXPIRES_MS,
    admission,
    decision,
    guarded,
    ledger_of,
    seen,
    spent,
    uneven,
)
from tests.state.traces import load

A, B, C, D = (f"t/{name}/0x0_0x1" for name in "abcd")
OF_B2, OF_B3 = "t/x/0x0_0x1", "t/y/0x0_0x1"
WINDOW = MaintenanceWindow(since=moment_at(0), who="ann", why="a new disk")

DRAINED = load("b1", 470, cpu=50.0, bundles={A: 50.0, B: 25.0, C: 25.0, D: 0.0})
"""It is at 50 points with 100 messages/s, so its bundles take 25, 12.5, 12.5 and, by its equal share, 12.5 points along."""
CLUSTER = (
    DRAINED,
    load("b2", 470, cpu=12.5, bundles={OF_B2: 5.0}),
    load("b3", 470, cpu=25.0, bundles={OF_B3: 10.0}),
)


@dataclass(kw_only=True)
class Emptied:
    """What a round does to empty its brokers, and what it leaves of the rules and the loads."""

    drained: Drained
    rules: Rules
    after: After

    @property
    def moves(self) -> list[tuple[str, str | None]]:
        return [(each.bundle, each.destination_broker) for each in self.drained.unloads]

    @property
    def outcomes(self) -> dict[str, str]:
        return {each.bundle: each.outcome for each in self.drained.left}

    @property
    def details(self) -> dict[str, str]:
        return {each.bundle: each.detail for each in self.drained.left}


def emptied(
    *reports: LoadReport,
    drains: Mapping[str, MaintenanceWindow] | None = None,
    namespaces: Collection[str] = (),
    ledger: Ledger | None = None,
    shadow: ShadowMoves | None = None,
    together: Collection[str] = (),
    isolation: Collection[Isolation] = (),
    drained_count: int = 0,
    holds: Holds | None = None,
    mode: str = "act",
    **guards: Any,
) -> Emptied:
    """A round that drains b1; ``together`` are namespaces of one anti-affinity group."""
    overlay = ControlData(
        drained_brokers=dict({"b1": WINDOW} if drains is None else drains),
        maintenance_namespaces=dict.fromkeys(namespaces, WINDOW),
    )
    found = seen(*(reports or CLUSTER), overlay=overlay, isolation=isolation, shadow=shadow, mode=mode)
    drain_records.begin(found.context)
    made = admission(
        found,
        holds=holds,
        header={"ledger": ledger or Ledger()},
        fields={"settings": guarded(**guards), "overlay": overlay, "expires_ms": EXPIRES_MS},
        groups={"spread": list(together)},
        hour_count=60,
        drained_count=drained_count,
        drained=overlay.drained_brokers,
        **guards,
    )
    return Emptied(drained=decide_drains(made), rules=made.rules, after=made.after)


def test_where_no_broker_is_drained_nothing_leaves() -> None:
    assert emptied(drains={}).drained == Drained()


def test_each_bundle_goes_to_the_broker_that_is_the_least_used_by_then() -> None:
    """A is half of b1's 50 points, and each of the others a quarter: five quarters, of which each takes four fifths along."""
    found = emptied()
    assert found.moves == [(A, "b2"), (B, "b3"), (C, "b2"), (D, "b3")]
    points = [each.evidence["destination_usage_points"] for each in found.drained.unloads]
    assert points == [12.5, 25.0, 32.5, 35.0]


WEIGHTS = {A: (10.0, 300.0), B: (20.0, 100.0), C: (10.0, 400.0), D: (10.0, 300.0)}


def test_the_heaviest_leaves_first_by_messages_then_by_bytes_then_by_name() -> None:
    found = emptied(uneven("b1", cpu=50.0, bundles=WEIGHTS, total=(50.0, 1100.0)), *CLUSTER[1:])
    assert [bundle for bundle, _ in found.moves] == [B, C, A, D]
    assert found.drained.left == [
        LeftRow(
            bundle=bundle,
            broker="b1",
            outcome="acted",
            detail="acted",
            messages_per_s=messages,
            bytes_per_s=volume,
        )
        for bundle, (messages, volume) in ((each, WEIGHTS[each]) for each in (B, C, A, D))
    ]


@pytest.mark.parametrize(
    ("heaviest", "total", "points"),
    [
        pytest.param((40.0, 40.0), (80.0, 800.0), 20.0, id="half of the messages, and three quarters"),
        pytest.param((40.0, 400.0), (800.0, 800.0), 20.0, id="half of the bytes, and three quarters"),
        pytest.param((40.0, 40.0), (320.0, 320.0), 12.5, id="an eighth: a quarter, as each of four bundles"),
        pytest.param((40.0, 40.0), (0.0, 0.0), 50.0 / 1.75, id="all, of a broker that reports no traffic"),
        pytest.param((40.0, 900.0), (20.0, 20.0), 50.0 / 1.75, id="no more than all"),
        pytest.param((0.0, 0.0), (20.0, 20.0), 12.5, id="an idle bundle: a quarter"),
    ],
)
def test_a_bundle_takes_its_share_along_no_less_than_an_equal_one_and_all_no_more_than_there_is(
    heaviest: tuple[float, float], total: tuple[float, float], points: float
) -> None:
    """b1 is at 50 points. b2 is at none before the first bundle comes."""
    bundles = {A: heaviest} | dict.fromkeys((B, C, D), (0.0, 0.0))
    found = emptied(uneven("b1", cpu=50.0, bundles=bundles, total=total), load("b2", 470, cpu=0.0))
    assert [each.evidence["destination_usage_points"] for each in found.drained.unloads][:2] == [
        0.0,
        pytest.approx(points),
    ]


def with_network(report: LoadReport, points: float) -> LoadReport:
    """The same from a broker that measures its network, too."""
    resources = report.report.resources.copy()
    resources[2] = points, 100.0
    return msgspec.structs.replace(report, report=replace(report.report, resources=resources))


@pytest.mark.parametrize(
    ("network_points", "destination"),
    [(55.0, "b2"), (99.0, "b2"), (100.0, "b3")],
    ids=["it is known how full it is", "it is not full yet", "it is full"],
)
def test_a_broker_that_lacks_what_the_drained_one_uses_receives_only_where_no_other_can(
    network_points: float, destination: str
) -> None:
    found = emptied(
        with_network(load("b1", 470, cpu=20.0, bundles={A: 1.0}), 60.0),
        with_network(load("b2", 470, cpu=20.0, bundles={OF_B2: 1.0}), network_points),
        load("b3", 470, cpu=10.0, bundles={OF_B3: 1.0}),
    )
    assert found.moves == [(A, destination)]
    (unload,) = found.drained.unloads
    assert ("of what it measures, which is less than b1 does" in unload.reason) == (destination == "b3")


def test_the_last_bundle_to_leave_says_that_pulsars_own_stay() -> None:
    own = ["pulsar/system/0x0_0x8", "pulsar/system/0x8_0xf"]
    found = emptied(load("b1", 470, bundles={A: 1.0}, system_bundles=own), *CLUSTER[1:])
    assert found.drained.unloads[0].reason.endswith("b1 has 0 bundles and 2 of Pulsar's own, which stay")


def unmeasured(report: LoadReport) -> LoadReport:
    nothing = np.full((4, 2), -1.0)
    return msgspec.structs.replace(report, report=replace(report.report, resources=nothing))


@pytest.mark.parametrize(
    ("others", "destination"),
    [
        ((unmeasured(load("b2", 470)), load("b3", 470, cpu=99.0)), "b3"),
        ((unmeasured(load("b2", 470)), unmeasured(load("b3", 470))), "b2"),
        ((load("b2", 470), load("b3", 470)), "b2"),
    ],
    ids=["one is not measured", "none is", "both idle"],
)
def test_a_broker_that_measures_nothing_does_not_count_as_idle(
    others: tuple[LoadReport, ...], destination: str
) -> None:
    (move,) = emptied(load("b1", 470, cpu=50.0, bundles={A: 10.0}), *others).moves
    assert move == (A, destination)


def test_a_bundle_stays_within_the_isolation_group_of_its_namespace() -> None:
    """b2 is the least used; A's group has only b3, B's has no broker, and C and D are free."""
    found = emptied(isolation=[Isolation("blue", ["t/a"], ["b3"]), Isolation("red", ["t/b"], ["b9"])])
    assert found.moves == [(A, "b3"), (C, "b2"), (D, "b2")]
    assert found.outcomes[B] == "no-destination"
    assert found.details[B] == "no broker of the isolation group of t/b may receive a bundle"
    numbers = [
        (each.evidence["brokers_count"], each.evidence["mean_usage_points"]) for each in found.drained.unloads
    ]
    assert numbers == [(1, 25.0), (1, 12.5), (1, 12.5)]


def test_a_bundle_passes_by_a_broker_where_it_would_gather_its_anti_affinity_group() -> None:
    """b2 is the least used and has a bundle of t/x."""
    assert emptied(together=("t/a", "t/x")).moves[0] == (A, "b3")


def test_a_bundle_that_would_gather_its_anti_affinity_group_everywhere_stays_and_the_others_go() -> None:
    found = emptied(DRAINED, CLUSTER[1], together=("t/a", "t/x"))
    assert found.outcomes == {A: "anti-affinity", B: "acted", C: "acted", D: "acted"}
    assert found.details[A] == "b2 owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0"
    assert [bundle for bundle, _ in found.moves] == [B, C, D]


def test_of_several_brokers_that_would_gather_a_group_the_least_used_one_is_named() -> None:
    found = emptied(together=("t/a", "t/x", "t/y"))
    assert found.details[A].startswith("b2 owns bundles of 1 other")


def test_what_else_of_the_group_is_at_the_drained_broker_counts_there() -> None:
    """b2 has one other namespace of the group, and so has b1, beside A."""
    assert emptied(together=("t/a", "t/b", "t/x")).moves[0] == (A, "b2")


@pytest.mark.parametrize(("together", "destination"), [(("t/a", "t/b"), "b4"), ((), "b3")])
def test_a_bundle_that_leaves_counts_in_its_anti_affinity_group_where_it_goes(
    together: tuple[str, ...], destination: str
) -> None:
    """A goes from b1 to b3, which stays the least used; B of b2 goes there only if it is not of the same group."""
    reports = (load("b1", 470, bundles={A: 50.0}), load("b2", 470, bundles={B: 25.0}))
    idle = (load("b3", 470, cpu=0.0), load("b4", 470, cpu=99.0))
    found = emptied(*reports, *idle, drains={"b1": WINDOW, "b2": WINDOW}, together=together)
    assert found.moves == [(A, "b3"), (B, destination)]


def test_an_unload_says_who_drains_and_what_is_left_and_expected() -> None:
    """The brokers that take part are at 12.5 and 25 points."""
    first = emptied().drained.unloads[0]
    assert first == Unload(
        cluster="east-1",
        round=7,
        policy="drain",
        trigger="drain",
        reason=f"b1 is drained by ann (a new disk): moving {A} (50 messages/s, 500 bytes/s) to b2, at 12.5 %; after that "
        "b1 has 3 bundles",
        evidence={
            "bundle_messages_per_s": 50.0,
            "bundle_bytes_per_s": 500.0,
            "bundles_left_count": 3,
            "brokers_count": 2,
            "mean_usage_points": 18.75,
            "destination_usage_points": 12.5,
        },
        expected={
            "source": {"messages_per_s": 50.0, "bytes_per_s": 500.0},
            "destination": {"messages_per_s": 55.0, "bytes_per_s": 550.0},
        },
        precondition={"owner": "b1", "range": "0x0_0x1"},
        expires_at=EXPIRES_AT,
        dry_run=False,
        bundle=A,
        source_broker="b1",
        destination_broker="b2",
    )


def test_a_drain_of_which_nobody_said_who_and_why_says_so() -> None:
    (first, *_) = emptied(drains={"b1": MaintenanceWindow(since=moment_at(0))}).drained.unloads
    assert first.reason.startswith(f"b1 is drained by somebody (no reason given): moving {A} (")


def test_each_unload_expects_the_loads_that_those_before_it_leave() -> None:
    """b1 reports 60 messages/s, less than its bundles have by their averages: no load falls below nothing."""
    report = load("b1", 470, cpu=50.0, bundles={A: 50.0, B: 25.0, C: 25.0}, rate=60.0)
    found = emptied(report, *CLUSTER[1:2])
    rates = [
        [each.expected[side]["messages_per_s"] for side in ("source", "destination")]
        for each in found.drained.unloads
    ]
    assert rates == [[10.0, 55.0], [0.0, 80.0], [0.0, 105.0]]
    volume = [each.expected["source"]["bytes_per_s"] for each in found.drained.unloads]
    assert volume == [100.0, 0.0, 0.0]
    assert [each.evidence["bundles_left_count"] for each in found.drained.unloads] == [2, 1, 0]
    left = found.after.move("b2", None, Traffic(0.0, 0.0))["source"]
    assert left == {"messages_per_s": 105.0, "bytes_per_s": 1050.0}


def test_several_brokers_are_emptied_one_after_the_other_and_none_into_another() -> None:
    found = emptied(drains={"b1": WINDOW, "b2": WINDOW})
    assert [(each.source_broker, each.bundle) for each in found.drained.unloads] == [
        *(("b1", bundle) for bundle in (A, B, C, D)),
        ("b2", OF_B2),
    ]
    assert {to for _, to in found.moves} == {"b3"}
    assert [each.broker for each in found.drained.left] == ["b1"] * 4 + ["b2"]


def test_of_a_drained_broker_that_did_not_report_nothing_is_known() -> None:
    assert emptied(*CLUSTER[1:]).drained == Drained()


PAUSED = Hold("paused", "the cluster is paused")


def ineffective() -> Ledger:
    done = decision(bundle=A, result="succeeded")
    end_watch(done, Verdict("ineffective", END_MS - 1, "b1", 3))
    return ledger_of(done)


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"ledger": ledger_of(decision(bundle=A, expires_ms=END_MS + 1))}, "in-flight"),
        ({"ledger": ineffective()}, "ineffective"),
        ({"excluded_namespaces": ("t/a",)}, "excluded-namespace"),
        ({"namespaces": ("t/a",)}, "maintenance"),
        ({"ledger": ledger_of(decision(bundle=A, result="skipped", decided_ms=END_MS - 1))}, "acted"),
        ({"max_unloads_per_hour_count": 1, "min_unload_benefit_points": 100.0}, "acted"),
    ],
    ids=["in flight", "without effect", "excluded", "under maintenance", "cooldown", "guards of policies"],
)
def test_a_bundle_is_kept_by_its_own_actions_and_its_namespace_only(
    options: dict[str, Any], outcome: str
) -> None:
    found = emptied(**options)
    assert found.outcomes == {A: outcome, B: "acted", C: "acted", D: "acted"}
    assert found.details[A] == outcome
    assert set(found.outcomes.values()) <= set(drains.OUTCOMES)


def test_also_the_last_bundle_leaves() -> None:
    found = emptied(load("b1", 470, bundles={A: 1.0}), *CLUSTER[1:])
    assert found.moves == [(A, "b2")]
    assert found.drained.unloads[0].evidence["bundles_left_count"] == 0


@pytest.mark.parametrize(
    ("options", "gone", "detail"),
    [
        ({"max_drain_unloads_per_hour_count": 2}, [A, B], "max_drain_unloads_per_hour_count 2 is spent"),
        (
            {"max_drain_unloads_per_hour_count": 9, "drained_count": 8},
            [A],
            "max_drain_unloads_per_hour_count 9 is spent",
        ),
        ({"max_unloads_per_round_count": 3}, [A, B, C], "max_unloads_per_round_count 3 is spent"),
        ({"max_unloads_per_broker_count": 1}, [A], "max_unloads_per_broker_count 1 is spent"),
        ({"max_drain_unloads_per_hour_count": 0}, [A, B, C, D], None),
    ],
    ids=["of an hour", "with what the hour had", "of a round", "of a broker", "off"],
)
def test_the_heaviest_bundles_spend_the_budgets_and_the_others_wait(
    options: dict[str, Any], gone: list[str], detail: str | None
) -> None:
    found = emptied(**options)
    assert [bundle for bundle, _ in found.moves] == gone
    kept = [each for each in found.drained.left if each.bundle not in gone]
    assert [(each.outcome, each.detail) for each in kept] == [("budget", detail)] * (4 - len(gone))


def test_a_drain_spends_its_own_hourly_budget_and_not_that_of_the_policy() -> None:
    found = emptied(drained_count=5)
    assert spent(found.rules) == {"drain_unloads_per_hour": 9, "unloads_per_hour": 60, "unloads_per_round": 4}


def test_a_bundle_without_a_destination_spends_nothing() -> None:
    found = emptied(CLUSTER[0], max_drain_unloads_per_hour_count=1)
    assert set(found.outcomes.values()) == {"no-destination"}
    assert set(found.details.values()) == {
        "no broker may receive a bundle: each is drained, under maintenance or without a report"
    }
    assert spent(found.rules)["drain_unloads_per_hour"] == 0


def test_two_drained_brokers_share_the_budget_and_the_first_named_goes_first() -> None:
    drains = {"b2": WINDOW, "b1": WINDOW}
    found = emptied(drains=drains, max_drain_unloads_per_hour_count=2)
    assert [each.source_broker for each in found.drained.unloads] == ["b2", "b1"]


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        ({}, ["paused"] * 4),
        ({"namespaces": ("t/a",)}, ["maintenance", *["paused"] * 3]),
        ({"max_drain_unloads_per_hour_count": 1, "drained_count": 1}, ["paused"] * 4),
    ],
    ids=["the pause", "a namespace comes before it", "a budget after it"],
)
def test_what_holds_the_round_holds_its_drains(options: dict[str, Any], outcomes: list[str]) -> None:
    found = emptied(holds=Holds(unload=PAUSED, split=None), **options)
    assert [found.outcomes[each] for each in (A, B, C, D)] == outcomes
    assert found.details[B] == "the cluster is paused"
    assert found.moves == []


FLYING = ledger_of(decision(bundle=A, expires_ms=END_MS + 1, dry_run=True, is_watched=False))
"""A dry-run has just shown an unload of A."""
SHOWN = ledger_of(decision(bundle=A, expires_ms=END_MS - 1, dry_run=True, is_watched=False))
"""A dry-run showed an unload of A long enough ago for it to have expired, and within the cooldown."""


@pytest.mark.parametrize(
    ("options", "outcome", "detail"),
    [
        ({"ledger": SHOWN}, "cooldown", "cooldown: the dry-run has shown it"),
        ({"shadow": {A: ("b1", "b3")}}, "dry-run", "the dry-run has moved it to b3"),
        ({"ledger": SHOWN, "shadow": {A: ("b1", "b3")}}, "dry-run", "the dry-run has moved it to b3"),
        ({"ledger": SHOWN, "bundle_cooldown_s": 0.0}, "acted", "acted"),
    ],
    ids=["rests", "counts elsewhere", "both", "without a cooldown"],
)
def test_a_dry_run_shows_each_unload_once(options: dict[str, Any], outcome: str, detail: str) -> None:
    found = emptied(mode="dry-run", **options)
    assert (found.outcomes[A], found.details[A]) == (outcome, detail)
    assert [found.outcomes[each] for each in (B, C, D)] == ["acted"] * 3
    assert all(each.dry_run for each in found.drained.unloads)
    acting = emptied(**options)
    assert acting.outcomes[A] == "acted", "what only a dry-run did keeps nothing from leaving"


def test_a_dry_run_shows_unloads_that_were_decided_while_it_acted() -> None:
    """An executor skipped the unload of A, which rests by the rules of policies and not by those of drains."""
    acted = decision(bundle=A, result="skipped", decided_ms=END_MS - 1)
    assert emptied(mode="dry-run", ledger=ledger_of(acted)).outcomes[A] == "acted"


def test_what_a_dry_run_has_only_pretended_is_not_called_in_flight() -> None:
    found = emptied(mode="dry-run", ledger=FLYING, shadow={A: ("b1", "b3")})
    assert (found.outcomes[A], found.details[A]) == ("dry-run", "the dry-run has moved it to b3")


def test_what_a_dry_run_has_shown_is_said_before_what_holds_the_round() -> None:
    held = Holds(unload=PAUSED, split=None)
    found = emptied(
        mode="dry-run",
        holds=held,
        shadow={A: ("b1", "b3")},
        drains={"b1": MaintenanceWindow(since=moment_at(0))},
    )
    assert (found.outcomes[A], found.outcomes[B]) == ("dry-run", "paused")
