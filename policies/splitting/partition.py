"""Cutting a row of loads into parts so that the heaviest part is as light as possible.

Loads have several measures, each a share of its limit; a part weighs what its largest measure weighs. Since loads are
0 or more, a part only gets heavier as it grows: so the fewest parts under a bound come from filling each as far as it
goes, and the smallest bound that a number of parts can keep is found by bisection.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.usage import Floats

TIE_RATIO = 1e-9
"""Loads closer than this are the same: far below what any rate is measured to, far above rounding of sums."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadRow:
    """n loads in order, none negative, as running sums."""

    sums: tuple[Sequence[float], ...]
    """One list of n + 1 running sums a measure, in the measure's own unit: whole numbers stay exact."""
    limits: tuple[float, ...]
    """What 1.0 is in each measure, above 0."""
    ratios: Floats
    """Weight of each load alone, (n,)."""

    def __len__(self) -> int:
        return len(self.ratios)

    def weight(self, start: int, end: int) -> float:
        """Weight of the loads ``start:end`` as one part."""
        return max(
            (sums[end] - sums[start]) / limit for sums, limit in zip(self.sums, self.limits, strict=True)
        )


def load_row(measures: Floats, limits: Sequence[float]) -> LoadRow:
    """From loads (measures, n) and the limit of each measure."""
    sums = np.concatenate([np.zeros((len(measures), 1)), np.cumsum(measures, axis=1)], axis=1)
    ratios = (measures / np.array(limits)[:, None]).max(axis=0)
    return LoadRow(tuple(column.tolist() for column in sums), tuple(limits), ratios)


def fill(
    row: LoadRow, start: int, end: int, *, bound: float, parts_count: int | None = None
) -> list[int] | None:
    """Inner cuts of the fewest parts of ``start:end`` with none above ``bound`` but single loads that are so.

    None where that takes more than ``parts_count`` parts.
    """
    measures = [(sums, bound * limit) for sums, limit in zip(row.sums, row.limits, strict=True)]
    cuts: list[int] = []
    at, length = start, 1
    while True:
        reach = end
        for sums, most in measures:
            reach = _reach(sums, sums[at] + most, at, reach, length)
        reach = max(reach, at + 1)
        if reach >= end:
            return cuts
        at, length = reach, reach - at
        cuts.append(at)
        if parts_count is not None and len(cuts) >= parts_count:
            return None


def _reach(sums: Sequence[float], most: float, at: int, end: int, length: int) -> int:
    """The last place up to ``end`` whose sum is at most ``most``; ``length`` guesses how far it is from ``at``.

    Parts of one row are about equally long, and a search nearby touches a few sums instead of seventeen all over memory.
    """
    low, high = at, at + length
    while high < end and sums[high] <= most:
        length *= 2
        low, high = high, high + length
    return bisect_right(sums, most, low + 1, min(high, end) + 1) - 1


def lightest(row: LoadRow, start: int, end: int, *, parts_count: int) -> list[int]:
    """Inner cuts of ``start:end`` into at most ``parts_count`` parts: the heaviest as light, then as few as possible.

    Exact up to ``TIE_RATIO``; takes about thirty times as long as one ``fill``.
    """
    whole, single = row.weight(start, end), float(row.ratios[start:end].max())
    low = max(whole / parts_count, single)
    high = min(whole, whole / parts_count * len(row.limits) + single) * (1 + TIE_RATIO)
    cuts = fill(row, start, end, bound=low * (1 + TIE_RATIO), parts_count=parts_count)
    while cuts is None and high > low * (1 + TIE_RATIO):
        middle = (low + high) / 2
        found = fill(row, start, end, bound=middle, parts_count=parts_count)
        if found is None:
            low = middle
        else:
            high = heaviest(row, start, end, found)
    if cuts is None:
        cuts = fill(row, start, end, bound=high * (1 + TIE_RATIO), parts_count=parts_count)
    assert cuts is not None, "a bound that was kept is kept again with more room"
    return cuts


def heaviest(row: LoadRow, start: int, end: int, cuts: Sequence[int]) -> float:
    """Weight of the heaviest part of ``start:end`` cut there."""
    edges = [start, *cuts, end]
    return max(
        max(high - low for low, high in pairwise([sums[edge] for edge in edges])) / limit
        for sums, limit in zip(row.sums, row.limits, strict=True)
    )
