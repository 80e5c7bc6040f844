"""A partition without a leader: nothing is written to it and nothing of it is copied, so the others are paced without it."""

from dataclasses import replace

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole, Caps, ThrottleSettings
from tests.policies.throttle.moving import GB, MB, Partition
from tests.policies.throttle.test_pacing import MOVE, Cluster, rates

DEAD = Partition("t-9", [4, 5], [5, 6], None, None, leader=-1)
"""Its write rate and its size are unknown."""
BACK = replace(DEAD, writes=7 * MB, size=20 * GB, leader=5)
"""Leader 5 then needs 14 MB/s."""


def told_of(cluster: Cluster) -> tuple[str, tuple[str, ...]]:
    assert cluster.explanation is not None
    assert cluster.explanation.needs is not None
    return cluster.outcome, cluster.explanation.needs.without_leader


def test_the_others_get_their_first_throttle_and_it_is_on_the_lists_for_the_day_it_has_a_leader() -> None:
    cluster = Cluster()
    decision = cluster.round(MOVE, DEAD)
    assert decision is not None
    assert decision.trigger == "first-throttle"
    assert decision.add == ThrottledLists(leader={"t": "0:1,0:2,9:4,9:5"}, follower={"t": "0:3,9:6"})
    assert rates(decision) == dict.fromkeys(
        ["leader:1", "leader:2", "leader:4", "leader:5", "follower:3", "follower:6"], 9_600_000
    )
    assert told_of(cluster) == ("decided", ("t-9",))


def test_a_rate_of_its_own_is_at_least_the_floor() -> None:
    cluster = Cluster(settings=ThrottleSettings(rates="per-broker"))
    assert rates(cluster.round(MOVE, DEAD)) == {
        "leader:1": 9_600_000,
        "leader:2": 9_600_000,
        "leader:4": 1_048_576,
        "leader:5": 1_048_576,
        "follower:3": 4_800_000,
        "follower:6": 1_048_576,
    }


def test_nobody_knows_when_it_is_done_or_whether() -> None:
    cluster = Cluster()
    cluster.round(MOVE, DEAD)
    for _ in range(3):
        assert cluster.explanation is not None
        assert cluster.explanation.plan is not None
        assert cluster.explanation.eta is not None
        assert (cluster.explanation.plan.feasible, cluster.explanation.plan.total_s) == (None, None)
        assert (cluster.explanation.eta.remaining_s, cluster.explanation.eta.basis) == (None, "unknown")
        cluster.round(MOVE, DEAD)


def test_what_was_observed_before_says_nothing_of_the_end_either() -> None:
    cluster = Cluster()
    for step in range(1, 8):
        cluster.round(replace(MOVE, present={3: step * GB}), replace(BACK, present={6: step * GB}))
    assert cluster.explanation is not None
    assert cluster.explanation.eta is not None
    assert cluster.explanation.eta.basis == "observed"
    cluster.round(MOVE, DEAD)
    assert (cluster.explanation.eta.remaining_s, cluster.explanation.eta.basis) == (None, "unknown")


def test_the_others_still_keep_the_deadline() -> None:
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000))
    assert rates(cluster.round(MOVE, DEAD))["leader:1"] == 18 * MB


def test_a_minimum_that_it_takes_once_it_has_a_leader_is_answered_at_once() -> None:
    cluster = Cluster()
    cluster.round(MOVE, DEAD)
    assert cluster.round(MOVE, replace(BACK, writes=None)) is None, "its write rate is not known yet"
    decision = cluster.round(MOVE, BACK)
    assert decision is not None
    assert decision.trigger == "minimum-rose"
    assert rates(decision)["leader:5"] == 16_800_000
    assert told_of(cluster) == ("decided", ())


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_partition_that_loses_its_leader_leaves_the_throttle_as_it_is(mode: str) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=mode))  # type: ignore[arg-type]
    cluster.round(MOVE, BACK)
    for _ in range(10):
        assert cluster.round(MOVE, DEAD) is None
        assert told_of(cluster) == ("kept", ("t-9",))


def test_missing_reports_then_fall_back_to_what_it_needed_when_it_had_one() -> None:
    cluster = Cluster(settings=ThrottleSettings(rates="per-broker"))
    cluster.round(MOVE, BACK)
    cluster.round(MOVE, DEAD)
    decisions = [cluster.round(reported=False) for _ in range(3)]
    assert decisions[:2] == [None, None]
    assert cluster.memory.safe_leader_mins[4] == 14 * MB
    assert cluster.memory.rates()[("leader", 4)] >= 16_800_000  # type: ignore[index]


def test_reports_that_are_back_lower_nothing_before_it_has_a_leader_again() -> None:
    other, nobody = replace(MOVE, name="t-1", leader=2), {"writes": None, "leader": -1}
    cluster = Cluster()
    before = rates(cluster.round(MOVE, other))
    for _ in range(3):
        cluster.round(reported=False)
    assert set(cluster.memory.rates().values()) == {2 * before["leader:1"]}, "one may have to lead both"
    for _ in range(10):
        assert cluster.round(MOVE, replace(other, **nobody)) is None  # type: ignore[arg-type]
        assert cluster.round(replace(MOVE, **nobody), replace(other, **nobody)) is None  # type: ignore[arg-type]
    decision = cluster.round(MOVE, other)
    assert decision is not None
    assert decision.trigger == "reports-back"


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_cap_counts_for_it_too_and_lowers_the_others_no_further(mode: str) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=mode))  # type: ignore[arg-type]
    caps = Caps(roles={BrokerRole("follower", 6): 9 * MB})
    decision = cluster.round(MOVE, DEAD, caps=caps)
    assert rates(decision)["follower:6"] <= 9 * MB
    for _ in range(10):
        assert cluster.round(MOVE, DEAD, caps=caps) is None, "nothing is left to be changed"

    cluster = Cluster(settings=ThrottleSettings(rates=mode))  # type: ignore[arg-type]
    before = rates(cluster.round(MOVE, BACK))
    cap = before["follower:6"] // 2
    caps, nobody_leads = Caps(roles={BrokerRole("follower", 6): cap}), replace(MOVE, writes=None, leader=-1)
    lowered = [cluster.round(nobody_leads, DEAD, caps=caps) for _ in range(10)]
    found = [each for each in lowered if each is not None]
    assert [each.trigger for each in found] == ["over-cap"]
    assert rates(found[0]) == (
        dict.fromkeys(before, cap) if mode == "uniform" else before | {"follower:6": cap}
    )


def test_where_none_has_a_leader_nothing_is_known() -> None:
    cluster = Cluster()
    for _ in range(3):
        assert cluster.round(DEAD) is None
        assert told_of(cluster) == ("unknown", ("t-9",))


def test_one_with_a_leader_and_an_unknown_write_rate_still_gives_no_number() -> None:
    cluster = Cluster()
    assert cluster.round(replace(MOVE, writes=None), DEAD) is None
    assert told_of(cluster) == ("unknown", ("t-9",))
