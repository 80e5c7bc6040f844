"""A reassignment from its first round to its last, by example and whatever happens to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.throttle.capacity import BrokerCapacity, KafkaCapacitySettings, NetworkUse, limits_of
from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingMemory, ThrottleDecision
from policies.throttle.rates import (
    NO_CAPS,
    BrokerRole,
    Caps,
    ThrottleSettings,
)
from tests.policies.throttle.moving import GB, MB, Partition
from tests.policies.throttle.reassigned import MOVE, NOTHING, OTHER, ROUND_MS, Cluster, rates, started


def test_the_first_round_throttles_sources_and_added_replicas_at_the_recommended_rate() -> None:
    cluster = Cluster()
    assert cluster.round() is None
    assert cluster.outcome == "nothing-moves"
    decision = cluster.round(MOVE)
    assert decision == ThrottleDecision(
        trigger="first-throttle",
        add=ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"}),
        set_rates={
            BrokerRole("leader", 1): 9_600_000,
            BrokerRole("leader", 2): 9_600_000,
            BrokerRole("follower", 3): 9_600_000,
        },
    )
    assert cluster.plan.total_s == 10 * GB / 1_600_000


def test_each_broker_its_own_rate_gives_sources_that_do_not_lead_the_failover_safe_one() -> None:
    decision = Cluster(settings=ThrottleSettings(rates="per-broker")).round(MOVE)
    assert rates(decision) == {"leader:1": 9_600_000, "leader:2": 9_600_000, "follower:3": 4_800_000}


def test_while_nothing_changes_the_throttle_is_kept() -> None:
    cluster = started()
    for _ in range(20):
        assert cluster.round(MOVE) is None
        assert cluster.outcome == "unchanged"


@pytest.mark.parametrize(
    ("writes", "expected"),
    [(4_320_000, None), (4_320_001, 10_368_003)],
    ids=["at 0.9 of the rate", "above 0.9 of the rate"],
)
def test_a_minimum_near_the_rate_raises_it_at_once(writes: int, expected: int | None) -> None:
    cluster = started()
    decision = cluster.round(replace(MOVE, writes=writes))
    assert (None if decision is None else rates(decision)["leader:1"]) == expected
    if decision is not None:
        assert decision.trigger == "minimum-rose"


def test_a_leader_that_moves_raises_the_rate_of_its_new_broker() -> None:
    rows = [MOVE, replace(MOVE, name="t-1", replicas=[2, 1], leader=2)]
    cluster = Cluster(settings=ThrottleSettings(rates="per-broker"))
    first = rates(cluster.round(*rows))
    assert first["leader:1"] == first["leader:2"] == 9_600_000
    decision = cluster.decided(rows[0], replace(rows[1], leader=1))
    assert decision.trigger == "minimum-rose"
    assert rates(decision)["leader:1"] == 19_200_000


def test_traffic_that_falls_lowers_nothing() -> None:
    cluster = started()
    for _ in range(10):
        assert cluster.round(replace(MOVE, writes=MB)) is None


def test_before_anything_is_copied_the_rate_follows_falling_traffic_a_minute_after_the_last_change() -> None:
    cluster, quiet = started(), replace(MOVE, writes=MB)
    for _ in range(5):
        assert cluster.round(quiet, begun=False) is None
        assert cluster.outcome == "resting"
    decision = cluster.decided(quiet, begun=False)
    assert decision.trigger == "traffic-fell"
    assert set(rates(decision).values()) == set(rates(Cluster().round(quiet)).values()) == {2_400_000}
    assert cluster.round(replace(MOVE, writes=900_000), begun=False) is None, "less than a fifth"


def test_room_in_the_network_is_used_once_a_minute_and_from_a_fifth_more_on() -> None:
    cluster = started()
    for size, outcome in [(11_500_000, "unchanged"), (11_520_000, "resting")]:
        assert cluster.round(MOVE, room=Caps(default_bytes_per_s=size)) is None
        assert cluster.outcome == outcome
    for _ in range(3):
        assert cluster.round(MOVE, room=Caps(default_bytes_per_s=16 * MB)) is None
    decision = cluster.decided(MOVE, room=Caps(default_bytes_per_s=16 * MB))
    assert decision.trigger == "headroom"
    assert set(rates(decision).values()) == {16 * MB}


def test_a_rate_goes_up_in_steps_of_twice_the_rate_at_most() -> None:
    cluster, seen = started(), []
    for _ in range(24):
        decision = cluster.round(MOVE, room=Caps(default_bytes_per_s=50 * MB))
        seen += [] if decision is None else [set(rates(decision).values())]
    assert seen == [{19_200_000}, {38_400_000}, {50 * MB}]


def test_a_rate_that_passes_the_networks_cap_is_lowered_and_one_above_the_minimum_only() -> None:
    cluster = Cluster()
    wide, narrow = Caps(default_bytes_per_s=50 * MB), Caps(default_bytes_per_s=20 * MB)
    assert set(rates(cluster.round(MOVE, caps=wide, room=wide)).values()) == {50 * MB}
    decisions = [cluster.round(MOVE, caps=narrow, room=narrow) for _ in range(6)]
    assert decisions[:5] == [None] * 5
    assert decisions[5] is not None
    assert decisions[5].trigger == "over-cap"
    assert set(rates(decisions[5]).values()) == {20 * MB}
    below = Caps(default_bytes_per_s=8 * MB)
    for _ in range(10):
        assert cluster.round(MOVE, caps=below, room=below) is None
        assert cluster.outcome == "infeasible"
    assert [str(found.role) for found in cluster.plan.violations] == ["leader:1"]


def test_a_cap_just_above_the_minimum_is_set_once_and_not_again_every_round() -> None:
    cluster = Cluster()
    caps = Caps(default_bytes_per_s=8_100_000)
    assert set(rates(cluster.round(MOVE, caps=caps)).values()) == {8_100_000}
    for _ in range(8):
        assert cluster.round(MOVE, caps=caps) is None
        assert cluster.outcome == "unchanged"


def test_no_throttle_is_set_that_would_hold_the_move_for_ever() -> None:
    cluster = Cluster()
    assert cluster.round(MOVE, caps=Caps(default_bytes_per_s=8 * MB)) is None
    assert (cluster.outcome, cluster.memory.is_active) == ("infeasible", False)


def test_a_deadline_asks_for_its_rate_and_for_more_when_it_would_be_missed() -> None:
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000))
    assert rates(cluster.round(MOVE))["leader:1"] == 18 * MB
    declared = Caps(default_bytes_per_s=500 * MB)
    stuck = [
        cluster.round(replace(MOVE, present={3: step * 10 * MB}), caps=declared) for step in range(1, 20)
    ]
    decided = [(place, found) for place, found in enumerate(stuck) if found is not None]
    place, decision = decided[0]
    assert decision.trigger == "deadline-at-risk"
    assert place == 9, "the rate that is wanted is 5 % above the one in force"
    assert rates(decision)["leader:1"] > 18 * MB
    assert [other - place for other, _ in decided[1:2]] == [8]


def test_moves_that_join_are_throttled_at_once_and_those_that_end_are_taken_off() -> None:
    cluster = started()
    joined = cluster.decided(MOVE, OTHER)
    assert (joined.trigger, joined.add) == (
        "moves-joined",
        ThrottledLists(leader={"t": "1:1,1:2"}, follower={"t": "1:4"}),
    )
    assert rates(joined)["follower:4"] == 12 * MB
    decisions = [cluster.round(MOVE) for _ in range(6)]
    assert decisions[:5] == [None] * 5
    assert decisions[5] == ThrottleDecision(
        trigger="moves-left",
        remove=ThrottledLists(leader={"t": "1:1,1:2"}, follower={"t": "1:4"}),
        set_rates={
            BrokerRole("leader", 1): 12 * MB,
            BrokerRole("leader", 2): 12 * MB,
            BrokerRole("follower", 3): 12 * MB,
        },
        clear_rates=(BrokerRole("follower", 4),),
    )


def test_the_end_removes_exactly_what_was_added() -> None:
    before = ThrottledLists(leader={"t": "0:1,7:7"}, follower={"u": "*"})
    cluster = Cluster(lists=before)
    decision = cluster.decided(MOVE, Partition("u-0", [1], [2], MB, GB))
    assert decision.add == ThrottledLists(leader={"t": "0:2", "u": "0:1"}, follower={"t": "0:3"})
    end = cluster.decided()
    assert (end.trigger, end.remove) == ("finished", decision.add)
    assert {str(role) for role in end.clear_rates} == set(rates(decision))
    assert cluster.lists == before
    assert cluster.memory == PacingMemory()
    assert cluster.round() is None


def test_lists_that_have_not_arrived_yet_are_not_decided_twice() -> None:
    cluster = started()
    cluster.lists = NOTHING
    assert cluster.round(MOVE) is None


def test_missing_reports_keep_the_throttle_and_after_three_rounds_make_it_failover_safe() -> None:
    rows = [MOVE, Partition("t-2", [2, 1], [1, 3], 6 * MB, GB, leader=2)]
    cluster = Cluster()
    assert set(rates(cluster.round(*rows)).values()) == {14_400_000}
    decisions = [cluster.round(reported=False) for _ in range(3)]
    assert decisions[:2] == [None, None]
    assert decisions[2] is not None
    assert decisions[2].trigger == "stale-reports"
    assert set(rates(decisions[2]).values()) == {24 * MB}
    for _ in range(10):
        assert cluster.round(reported=False) is None
        assert cluster.outcome == "stale"
    back = cluster.decided(*rows)
    assert back.trigger == "reports-back"
    assert set(rates(back).values()) == {14_400_000}


def test_an_unknown_write_rate_is_as_good_as_no_report() -> None:
    cluster = started()
    unknown = replace(MOVE, writes=None)
    assert [cluster.round(unknown) for _ in range(2)] == [None, None]
    assert cluster.round(MOVE) is None
    assert cluster.memory.stale_rounds == 0


def test_nothing_is_decided_from_nothing() -> None:
    cluster = Cluster()
    for _ in range(5):
        assert cluster.round(replace(MOVE, writes=None)) is None
        assert cluster.outcome == "unknown"
    assert [lack.partition for lack in cluster.needs.lacking] == ["t-0"]


def test_a_move_of_unknown_traffic_that_joins_is_throttled_at_once_all_the_same() -> None:
    cluster = started()
    decision = cluster.decided(MOVE, replace(OTHER, writes=None))
    assert decision.trigger == "moves-joined"
    assert rates(decision)["follower:4"] == 9_600_000


@pytest.mark.parametrize(
    ("use", "cap", "room"),
    [
        ({}, 90, None),
        ({1: NetworkUse(out_bytes_per_s=50)}, 60, 60),
        ({1: NetworkUse(out_bytes_per_s=10)}, 90, 90),
        ({1: NetworkUse(out_bytes_per_s=105)}, 1, 1),
        ({1: NetworkUse(out_bytes_per_s=100)}, 10, 10),
        ({1: NetworkUse(out_bytes_per_s=103)}, 4, 4),
        ({1: NetworkUse(out_bytes_per_s=500)}, 1, 1),
        ({1: NetworkUse(in_bytes_per_s=50)}, 90, None),
    ],
)
def test_the_network_leaves_its_share_less_what_is_not_ours(
    use: Mapping[int, NetworkUse], cap: int, room: int | None
) -> None:
    role = BrokerRole("leader", 1)
    capacity = KafkaCapacitySettings(brokers={"1": BrokerCapacity(network_bytes_per_s=100)})
    caps, rooms = limits_of(
        [role, BrokerRole("follower", 2)],
        capacity=capacity,
        share_ratio=0.9,
        use=use,
        rates_in_force={role: 20},
    )
    assert (caps.cap_of(role), rooms.cap_of(role)) == (cap, room)
    assert caps.cap_of(BrokerRole("follower", 2)) is None


@pytest.mark.parametrize(("rate", "cap", "room"), [(None, 90, 10), (0, 10, 10), (80, 90, 90)])
def test_before_a_throttle_is_in_force_nobody_knows_which_traffic_is_copies(
    rate: int | None, cap: int, room: int
) -> None:
    """80 of the capacity of 100 are used; a rate of 0 says that nothing of the copies has begun."""
    role = BrokerRole("follower", 3)
    caps, rooms = limits_of(
        [role],
        capacity=KafkaCapacitySettings(network_bytes_per_s=100),
        share_ratio=0.9,
        use={3: NetworkUse(in_bytes_per_s=80)},
        rates_in_force={} if rate is None else {role: rate},
    )
    assert (caps.cap_of(role), rooms.cap_of(role)) == (cap, room)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"headroom_ratio": 0.0}, "headroom_ratio is 0.0; expected more than 0 and at most 100"),
        ({"floor_bytes_per_s": 0}, "floor_bytes_per_s is 0; expected 1 or more"),
        ({"raise_at_ratio": 1.5}, "raise_at_ratio is 1.5; expected more than 0 and at most 1"),
        ({"raise_at_ratio": 0.8}, r"raise_at_ratio is 0.8; it must be above 1 / \(1 \+ headroom_ratio 0.2\)"),
        ({"stale_after_rounds": 0}, "stale_after_rounds is 0; expected 1 or more"),
        ({"deadline_s": float("inf")}, "deadline_s is inf; expected 0 or more"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ThrottleSettings(**settings)  # type: ignore[arg-type]


CAN_WAIT_MS = 60_000
AT_ONCE = {"first-throttle", "moves-joined", "minimum-rose", "stale-reports", "finished"}
PARTITIONS = [
    Partition("t-0", [1, 2], [2, 3], 4 * MB, 900 * MB),
    Partition("t-1", [2, 3], [3, 1], 2 * MB, 500 * MB),
    Partition("u-0", [3], [3, 1, 2], 1 * MB, 100 * MB),
    Partition("u-7", [1, 2, 3], [4, 2, 3], 3 * MB, 300 * MB),
]
THERE = ThrottledLists(leader={"t": "0:1,5:5"}, follower={"u": "*"})


@dataclass(frozen=True)
class Happening:
    """One round."""

    rows: tuple[Partition, ...]
    reported: bool
    caps: Caps


@st.composite
def happenings(draw: st.DrawFn) -> Happening:
    rows = []
    for one in draw(st.lists(st.sampled_from(PARTITIONS), unique_by=lambda row: row.name)):
        writes = draw(st.sampled_from([one.writes, one.writes, 0, 9 * MB, 40 * MB, None]))
        leader = draw(st.sampled_from([one.replicas[0], *one.replicas, -1]))
        rows.append(
            replace(one, writes=writes, leader=leader, size=draw(st.sampled_from([one.size, None, 0])))
        )
    cap = draw(st.sampled_from([None, None, 1, 5 * MB, 50 * MB, 500 * MB]))
    caps = NO_CAPS if cap is None else Caps(default_bytes_per_s=cap)
    return Happening(tuple(rows), draw(st.booleans() | st.just(True)), caps)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    rounds=st.lists(happenings(), max_size=25),
    rates=st.sampled_from(["uniform", "per-broker"]),
    deadline_s=st.sampled_from([0.0, 300.0]),
)
def test_whatever_happens(rounds: list[Happening], rates: str, deadline_s: float) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=rates, deadline_s=deadline_s), lists=THERE)  # type: ignore[arg-type]
    changed_ms = -CAN_WAIT_MS
    for now in rounds:
        before, lists = cluster.memory, cluster.lists
        decision = cluster.round(*now.rows, reported=now.reported, caps=now.caps, room=now.caps)
        explanation = cluster.explanation
        assert explanation is not None
        assert (decision is not None) == (explanation.outcome == "decided")
        if decision is None:
            assert (cluster.memory.added, cluster.memory.rates) == (before.added, before.rates)
            continue
        assert decision.trigger in AT_ONCE or cluster.now_ms - changed_ms >= CAN_WAIT_MS
        assert decision.trigger == "finished" or decision.set_rates
        if decision.trigger not in {"finished", "moves-left"}:
            changed = decision.set_rates != before.rates or decision.add != ThrottledLists()
            assert changed, "a decision that changes nothing"
        if decision.trigger in {"first-throttle", "minimum-rose"}:
            assert explanation.plan is not None
            assert explanation.needs is not None
            assert explanation.plan.feasible is (True if explanation.needs.is_whole else None)
        changed_ms = cluster.now_ms
        again = replace(cluster, now_ms=cluster.now_ms - ROUND_MS, memory=before, lists=lists)
        assert again.round(*now.rows, reported=now.reported, caps=now.caps, room=now.caps) == decision
    cluster.round()
    assert cluster.lists == THERE
    assert cluster.memory == PacingMemory()
