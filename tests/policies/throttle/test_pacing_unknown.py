"""Partitions of which a number stays unknown: the others are paced all the same."""

from dataclasses import replace

import pytest

from policies.throttle.rates import ThrottleSettings
from tests.policies.throttle.moving import GB, MB, Partition
from tests.policies.throttle.test_pacing import MOVE, Cluster, rates


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_partition_whose_write_rate_stays_unknown_keeps_no_other_from_its_throttle(mode: str) -> None:
    cluster, odd = Cluster(settings=ThrottleSettings(rates=mode)), Partition("u-0", [5], [6], None, GB)  # type: ignore[arg-type]
    for _ in range(3):
        assert cluster.round(MOVE, odd) is None
        assert cluster.outcome == "unknown"
    decision = cluster.round(MOVE, odd)
    found = rates(decision)
    assert [found[role] for role in ("leader:1", "leader:5", "follower:6")] == [9_600_000] * 3
    assert cluster.lists.follower == {"t": "0:3", "u": "0:6"}
    assert cluster.round(MOVE, odd) is None
    risen = cluster.round(replace(MOVE, writes=40 * MB), odd)
    assert risen is not None
    assert (risen.trigger, rates(risen)["leader:1"]) == ("minimum-rose", 96 * MB)
    assert cluster.explanation is not None
    assert cluster.explanation.plan is not None
    assert cluster.explanation.plan.feasible is None
    known = cluster.round(replace(MOVE, writes=40 * MB), replace(odd, writes=300 * MB))
    assert known is not None
    assert (known.trigger, rates(known)["leader:5"]) == ("minimum-rose", 360 * MB)


def test_after_the_failover_safe_rates_minimums_of_what_is_known_are_met_and_nothing_is_lowered() -> None:
    silent = Partition("t-2", [2, 1], [1, 3], 6 * MB, GB, leader=2)
    cluster = Cluster()
    cluster.round(MOVE, silent)
    decisions = [cluster.round(MOVE, replace(silent, writes=None)) for _ in range(20)]
    assert [each.trigger for each in decisions if each is not None] == ["stale-reports"]
    risen = cluster.round(replace(MOVE, writes=20 * MB), replace(silent, writes=None))
    assert risen is not None
    assert (risen.trigger, rates(risen)["leader:1"]) == ("minimum-rose", 48 * MB)
    cluster.now_ms += 60_000
    back = cluster.round(MOVE, silent)
    assert back is not None
    assert (back.trigger, set(rates(back).values())) == ("reports-back", {14_400_000})
