"""What keeps a bundle at its drained broker for now, and what does not."""

from typing import Any

import pytest

from state.closing import Hold
from state.ledger import Ledger, Verdict, end_watch
from state.pulsar import drains
from state.pulsar.holds import Holds
from state.upkeep import Spell
from tests.state.building import END_MS, spent
from tests.state.engine.test_ledger import decision, ledger_of
from tests.state.pulsar.test_drain import CLUSTER, SPELL, A, B, C, D, emptied
from tests.state.traces import load

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
    assert spent(found.rules)["drain_unloads_per_hour"] == 0


def test_two_drained_brokers_share_the_budget_and_the_first_named_goes_first() -> None:
    drains = {"b2": SPELL, "b1": SPELL}
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
    found = emptied(shared={"holds": Holds(unload=PAUSED, split=None)}, **options)
    assert [found.outcomes[each] for each in (A, B, C, D)] == outcomes
    assert found.details[B] == "the cluster is paused"
    assert found.moves == []


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
    found = emptied(shared={"dry_run": True}, **options)
    assert (found.outcomes[A], found.details[A]) == (outcome, detail)
    assert [found.outcomes[each] for each in (B, C, D)] == ["acted"] * 3
    assert all(each.dry_run for each in found.drained.unloads)
    acting = emptied(shared={"dry_run": False}, **options)
    assert acting.outcomes[A] == "acted", "what only a dry-run did keeps nothing from leaving"


def test_what_a_dry_run_has_shown_is_said_before_what_holds_the_round() -> None:
    shared = {"dry_run": True, "holds": Holds(unload=PAUSED, split=None)}
    found = emptied(shared=shared, shadow={A: ("b1", "b3")}, drains={"b1": Spell(0)})
    assert (found.outcomes[A], found.outcomes[B]) == ("dry-run", "paused")
