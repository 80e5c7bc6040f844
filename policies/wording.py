"""Sentences that people read: counts in singular and plural, numbers in digits, times to the second, spans in two units, bytes in powers of 1,000."""

import re
from decimal import Decimal

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_KILO = 1000
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_PART_OF_A_SECOND = re.compile(r"\.\d+(?=Z$)")


def counted(count: int, noun: str) -> str:
    """A count with its noun, such as ``1 round`` and ``8 rounds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def digits(value: float, significant: int = 6) -> str:
    """A number with so many significant digits, never with an exponent: ``0.25``, ``0.0000123``, ``1,500,000``."""
    text = f"{value:.{significant}g}"
    if "e+" in text:
        return f"{value:,.0f}"
    return f"{Decimal(text):f}" if "e-" in text else text


def bytes_text(value: float | None) -> str:
    """Bytes with a decimal, in powers of 1,000, such as ``2.4 MB``; ? for unknown."""
    if value is None:
        return "?"
    unit = 0
    scaled = float(value)
    while round(scaled, 1 if unit else 0) >= _KILO and unit < len(_UNITS) - 1:
        scaled /= _KILO
        unit += 1
    return f"{scaled:.1f} {_UNITS[unit]}" if unit else f"{value:.0f} B"


def rate_text(value: float | None) -> str:
    """Bytes/s in the same form."""
    return "?" if value is None else f"{bytes_text(value)}/s"


def time_text(time: str, *, is_exact: bool = False) -> str:
    """A time of RFC 3339 to the second; an exact one, such as a round's end, only loses zeros."""
    return time.replace(".000Z", "Z") if is_exact else _PART_OF_A_SECOND.sub("", time)


def duration(seconds: float | None) -> str:
    """Seconds as text in their two largest units; ? for unknown."""
    if seconds is None:
        return "?"
    if round(seconds, 1) < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02} min"
    return f"{whole // _DAY_S:,} d {whole % _DAY_S // _HOUR_S:02} h"


def found_in(hit_count: int, needed_count: int) -> str:
    """For how many rounds something has stood out, such as ``found in 9 rounds in a row, 8 are enough``."""
    rounds = "1 round" if hit_count == 1 else f"{hit_count} rounds in a row"
    return f"found in {rounds}, {needed_count} {'is' if needed_count == 1 else 'are'} enough"
