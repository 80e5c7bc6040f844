"""What the summary of a Kafka round says of the throttle."""

from dataclasses import replace
from typing import Any

import pytest

from policies.throttle.capacity import BrokerCapacity, KafkaCapacitySettings, NetworkUse
from policies.throttle.lists import ThrottledLists
from policies.throttle.needs import Lack
from policies.throttle.pacing_round import PacingExplanation, PacingMemory
from policies.throttle.progress import Basis, Eta
from policies.throttle.rates import BrokerRole, ThrottleSettings, Violation
from policies.throttle.roles import by_role
from state.events import BrokerLogs, KafkaLoadReport
from state.kafka import summary
from state.kafka.findings import NOTHING_BROKEN, Broken, find_stalled
from state.kafka.memory import Asked, KafkaMemory, ThrottleConfigs
from state.kafka.reconcile import NO_DRIFT, Drift
from state.kafka.snapshot import Observation
from state.memory import Header
from state.outputs import (
    InFlightRow,
    KafkaBrokerLoad,
    RateViolation,
    RoundSummary,
    ThrottleSummary,
    UnknownNumber,
)
from state.settings import ClusterSettings, KafkaSettings
from tests.policies.throttle.moving import Partition, copies_of
from tests.state.building import closing, published, unload
from tests.state.kafka.reporting import (
    CONFIRMED,
    F3,
    L1,
    L2,
    NOTHING_KNOWN,
    NOTHING_MOVES,
    OURS,
    SEEN,
    eta,
    explained,
    memory_of,
    needs,
    plan,
    replica_table,
    seen_of,
)

BEGUN_MS, DEADLINE_S = 10_000, 60.0


def is_late(
    *,
    at_ms: int,
    remaining_s: float | None,
    basis: Basis = "observed",
    deadline_s: float = DEADLINE_S,
    begun_ms: int | None = BEGUN_MS,
    was_late: bool = False,
) -> bool:
    eta = Eta(
        remaining_s=remaining_s, basis=basis, predicted_s=None, observed_s=None, observed_weight_ratio=0.0
    )
    kafka = KafkaSettings(throttle=ThrottleSettings(deadline_s=deadline_s))
    context = summary.RoundContext(
        closing=closing(settings=ClusterSettings(kafka=kafka)),
        header=Header(length_ms=60_000),
        memory=KafkaMemory(pacing=PacingMemory(begun_ms=begun_ms), is_late=was_late),
        reports={},
        observation=replace(seen_of(), at_ms=at_ms),
    )
    return summary.is_late(context, explained(eta=eta))


@pytest.mark.parametrize(
    ("at_ms", "remaining_s", "late"),
    [(30_000, 40.0, False), (30_000, 40.001, True), (70_000, 0.0, False), (70_001, 0.0, True)],
)
def test_a_move_is_late_that_will_not_be_done_by_its_deadline(
    at_ms: int, remaining_s: float, *, late: bool
) -> None:
    assert is_late(at_ms=at_ms, remaining_s=remaining_s) == late


def test_a_move_whose_end_nobody_knows_is_late_after_its_deadline() -> None:
    assert not is_late(at_ms=70_000, remaining_s=None, basis="unknown")
    assert is_late(at_ms=70_001, remaining_s=None, basis="unknown")


def test_a_move_that_does_not_catch_up_is_late_at_once() -> None:
    assert is_late(at_ms=10_001, remaining_s=None, basis="not-catching-up")


def test_without_a_deadline_only_what_does_not_catch_up_is_late_and_without_a_throttle_nothing() -> None:
    assert is_late(at_ms=10**9, remaining_s=None, basis="not-catching-up", deadline_s=0)
    assert not is_late(at_ms=10**9, remaining_s=10.0**9, deadline_s=0)
    assert not is_late(at_ms=10**9, remaining_s=None, basis="not-catching-up", begun_ms=None)


@pytest.mark.parametrize(
    ("basis", "remaining_s", "late"),
    [
        ("predicted", 40.0, True),
        ("blended", 40.0, True),
        ("unknown", None, True),
        ("broken", None, True),
        ("observed", 40.0, False),
        ("observed", 40.001, True),
        ("done", 0.0, False),
    ],
)
def test_a_move_that_was_late_is_on_time_again_once_its_progress_shows_that_and_no_sooner(
    basis: Basis, remaining_s: float | None, *, late: bool
) -> None:
    assert is_late(at_ms=30_000, remaining_s=remaining_s, basis=basis, was_late=True) == late


REPORTS = {
    name: KafkaLoadReport(at_ms, "r", name, BrokerLogs(int(name), replica_table()))
    for name, at_ms in (("1", 470_000), ("2", 475_000))
}
"""Brokers 1 and 2 reported in the round that ends at 480 s."""


def summarized(
    explanation: PacingExplanation | None = None,
    *,
    memory: KafkaMemory | None = None,
    observation: Observation = SEEN,
    drift: Drift = NO_DRIFT,
    broken: Broken = NOTHING_BROKEN,
    is_held: bool = False,
    actions_count: int = 0,
    settings: ClusterSettings | None = None,
) -> RoundSummary:
    context = summary.RoundContext(
        closing=closing(settings=settings or ClusterSettings()),
        header=Header(length_ms=60_000, system="kafka"),
        memory=memory or KafkaMemory(),
        reports=REPORTS,
        observation=observation,
    )
    return summary.round_summary(
        context,
        explanation,
        outcome="decided",
        reason="why",
        actions=[published(unload(round=at)) for at in range(actions_count)],
        drift_seen=drift,
        broken=broken,
        is_held=is_held,
    )


def throttle(explanation: PacingExplanation | None = None, **options: Any) -> ThrottleSummary:
    found = summarized(explanation or explained(), **options).throttle
    assert found is not None
    return found


def test_a_round_says_who_reported_and_which_live_broker_did_not() -> None:
    found = summarized(memory=KafkaMemory(last_ms={"1": 470_000, "2": 475_000, "4": 400_000}))
    assert (found.system, found.policy, found.outcome, found.reason) == (
        "kafka",
        "reassignment-throttle",
        "decided",
        "why",
    )
    assert found.brokers_reporting == ["1", "2"]
    assert (found.brokers_live_count, found.brokers_missing) == (3, ["4"])
    assert found.oldest_report_age_s == 10.0


def test_brokers_say_what_they_carry_the_busiest_first_and_what_is_not_known_is_left_out() -> None:
    """One partition moves: broker 1 leads it, and it goes to broker 3. Of broker 2 nothing is known, of broker 5 only what it sends."""
    capacity = KafkaCapacitySettings(
        network_bytes_per_s=1_000, brokers={"5": BrokerCapacity(network_bytes_per_s=50)}
    )
    use = {
        2: NetworkUse(),
        1: NetworkUse(in_bytes_per_s=100, out_bytes_per_s=40),
        5: NetworkUse(out_bytes_per_s=20),
    }
    settings = ClusterSettings(kafka=KafkaSettings(capacity=capacity))
    found = summarized(observation=replace(SEEN, use=use), settings=settings).kafka_brokers
    assert found == [
        KafkaBrokerLoad(
            broker="1",
            usage_points=10.0,
            in_bytes_per_s=100,
            out_bytes_per_s=40,
            leading_count=1,
            gaining_count=0,
        ),
        KafkaBrokerLoad(broker="5", usage_points=40.0, out_bytes_per_s=20, leading_count=0, gaining_count=0),
        KafkaBrokerLoad(broker="2", leading_count=0, gaining_count=0),
    ]


def test_without_a_report_of_the_moves_no_broker_is_said_to_lead_or_gain_none_and_a_hundred_are_shown() -> (
    None
):
    use = {broker: NetworkUse(in_bytes_per_s=broker) for broker in range(101)}
    found = summarized(observation=replace(NOTHING_KNOWN, use=use)).kafka_brokers
    assert [row.broker for row in found] == [str(broker) for broker in range(100, 0, -1)]
    assert {(row.leading_count, row.gaining_count, row.usage_points) for row in found} == {(None, None, None)}


def test_where_nothing_was_judged_nothing_is_said_of_the_throttle() -> None:
    assert summarized(None).throttle is None
    assert summarized(explained()).throttle is not None


def test_the_actions_of_the_round_are_named_in_order() -> None:
    found = summarized(actions_count=2)
    assert found.actions_count == 2
    assert found.actions == [published(unload(round=at)).id for at in range(2)]


def test_a_decision_whose_result_has_not_come_is_in_flight() -> None:
    asked = Asked("a", 300_000, ThrottleConfigs())
    assert summarized(memory=KafkaMemory(asked=asked)).in_flight == [
        InFlightRow(id="a", kind="throttle", target="reassignments", expires_at="1970-01-01T00:05:00.000Z")
    ]
    assert summarized().in_flight == []


def test_the_throttle_has_needs_plan_and_end_of_the_move() -> None:
    end = eta(15.4, predicted_s=14.0, observed_low_s=13.0, observed_high_s=16.0)
    found = throttle(
        explained(wanted_trigger="first-throttle", needs=needs(), plan=plan(), eta=end),
        observation=replace(SEEN, held_over_count=4),
    )
    assert (found.outcome, found.trigger) == ("decided", "first-throttle")
    assert (found.as_of, found.held_over_count) == ("1970-01-01T00:00:10.000Z", 4)
    assert found.partitions_moving_count == 1
    assert found.min_bytes_per_s == {"leader:1": 20, "leader:2": 30, "follower:3": 10}
    assert (found.bytes_left, found.feasible, found.violations) == (100, True, [])
    assert (found.eta_s, found.eta_basis, found.bottleneck) == (15.4, "predicted", "leader:1")
    assert (found.eta_predicted_s, found.eta_observed_low_s, found.eta_observed_high_s) == (14.0, 13.0, 16.0)
    assert (found.unknown_count, found.unknown, found.late) == (0, [], False)


def test_where_needs_rates_and_end_are_not_known_they_are_null() -> None:
    found = throttle()
    assert (found.min_bytes_per_s, found.bytes_left, found.feasible, found.violations) == ({}, None, None, [])
    assert (found.eta_s, found.eta_basis, found.bottleneck) == (None, None, None)
    assert (found.eta_predicted_s, found.eta_observed_low_s, found.eta_observed_high_s) == (None, None, None)


@pytest.mark.parametrize(
    ("observation", "planned"),
    [(SEEN, False), (replace(SEEN, is_running=False), True), (NOTHING_MOVES, False), (NOTHING_KNOWN, False)],
    ids=["it runs", "it is only planned", "nothing moves", "no report says what moves"],
)
def test_a_move_that_does_not_run_yet_is_shown_as_planned(observation: Observation, *, planned: bool) -> None:
    assert throttle(observation=observation).planned == planned


def test_a_decision_that_is_held_is_shown_as_held_with_what_called_for_it() -> None:
    found = throttle(explained(wanted_trigger="headroom"), is_held=True)
    assert (found.outcome, found.trigger) == ("held", "headroom")


@pytest.mark.parametrize(
    ("observation", "count", "bytes_left", "has_fingerprint"),
    [(SEEN, 1, None, True), (NOTHING_MOVES, 0, 0, False), (NOTHING_KNOWN, None, None, False)],
    ids=["one moves", "nothing moves", "no report says what moves"],
)
def test_nothing_is_left_where_nothing_moves_and_unknown_otherwise(
    observation: Observation, count: int | None, bytes_left: int | None, *, has_fingerprint: bool
) -> None:
    found = throttle(observation=observation)
    assert (found.partitions_moving_count, found.bytes_left) == (count, bytes_left)
    copies = observation.copies
    assert found.fingerprint == (copies.fingerprint() if has_fingerprint and copies is not None else None)


def test_of_the_bytes_that_are_left_none_may_be_unknown() -> None:
    unsure = needs(bytes_left=by_role({1: 60, 2: 40}, {3: 100, 4: None}))
    assert throttle(explained(needs=unsure)).bytes_left is None


def test_rates_in_force_are_named_by_role() -> None:
    pacing = PacingMemory(begun_ms=0, rates=by_role({2: 8, 1: 9}, {3: 7}))
    found = throttle(memory=KafkaMemory(pacing=pacing)).rates_bytes_per_s
    assert list(found.items()) == [("follower:3", 7), ("leader:1", 9), ("leader:2", 8)]


def test_roles_that_can_never_finish_are_named_with_what_they_lack() -> None:
    never = Violation(role=L2, rate_bytes_per_s=24, min_bytes_per_s=30)
    found = throttle(explained(plan=plan(feasible=False, violations=(never,))))
    assert found.feasible is False
    assert found.violations == [RateViolation(role="leader:2", rate_bytes_per_s=24, min_bytes_per_s=30)]


def test_all_partitions_that_lack_a_number_are_counted_and_a_hundred_are_shown_with_the_reason() -> None:
    lacking = tuple(Lack(partition=f"t-{at}", lacks=("log_size_bytes",)) for at in range(101))
    observation = replace(SEEN, why_unknown=lambda name, _: f"{name} is new")
    found = throttle(explained(needs=needs(lacking=lacking)), observation=observation)
    assert (found.unknown_count, len(found.unknown)) == (101, 100)
    assert found.unknown[99] == UnknownNumber(partition="t-99", lacks=["log_size_bytes"], why="t-99 is new")


def test_lists_and_rates_of_others_are_named_and_ours_are_not() -> None:
    """Ours are entries 0:1, 0:2 and 0:3 of topic t, and the rates of leaders 1 and 2 and of follower 3."""
    found = throttle(
        memory=memory_of(),
        observation=replace(
            seen_of(
                lists=ThrottledLists(
                    leader={"t": "0:1,0:2,5:9", "u": "0:1"}, follower={"t": "0:3", "s": "*"}
                ),
                rates={L1: 24, L2: 99, F3: 24, BrokerRole("leader", 9): 5, BrokerRole("follower", 1): 6},
            ),
            defaults_there={"leader": 70, "follower": 80},
        ),
    )
    assert found.others_leader_throttled_replicas == {"t": "5:9", "u": "0:1"}
    assert found.others_follower_throttled_replicas == {"s": "*"}
    assert found.others_rates_bytes_per_s == {
        "follower:default": 80,
        "leader:default": 70,
        "follower:1": 6,
        "leader:9": 5,
    }


def test_what_an_earlier_decision_may_have_left_is_ours_though_no_longer_wanted() -> None:
    left = ThrottleConfigs(ThrottledLists(leader={"t": "5:9"}), {BrokerRole("leader", 9): 5})
    rates = {L1: 24, BrokerRole("leader", 9): 5, BrokerRole("leader", 8): 4}
    there = seen_of(lists=ThrottledLists(leader={"t": "0:1,5:9,6:9"}), rates=rates)
    found = throttle(memory=memory_of(attempted=left), observation=there)
    assert found.others_leader_throttled_replicas == {"t": "6:9"}
    assert found.others_rates_bytes_per_s == {"leader:8": 4}


def test_of_what_a_dry_run_wants_entries_that_are_there_are_ours_and_rates_are_not() -> None:
    pacing = PacingMemory(begun_ms=0, added=OURS, rates={L1: 24, L2: 24})
    shadow = KafkaMemory(pacing=pacing, is_shadow=True)
    found = throttle(memory=shadow, observation=seen_of())
    assert found.others_leader_throttled_replicas == {}
    assert found.others_rates_bytes_per_s == {"follower:3": 24, "leader:1": 24, "leader:2": 24}


def test_what_somebody_changed_or_took_off_is_named() -> None:
    drift = Drift(
        lost=ThrottledLists(leader={"u": "0:1", "t": "0:2"}, follower={"t": "0:3"}), rates={L2: None, L1: 50}
    )
    found = throttle(drift=drift, memory=KafkaMemory(confirmed=CONFIRMED))
    assert found.lost_leader_throttled_replicas == {"t": "0:2", "u": "0:1"}
    assert found.lost_follower_throttled_replicas == {"t": "0:3"}
    assert found.changed_rates_bytes_per_s == {"leader:1": 50, "leader:2": None}


def test_after_a_failure_the_time_of_the_next_attempt_is_said() -> None:
    failed = throttle(memory=KafkaMemory(failures_count=2, retry_ms=500_000))
    assert (failed.failures_count, failed.retry_at) == (2, "1970-01-01T00:08:20.000Z")
    fine = throttle(memory=KafkaMemory(failures_count=0, retry_ms=500_000))
    assert (fine.failures_count, fine.retry_at) == (0, None)


@pytest.mark.parametrize(
    ("slope", "basis", "feasible", "is_told"),
    [
        (0.0, "not-catching-up", True, True),
        (-3.0, "not-catching-up", True, True),
        (3.0, "not-catching-up", True, False),
        (0.0, "blended", True, False),
        (0.0, "not-catching-up", False, False),
        (0.0, "not-catching-up", None, False),
    ],
    ids=["stands still", "falls behind", "another does", "not sure yet", "the rate is too low", "unknown"],
)
def test_a_broker_that_receives_nothing_above_its_minimum_is_named_with_its_partitions(
    slope: float, basis: Basis, *, feasible: bool | None, is_told: bool
):
    assert SEEN.copies is not None
    stalled = explained(
        plan=plan(feasible=feasible), eta=replace(eta(slopes_bytes_per_s={L1: -1.0, F3: slope}), basis=basis)
    )
    found = list(find_stalled(SEEN.copies, stalled))
    assert [(each.kind, each.broker, each.subject) for each in found] == [
        ("copy-stalled", "3", "t-0")
    ] * is_told


D1 = BrokerRole("disk", 1)
ON_DISKS = copies_of(
    *(Partition(f"t-{at}", [1, 2], [1, 2], 4, 100, isr=[1, 2], between_disks=[1]) for at in range(3))
)


@pytest.mark.parametrize(
    ("slope", "least", "basis", "is_told"),
    [
        (-12.0, 4, "not-catching-up", True),
        (-10.0, 4, "not-catching-up", True),
        (-9.0, 4, "not-catching-up", False),
        (-7.2, 4, "not-catching-up", False),
        (-12.0, 4, "blended", False),
        (-12.0, None, "not-catching-up", False),
    ],
    ids=[
        "all three grow by what is written",
        "one grows by half of it",
        "one grows by less",
        "one gets its minimum and a fifth, two wait for the thread",
        "not sure yet",
        "what is written is not known",
    ],
)
def test_disks_between_which_nothing_gets_on_are_told_and_a_wait_for_a_thread_is_not(
    slope: float, least: int | None, basis: Basis, *, is_told: bool
):
    """Three replicas of broker 1 change their disk, 4 bytes/s are written to each, and one thread copies."""
    stalled = explained(
        needs=needs(min_bytes_per_s={D1: least}),
        plan=plan(),
        eta=replace(eta(slopes_bytes_per_s={D1: slope}), basis=basis),
    )
    found = list(find_stalled(ON_DISKS, stalled))
    assert [(each.kind, each.broker, each.subject) for each in found] == [
        ("copy-stalled", "1", "t-0, t-1, t-2")
    ] * is_told


def test_disks_of_which_nothing_is_written_stand_still_where_their_copies_do() -> None:
    idle = replace(ON_DISKS, write_bytes_per_s=0 * ON_DISKS.write_bytes_per_s)
    still = replace(eta(slopes_bytes_per_s={D1: 0.0}), basis="not-catching-up")
    stalled = explained(needs=needs(min_bytes_per_s={D1: 0}), plan=plan(), eta=still)
    assert [each.broker for each in find_stalled(idle, stalled)] == ["1"]
