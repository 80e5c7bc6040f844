"""``keep_sole_bundle`` within a round and across rounds: a bundle that is on its way no longer counts as one of its broker's."""

from collections.abc import Mapping
from typing import Any

import pytest

from state.closing import Identity
from state.events import ActionResult, Event
from tests.state.traces import Run, load, overlay, run, settings_of

A, B, C = "t/n/0x00000000_0x10000000", "t/n/0x10000000_0x20000000", "t/n/0x20000000_0x30000000"
RATES = {A: 40.0, B: 30.0, C: 10.0}
SETTINGS: dict[str, Any] = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
}
BEFORE = {"b1": [A, B], "b2": [C]}
GONE = {"b1": [B], "b2": [A, C]}


def reports(number: int, listed: Mapping[str, list[str]], *, hot: str = "b1") -> list[Event]:
    """What brokers list in a round; the policy wants to move every bundle of the hot one."""
    return [
        load(
            name,
            10 * number + 5,
            cpu=90.0 if name == hot else 10.0,
            bundles={bundle: RATES[bundle] for bundle in bundles},
            rate=400.0 if name == hot else 10.0,
        )
        for name, bundles in listed.items()
    ]


def trace(*rounds: Mapping[str, list[str]], hot: str = "b1") -> list[Event]:
    return [
        event
        for number, listed in enumerate(rounds)
        for event in reports(number, listed, hot=hot if number else "b1")
    ]


def decided(
    events: list[Event], *, identity: Identity | None = None, **guards: object
) -> list[tuple[int, str]]:
    """Round and bundle of each unload."""
    found = outcome_of(events, identity=identity, **guards)
    return [(action["round"], action["bundle"]) for action in found.actions]


def outcome_of(events: list[Event], *, identity: Identity | None = None, **guards: object) -> Run:
    ordered = sorted(events, key=lambda event: event.age_key)
    return run(
        [ordered[:3], ordered[3:]],
        settings_of(**SETTINGS, guards=guards | {"ineffective_after_rounds": 2}),
        identity=identity,
    )


def result(outcome: str, *, time_s: float = 11.0) -> ActionResult:
    first = next(
        each for each in outcome_of(trace(BEFORE)).outputs if each.kind == "action" and each.subject == A
    )
    return ActionResult(id="r", time_ms=round(1000 * time_s), action_id=first.id, outcome=outcome)  # type: ignore[arg-type]


def test_a_bundle_that_its_old_broker_lists_again_before_anybody_else_did_is_still_on_its_way() -> None:
    assert decided([*trace(BEFORE, {"b1": [B], "b2": [C]}, BEFORE), result("succeeded", time_s=12)]) == [
        (0, A)
    ]


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_bundle_that_was_not_moved_is_company_again(outcome: str) -> None:
    found = decided([*trace(BEFORE, BEFORE), result(outcome)], bundle_cooldown_s=1000)
    assert found[0] == (0, A)
    assert [number for number, _ in found] == [0, 1], "one of the two may go"


def test_a_bundle_whose_action_had_no_effect_is_company_again() -> None:
    events = [*trace(BEFORE, BEFORE, BEFORE), result("succeeded")]
    assert decided(events) == [(0, A), (2, B)], "two rounds without effect are judged with the second"


def test_a_bundle_counts_at_its_new_owner_and_may_come_back() -> None:
    """The old unload is forgotten once the bundle was seen at another broker."""
    assert decided(trace(BEFORE, GONE, hot="b2")) == [(0, A), (1, C)]
    moved_back = trace(BEFORE, GONE, BEFORE)
    assert decided(moved_back)[-1] == (2, B)


def test_an_action_of_which_nothing_is_heard_holds_for_no_longer_than_a_result_could_come() -> None:
    silent = trace(*[BEFORE] * 24)
    found = decided(silent, bundle_cooldown_s=100_000)
    assert found[0] == (0, A)
    assert [bundle for _, bundle in found[1:]] == [B]
    assert found[1][0] == 21, "180 s of action_ttl_s and 25 s of max_report_age_s after the decision"


def test_what_a_dry_run_decided_counts_until_the_mode_becomes_act() -> None:
    dry = Identity(mode="dry-run")
    assert decided(trace(BEFORE, BEFORE), identity=dry) == [(0, A)]
    switched = [*trace(BEFORE, BEFORE, BEFORE), overlay(6, mode="act")]
    assert [number for number, _ in decided(switched, identity=dry)] == [0, 2]
