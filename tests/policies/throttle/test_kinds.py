"""Recoveries and moves between disks beside reassignments: who needs what, what is on the lists, and what makes room for what."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from policies.throttle.checked_copies import BadCopy
from policies.throttle.copies import DISK, REASSIGNMENT, RECOVERY, broken_copies, kept_replicas_down
from policies.throttle.lists import ThrottledLists, lists_of, roles_of
from policies.throttle.needs import bytes_left, needs_of, partitions_of
from policies.throttle.rates import (
    Caps,
    Load,
    RateRule,
    ThrottleSettings,
    loads_of,
    share_cluster,
    uniform_plan,
)
from policies.throttle.roles import BrokerRole
from tests.policies.throttle.moving import GB, MB, Partition, copies_of, read
from tests.policies.throttle.reassigned import Cluster, rates

BACK = Partition("t-0", [1, 2, 3], [1, 2, 3], 4 * MB, 10 * GB, isr=[1, 2], recovering=[3], missing={3: GB})
"""Broker 3 has missed 1 GB; leader 1 sends to two followers."""
MOVE = Partition("t-1", [1, 2], [2, 3], 2 * MB, 6 * GB, leader=1, isr=[1, 2])
ON_DISKS = tuple(
    Partition(f"u-{number}", [5, 6], [5, 6], writes * MB, GB, isr=[5, 6], between_disks=[5])
    for number, writes in enumerate((3, 1, 2))
)


def texts(found: Mapping[BrokerRole, object]) -> dict[str, object]:
    return {str(role): value for role, value in found.items()}


def test_a_recovery_needs_what_a_reassignment_does_and_one_rate_covers_both():
    needs = needs_of(copies_of(BACK, MOVE))
    assert texts(needs.min_bytes_per_s) == {"leader:1": 12 * MB, "follower:3": 6 * MB}
    assert texts(needs.bytes_left) == {"leader:1": 7 * GB, "follower:3": 7 * GB}
    assert lists_of(copies_of(BACK, MOVE)) == ThrottledLists(
        leader={"t": "0:1,0:2,0:3,1:1,1:2"}, follower={"t": "0:3,1:3"}
    )


@pytest.mark.parametrize(
    ("threads", "minimum"),
    [({5: 1}, 3 * MB), ({5: 2}, 5 * MB), ({5: 9}, 6 * MB), ({}, 6 * MB), ({6: 1}, 6 * MB)],
)
def test_disks_need_the_greatest_write_rates_of_what_they_copy_at_once(threads: dict[int, int], minimum: int):
    needs = needs_of(copies_of(*ON_DISKS), disk_threads=threads)
    assert texts(needs.min_bytes_per_s) == {"disk:5": minimum}
    assert texts(needs.bytes_left) == {"disk:5": 3 * GB}


@pytest.mark.parametrize(
    ("role", "partitions"),
    [
        (BrokerRole("leader", 1), [("t-0", 8 * MB), ("t-1", 4 * MB)]),
        (BrokerRole("follower", 3), [("t-0", 4 * MB), ("t-1", 2 * MB)]),
        (BrokerRole("disk", 5), [("u-0", 3 * MB), ("u-2", 2 * MB), ("u-1", MB)]),
        (BrokerRole("leader", 5), []),
    ],
    ids=str,
)
def test_what_each_partition_needs_of_a_role_is_told_the_greatest_need_first(
    role: BrokerRole, partitions: list[tuple[str, int]]
):
    copies = copies_of(BACK, MOVE, replace(MOVE, name="t-2", writes=None), *ON_DISKS)
    assert partitions_of(copies, role) == partitions


def test_a_write_rate_that_is_unknown_leaves_the_minimum_of_its_disks_unknown():
    rows = (*ON_DISKS, replace(ON_DISKS[0], name="u-3", writes=None))
    assert texts(needs_of(copies_of(*rows), disk_threads={5: 1}).min_bytes_per_s) == {"disk:5": None}


def test_what_moves_between_disks_is_on_no_list_and_has_a_rate_of_its_own():
    copies = copies_of(*ON_DISKS, MOVE)
    assert lists_of(copies) == lists_of(copies_of(MOVE))
    assert [str(role) for role in roles_of(copies)] == ["leader:1", "leader:2", "follower:3", "disk:5"]
    rule = RateRule(
        caps=Caps(roles={BrokerRole("disk", 5): 50 * MB}), room=Caps(roles={BrokerRole("disk", 5): 50 * MB})
    )
    plan = uniform_plan(loads_of(needs_of(copies)), rule)
    assert texts(plan.plan.rates) == {"leader:1": 4_800_000, "follower:3": 4_800_000, "disk:5": 50 * MB}


def test_what_a_recovery_lacks_is_what_it_says_and_never_a_difference_of_sizes():
    said, unsaid = BACK, replace(BACK, missing={}, present={3: 15 * GB})
    assert bytes_left(copies_of(said)).tolist() == [GB]
    assert bytes_left(copies_of(unsaid)).tolist() == [10 * GB], "at most the whole log"
    assert bytes_left(copies_of(unsaid), counts_whole_logs=False).tolist() == [-1]


def test_a_replica_that_is_in_sync_recovers_no_more():
    assert len(copies_of(replace(BACK, isr=[1, 2, 3]))) == 0


def test_kinds_are_kept_apart_also_where_one_replica_recovers_and_changes_its_disk():
    copies = copies_of(replace(BACK, between_disks=[3]), MOVE)
    assert copies.kind.tolist() == [RECOVERY, DISK, REASSIGNMENT]
    assert copies.of_kind(RECOVERY).brokers.tolist() == [3]
    assert copies.take_copies(copies.kind == DISK).names() == ["t-0"]


def test_only_what_is_reassigned_has_a_fingerprint():
    assert copies_of(BACK).fingerprint() is None
    assert copies_of(BACK, MOVE).fingerprint() == copies_of(MOVE).fingerprint() is not None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            replace(BACK, recovering=[9]),
            r"t-0: recovering is \[9\], which are not all among current_replicas \[1, 2, 3\]",
        ),
        (replace(BACK, between_disks=[8]), r"t-0: between_disks is \[8\], which are not all"),
    ],
)
def test_a_copy_to_a_replica_that_is_none_is_refused(row: Partition, message: str):
    with pytest.raises(BadCopy, match=message):
        read(row)


def test_a_recovery_whose_broker_is_away_is_planned_and_breaks_nothing():
    copies = copies_of(BACK, replace(MOVE, target=[1, 2, 4]))
    assert broken_copies(copies, {3}) == {}
    assert kept_replicas_down(copies, {3}) == {}
    assert broken_copies(copies, {1, 2}) == {1: ["t-0", "t-1"], 2: ["t-0", "t-1"]}, (
        "nothing is left to copy from"
    )


def test_a_recovery_that_had_begun_is_broken_while_its_broker_is_away_again():
    assert broken_copies(copies_of(BACK), {3}, begun={3}) == {3: ["t-0"]}
    assert broken_copies(copies_of(BACK), {2}, begun={3}) == {}


def test_under_min_isr_the_sources_leave_the_lists_and_the_others_run_at_their_minimum():
    cluster, room = (
        Cluster(settings=ThrottleSettings(min_change_interval_s=0)),
        Caps(default_bytes_per_s=50 * MB),
    )
    well = replace(MOVE, min_in_sync=2)
    assert set(rates(cluster.decided(well, caps=room, room=room)).values()) == {50 * MB}
    decision = cluster.decided(replace(well, isr=[1]), caps=room, room=room)
    assert decision.trigger == "under-min-isr"
    assert decision.remove == ThrottledLists(leader={"t": "1:1,1:2"})
    assert rates(decision) == {"follower:3": 4_800_000}
    assert rates(cluster.decided(well, caps=room, room=room))["leader:1"] > 0, "it goes back"


def load(broker: int, left: int | None, minimum: int) -> Load:
    return Load(role=BrokerRole("follower", broker), bytes_left=left, min_bytes_per_s=minimum)


@pytest.mark.parametrize(
    ("cluster_bytes_per_s", "shared"),
    [
        (None, {3: 60, 4: 60}),
        (120, {3: 60, 4: 60}),
        (100, {3: 60, 4: 33}),
        (50, {3: 33, 4: 16}),
        (30, {3: 20, 4: 10}),
        (10, {3: 20, 4: 10}),
    ],
    ids=[
        "no limit",
        "within it",
        "by bytes left",
        "just above the minimums",
        "the minimums",
        "less than them",
    ],
)
def test_the_limit_of_the_cluster_is_shared_by_bytes_left_above_the_minimums(
    cluster_bytes_per_s: int | None, shared: dict[int, int]
):
    loads = [load(3, 200, 20), load(4, 100, 10)]
    wanted = {BrokerRole("leader", 1): 60, BrokerRole("follower", 3): 60, BrokerRole("follower", 4): 60}
    found = share_cluster(wanted, loads, cluster_bytes_per_s)
    assert found == wanted | {BrokerRole("follower", broker): rate for broker, rate in shared.items()}


def test_a_limit_of_the_cluster_below_the_minimums_is_infeasible():
    cluster = Cluster(settings=ThrottleSettings(cluster_bytes_per_s=5 * MB))
    assert cluster.round(BACK, MOVE) is None
    assert cluster.outcome == "infeasible"


def test_a_replica_that_has_caught_up_leaves_the_lists_at_once():
    cluster = Cluster()
    other = replace(BACK, name="t-2")
    assert cluster.decided(BACK, other).trigger == "first-throttle"
    decision = cluster.decided(BACK)
    assert decision.trigger == "moves-left"
    assert decision.remove.follower == {"t": "2:3"}
    assert cluster.decided().trigger == "finished"
