"""A broker waits for its own unloads to show before it gives or receives again, and no longer than that."""

from collections.abc import Mapping

import pytest

from tests.state.pulsar.test_effects import BEFORE, MOVED, UNLOADING, after, reports
from tests.state.traces import Run, load, run, settings_of, sweep

ONE = {"bundle_cooldown_s": 0.0, "max_unloads_per_hour_count": 1}
"""The first action is the only one; the budget holds every other bundle that would move."""
WAITING = UNLOADING | {"guards": {"hold_unsettled_brokers": True, **ONE}}
BOTH = {"b1": MOVED["b1"] + BEFORE["b1"][:1], "b2": MOVED["b2"], "b3": []}


def held(found: Run) -> list[bool]:
    """For each round after the first, whether a bundle that would move waits for its broker."""
    return [bool(each["candidates"]["outcomes"].get("unsettled-broker")) for each in found.summaries[1:]]


@pytest.mark.parametrize(
    ("rounds", "waits"),
    [
        ([BEFORE, MOVED, MOVED], [True, True, False]),
        ([BOTH, BOTH, MOVED], [True, False, False]),
        ([BEFORE] * 5, [True, True, False, False, False]),
    ],
    ids=["until the round after it first shows", "though both list it for a while", "or has no effect"],
)
def test_after_a_success_a_broker_waits(rounds: list[Mapping[str, list[str]]], waits: list[bool]) -> None:
    assert held(after(rounds, pulsar=WAITING)) == waits


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_what_changed_nothing_holds_nobody(outcome: str) -> None:
    assert held(after([BEFORE, BEFORE], outcome=outcome, pulsar=WAITING)) == [False, False]


def test_without_a_result_it_waits_until_the_action_expires() -> None:
    seen = [event for number in range(25) for event in reports(10 * number + 5, BEFORE)]
    found = run([[*seen, sweep(256)]], settings_of(**WAITING))
    waits = held(found)
    assert waits[:17] == [True] * 17, "180 s after the end of its round"
    assert waits[17] is False


def test_it_is_off_by_default() -> None:
    pulsar = UNLOADING | {"guards": ONE}
    assert held(after([BEFORE, MOVED], pulsar=pulsar)) == [False, False]


def test_a_broker_that_waits_receives_nothing() -> None:
    """In round 1 b3 is the warm one; b1 and b2 are not done with the move of round 0."""
    new = {"t/n/0xc0000000_0xd0000000": 60.0, "t/n/0xd0000000_0xe0000000": 50.0}
    warm = load("b3", 15, cpu=90.0, bundles=new, rate=200.0)
    cold = [load(name, 15, cpu=10.0, bundles={}, rate=10.0) for name in ("b1", "b2")]
    found = run([[*reports(5, BEFORE), warm, *cold, sweep(26)]], settings_of(**WAITING))
    assert found.summaries[1]["candidates"]["outcomes"] == {"need-met": 1, "no-destination": 1}
