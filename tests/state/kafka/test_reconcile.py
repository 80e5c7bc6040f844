"""What is remembered of a throttle and compared with the cluster, and what others changed in it."""

from dataclasses import replace

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingMemory, ThrottleDecision
from policies.throttle.progress import Sample, Watch
from policies.throttle.rates import BrokerRole
from policies.throttle.roles import by_role
from state.kafka import reconcile
from state.kafka.memory import Asked, KafkaMemory, ThrottleConfigs
from state.kafka.reconcile import NO_DRIFT, Drift
from state.kafka.snapshot import Observation
from state.kafka.system import Kafka
from state.layouts import seal
from state.systems import decode_memory
from tests.policies.throttle.moving import Partition, copies_of
from tests.state.kafka.reporting import CONFIRMED, F3, IN_FORCE, L1, L2, OURS, RATES, memory_of, seen_of

EXPIRES_MS = 100_000
WATCHED = Watch(begun_ms=5, samples=(Sample(5, {}),))
NOTHING = PacingMemory()
NO_CONFIGS = ThrottleConfigs()
FIRST = ThrottleDecision(trigger="first-throttle", add=OURS, set_rates=RATES)
FINISHED = ThrottleDecision(trigger="finished", remove=OURS, clear_rates=(L1, L2, F3))
UNSEEN = seen_of(lists=ThrottledLists(), rates={})
NOTHING_MOVES = replace(UNSEEN, copies=copies_of())
ANOTHER_MOVES = replace(UNSEEN, copies=copies_of(Partition("u-0", [1, 2], [2, 3], 10, 100)))


def decided(
    decision: ThrottleDecision = FIRST, after: PacingMemory = IN_FORCE, **before: object
) -> KafkaMemory:
    """A decision on its way."""
    memory = KafkaMemory()
    for name, value in before.items():
        setattr(memory, name, value)
    reconcile.remember_asked(memory, decision, after, action_id="a", expires_ms=EXPIRES_MS)
    memory.pacing = after
    return memory


def observe(
    memory: KafkaMemory, observation: Observation, *, end_ms: int = 1, is_acting: bool = True
) -> None:
    reconcile.reconcile(memory, observation, end_ms=end_ms, is_acting=is_acting)


@pytest.mark.parametrize(("confirmed", "watch"), [(NO_CONFIGS, Watch()), (CONFIRMED, WATCHED)])
def test_progress_is_observed_anew_once_new_rates_are_in_force(
    confirmed: ThrottleConfigs, watch: Watch
) -> None:
    memory = decided(after=replace(IN_FORCE, watch=WATCHED), confirmed=confirmed)
    reconcile.apply_result(memory, "a", "succeeded", at_ms=1)
    assert memory.pacing.watch == watch


def test_rates_that_are_on_their_way_or_only_pretended_hold_nothing_back_yet() -> None:
    memory = decided()
    assert reconcile.rates_in_force(memory) == {}
    reconcile.apply_result(memory, "a", "succeeded", at_ms=1)
    assert reconcile.rates_in_force(memory) == RATES
    memory.is_shadow = True
    assert reconcile.rates_in_force(memory) == {}


def test_a_result_that_says_so_confirms_it_and_forgets_what_failed_before() -> None:
    memory = decided(
        failures_count=3, retry_ms=5, attempted=ThrottleConfigs(OURS, {BrokerRole("leader", 9): 9})
    )
    reconcile.apply_result(memory, "a", "succeeded", at_ms=1)
    assert (memory.asked, memory.failures_count, memory.retry_ms) == (None, 0, 0)
    assert (memory.confirmed, memory.attempted) == (CONFIRMED, NO_CONFIGS)
    observe(memory, seen_of())
    assert memory.pacing == IN_FORCE


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_decision_that_was_not_carried_out_is_tried_again_later_and_what_it_set_stays_ours(
    outcome: str,
) -> None:
    memory = decided()
    reconcile.apply_result(memory, "a", outcome, at_ms=1_000)
    assert (memory.asked, memory.confirmed, memory.attempted) == (None, NO_CONFIGS, CONFIRMED)
    assert (memory.failures_count, memory.retry_ms) == (1, 1_000 + reconcile.RETRY_MS)
    observe(memory, UNSEEN)
    assert memory.pacing == NOTHING


def test_after_each_failure_in_a_row_the_next_attempt_waits_twice_as_long_up_to_ten_minutes() -> None:
    memory, waits_ms = KafkaMemory(), []
    for _ in range(9):
        reconcile.remember_asked(memory, FIRST, IN_FORCE, action_id="a", expires_ms=EXPIRES_MS)
        reconcile.apply_result(memory, "a", "failed", at_ms=1_000)
        waits_ms.append(memory.retry_ms - 1_000)
    assert waits_ms == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000, 600_000]


@pytest.mark.parametrize("action_id", ["b", ""])
def test_a_result_of_another_action_says_nothing(action_id: str) -> None:
    memory = decided()
    reconcile.apply_result(memory, action_id, "failed", at_ms=1)
    assert memory.asked is not None
    reconcile.apply_result(KafkaMemory(), "a", "failed", at_ms=1)


def test_what_the_cluster_shows_whole_is_carried_out_without_a_result() -> None:
    memory = decided()
    observe(memory, seen_of())
    assert (memory.asked, memory.pacing, memory.confirmed) == (None, IN_FORCE, CONFIRMED)


@pytest.mark.parametrize(
    "observation",
    [
        pytest.param(seen_of(rates={**RATES, L1: 23}), id="another rate"),
        pytest.param(seen_of(rates={L1: 24, L2: 24}), id="a rate is missing"),
        pytest.param(seen_of(rates={}), id="no rate"),
        pytest.param(seen_of(lists=replace(OURS, leader={"t": "0:1"})), id="an entry is missing"),
        pytest.param(seen_of(lists=replace(OURS, follower={})), id="a list is missing"),
        pytest.param(replace(seen_of(), copies=None), id="nobody said what moves"),
        pytest.param(replace(seen_of(), brokers=frozenset()), id="no broker reported"),
    ],
)
def test_what_the_cluster_shows_in_part_is_on_its_way_until_it_expires(observation: Observation) -> None:
    memory = decided()
    observe(memory, observation, end_ms=EXPIRES_MS - 1)
    assert (memory.asked is None, memory.pacing) == (False, IN_FORCE)
    observe(memory, observation, end_ms=EXPIRES_MS)
    assert (memory.asked, memory.failures_count) == (None, 1)


def test_brokers_that_did_not_report_are_no_reason_to_doubt() -> None:
    memory = decided()
    observe(memory, replace(seen_of(rates={L1: 24}), brokers=frozenset({1})))
    assert memory.asked is None


def test_a_whole_topic_that_is_throttled_has_our_entries() -> None:
    memory = decided()
    observe(memory, seen_of(lists=ThrottledLists(leader={"t": " * "}, follower={"t": "*"})))
    assert memory.asked is None


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
    memory = decided(FINISHED, NOTHING, confirmed=CONFIRMED)
    observe(memory, seen_of(lists=ThrottledLists(), rates=rates))
    assert (memory.asked is None) == is_carried_out


LEFT = ThrottledLists(leader={"t": "0:1,0:2,1:1", "u": "0:1"}, follower={"t": "0:3"})


@pytest.mark.parametrize(
    ("lists", "confirmed", "is_carried_out"),
    [
        (OURS, replace(LEFT, leader={"t": "0:1,0:2,1:1"}), True),
        (replace(OURS, leader={"t": "0:1,0:2,1:1"}), LEFT, False),
        (replace(OURS, leader={"t": "*"}), replace(LEFT, leader={"t": "0:1,0:2,1:1"}), True),
        (OURS, LEFT, False),
    ],
    ids=[
        "the entry is gone",
        "it is there",
        "everything is throttled",
        "u does not move: nobody tells its list",
    ],
)
def test_entries_that_were_to_be_removed_are_gone(
    *, lists: ThrottledLists, confirmed: ThrottledLists, is_carried_out: bool
) -> None:
    left = ThrottleDecision(trigger="moves-left", remove=ThrottledLists(leader={"t": "1:1"}), set_rates=RATES)
    memory = decided(left, confirmed=ThrottleConfigs(confirmed, RATES))
    observe(memory, seen_of(lists=lists))
    assert (memory.asked is None) == is_carried_out


def test_a_rate_of_before_an_unanswered_change_is_ours_too() -> None:
    memory = decided(FINISHED, NOTHING, confirmed=CONFIRMED, attempted=ThrottleConfigs(rates={L1: 50}))
    for rates in ({L1: 24}, {L1: 50}):
        observe(memory, replace(NOTHING_MOVES, rates_there=rates))
        assert memory.asked is not None
    observe(memory, NOTHING_MOVES)
    assert memory.asked is None


def test_a_decision_on_top_of_an_unknown_one_goes_on_from_what_was_confirmed_before_both() -> None:
    memory = decided(confirmed=ThrottleConfigs(OURS, {L1: 20}))
    more = ThrottleDecision(
        trigger="moves-joined", add=ThrottledLists(leader={"t": "1:1"}), set_rates={**RATES, L1: 50}
    )
    reconcile.remember_asked(memory, more, IN_FORCE, action_id="b", expires_ms=2 * EXPIRES_MS)
    assert memory.attempted == ThrottleConfigs(
        ThrottledLists(leader={"t": "0:1,0:2,1:1"}, follower={"t": "0:3"}), {L1: 50, L2: 24, F3: 24}
    )
    reconcile.apply_result(memory, "b", "failed", at_ms=1)
    observe(memory, UNSEEN)
    assert memory.pacing == replace(IN_FORCE, rates={L1: 20})


def test_after_a_failure_pacing_goes_on_from_what_the_cluster_shows_of_it() -> None:
    memory = decided()
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    half = ThrottledLists(leader={"t": "0:1,5:5"})
    observe(memory, seen_of(lists=half, rates={L1: 24, L2: 99}))
    assert memory.pacing == PacingMemory(added=ThrottledLists(leader={"t": "0:1"}), rates={L1: 24}), (
        "entry 5:5 and the rate of 99 are somebody else's, and the throttle as a whole has not begun"
    )
    assert memory.attempted == ThrottleConfigs(ThrottledLists(leader={"t": "0:1"}), {L1: 24})


def test_a_rate_that_was_confirmed_is_in_force_as_it_is_there() -> None:
    memory = decided(FIRST, IN_FORCE, confirmed=ThrottleConfigs(OURS, {L1: 20, L2: 20, F3: 20}))
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    observe(memory, replace(seen_of(rates={L1: 22, L2: 24}), brokers=frozenset({1, 2})))
    assert memory.pacing.rates == {L1: 22, L2: 24, F3: 20}


@pytest.mark.parametrize(("rates", "is_fallback"), [(RATES, True), ({**RATES, L1: 20}, False)])
def test_rates_for_the_worst_case_that_were_not_set_are_decided_again(
    *, rates: dict[BrokerRole, int], is_fallback: bool
) -> None:
    memory = decided(after=replace(IN_FORCE, is_fallback=True), confirmed=CONFIRMED)
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    observe(memory, seen_of(rates=rates))
    assert memory.pacing.is_fallback == is_fallback


def test_when_nothing_moves_any_more_all_that_may_be_there_is_taken_off() -> None:
    memory = decided(
        confirmed=ThrottleConfigs(ThrottledLists(leader={"u": "1:1"}), {BrokerRole("leader", 4): 7})
    )
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    observe(memory, NOTHING_MOVES)
    assert memory.pacing.is_active
    assert memory.pacing.added == ThrottledLists(leader={"u": "1:1", "t": "0:1,0:2"}, follower={"t": "0:3"})
    assert memory.pacing.rates == {BrokerRole("leader", 4): 7, **RATES}


def test_a_cluster_that_was_away_for_long_still_has_all_of_it_taken_off() -> None:
    memory = decided()
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    again = Kafka().forgotten(memory)
    observe(again, NOTHING_MOVES)
    assert (again.pacing.added, again.pacing.rates) == (OURS, RATES)


def test_what_nobody_answered_and_nobody_sees_was_never_begun() -> None:
    memory = decided()
    observe(memory, NOTHING_MOVES, end_ms=EXPIRES_MS)
    assert (memory.attempted, memory.pacing) == (NO_CONFIGS, NOTHING)


@pytest.mark.parametrize(
    "observation",
    [
        replace(UNSEEN, copies=None),
        replace(UNSEEN, brokers=frozenset()),
        replace(NOTHING_MOVES, rates_there={F3: 24}),
    ],
    ids=["nobody said what moves", "no broker reported", "a rate of it is there"],
)
def test_what_somebody_may_have_begun_stays_ours(observation: Observation) -> None:
    memory = decided()
    observe(memory, observation, end_ms=EXPIRES_MS)
    assert memory.attempted.lists == OURS


def test_what_was_attempted_is_forgotten_where_the_cluster_shows_that_it_is_not_there() -> None:
    memory = decided(tells_lists=True, tells_rates=True)
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    observe(memory, replace(ANOTHER_MOVES, brokers=frozenset({1, 3}), rates_there={L1: 24, F3: 9}))
    assert memory.attempted == ThrottleConfigs(OURS, {L1: 24, L2: 24}), (
        "2 did not report, and t is not looked at"
    )
    observe(memory, seen_of(lists=ThrottledLists(follower={"t": "*"})))
    assert memory.attempted == ThrottleConfigs(replace(OURS, leader={}), {L1: 24, L2: 24})


def test_reports_that_never_tell_lists_let_entries_of_topics_at_rest_be_forgotten() -> None:
    memory = decided()
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    observe(memory, UNSEEN)
    assert memory.attempted == CONFIRMED
    observe(memory, ANOTHER_MOVES)
    assert memory.attempted == replace_lists(CONFIRMED, ThrottledLists())


def replace_lists(configs: ThrottleConfigs, lists: ThrottledLists) -> ThrottleConfigs:
    return ThrottleConfigs(lists, configs.rates)


def test_a_decision_also_takes_off_what_earlier_ones_may_have_left() -> None:
    left = ThrottleConfigs(ThrottledLists(leader={"t": "0:1,7:7", "u": "1:1"}), by_role({1: 5, 8: 5}, {8: 6}))
    memory = KafkaMemory(attempted=left)
    decision = replace(
        FIRST, remove=ThrottledLists(leader={"t": "9:9"}), clear_rates=(BrokerRole("leader", 8),)
    )
    assert reconcile.remove_attempted(decision, memory, IN_FORCE) == replace(
        decision,
        remove=ThrottledLists(leader={"t": "7:7,9:9", "u": "1:1"}),
        clear_rates=(BrokerRole("leader", 8), BrokerRole("follower", 8)),
    )
    assert reconcile.remove_attempted(decision, KafkaMemory(), IN_FORCE) == decision


def test_a_dry_run_is_not_disturbed_and_acting_goes_on_from_what_is_there() -> None:
    shown = PacingMemory(begun_ms=7)
    memory = decided(confirmed=CONFIRMED, failures_count=1)
    memory.pacing, memory.is_shadow = shown, True
    reconcile.apply_result(memory, "a", "failed", at_ms=1)
    observe(memory, seen_of(), is_acting=False)
    assert (memory.pacing, memory.is_shadow) == (shown, True)
    observe(memory, seen_of(), is_acting=True)
    assert (memory.pacing.rates, memory.pacing.added) == (RATES, OURS)
    assert not memory.is_shadow


def test_what_may_be_there_because_of_us_is_nobody_elses() -> None:
    strangers = ThrottledLists(leader={"t": "0:1,0:2,7:9"}, follower={"t": "0:3", "u": "1:1"})
    memory = KafkaMemory(
        confirmed=ThrottleConfigs(ThrottledLists(leader={"t": "0:2"}), {BrokerRole("leader", 5): 11}),
        attempted=ThrottleConfigs(ThrottledLists(leader={"t": "0:1"}), {L1: 12, F3: 13}),
    )
    assert reconcile.foreign_lists(seen_of(lists=strangers), memory) == ThrottledLists(
        leader={"t": "7:9"}, follower={"t": "0:3", "u": "1:1"}
    )
    assert reconcile.our_configs(memory).rates == {L1: 12, BrokerRole("leader", 5): 11, F3: 13}


LOST = ThrottledLists(leader={"t": "0:2"})


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (seen_of(), NO_DRIFT),
        (seen_of(lists=ThrottledLists(leader={"t": "*"}, follower={"t": "*"})), NO_DRIFT),
        (seen_of(lists=replace(OURS, leader={"t": "0:1,0:2,7:9"})), NO_DRIFT),
        (seen_of(lists=replace(OURS, leader={"t": "0:1"})), Drift(lost=LOST)),
        (seen_of(rates={**RATES, L1: 50}), Drift(rates={L1: 50})),
        (seen_of(rates={L1: 24, F3: 24}), Drift(rates={L2: None})),
        (seen_of(rates={**RATES, BrokerRole("leader", 9): 5}), NO_DRIFT),
    ],
)
def test_what_is_not_as_decided_is_seen_at_once_and_sure_in_the_second_round(
    observation: Observation, expected: Drift
) -> None:
    memory = memory_of()
    assert reconcile.observe_drift(memory, observation) == (expected, NO_DRIFT)
    assert reconcile.observe_drift(memory, observation) == (expected, expected)


def test_a_rate_that_somebody_set_is_in_force_and_named_until_another_decision_is_confirmed() -> None:
    memory = memory_of()
    changed = seen_of(rates={**RATES, L1: 50})
    for _ in range(2):
        reconcile.observe_drift(memory, changed)
    assert memory.pacing == replace(IN_FORCE, rates={**RATES, L1: 50})
    watched = memory.pacing = replace(memory.pacing, watch=Watch(begun_ms=5))
    assert reconcile.observe_drift(memory, changed) == (Drift(rates={L1: 50}), Drift(rates={L1: 50}))
    assert memory.pacing == watched, "taken over once"
    assert reconcile.observe_drift(memory, seen_of()) == (NO_DRIFT, NO_DRIFT)
    assert memory.pacing == IN_FORCE, "somebody took it back"
    for _ in range(2):
        reconcile.observe_drift(memory, changed)
    memory.confirmed = ThrottleConfigs(OURS, {**RATES, L1: 50})
    assert reconcile.observe_drift(memory, changed) == (NO_DRIFT, NO_DRIFT)


def test_one_round_that_shows_the_rates_of_before_is_no_change_by_others() -> None:
    memory = memory_of()
    for rates in ({**RATES, L1: 20}, RATES, {**RATES, L1: 20}):
        _, sure = reconcile.observe_drift(memory, seen_of(rates=rates))
        assert sure == NO_DRIFT
    assert memory.pacing.rates == RATES


@pytest.mark.parametrize(
    ("tells", "expected"),
    [
        ({"tells_lists": False}, Drift(rates=dict.fromkeys(RATES))),
        ({"tells_rates": False}, Drift(lost=OURS)),
        ({}, Drift(lost=OURS, rates=dict.fromkeys(RATES))),
    ],
)
def test_reports_that_never_tell_lists_or_rates_lose_none(tells: dict[str, bool], expected: Drift) -> None:
    assert reconcile.observe_drift(memory_of(**tells), seen_of(ThrottledLists(), {}))[0] == expected


@pytest.mark.parametrize(
    "memory",
    [
        memory_of(asked=Asked("a", 1, CONFIRMED)),
        memory_of(is_shadow=True),
        memory_of(failures_count=1),
        memory_of(pacing=PacingMemory()),
    ],
    ids=["on-its-way", "dry-run", "to-be-tried-again", "nothing-of-ours"],
)
def test_nothing_is_judged_while_nobody_knows_what_ought_to_be_there(memory: KafkaMemory) -> None:
    for _ in range(3):
        assert reconcile.observe_drift(memory, seen_of(ThrottledLists(), {L1: 1})) == (NO_DRIFT, NO_DRIFT)


def test_it_is_remembered_across_a_restart() -> None:
    memory = memory_of()
    reconcile.observe_drift(memory, seen_of(rates={**RATES, L1: 50}))
    again = decode_memory("kafka", seal(memory))
    assert reconcile.observe_drift(again, seen_of(rates={**RATES, L1: 50}))[1] == Drift(rates={L1: 50})
    assert decode_memory("kafka", seal(again)) == again
