"""Numbers that nothing can be computed with, refused where they are read, by file, flag, variable or control event.

Beyond them ends of rounds leave the calendar, and ratios and squares in a summary become infinite. No limit here is near
any use.
"""

import math

from state.round_settings import LONGEST_S

LARGEST = 1e18
"""Up or down; the same as of a rate in a report."""
SMALLEST = 1 / LARGEST
"""Nearest to 0 that a number may be without being it: a share of it is at most 1e36, which single precision holds."""


def extreme(name: str, value: object) -> str | None:
    """What is wrong with a number of this name as such; None where nothing is, or where it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if name.endswith("_s") and not name.endswith("_per_s") and value > LONGEST_S:
        return f"expected at most {LONGEST_S:g} seconds, found {value!r}"
    if abs(value) > LARGEST:
        return f"expected at most {LARGEST:g}, up or down, found {value!r}"
    if 0 < abs(value) < SMALLEST:
        return f"expected 0, or {SMALLEST:g} or more, found {value!r}"
    return None
