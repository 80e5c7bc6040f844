"""What a reassignment moves and needs, and write rates from the growth of logs."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.checked_copies import BadCopy
from policies.throttle.copies import UNKNOWN
from policies.throttle.lists import lists_of
from policies.throttle.needs import Lack, LogReading, known_needs_of, needs_of, write_rates
from policies.throttle.rates import Load, RateRule, loads_of, per_broker_plan, uniform_plan
from policies.throttle.roles import of_role
from tests.policies.throttle.moving import MB, Partition, copies_of, read

GOOD = Partition("t-0", [1, 2], [2, 3], 4 * MB, 100 * MB)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD, GOOD], "t-0: given twice; give each partition once"),
        ([replace(GOOD, replicas=[], leader=-1)], "t-0: current_replicas is empty"),
        ([replace(GOOD, target=[])], "t-0: target_replicas is empty"),
        ([replace(GOOD, replicas=[1, 2, 1])], "t-0: current_replicas is [1, 2, 1]; give each broker once"),
        ([replace(GOOD, target=[3, 3])], "t-0: target_replicas is [3, 3]; give each broker once"),
        ([replace(GOOD, target=[3, -1])], "t-0: target_replicas is [3, -1]; a broker id is 0 to 2147483647"),
        (
            [replace(GOOD, target=[2**31])],
            "t-0: target_replicas is [2147483648]; a broker id is 0 to 2147483647",
        ),
        ([replace(GOOD, leader=9)], "t-0: leader is 9, which is not among current_replicas [1, 2]"),
        ([replace(GOOD, leader=-2)], "t-0: leader is -2, which is not among current_replicas [1, 2]"),
        ([replace(GOOD, writes=-3)], "t-0: write_bytes_per_s is -3; expected 0 or more, or null for unknown"),
        ([replace(GOOD, size=-1)], "t-0: log_size_bytes is -1; expected 0 or more, or null for unknown"),
        (
            [replace(GOOD, size=2**63)],
            "t-0: log_size_bytes is outside 0 to 9223372036854775807, the largest number Kafka holds",
        ),
        ([replace(GOOD, name="a b-0")], "'a b' is no topic name: Kafka allows 1 to 249 of A-Z a-z 0-9 . _ -"),
        (
            [replace(GOOD, name="t-4294967296")],
            "t-4294967296: partition is 4294967296; expected 0 to 2147483647",
        ),
        (
            [replace(GOOD, replicas=[2, 3], adding=[2, 3])],
            "t-0: all of current_replicas [2, 3] are being added; one must be a source",
        ),
        (
            [replace(GOOD, replicas=[1, 2, 4], adding=[4])],
            "t-0: already being reassigned: Kafka is adding [4], and target_replicas [2, 3] leaves some of them out; cancel that move first, or keep its targets",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_row_that_cannot_be_right_is_refused_by_name(rows: Sequence[Partition], message: str) -> None:
    with pytest.raises(BadCopy) as refusal:
        read(*rows)
    assert str(refusal.value) == message


def test_of_several_bad_rows_the_first_by_topic_and_partition_is_named() -> None:
    rows = [replace(GOOD, name=f"t-{number}", target=[]) for number in (10, 2, 7)]
    with pytest.raises(BadCopy, match=r"t-2: target"):
        read(*rows)


@pytest.mark.parametrize("target", [[2, 1], [1], [2]])
def test_reordering_or_removing_moves_no_data(target: list[int]) -> None:
    found = read(replace(GOOD, target=target), replace(GOOD, name="t-1"))
    assert found.without_data_movement == ("t-0",)
    assert found.copies.names() == ["t-1"]


def test_more_replicas_are_sources_and_added_ones() -> None:
    copies = copies_of(replace(GOOD, target=[1, 2, 3, 4]))
    assert lists_of(copies).leader == {"t": "0:1,0:2"}
    assert lists_of(copies).follower == {"t": "0:3,0:4"}
    needs = needs_of(copies)
    assert of_role(needs.bytes_left, "leader") == {1: 200 * MB}
    assert of_role(needs.min_bytes_per_s, "leader") == {1: 12 * MB}
    assert of_role(needs.min_bytes_per_s, "follower") == {3: 4 * MB, 4: 4 * MB}


def test_replicas_that_kafka_is_adding_are_no_sources() -> None:
    running = replace(GOOD, replicas=[1, 2, 3], adding=[3])
    assert lists_of(copies_of(running)) == lists_of(copies_of(GOOD))
    assert copies_of(running).fingerprint() == copies_of(GOOD).fingerprint()


def test_a_running_move_counts_what_the_new_replica_lacks() -> None:
    assert of_role(needs_of(copies_of(replace(GOOD, present={3: 30 * MB}))).bytes_left, "leader") == {
        1: 70 * MB
    }
    assert of_role(needs_of(copies_of(replace(GOOD, present={3: 300 * MB}))).bytes_left, "follower") == {3: 0}


def test_a_new_replica_in_sync_has_nothing_left_to_receive_and_still_counts_in_the_minimum() -> None:
    needs = needs_of(copies_of(replace(GOOD, isr=[1, 2, 3])))
    assert of_role(needs.bytes_left, "follower") == {3: 0}
    assert of_role(needs.min_bytes_per_s, "leader") == {1: 8 * MB}
    assert needs.whole_logs_count == 0


def test_a_partition_without_a_leader_is_nobodys_to_send_and_still_failover_safe() -> None:
    needs = needs_of(copies_of(replace(GOOD, leader=-1)))
    assert of_role(needs.min_bytes_per_s, "leader") == {}
    assert of_role(needs.bytes_left, "follower") == {3: 100 * MB}
    assert of_role(needs.failover_safe_min_bytes_per_s, "leader") == {1: 8 * MB, 2: 8 * MB}


def test_what_is_unknown_gives_no_number_and_names_the_partition() -> None:
    rows = [
        GOOD,
        replace(GOOD, name="t-1", writes=None),
        replace(GOOD, name="u-0", replicas=[5, 6], size=None),
    ]
    needs = needs_of(copies_of(*rows))
    assert needs.lacking == (
        Lack(partition="t-1", lacks=("write_bytes_per_s",)),
        Lack(partition="u-0", lacks=("log_size_bytes",)),
    )
    assert of_role(needs.min_bytes_per_s, "leader") == {1: None, 5: 12 * MB}
    assert of_role(needs.bytes_left, "leader") == {1: 200 * MB, 5: None}


UNKNOWN_RATE = replace(GOOD, name="t-1", writes=None)
"""On the brokers of ``GOOD``."""
ELSEWHERE = replace(UNKNOWN_RATE, replicas=[7, 8], target=[8, 9])
UNKNOWN_SIZE = replace(GOOD, name="u-0", size=None)


def loads(*rows: Partition) -> tuple[Load, ...]:
    copies = copies_of(*rows)
    return loads_of(needs_of(copies), known_needs_of(copies))


@pytest.mark.parametrize(
    ("rows", "uniform", "own"),
    [
        ([GOOD, ELSEWHERE], 9_600_000, [9_600_000, None, 4_800_000, None]),
        ([GOOD, UNKNOWN_RATE], 9_600_000, [9_600_000, 4_800_000]),
        ([UNKNOWN_RATE], None, [None, None]),
    ],
    ids=["on other brokers", "on the same brokers", "alone"],
)
def test_an_unknown_write_rate_leaves_rates_of_what_is_known_and_the_end_unknown(
    rows: Sequence[Partition], uniform: int | None, own: list[int | None]
) -> None:
    found = uniform_plan(loads(*rows), RateRule())
    assert (found.min_bytes_per_s, found.rate_bytes_per_s) == (None, uniform)
    per_broker = per_broker_plan(loads(*rows), RateRule())
    assert list(per_broker.rates.values()) == own
    for plan in (found.plan, per_broker):
        assert (plan.feasible, plan.total_s, plan.bottleneck) == (None, None, None)


def test_an_unknown_size_leaves_a_deadline_to_what_has_a_size_and_the_end_known_to_come() -> None:
    rule = RateRule(deadline_s=Fraction(5))
    found = uniform_plan(loads(GOOD, UNKNOWN_SIZE), rule)
    assert found.rate_bytes_per_s == 16 * MB + 100 * MB // 5
    per_broker = per_broker_plan(loads(GOOD, UNKNOWN_SIZE), rule)
    assert list(per_broker.rates.values()) == [36 * MB, 28 * MB]
    for plan in (found.plan, per_broker):
        assert (plan.feasible, plan.total_s, plan.bottleneck) == (True, None, None)


@pytest.mark.parametrize("other", [ELSEWHERE, UNKNOWN_RATE], ids=["on other brokers", "on the same"])
def test_a_known_violation_is_told_even_when_something_else_is_unknown(other: Partition) -> None:
    plan = uniform_plan(loads(GOOD, other), RateRule(fixed_bytes_per_s=5 * MB)).plan
    assert plan.feasible is False
    assert [(str(found.role), found.min_bytes_per_s) for found in plan.violations] == [("leader:1", 8 * MB)]


def test_without_traffic_the_floor_is_the_rate() -> None:
    loads = loads_of(needs_of(copies_of(replace(GOOD, writes=0, size=2**20 * 50))))
    found = uniform_plan(loads, RateRule())
    assert (found.min_bytes_per_s, found.rate_bytes_per_s, found.plan.total_s) == (0, 2**20, 50.0)


def test_a_partition_without_data_is_done_at_any_rate() -> None:
    plan = uniform_plan(
        loads_of(needs_of(copies_of(replace(GOOD, size=0)))), RateRule(fixed_bytes_per_s=1)
    ).plan
    assert (plan.feasible, plan.total_s) == (True, 0.0)


def test_nothing_to_move_takes_no_time() -> None:
    found = uniform_plan(loads_of(needs_of(copies_of())), RateRule())
    assert (found.min_bytes_per_s, found.plan.feasible, found.plan.total_s, found.plan.bottleneck) == (
        0,
        True,
        0.0,
        None,
    )


def test_sums_are_exact_beyond_64_bits() -> None:
    most = 2**63 - 1
    rows = [
        replace(GOOD, name=f"t-{number}", writes=most, size=most, target=[1, 2, 3, 4])
        for number in range(1000)
    ]
    needs = needs_of(copies_of(*rows))
    assert of_role(needs.bytes_left, "leader") == {1: 2000 * most}
    assert of_role(needs.min_bytes_per_s, "leader") == {1: 3000 * most}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([Partition("t-0", [2], [2, 4], 5, 900), Partition("t-1", [1], [1, 3], 5, 900)], "leader:1"),
        (
            [
                Partition(f"t-{number}", [leader], [leader, follower], 0, 900)
                for number, (leader, follower) in enumerate([(9, 5), (8, 5), (7, 4), (6, 4)])
            ],
            "follower:4",
        ),
    ],
    ids=["leaders-before-followers", "smaller-id"],
)
def test_of_roles_that_end_together_the_leader_and_then_the_smaller_id_is_the_last(
    rows: list[Partition], expected: str
) -> None:
    found = uniform_plan(loads_of(needs_of(copies_of(*rows))), RateRule(fixed_bytes_per_s=10))
    assert str(found.plan.bottleneck) == expected


def reading(at_ms: int, *rows: tuple[int, int, int]) -> LogReading:
    """Rows of leader, size, end offset."""
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    return LogReading(
        at_ms=at_ms, leader=columns[:, 0], log_size_bytes=columns[:, 1], end_offset=columns[:, 2]
    )


@pytest.mark.parametrize(
    ("before", "after", "elapsed_ms", "expected"),
    [
        ((1, 1000, 10), (1, 6000, 20), 5000, 1000),
        ((1, 1000, 10), (1, 1001, 11), 10_000, 1),
        ((1, 1000, 10), (1, 6000, 20), 4999, UNKNOWN),
        ((1, 6000, 10), (1, 1000, 20), 5000, UNKNOWN),
        ((1, 6000, 10), (1, 1000, 10), 5000, 0),
        ((1, 6000, 10), (1, 1000, 10), 4999, UNKNOWN),
        ((1, 6000, UNKNOWN), (1, 6000, UNKNOWN), 5000, 0),
        ((1, UNKNOWN, 10), (1, 6000, 20), 5000, UNKNOWN),
        ((1, 1000, 10), (1, UNKNOWN, 20), 5000, UNKNOWN),
        ((1, 1000, 10), (2, 6000, 20), 5000, UNKNOWN),
        ((-1, 1000, 10), (-1, 1000, 10), 5000, UNKNOWN),
        ((1, 0, 0), (1, 2**63 - 1, 9), 1_000_000, 9223372036854776),
    ],
)
def test_growth_of_the_leaders_log(
    before: tuple[int, int, int], after: tuple[int, int, int], elapsed_ms: int, expected: int
) -> None:
    assert write_rates(reading(7, before), reading(7 + elapsed_ms, after)).tolist() == [expected]


@given(growth=st.integers(0, 2**63 - 1), elapsed_ms=st.integers(5000, 10**7))
def test_growth_a_second_is_exact_and_rounded_up(growth: int, elapsed_ms: int) -> None:
    (found,) = write_rates(reading(0, (1, 0, 0)), reading(elapsed_ms, (1, growth, 1))).tolist()
    assert found == ceil(Fraction(growth * 1000, elapsed_ms))
