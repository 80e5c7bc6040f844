"""What is decided when somebody took off throttles that are still needed."""

from dataclasses import replace

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing import decide
from policies.throttle.pacing_round import PacingMemory, PacingSnapshot, ThrottleDecision
from policies.throttle.rates import BrokerRole, Caps, ThrottleSettings
from tests.policies.throttle.moving import GB, MB, Partition, moves_of

MOVE = Partition("t-0", [1, 2], [2, 3], 4 * MB, 10 * GB)
L1, L2, F3 = BrokerRole("leader", 1), BrokerRole("leader", 2), BrokerRole("follower", 3)
GONE = ThrottledLists(follower={"t": "0:3"})
SETTINGS = ThrottleSettings()


def begun() -> PacingMemory:
    _, memory, _ = decide(PacingSnapshot(now_ms=0, moves=moves_of(MOVE)), PacingMemory(), SETTINGS)
    return memory


def round_of(move: Partition = MOVE, **more: object) -> PacingSnapshot:
    """A round a moment later, long before the minimum interval between two changes is over."""
    lists = ThrottledLists(leader={"t": "0:1,0:2"})
    return replace(PacingSnapshot(now_ms=10_000, moves=moves_of(move), lists=lists), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("move", [MOVE, replace(MOVE, writes=None)], ids=["known", "traffic-unknown"])
def test_entries_that_are_gone_are_added_again_at_once_at_the_rates_in_force(move: Partition) -> None:
    memory = begun()
    decision, after, _ = decide(round_of(move, lost=GONE), memory, SETTINGS)
    assert decision == ThrottleDecision(
        trigger="throttle-lost", add=GONE, set_rates=dict.fromkeys([L1, L2, F3], 9_600_000)
    )
    assert after.added == memory.added


@pytest.mark.parametrize("move", [MOVE, replace(MOVE, writes=None)], ids=["known", "traffic-unknown"])
def test_a_rate_that_is_gone_is_set_again_at_once(move: Partition) -> None:
    memory = begun()
    decision, after, _ = decide(round_of(move, is_rate_lost=True), memory, SETTINGS)
    assert decision == ThrottleDecision(
        trigger="throttle-lost", set_rates=dict.fromkeys([L1, L2, F3], 9_600_000)
    )
    assert after.rates() == memory.rates()


def test_it_is_set_again_even_where_the_network_leaves_too_little() -> None:
    memory = begun()
    narrow = Caps(default_bytes_per_s=MB)
    decision, _, explanation = decide(round_of(lost=GONE, caps=narrow), memory, SETTINGS)
    assert decision is not None
    assert (decision.trigger, decision.add) == ("throttle-lost", GONE)
    assert explanation.outcome == "decided"


def test_a_rate_that_somebody_gave_to_one_broker_is_kept_and_given_to_no_other() -> None:
    memory = replace(begun(), leader_rates={1: 50 * MB, 2: 9_600_000})
    decision, _, _ = decide(round_of(lost=GONE), memory, SETTINGS)
    assert decision is not None
    assert decision.set_rates == {L1: 50 * MB, L2: 9_600_000, F3: 9_600_000}


def test_a_rate_that_somebody_set_too_low_is_raised_at_once() -> None:
    memory = replace(begun(), leader_rates={1: 8 * MB, 2: 9_600_000})
    decision, _, _ = decide(round_of(), memory, SETTINGS)
    assert decision is not None
    assert (decision.trigger, decision.set_rates[L1]) == ("minimum-rose", 9_600_000)
