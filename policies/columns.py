"""The columns that every policy computes with: NumPy arrays of one type each."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""Indices into a tuple of names."""


def empty_rows() -> Ints:
    """No rows."""
    return np.zeros(0, dtype=np.int64)
