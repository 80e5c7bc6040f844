"""The table of limits matches the code."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from state.events import RejectReason
from streaming.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| what |")
]


def value_of(name: str) -> Any:
    """Value of a constant, ``package.module.NAME``, or the default of a setting, ``section.key``."""
    module, _, last = name.rpartition(".")
    if last.isupper():
        return getattr(import_module(module), last)
    found: Any = Settings()
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if row[2]], ids=lambda row: row[0])
def test_a_limit_is_what_the_page_says(row: list[str]):
    value = value_of(row[2].strip("`"))
    if not isinstance(value, int | float):
        assert value == ("*",)
        return
    number = re.match(r"\d+(\.\d+)?", row[1])
    assert float(number[0]) == value


def test_every_reason_of_a_limit_is_one_that_the_dead_letter_has():
    named = {name for row in ROWS for name in re.findall(r"`([a-z-]+)`", row[3]) if "-" in name}
    assert named <= set(get_args(RejectReason))
    assert {reason for reason in get_args(RejectReason) if reason.startswith("too-")} <= named
