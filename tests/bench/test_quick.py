"""Every section of the benchmarks runs, and none of its figures is absurd: a benchmark that is broken says nothing."""

import math

import pytest

from tests.bench.__main__ import PARTS
from tests.bench.report import Row
from tests.support.network import IS_POSSIBLE

FAR_TIMES = 20
"""A busy machine, or few repetitions, miss a limit by a few times. More is a wait that timed out, or nothing measured."""
LEAST_RATIO = 0.2
"""For ratios to the least possible work: trimtab cannot take a fifth of the time of the same query that decides nothing."""


def absurdity(row: Row) -> str | None:
    """What cannot be true of a figure; None where it can."""
    if not math.isfinite(row.value) or row.value < 0:
        return "is no measurement"
    if row.unit == "x" and row.value < LEAST_RATIO:
        return f"is below {LEAST_RATIO}"
    if row.limit is None:
        return None
    times = row.value / row.limit if row.at_least is None else row.limit / max(row.value, 1e-12)
    return f"misses its limit {times:.0f} times over" if times > FAR_TIMES else None


FIGURES = [
    (Row("ratio", 0.02, "x", at_most=1.5), True),
    (Row("ratio", 1.9, "x", at_most=1.5), False),
    (Row("wait", 30_000.0, "ms", at_most=1_000.0), True),
    (Row("wait", 2_000.0, "ms", at_most=1_000.0), False),
    (Row("speed", 0.0, "MB/s", at_least=250.0), True),
    (Row("speed", math.nan, "MB/s"), True),
    (Row("speed", 60.0, "MB/s", at_least=250.0), False),
]


@pytest.mark.parametrize(("row", "is_absurd"), FIGURES)
def test_a_figure_that_cannot_be_true_is_told_from_a_slow_machine(row: Row, *, is_absurd: bool):
    assert (absurdity(row) is not None) == is_absurd


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(PARTS))
def test_the_section_runs_and_none_of_its_figures_is_absurd(name: str):
    if name == "copies-live" and not IS_POSSIBLE:
        pytest.skip("network namespaces need root, ip and tc")
    section = PARTS[name](quick=True)
    assert section.rows
    found = {row.name: f"{row.value:g} {row.unit} {why}" for row in section.rows if (why := absurdity(row))}
    assert not found
