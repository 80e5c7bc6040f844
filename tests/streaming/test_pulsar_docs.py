"""docs/pulsar.md matches the program."""

import re
import shlex
from pathlib import Path

import click
import pytest

from streaming.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "pulsar.md").read_text(encoding="utf-8")


COMMANDS = re.findall(r"(?m)^ *\$ (?:.*do )?(trimtab [^|;&>#\n]*)", PAGE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_on_the_page_is_one(line: str):
    _, *words = shlex.split(line)
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    if "replay" not in line:  # its files need not be there
        command.make_context(command.name, words)


def test_the_page_shows_every_step():
    used = {line.split()[1] for line in COMMANDS}
    assert used == {
        "collect",
        "topics",
        "run",
        "config",
        "replay",
        "actions",
        "execute",
        "policy",
        "mode",
        "pause",
        "record",
        "resume",
    }
