"""What becomes of a throttle decision: carried out, taken back and tried again later, or still on its way."""

from dataclasses import replace

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_plan import PacingMemory, ThrottleDecision
from policies.throttle.rates import BrokerRole
from state.kafka import pursuit
from state.kafka.memory import KafkaMemory
from tests.state.kafka.test_drift import F3, L1, L2, OURS, RATES, seen_of

EXPIRES_MS = 100_000
NOTHING = PacingMemory()
IN_FORCE = PacingMemory(begun_ms=0, added=OURS, leader_rates={1: 24, 2: 24}, follower_rates={3: 24})
FIRST = ThrottleDecision(trigger="first-throttle", add=OURS, set_rates=RATES)


def decided(decision: ThrottleDecision = FIRST, *, before: PacingMemory = NOTHING) -> KafkaMemory:
    """A decision on its way."""
    memory = KafkaMemory(pacing=before)
    pursuit.remember_pending(memory, decision, action_id="a", expires_ms=EXPIRES_MS)
    memory.pacing = IN_FORCE
    return memory


def test_a_result_that_says_so_ends_it_and_forgets_what_failed_before() -> None:
    memory = decided()
    memory.failures_count, memory.retry_ms = 3, 5
    pursuit.apply_result(memory, "a", "succeeded", at_ms=1)
    assert (memory.pending, memory.failures_count, memory.retry_ms) == (None, 0, 0)
    assert memory.pacing == IN_FORCE


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_decision_that_was_not_carried_out_is_taken_back_and_its_entries_stay_known_as_ours(
    outcome: str,
) -> None:
    memory = decided()
    pursuit.apply_result(memory, "a", outcome, at_ms=1_000)
    assert (memory.pending, memory.pacing, memory.attempted) == (None, NOTHING, OURS)
    assert (memory.failures_count, memory.retry_ms) == (1, 1_000 + pursuit.RETRY_MS)


def test_after_each_failure_in_a_row_the_next_attempt_waits_twice_as_long_up_to_ten_minutes() -> None:
    memory, waits_ms = KafkaMemory(), []
    for _ in range(9):
        pursuit.remember_pending(memory, FIRST, action_id="a", expires_ms=EXPIRES_MS)
        pursuit.apply_result(memory, "a", "failed", at_ms=1_000)
        waits_ms.append(memory.retry_ms - 1_000)
    assert waits_ms == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000, 600_000]


@pytest.mark.parametrize("action_id", ["b", ""])
def test_a_result_of_another_action_says_nothing(action_id: str) -> None:
    memory = decided()
    pursuit.apply_result(memory, action_id, "failed", at_ms=1)
    assert memory.pending is not None
    pursuit.apply_result(KafkaMemory(), "a", "failed", at_ms=1)


def test_what_the_cluster_shows_whole_is_carried_out_without_a_result() -> None:
    memory = decided()
    pursuit.settle_pending(memory, seen_of(), end_ms=1)
    assert (memory.pending, memory.pacing) == (None, IN_FORCE)


@pytest.mark.parametrize(
    "observation",
    [
        pytest.param(seen_of(rates={**RATES, L1: 23}), id="another rate"),
        pytest.param(seen_of(rates={L1: 24, L2: 24}), id="a rate is missing"),
        pytest.param(seen_of(rates={}), id="no rate"),
        pytest.param(seen_of(lists=replace(OURS, leader={"t": "0:1"})), id="an entry is missing"),
        pytest.param(seen_of(lists=replace(OURS, follower={})), id="a list is missing"),
        pytest.param(replace(seen_of(), moves=None), id="nobody said what moves"),
        pytest.param(replace(seen_of(), brokers=frozenset()), id="no broker reported"),
    ],
)
def test_what_the_cluster_shows_in_part_is_on_its_way_until_it_expires(observation: object) -> None:
    memory = decided()
    pursuit.settle_pending(memory, observation, end_ms=EXPIRES_MS - 1)  # type: ignore[arg-type]
    assert memory.pending is not None
    pursuit.settle_pending(memory, observation, end_ms=EXPIRES_MS)  # type: ignore[arg-type]
    assert (memory.pending, memory.pacing, memory.failures_count) == (None, NOTHING, 1)


def test_brokers_that_did_not_report_are_no_reason_to_doubt() -> None:
    memory = decided()
    pursuit.settle_pending(memory, replace(seen_of(rates={L1: 24}), brokers=frozenset({1})), end_ms=1)
    assert memory.pending is None


def test_a_whole_topic_that_is_throttled_has_our_entries() -> None:
    memory = decided()
    everything = ThrottledLists(leader={"t": " * "}, follower={"t": "*"})
    pursuit.settle_pending(memory, seen_of(lists=everything), end_ms=1)
    assert memory.pending is None


FINISHED = ThrottleDecision(trigger="finished", remove=OURS, clear_rates=(L1, L2, F3))


@pytest.mark.parametrize(
    ("rates", "is_carried_out"),
    [
        ({}, True),
        ({L1: 24}, False),
        ({L1: 25}, True),
        ({BrokerRole("leader", 9): 24}, True),
    ],
    ids=["all are gone", "one of ours is there", "somebody set another", "of another broker"],
)
def test_rates_that_were_taken_off_are_gone(*, rates: dict[BrokerRole, int], is_carried_out: bool) -> None:
    memory = decided(FINISHED, before=IN_FORCE)
    pursuit.settle_pending(memory, seen_of(lists=ThrottledLists(), rates=rates), end_ms=1)
    assert (memory.pending is None) == is_carried_out


def test_a_decision_on_top_of_an_unknown_one_goes_back_to_what_was_before_both() -> None:
    memory = decided()
    more = ThrottleDecision(
        trigger="moves-joined", add=ThrottledLists(leader={"t": "1:1"}), set_rates={**RATES, L1: 50}
    )
    pursuit.remember_pending(memory, more, action_id="b", expires_ms=2 * EXPIRES_MS)
    assert memory.pending is not None
    assert memory.pending.added == ThrottledLists(leader={"t": "0:1,0:2,1:1"}, follower={"t": "0:3"})
    assert memory.pending.leader_rates == {1: 50, 2: 24}
    assert memory.pending.follower_rates == {3: 24}
    pursuit.apply_result(memory, "b", "failed", at_ms=1)
    assert memory.pacing == NOTHING


def test_in_a_dry_run_what_is_taken_back_is_what_is_really_in_force() -> None:
    memory = decided(before=IN_FORCE)
    shown = PacingMemory(begun_ms=7)
    memory.pacing, memory.real = shown, PacingMemory(begun_ms=8)
    pursuit.apply_result(memory, "a", "failed", at_ms=1)
    assert (memory.pacing, memory.real) == (shown, IN_FORCE)


def test_what_may_be_there_because_of_us_is_nobody_elses() -> None:
    memory = decided()
    strangers = ThrottledLists(leader={"t": "0:1,0:2,7:9"}, follower={"t": "0:3", "u": "1:1"})
    memory.pacing = NOTHING
    memory.attempted = ThrottledLists(leader={"t": "0:1"})
    assert pursuit.foreign_lists(seen_of(lists=strangers), memory) == ThrottledLists(
        leader={"t": "0:2,7:9"}, follower={"t": "0:3", "u": "1:1"}
    ), "entries of the pending decision's predecessor and of failed ones are ours"
    memory.real = IN_FORCE
    assert pursuit.foreign_lists(seen_of(lists=strangers), memory) == ThrottledLists(
        leader={"t": "7:9"}, follower={"t": "", "u": "1:1"}
    )


def test_rates_that_may_be_there_because_of_us() -> None:
    memory = decided(before=PacingMemory(begun_ms=0, leader_rates={1: 10, 5: 11}))
    memory.pacing = PacingMemory(begun_ms=0, leader_rates={1: 12})
    memory.real = PacingMemory(begun_ms=0, follower_rates={3: 13})
    assert pursuit.own_rates(memory) == {L1: 12, BrokerRole("leader", 5): 11, F3: 13}
