"""The columns that every policy computes with: NumPy arrays of one type each."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Indices into a tuple of names."""


class Code(IntEnum):
    """The values of a column of codes, from 0 on; people read their names with hyphens, such as ``hit-count``."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What people read, by code."""
        return tuple(each.name.lower().replace("_", "-") for each in cls)


def first_code(tests: Sequence[tuple[Bools, int]], otherwise: int) -> Codes:
    """For each row the code of the first test that is true, (n,)."""
    conditions, codes = zip(*tests, strict=True)
    chosen: Codes = np.select(conditions, codes, otherwise).astype(np.int8)
    return chosen


def sum_runs(starts: Ints, column: Floats) -> Floats:
    """Sums of the rows ``starts[i]:starts[i + 1]``, (n, ...), added one after the other: the same on every processor."""
    found = np.zeros((len(starts) - 1, *column.shape[1:]))
    has_some = np.diff(starts) > 0
    if has_some.any():
        found[has_some] = np.add.reduceat(column, starts[:-1][has_some], axis=0)
    return found


def empty_rows() -> Ints:
    """No rows."""
    return np.zeros(0, dtype=np.int64)
