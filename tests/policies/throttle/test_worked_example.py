"""The worked example, number by number; ``trimtab throttle plan`` and the page in docs/ print the same."""

from fractions import Fraction

import numpy as np
import pytest

from policies.throttle.batches import batches_of
from policies.throttle.lists import ThrottledLists, lists_of
from policies.throttle.needs import needs_of
from policies.throttle.rates import BrokerRole, Caps, RateRule, loads_of, per_broker_plan, uniform_plan
from policies.throttle.roles import of_role
from tests.policies.throttle.moving import GB, MB, WORKED_EXAMPLE, copies_of

MOVES = copies_of(*WORKED_EXAMPLE)
NEEDS = needs_of(MOVES)
LOADS = loads_of(NEEDS)
ROLES = ["leader:101", "leader:102", "leader:103", "follower:103", "follower:104"]


def test_sources_are_throttled_as_leaders_and_added_replicas_as_followers() -> None:
    assert lists_of(MOVES) == ThrottledLists(
        leader={"t0": "0:101,0:102,1:102,1:103,2:101,2:103", "t1": "0:101,0:102,0:103"},
        follower={"t0": "0:103,1:104,2:104", "t1": "0:104"},
    )


def test_bytes_to_move_and_the_three_kinds_of_minimum() -> None:
    assert of_role(NEEDS.bytes_left, "leader") == {101: 42 * GB, 102: 24 * GB, 103: 6 * GB}
    assert of_role(NEEDS.bytes_left, "follower") == {103: 12 * GB, 104: 60 * GB}
    assert of_role(NEEDS.write_bytes_per_s, "leader") == {101: 10 * MB, 102: 8 * MB, 103: 2 * MB}
    assert of_role(NEEDS.min_bytes_per_s, "leader") == {101: 26 * MB, 102: 16 * MB, 103: 4 * MB}
    assert of_role(NEEDS.min_bytes_per_s, "follower") == {103: 4 * MB, 104: 16 * MB}
    assert of_role(NEEDS.failover_safe_min_bytes_per_s, "leader") == {
        101: 30 * MB,
        102: 42 * MB,
        103: 38 * MB,
    }
    assert (NEEDS.lacking, NEEDS.whole_logs_count) == ((), 4)


def test_one_rate_for_all_finishes_in_8077_s() -> None:
    found = uniform_plan(LOADS, RateRule())
    assert (found.min_bytes_per_s, found.rate_bytes_per_s) == (26 * MB, 31_200_000)
    assert [str(role) for role in found.plan.durations_s] == ROLES
    assert [round(seconds or 0, 2) for seconds in found.plan.durations_s.values()] == [
        8076.92,
        1578.95,
        220.59,
        441.18,
        3947.37,
    ]
    assert found.plan.total_s == 42 * GB / (31_200_000 - 26 * MB)
    assert (found.plan.feasible, str(found.plan.bottleneck)) == (True, "leader:101")


def test_each_broker_its_own_minimum_and_headroom_takes_more_than_twice_as_long() -> None:
    found = per_broker_plan(LOADS, RateRule())
    assert list(found.rates.values()) == [31_200_000, 19_200_000, 4_800_000, 4_800_000, 19_200_000]
    assert [round(seconds or 0, 2) for seconds in found.durations_s.values()] == [
        8076.92,
        7500,
        7500,
        15000,
        18750,
    ]
    assert (found.total_s, str(found.bottleneck)) == (18750.0, "follower:104")


def test_a_deadline_of_an_hour_asks_of_each_broker_what_it_needs_and_is_kept() -> None:
    found = per_broker_plan(LOADS, RateRule(deadline_s=Fraction(3600)))
    assert list(found.rates.values()) == [37_666_667, 22_666_667, 5_666_667, 7_333_334, 32_666_667]
    assert found.total_s is not None
    assert 3599.99 < found.total_s <= 3600


@pytest.mark.parametrize("rate", [19_200_000, 21_600_000, 26_000_000])
def test_rates_that_the_usual_rule_recommends_never_finish(rate: int) -> None:
    found = uniform_plan(LOADS, RateRule(fixed_bytes_per_s=rate)).plan
    assert found.feasible is False
    assert (found.total_s, found.bottleneck) == (None, None)
    (violation,) = found.violations
    assert violation.role == BrokerRole("leader", 101)
    assert violation.min_bytes_per_s == 26 * MB
    assert violation.deficit_bytes_per_s == 26 * MB - rate
    assert [str(role) for role in found.durations_s] == ROLES[1:]


def test_a_rate_just_above_the_minimum_takes_for_ever_nearly() -> None:
    assert uniform_plan(LOADS, RateRule(fixed_bytes_per_s=27 * MB)).plan.total_s == 42_000


def test_topic_after_topic_needs_less_and_takes_twice_as_long() -> None:
    t0, t1 = (
        uniform_plan(loads_of(needs_of(MOVES.take(np.isin(np.arange(4), rows)))), RateRule())
        for rows in ([0, 1, 2], [3])
    )
    assert (t0.rate_bytes_per_s, t0.plan.total_s) == (19_200_000, 7500.0)
    assert (t1.rate_bytes_per_s, round(t1.plan.total_s or 0, 1)) == (21_600_000, 8333.3)


def test_batches_stay_below_the_cap_and_cost_time_unless_they_run_at_the_cap() -> None:
    cap = Caps(default_bytes_per_s=22 * MB)
    found = batches_of(MOVES, RateRule(caps=cap), count=None)
    assert [batch.copies.names() for batch in found.batches] == [["t0-1", "t0-2", "t1-0"], ["t0-0"]]
    assert [batch.plan.rate_bytes_per_s for batch in found.batches] == [21_600_000, 9_600_000]
    assert found.total_s == 60 * GB / 5_600_000 + 12 * GB / 1_600_000
    assert found.total_at_cap_s == 60 * GB / (6 * MB) + 12 * GB / (14 * MB)
