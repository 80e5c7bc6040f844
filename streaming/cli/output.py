"""What every command that shows something needs: ``--format`` (``-o``), values, tables and counts as text."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from shutil import get_terminal_size
from typing import Any

import click

from policies.wording import digits, duration
from streaming.cli.options import Option

_FORMS = ("table", "json", "yaml")
_SHOWN_IN_SECONDS_S = 120
_SHOWN_IN_MINUTES_S = 7200
_DIGITS_COUNT = 3
_UNCUT_CHARACTERS = 10_000_000
"""Wider than any row: what is piped stays one line a row."""


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
    """A number without decimals, below 100 with three significant digits, no finer than 0.001; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return (
        f"{value:,}" if isinstance(value, int) else digits(round(value, _DIGITS_COUNT) + 0.0, _DIGITS_COUNT)
    )


def age_text(age_s: float) -> str:
    """How long ago something was."""
    if age_s < 0:
        return "in the future"
    if age_s < _SHOWN_IN_SECONDS_S:
        return f"{age_s:.0f} s ago"
    return f"{age_s / 60:.0f} min ago" if age_s < _SHOWN_IN_MINUTES_S else f"{duration(age_s)} ago"


def asked_text(who: str | None, why: str | None) -> str:
    """Who asked for something, and why."""
    return f"{who or 'somebody'}: {why or 'no reason given'}"


def counts_text(outcomes: Mapping[str, int]) -> str:
    """How many ended with each outcome."""
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "none"


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell, the last one ragged. On a terminal, long cells go on below themselves."""
    if not rows:
        return []
    from rich.console import Console  # noqa: PLC0415  only a table waits for it
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(Text, row))
    shown = StringIO()
    width = get_terminal_size().columns if sys.stdout.isatty() else _UNCUT_CHARACTERS
    Console(file=shown, width=width, color_system=None).print(Padding(table, (0, 0, 0, 2), expand=False))
    return [line.rstrip() for line in shown.getvalue().splitlines()]


@contextmanager
def progress(length: int | None, label: str, *, step: int = 1) -> Iterator[Callable[[int], None]]:
    """To be called with what is done of the length: a bar on a terminal, redrawn after each ``step``; else, or for None, nothing."""
    if length is None or not sys.stderr.isatty():
        yield lambda _done: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr, update_min_steps=step) as bar:
        yield bar.update


def text_of(lines: Sequence[str]) -> str:
    """Lines as a text, each with its line break."""
    return "".join(f"{line}\n" for line in lines)
