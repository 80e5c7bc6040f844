"""Numbers that cannot be computed with are refused where they are read: from a file, flag, variable or control event.

Beyond these limits the ends of rounds are outside the calendar, and ratios and squares in a summary become infinite. Every
limit is far beyond real use.
"""

import math

from state.settings import LONGEST_S

LARGEST = 1e18
"""Largest absolute value; the same limit as for a rate in a report."""
SMALLEST = 1 / LARGEST
"""Smallest absolute value except 0: the ratio of two numbers is then at most 1e36, which single precision holds."""


def size_problem_of(name: str, value: object) -> str | None:
    """What is wrong with the size of a number of this name; None where nothing is wrong or it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if name.endswith("_s") and not name.endswith("_per_s") and value > LONGEST_S:
        return f"expected at most {LONGEST_S:g} seconds, found {value!r}"
    if abs(value) > LARGEST:
        return f"expected at most {LARGEST:g}, up or down, found {value!r}"
    if 0 < abs(value) < SMALLEST:
        return f"expected 0, or {SMALLEST:g} or more, found {value!r}"
    return None
