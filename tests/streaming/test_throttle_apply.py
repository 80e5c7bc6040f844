"""``trimtab throttle plan --apply``: what it sets beside what is there already, without a cluster."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import cast

import pytest

from policies.throttle.rates import Caps, RateRule
from policies.throttle.roles import BrokerRole
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.throttles import Change, Throttle
from streaming.planner.throttle_cluster import Applied, NotApplied, Survey, apply_plan
from streaming.planner.throttle_plan import make_plan
from streaming.planner.throttle_request import checked_request, read_request
from tests.streaming.throttle_plans import GOOD

PLANNED = 9_600_000
"""The rate of the plan: 1.2 times the minimum of 8 MB/s of the leader."""
ROLES = (BrokerRole("leader", 1), BrokerRole("follower", 3), BrokerRole("leader", 2))


@dataclass
class Cluster:
    """Notes what is set."""

    changes: list[str] = field(default_factory=list)

    def apply(self, changes: Iterable[Change]) -> None:
        self.changes += map(str, changes)


def applied(
    rates: Mapping[BrokerRole, int],
    *,
    rule: RateRule | None = None,
    replaces: bool = False,
    unreachable: Mapping[int, str] = MappingProxyType({}),
    awaited: Collection[int] = (),
    rows: Sequence[Mapping[str, object]] = (GOOD,),
) -> tuple[list[str], Applied]:
    """Changes of rates, and what is said."""
    checked = checked_request(read_request(json.dumps({"partitions": rows}).encode()))
    plan = make_plan(checked, rule or RateRule())
    throttle = Throttle(lists=plan.lists, rates_bytes_per_s=rates)
    found = Survey(checked=checked, throttle=throttle, unreachable=unreachable, awaited=awaited)
    cluster = Cluster()
    done = apply_plan(cast("KafkaCluster", cluster), plan, found, chosen="uniform", replace_rates=replaces)
    return cluster.changes, done


def test_a_second_apply_changes_nothing_though_the_measured_rate_is_a_little_different():
    changes, done = applied(dict.fromkeys(ROLES, round(PLANNED * 1.0008)))
    assert changes == []
    assert done.not_set == []
    assert done.done == [
        "everything was set already",
        *(f"kept: {role} has 9,607,680 bytes/s, near enough to the 9,600,000 of this plan" for role in ROLES),
    ]


def test_where_a_rate_cannot_be_set_not_everything_is_set_and_the_broker_and_remedy_are_named():
    changes, done = applied(dict.fromkeys(ROLES[:2], PLANNED), unreachable={2: "it is down", 7: "so is this"})
    assert changes == []
    assert done.done == ["all else was set already"]
    assert done.not_set == [
        "NOT set, the rates of broker 2: it is down. Until they are set, it may copy without a limit; repeat the command when it answers"
    ]


def test_a_broker_that_is_awaited_needs_no_rate_of_its_own():
    _, done = applied(dict.fromkeys(ROLES[:2], PLANNED), unreachable={2: "it is down"}, awaited=[2])
    assert done.not_set == []
    assert done.done == [
        "all else was set already",
        "broker 2 is away, so it gets no rate of its own; the rates of the leaders hold it back",
    ]


def test_rates_that_are_near_are_replaced_where_that_is_asked_for():
    changes, done = applied(dict.fromkeys(ROLES, PLANNED + 1), replaces=True)
    assert len(changes) == len(done.done) == 3


@pytest.mark.parametrize(
    ("there", "rule"),
    [
        pytest.param(round(PLANNED * 1.06), RateRule(), id="more than a twentieth"),
        pytest.param(7_999_999, RateRule(headroom_ratio=Fraction(1, 100)), id="below the minimum"),
        pytest.param(PLANNED + 2, RateRule(caps=Caps(default_bytes_per_s=PLANNED + 1)), id="above the cap"),
        pytest.param(PLANNED + 2, RateRule(fixed_bytes_per_s=PLANNED), id="asked for exactly"),
        pytest.param(PLANNED - 2, RateRule(deadline_s=Fraction(10**6)), id="too slow for a deadline"),
    ],
)
def test_a_rate_that_the_plan_does_not_allow_is_kept_and_nothing_is_set(there: int, rule: RateRule):
    with pytest.raises(NotApplied, match=f"leader:1 has {there:,} bytes/s"):
        applied(dict.fromkeys(ROLES, there), rule=rule)


def test_a_plan_that_misses_the_deadline_is_not_set():
    late = RateRule(deadline_s=Fraction(60), caps=Caps(default_bytes_per_s=PLANNED))
    with pytest.raises(
        NotApplied, match="not applied: uniform takes 10 min 25 s and misses the deadline of 1 min"
    ):
        applied({}, rule=late)


def test_a_rate_that_may_be_too_low_for_an_unknown_write_rate_is_not_set_and_the_partition_named():
    rows = [GOOD, {**GOOD, "partition": 1, "write_bytes_per_s": None}]
    with pytest.raises(
        NotApplied, match="whether it would ever end, because the write rate of t-1 is unknown: give it as"
    ):
        applied({}, rows=rows)
