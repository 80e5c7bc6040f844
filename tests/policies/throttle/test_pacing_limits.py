"""What rates keep to while moves join, minimums rise, reports are missing, and nobody can write."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole, Caps, ThrottleSettings
from tests.policies.throttle.moving import GB, MB, Partition
from tests.policies.throttle.reassigned import MOVE, Cluster, rates

Rates = Literal["uniform", "per-broker"]


def received(cluster: Cluster) -> int:
    """What all followers may receive together."""
    return sum(rate for role, rate in cluster.memory.rates.items() if role.role == "follower")


def two(first: int, second: int) -> tuple[Partition, Partition]:
    """Two moves, to broker 3 and to broker 4, of so many written bytes/s."""
    return Partition("t-0", [1, 2], [2, 3], first, 100 * GB), Partition(
        "t-1", [1, 2], [2, 4], second, 100 * GB
    )


def grown(rows: Sequence[Partition], rounds: int) -> list[Partition]:
    """The moves after so many rounds in which each destination received 400 MB each."""
    return [replace(row, present={row.target[-1]: rounds * 400 * MB}) for row in rows]


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_moves_that_join_and_minimums_that_rise_keep_the_limit_of_the_cluster(mode: Rates) -> None:
    settings = ThrottleSettings(cluster_bytes_per_s=20 * MB, rates=mode)
    joined = Cluster(settings=settings)
    first, second = two(8 * MB, 8 * MB)
    joined.decided(first)
    assert joined.decided(first, second).trigger == "moves-joined"
    assert received(joined) <= 20 * MB
    risen = Cluster(settings=settings)
    risen.decided(*two(6 * MB, 6 * MB))
    assert risen.decided(*two(1 * MB, 12 * MB)).trigger == "minimum-rose"
    assert received(risen) <= 20 * MB
    assert all(risen.round(*two(1 * MB, 12 * MB)) is None for _ in range(20))


def test_a_limit_of_the_cluster_that_is_lowered_in_mid_move_is_kept_after_a_minute() -> None:
    cluster, rows = (
        Cluster(settings=ThrottleSettings(cluster_bytes_per_s=200 * MB, deadline_s=3600)),
        two(2 * MB, 2 * MB),
    )
    cluster.decided(*rows)
    cluster.settings = replace(cluster.settings, cluster_bytes_per_s=50 * MB)
    decisions = [cluster.round(*grown(rows, number)) for number in range(30)]
    assert [each.trigger for each in decisions if each is not None] == ["over-cap"]
    assert received(cluster) == 50 * MB


def test_a_limit_of_the_cluster_that_is_a_tenth_too_low_for_the_rates_is_kept_as_well() -> None:
    cluster = Cluster(settings=ThrottleSettings(cluster_bytes_per_s=60 * MB, deadline_s=3600))
    rows = two(2 * MB, 2 * MB)
    cluster.decided(*rows)
    cluster.settings = replace(cluster.settings, cluster_bytes_per_s=54 * MB)
    decisions = [cluster.round(*grown(rows, number)) for number in range(30)]
    assert [each.trigger for each in decisions if each is not None] == ["over-cap"]
    assert received(cluster) == 54 * MB


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_write_rate_that_is_lost_takes_no_broker_its_share_of_the_clusters_limit(mode: Rates) -> None:
    settings = ThrottleSettings(cluster_bytes_per_s=20 * MB, deadline_s=3600, rates=mode)
    cluster = Cluster(settings=settings)
    first, second = two(4 * MB, 4 * MB)
    cluster.decided(first, second)
    for _ in range(30):
        cluster.round(first, replace(second, writes=None))
    assert min(rate for role, rate in cluster.memory.rates.items() if role.role == "follower") > 4 * MB
    assert received(cluster) <= 20 * MB


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_unequal_copies_within_the_clusters_limit_are_decided_once(mode: Rates) -> None:
    cluster = Cluster(settings=ThrottleSettings(cluster_bytes_per_s=20 * MB, rates=mode))
    small, large = two(1 * MB, 1 * MB)
    small = replace(small, size=1 * GB)
    cluster.decided(small, replace(large, size=1000 * GB))
    for _ in range(30):
        cluster.round(replace(small, writes=7 * MB), replace(large, size=1000 * GB))
    decisions = [
        cluster.round(replace(small, writes=7 * MB), replace(large, size=1000 * GB)) for _ in range(30)
    ]
    assert not any(decisions)
    assert received(cluster) <= 20 * MB


def test_without_reports_no_rate_is_lowered_and_an_unknown_write_rate_takes_nothing_away() -> None:
    room = Caps(default_bytes_per_s=100 * MB)
    first, second = two(2 * MB, 2 * MB)
    for later in ((), (first, replace(second, writes=None))):
        cluster = Cluster()
        before = rates(cluster.decided(first, second, caps=room, room=room))
        assert set(before.values()) == {100 * MB}
        for _ in range(10):
            assert cluster.round(*later, reported=bool(later), caps=room, room=room) is None
        assert {str(role): rate for role, rate in cluster.memory.rates.items()} == before


def test_a_deadline_counts_from_the_moves_that_joined_last() -> None:
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000))
    first, second = two(1 * MB, 1 * MB)
    cluster.decided(first)
    for _ in range(90):
        cluster.round(first)
    joined = cluster.decided(first, second)
    assert joined.trigger == "moves-joined"
    assert cluster.memory.begun_ms == cluster.now_ms


def test_more_room_is_named_as_a_reason_only_where_a_network_is_declared() -> None:
    cluster, rows = Cluster(settings=ThrottleSettings(rates="per-broker")), two(1 * MB, 4 * MB)
    cluster.decided(*rows)
    cluster.settings = replace(cluster.settings, rates="uniform")
    assert not any(cluster.round(*rows) for _ in range(20))
    room = Caps(default_bytes_per_s=50 * MB)
    raised = [cluster.round(*rows, caps=room, room=room) for _ in range(20)]
    assert {found.trigger for found in raised if found is not None} == {"headroom"}


def test_rates_that_were_high_enough_without_reports_stay_when_reports_are_back() -> None:
    cluster = Cluster(settings=ThrottleSettings(deadline_s=3600))
    row = Partition("t-0", [1, 2], [2, 3], 2 * MB, 300 * GB)
    assert set(rates(cluster.decided(row)).values()) == {87_333_334}  # 4 MB/s and 300 GB in an hour
    for _ in range(5):
        assert cluster.round(reported=False) is None
    for _ in range(20):
        assert cluster.round(replace(row, present={3: 200 * GB})) is None


def test_what_a_role_needed_before_a_write_rate_was_lost_still_counts_without_reports() -> None:
    cluster, (first, second) = Cluster(), two(4 * MB, 1 * MB)
    cluster.decided(first, second)
    before = cluster.memory.safe_mins
    cluster.round(first, replace(second, writes=None))
    assert cluster.memory.safe_mins == before


def test_the_rates_without_reports_keep_the_limit_of_the_cluster() -> None:
    cluster, rows = Cluster(settings=ThrottleSettings(cluster_bytes_per_s=10 * MB)), two(2 * MB, 2 * MB)
    cluster.decided(*rows)
    for _ in range(10):
        cluster.round(reported=False)
    assert received(cluster) <= 10 * MB


def test_under_min_isr_the_leaders_leave_the_list_at_once_though_no_rate_can_fall() -> None:
    row = Partition("t-0", [1, 2], [2, 3], 4 * MB, 300 * GB, isr=[1, 2], min_in_sync=2)
    cluster = Cluster()
    cluster.decided(row)
    decision = cluster.decided(replace(row, isr=[1]))
    assert decision.trigger == "under-min-isr"
    assert decision.remove == ThrottledLists(leader={"t": "0:1,0:2"})


def test_under_min_isr_the_leaders_leave_the_list_though_another_broker_can_never_finish() -> None:
    row = Partition("t-0", [1, 2], [2, 3], 4 * MB, 300 * GB, isr=[1, 2], min_in_sync=2)
    stuck = Partition("u-0", [5], [6], 20 * MB, GB)
    cluster = Cluster()
    cluster.decided(row, stuck)
    caps = Caps(roles={BrokerRole("leader", 5): 10 * MB})
    decisions = [cluster.round(replace(row, isr=[1]), stuck, caps=caps) for _ in range(20)]
    assert decisions[0] is not None
    assert (decisions[0].trigger, decisions[0].remove.leader) == ("under-min-isr", {"t": "0:1,0:2"})
    assert not any(decisions[1:])


def test_what_a_copy_that_joins_had_before_is_not_taken_for_what_the_cluster_carries() -> None:
    cluster = Cluster(settings=ThrottleSettings(deadline_s=3600))
    first, second = two(1 * MB, 1 * MB)
    second = replace(second, target=[2, 3])
    for number in range(60):
        rows = [replace(first, present={3: number * 10 * MB})]
        if number >= 3:
            rows.append(replace(second, present={3: 50 * GB + number * MB}))
        cluster.round(*rows)
    assert cluster.memory.inflow.largest_bytes_per_s == 1_100_000


def test_a_deadline_raises_no_rate_where_a_cap_holds_what_is_done_last() -> None:
    caps = Caps(roles={BrokerRole("follower", 3): 5 * MB})
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000, rates="per-broker"))
    cluster.decided(MOVE, caps=caps)
    slow = [replace(MOVE, present={3: number * MB}) for number in range(1, 60)]
    assert all(cluster.round(each, caps=caps) is None for each in slow), (
        "10 GB at 1 MB/s take 10,000 s, at any leader's rate"
    )
    assert cluster.memory.rates[BrokerRole("leader", 1)] == 18 * MB


def test_a_copy_whose_size_nobody_tells_takes_the_deadline_from_no_other() -> None:
    untold = Partition("u-0", [1, 2], [2, 5], 1 * MB, None)
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000))
    decision = cluster.decided(MOVE, untold)
    assert rates(decision)["leader:1"] == 20 * MB, (
        "8 + 2 MB/s are written, and 10 GB are to be copied in 1,000 s"
    )
    assert cluster.eta.basis == "unknown"
    declared = Caps(default_bytes_per_s=500 * MB)
    late = [cluster.round(replace(MOVE, present={3: 10 * MB}), untold, caps=declared) for _ in range(70)]
    assert [each.trigger for each in late if each is not None][:1] == ["deadline-at-risk"]


HOT = Partition("hot-0", [1, 2], [1, 3], 60 * MB, 10 * GB)
"""Leader 1 needs 120 MB/s, follower 3 needs 60."""
COLD = [Partition(f"cold-{at}", [4, 5], [4, 8], 1 * MB, 1 * GB) for at in range(3)]
NETWORK = Caps(default_bytes_per_s=99 * MB)


@pytest.mark.parametrize("rule", ["uniform", "per-broker"])
def test_one_partition_above_the_network_keeps_no_other_from_its_throttle(rule: Rates) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=rule))
    decision = cluster.decided(HOT, *COLD, caps=NETWORK)
    assert decision.trigger == "first-throttle"
    assert decision.add.follower == {"cold": "0:8,1:8,2:8"}
    assert rates(decision)["leader:4"] == 7_200_000, "3 MB/s to each of two followers, and a fifth"
    assert cluster.explanation.unfit == ("hot-0",)
    assert [str(each.role) for each in cluster.plan.violations] == ["leader:1"]
    assert (cluster.plan.feasible, cluster.eta.basis) == (False, "unknown")
    assert cluster.round(HOT, *COLD, caps=NETWORK) is None
    assert cluster.outcome == "unchanged"


def test_one_that_joins_above_the_network_gets_no_throttle_and_the_others_their_minimums() -> None:
    cluster = Cluster()
    cluster.decided(*COLD, caps=NETWORK)
    assert cluster.round(HOT, *COLD, caps=NETWORK) is None
    busy = [replace(each, writes=3 * MB) for each in COLD]
    raised = cluster.decided(HOT, *busy, caps=NETWORK)
    assert raised.trigger == "minimum-rose"
    assert not raised.add.follower
    assert rates(raised)["leader:4"] > 18 * MB


def test_of_those_that_share_a_full_broker_the_largest_are_left_out_until_the_rest_fits() -> None:
    sizes = [50, 30, 20, 10]
    parts = [
        Partition(f"t-{at}", [at, 9], [at, 8], writes * MB, GB) for at, writes in enumerate(sizes, start=1)
    ]
    cluster = Cluster()
    decision = cluster.decided(*parts, caps=Caps(roles={BrokerRole("follower", 8): 80 * MB}))
    assert cluster.explanation.unfit == ("t-1",), "60 MB/s and a fifth fit into 80"
    assert decision.add.follower == {"t": "2:8,3:8,4:8"}


def test_a_partition_that_grows_above_the_network_keeps_its_throttle_and_holds_up_no_other() -> None:
    small = replace(HOT, writes=10 * MB)
    cluster = Cluster()
    cluster.decided(small, *COLD, caps=NETWORK)
    busy = [replace(each, writes=10 * MB) for each in COLD]
    raised = cluster.decided(HOT, *busy, caps=NETWORK)
    assert raised.trigger == "minimum-rose"
    assert rates(raised)["leader:4"] > 60 * MB
    assert cluster.explanation.unfit == ()
    assert not raised.remove.follower


def test_the_smallest_network_is_no_reason_to_hold_up_brokers_with_larger_ones() -> None:
    caps = Caps(default_bytes_per_s=99 * MB, roles={BrokerRole("follower", 8): 4 * MB})
    cluster = Cluster()
    decision = cluster.decided(replace(HOT, writes=10 * MB), COLD[0], caps=caps)
    assert cluster.explanation.unfit == ()
    assert cluster.plan.feasible
    assert (rates(decision)["leader:1"], rates(decision)["follower:8"]) == (24 * MB, 1_200_000)
