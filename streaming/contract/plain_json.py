"""Reads JSON with Python's own reader, to find out what is wrong with a text that the typed one has refused."""

import json
from typing import Any

_MOST_DIGITS = 310
"""A whole number with so many digits is above the largest double; Python refuses to read numbers with thousands of digits."""


def load(text: str | bytes) -> Any:
    """Read a text; a whole number that is too large for a double becomes infinite, as ``1e999`` does. Raises ``ValueError``."""
    return json.loads(text, parse_int=_parse_integer)


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)
