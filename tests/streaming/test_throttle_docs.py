"""The pictures in ``docs/throttling.md`` are what the command draws, and its prose says what they show."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main

PAGE = (Path(__file__).resolve().parents[2] / "docs/throttling.md").read_text()
PICTURES = re.findall(r"<!-- picture: (.*?) -->\n```text\n(.*?)```", PAGE, re.DOTALL)


def plan(*options: str) -> Result:
    found = re.search(r"<!-- request: .*? -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    return CliRunner().invoke(main, ["throttle", "plan", "--input", "-", *options], input=found[1])


def test_the_page_has_its_pictures():
    assert [name for name, _ in PICTURES] == ["as it is", "--rate 19200000", "--cap 22000000 --batches auto"]


@pytest.mark.parametrize(("options", "shown"), PICTURES, ids=[name for name, _ in PICTURES])
def test_the_page_shows_what_the_command_draws(options: str, shown: str):
    arguments = [] if options == "as it is" else options.split()
    assert plan("--format", "table", *arguments).stdout == shown


def test_the_page_explains_every_key_and_exit_code():
    table = PAGE[PAGE.index("## What is printed") : PAGE.index("## How good")]
    for key in json.loads(plan().stdout):
        assert f"`{key}`" in table
    assert plan().exit_code == 0
    assert plan("--rate", "19200000").exit_code == 3
    assert plan("--rate", "0").exit_code == 2
