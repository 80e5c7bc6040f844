"""The command line as a whole: its list of commands is complete, true, and there at once."""

import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import click
from click.testing import CliRunner

import streaming.cli
from streaming.cli import main

CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)


def command(name: str) -> click.Command:
    found = main.get_command(CONTEXT, name)
    assert found is not None, name
    return found


def commands_below(found: click.Command) -> Iterator[click.Command]:
    yield found
    for below in getattr(found, "commands", {}).values():
        yield from commands_below(below)


def test_every_command_is_found_under_its_name_and_no_command_is_left_out() -> None:
    listed = [below for name in NAMES for below in commands_below(command(name))]
    assert [command(name).name for name in NAMES] == NAMES
    modules = [
        import_module(f"{streaming.cli.__name__}.{module.name}")
        for module in pkgutil.iter_modules(streaming.cli.__path__)
    ]
    made = [each for module in modules for each in vars(module).values() if isinstance(each, click.Command)]
    assert {id(each) for each in made} == {id(each) for each in (main, *listed)}


def test_the_list_of_commands_says_of_each_what_it_is_for_in_one_line() -> None:
    message = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    chapter = message.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in chapter] == sorted(NAMES)
    assert all(line.endswith(".") and not line.endswith("...") for line in chapter)


def test_a_name_that_is_no_command_is_refused_as_wrong_use() -> None:
    done = CliRunner().invoke(main, ["explode"])
    assert done.exit_code == 2
    assert "No such command 'explode'" in done.stderr


def test_help_loads_no_command_and_a_command_not_the_others() -> None:
    code = (
        "import json, sys\n"
        "from streaming.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )

    def loaded(*arguments: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        return set(json.loads(done.stderr))

    def ours(names: set[str]) -> set[str]:
        return {name for name in names if name.startswith("streaming.")}

    assert not {"numpy", "pydantic", "msgspec"} & loaded("--help")
    signals = {"streaming.process", "streaming.process.stopping"}  # heard while a command is imported
    assert ours(loaded("--help")) == {"streaming.cli", "streaming.cli.commands"} | signals
    for_topics = {name for name in ours(loaded("topics", "--help")) if name.startswith("streaming.cli.")}
    assert for_topics == {f"streaming.cli.{name}" for name in ("commands", "options", "topics")}
