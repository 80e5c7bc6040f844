"""What is said and done when somebody changes a throttle of ours while the move runs."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingMemory
from policies.throttle.progress import Watch
from policies.throttle.rates import BrokerRole
from state.kafka import reconcile
from state.kafka.memory import Asked, KafkaMemory, ThrottleConfigs, decode_kafka, encode_kafka
from state.kafka.reconcile import NO_DRIFT, Drift
from state.kafka.snapshot import Observation
from tests.policies.throttle.moving import Partition, moves_of

L1, L2, F3 = BrokerRole("leader", 1), BrokerRole("leader", 2), BrokerRole("follower", 3)
OURS = ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})
RATES = {L1: 24, L2: 24, F3: 24}


CONFIRMED = ThrottleConfigs.of(OURS, RATES)
IN_FORCE = PacingMemory(begun_ms=0, added=OURS, leader_rates={1: 24, 2: 24}, follower_rates={3: 24})


def memory_of(**more: object) -> KafkaMemory:
    """The memory of a throttle that is in force."""
    memory = KafkaMemory(pacing=IN_FORCE, confirmed=CONFIRMED, tells_rates=True, tells_lists=True)
    for name, value in more.items():
        setattr(memory, name, value)
    return memory


def seen_of(lists: ThrottledLists = OURS, rates: Mapping[BrokerRole, int] = RATES) -> Observation:
    return Observation(
        at_ms=10_000,
        moves=moves_of(Partition("t-0", [1, 2], [2, 3], 10, 100)),
        is_running=True,
        lists=lists,
        rates_there=rates,
        defaults_there={},
        brokers=frozenset({1, 2, 3}),
        use={},
        readings=KafkaMemory().readings,
        rates=KafkaMemory().rates,
        held_over_count=0,
        why_unknown=str,
    )


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
    assert memory.pacing == replace(IN_FORCE, leader_rates={1: 50, 2: 24})
    watched = memory.pacing = replace(memory.pacing, watch=Watch(begun_ms=5))
    assert reconcile.observe_drift(memory, changed) == (Drift(rates={L1: 50}), Drift(rates={L1: 50}))
    assert memory.pacing == watched, "taken over once"
    assert reconcile.observe_drift(memory, seen_of()) == (NO_DRIFT, NO_DRIFT)
    assert memory.pacing == IN_FORCE, "somebody took it back"
    for _ in range(2):
        reconcile.observe_drift(memory, changed)
    memory.confirmed = ThrottleConfigs.of(OURS, {**RATES, L1: 50})
    assert reconcile.observe_drift(memory, changed) == (NO_DRIFT, NO_DRIFT)


def test_one_round_that_shows_the_rates_of_before_is_no_change_by_others() -> None:
    memory = memory_of()
    for rates in ({**RATES, L1: 20}, RATES, {**RATES, L1: 20}):
        _, sure = reconcile.observe_drift(memory, seen_of(rates=rates))
        assert sure == NO_DRIFT
    assert memory.pacing.rates() == RATES


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
    again = decode_kafka(encode_kafka(memory))
    assert reconcile.observe_drift(again, seen_of(rates={**RATES, L1: 50}))[1] == Drift(rates={L1: 50})
    assert decode_kafka(encode_kafka(again)) == again
