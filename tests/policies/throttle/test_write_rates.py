"""Write rates from growth: logs that grew, logs that shrank, and rates that stay unknown."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.moves import UNKNOWN
from policies.throttle.needs import LogReading, write_rates


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
