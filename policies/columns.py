"""The columns that every policy computes with: NumPy arrays of one type each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Indices into a tuple of names."""


class Code:
    """The values of a column of codes, from 0 on in the order written; people read their names with hyphens, such as ``hit-count``.

    They are plain integers: NumPy widens a whole column before it compares it with an ``IntEnum``, which takes ten times as long.
    """

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What people read, by code."""
        return tuple(name.lower().replace("_", "-") for name in vars(cls) if name.isupper())


def first_code(tests: Sequence[tuple[Bools, int]], otherwise: int) -> Codes:
    """For each row the code of the first test that is true, (n,)."""
    conditions, codes = zip(*tests, strict=True)
    chosen: Codes = np.select(conditions, codes, otherwise).astype(np.int8)
    return chosen


def sum_runs(starts: Ints, column: Floats) -> Floats:
    """Sums of the rows ``starts[i]:starts[i + 1]``, (n, ...), added one after the other: the same on every processor."""
    sums = np.zeros((len(starts) - 1, *column.shape[1:]))
    has_some = np.diff(starts) > 0
    if has_some.any():
        sums[has_some] = np.add.reduceat(column, starts[:-1][has_some], axis=0)
    return sums


def empty_rows() -> Ints:
    """No rows."""
    return np.zeros(0, dtype=np.int64)


def count_codes(codes: Codes, names: tuple[str, ...]) -> dict[str, int]:
    """How often each name occurs; names that do not occur are left out."""
    counts = np.bincount(codes, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """Rows that were looked at, each with its outcome and the numbers that it was judged on; k rows."""

    outcome: Codes
    """Index into ``outcomes``, (k,)."""
    outcomes: tuple[str, ...]
    """Every outcome there is."""
    trigger: Codes
    """Index into ``triggers``: why a row was looked at, or would act, (k,)."""
    triggers: tuple[str, ...]
    """Every trigger there is."""
    evidence: Mapping[str, Floats | Ints]
    """The numbers each row was judged on, (k,) each, units in their names."""

    def __len__(self) -> int:
        return len(self.outcome)

    def outcome_of(self, row: int) -> str:
        """Outcome in words."""
        return self.outcomes[int(self.outcome[row])]

    def trigger_of(self, row: int) -> str:
        """Trigger in words."""
        return self.triggers[int(self.trigger[row])]

    def evidence_of(self, row: int) -> dict[str, float | int]:
        """The numbers of one row."""
        return {name: column[row].item() for name, column in self.evidence.items()}

    def counts(self) -> dict[str, int]:
        """How many rows ended with each outcome that occurred."""
        return count_codes(self.outcome, self.outcomes)
