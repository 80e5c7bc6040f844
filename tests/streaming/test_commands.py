"""What all commands have in common: an example, one option for the output format, and exit codes that are listed."""

import json
import re
from collections.abc import Iterator

import click
import pytest
import yaml
from click.testing import CliRunner

from streaming.cli import main
from streaming.cli.output import render, table_lines, to_yaml
from streaming.process import exits


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def options_of(command: click.Command) -> dict[str, click.Parameter]:
    """The command's options, by each of their names."""
    return {name: option for option in command.params for name in option.opts}


COMMANDS = dict(leaves(main))
SHOWING = [path for path, command in COMMANDS.items() if "--format" in options_of(command)]
TALKING = [
    path
    for path in COMMANDS
    if path[0] not in {"split", "throttle", "config", "replay", "collect", "feed", "simulate", "backtest"}
]
"""Commands that read settings for brokers on both sides."""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_its_help_shows_an_example_that_calls_it(path: tuple[str, ...]) -> None:
    text = CliRunner().invoke(main, [*path, "--help"]).output
    assert f"trimtab {' '.join(path)}" in text.partition("Example")[2]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_its_defaults_are_values_that_its_options_take(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    context = click.Context(command)
    for option in command.params:
        default = option.get_default(context)
        if isinstance(default, str) and isinstance(option, click.Option):
            option.type.convert(default, option, context)


@pytest.mark.parametrize("path", SHOWING, ids=" ".join)
def test_its_output_has_the_same_forms_as_that_of_the_others(path: tuple[str, ...]) -> None:
    found = options_of(COMMANDS[path])
    option = found["--format"]
    assert option is found["-o"]
    assert isinstance(option.type, click.Choice)
    wanted = {"toml", "json", "yaml"} if path == ("config",) else {"table", "json", "yaml"}
    assert set(option.type.choices) == wanted


def test_yaml_says_the_same_as_json_in_the_same_order() -> None:
    tree = {"b": [1, {"ä": None}], "a": "no"}
    assert yaml.safe_load(to_yaml(tree)) == json.loads(render(tree, "json")) == tree
    assert list(yaml.safe_load(render(tree, "yaml"))) == ["b", "a"]
    answers = [
        CliRunner().invoke(main, ["split", "positions", "persistent://t/n/a", "-o", form]).stdout
        for form in ("json", "yaml")
    ]
    assert json.loads(answers[0]) == yaml.safe_load(answers[1])


def test_a_row_is_one_uncut_line_in_a_pipe_and_goes_on_below_itself_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "a [red]word[/red] " * 20
    rows = [("problem", long.strip()), ("ok", "b")]
    assert table_lines(rows) == [f"  problem  {long.strip()}", "  ok       b"]
    assert table_lines([]) == []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    shown = table_lines(rows)
    assert len(shown) > 2
    assert all(len(line) <= 40 for line in shown)
    assert " ".join(line[11:] for line in shown[:-1]) == long.strip()


def test_the_exit_codes_of_the_help_are_those_there_are() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    listed = CliRunner().invoke(main, ["--help"]).output.partition("Exit codes:")[2]
    assert {int(code) for code in re.findall(r"(?:^|·)\s*(\d)\s", listed, flags=re.MULTILINE)} == codes


def test_a_shell_can_complete_commands_and_options() -> None:
    environ = {"_TRIMTAB_COMPLETE": "bash_complete", "COMP_WORDS": "trimtab rounds --", "COMP_CWORD": "2"}
    found = CliRunner().invoke(main, prog_name="trimtab", env=environ).output
    assert "plain,--help" in found
    first = environ | {"COMP_WORDS": "trimtab st", "COMP_CWORD": "1"}
    assert CliRunner().invoke(main, prog_name="trimtab", env=first).output == "plain,status\n"


@pytest.mark.parametrize("path", TALKING, ids=" ".join)
def test_addresses_and_settings_are_named_in_the_same_way(path: tuple[str, ...]) -> None:
    """Commands that read settings take the settings file and both addresses."""
    assert {"--config", "--input", "--output"} <= options_of(COMMANDS[path]).keys()
