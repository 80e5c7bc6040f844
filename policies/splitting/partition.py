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

from policies.columns import Floats

TIE_RATIO = 1e-9
"""Loads closer than this are the same: it is far below the precision of any measured rate, and far above the rounding of sums."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadRow:
    """n loads in order, none negative, as running sums."""

    sums: tuple[Sequence[float], ...]
    """For each measure a list of n + 1 running sums, in the measure's own unit: whole numbers stay exact."""
    limits: tuple[float, ...]
    """What a weight of 1.0 is in each measure, above 0."""
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
    """Makes the row from loads, (measures, n), and the limit of each measure."""
    sums = np.concatenate([np.zeros((len(measures), 1)), np.cumsum(measures, axis=1)], axis=1)
    ratios = (measures / np.array(limits)[:, None]).max(axis=0)
    return LoadRow(tuple(column.tolist() for column in sums), tuple(limits), ratios)


def fill(row: LoadRow, start: int, end: int, *, bound: float, most_cuts: int | None = None) -> list[int]:
    """Inner cuts that make the fewest parts of ``start:end`` where only a single load may be above ``bound``.

    It gives up after one cut more than ``most_cuts``.
    """
    measures = [(sums, bound * limit) for sums, limit in zip(row.sums, row.limits, strict=True)]
    cuts: list[int] = []
    at, length = start, 1
    while True:
        reach = end
        for sums, most in measures:
            reach = _find_last_fit(sums, sums[at] + most, at, reach, length)
        reach = max(reach, at + 1)
        if reach >= end:
            return cuts
        at, length = reach, reach - at
        cuts.append(at)
        if most_cuts is not None and len(cuts) > most_cuts:
            return cuts


def _find_last_fit(sums: Sequence[float], most: float, at: int, end: int, length: int) -> int:
    """The last place up to ``end`` whose sum is at most ``most``; ``length`` guesses how far it is from ``at``.

    Parts of one row are about equally long, and a search nearby touches a few sums instead of seventeen all over memory.
    """
    low, high = at, at + length
    while high < end and sums[high] <= most:
        length *= 2
        low, high = high, high + length
    return bisect_right(sums, most, low + 1, min(high, end) + 1) - 1


def find_lightest_cuts(row: LoadRow, start: int, end: int, *, most_cuts: int) -> list[int]:
    """At most ``most_cuts`` inner cuts of ``start:end``: the heaviest part is as light as possible, then the cuts as few as possible.

    Exact up to ``TIE_RATIO``; takes up to thirty times as long as one ``fill``. A bound that was too small rises at once to
    the least that lets some part take one load more, because nothing changes below it.
    """
    whole, single = row.weight(start, end), float(row.ratios[start:end].max())
    low = max(whole / (most_cuts + 1), single)
    high = min(whole, whole / (most_cuts + 1) * len(row.limits) + single) * (1 + TIE_RATIO)
    cuts = fill(row, start, end, bound=low * (1 + TIE_RATIO), most_cuts=most_cuts)
    if len(cuts) <= most_cuts:
        return cuts
    while high > low * (1 + TIE_RATIO):
        middle = (low + high) / 2
        cuts = fill(row, start, end, bound=middle, most_cuts=most_cuts)
        if len(cuts) > most_cuts:
            low = max(middle, min(row.weight(at, cut + 1) for at, cut in pairwise([start, *cuts])))
        else:
            high = weight_of_heaviest(row, start, end, cuts)
    return fill(row, start, end, bound=high * (1 + TIE_RATIO))


def weight_of_heaviest(row: LoadRow, start: int, end: int, cuts: Sequence[int]) -> float:
    """Weight of the heaviest part of ``start:end`` after these cuts."""
    edges = [start, *cuts, end]
    return max(
        max(high - low for low, high in pairwise([sums[edge] for edge in edges])) / limit
        for sums, limit in zip(row.sums, row.limits, strict=True)
    )
