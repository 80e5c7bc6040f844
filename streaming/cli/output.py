"""What every command that shows something needs: ``--format`` (``-o``), values, tables and counts as text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from streaming.cli.options import Option

_FORMS = ("table", "json", "yaml")


def format_option(
    help_: str = "Output.", *, default: str = "table", forms: tuple[str, ...] = _FORMS
) -> Option:
    """``--format``; ``help_`` says what a program gets."""
    return click.option(
        "--format", "-o", "form", type=click.Choice(forms), default=default, show_default=True, help=help_
    )


def render(tree: Any, form: str) -> str:
    """The tree, of lists, dicts and plain values, as text that ends with a line break."""
    return to_yaml(tree) if form == "yaml" else json.dumps(tree, indent=2) + "\n"


def to_yaml(tree: Any) -> str:
    """The tree as YAML; keys keep their order."""
    import yaml  # noqa: PLC0415  only output as YAML waits for it

    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


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
