"""Write rates from growth: what grew, what shrank, and what nobody can tell."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.moves import UNKNOWN
from policies.throttle.write_rates import LogReading, shared_rates, write_rates


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


@pytest.mark.parametrize(
    ("offsets", "rates", "expected"),
    [
        ([(0, 10), (0, 30)], (100,), [25, 75]),
        ([(0, 1), (0, 2)], (100,), [34, 67]),
        ([(0, 0), (0, 0)], (0,), [0, 0]),
        ([(0, 0), (0, 0)], (100,), [UNKNOWN, UNKNOWN]),
        ([(0, 10), (9, 8)], (100,), [UNKNOWN, UNKNOWN]),
        ([(0, 10), (UNKNOWN, 8)], (100,), [UNKNOWN, UNKNOWN]),
        ([(0, 10), (0, 30)], (None,), [UNKNOWN, UNKNOWN]),
    ],
)
def test_a_topics_rate_is_shared_by_growth_of_end_offsets(
    offsets: list[tuple[int, int]], rates: tuple[int | None, ...], expected: list[int]
) -> None:
    before = reading(0, *((1, UNKNOWN, first) for first, _ in offsets))
    after = reading(5000, *((1, UNKNOWN, last) for _, last in offsets))
    topic = np.zeros(len(offsets), dtype=np.int64)
    assert shared_rates(before, after, topic=topic, topic_bytes_per_s=rates).tolist() == expected


def test_one_topics_gap_is_not_anothers() -> None:
    before, after = reading(0, (1, 0, 0), (1, 0, 9)), reading(5000, (1, 0, 4), (1, 0, 1))
    found = shared_rates(before, after, topic=np.array([0, 1]), topic_bytes_per_s=(8, 8))
    assert found.tolist() == [8, UNKNOWN]
