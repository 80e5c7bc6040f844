"""Values and tables as text, for every command that shows an event."""

from collections.abc import Mapping, Sequence


def value_text(value: object) -> str:
    """A number with up to three decimals, digits in groups; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell, the last one ragged."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return ["  " + "  ".join(row).rstrip() for row in cells]


def counts_text(outcomes: Mapping[str, int]) -> str:
    """How many ended with each outcome."""
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "none"
