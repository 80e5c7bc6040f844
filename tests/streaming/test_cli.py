"""The command line as a whole: every command is listed, has an example, the same options and exit codes, and starts at once."""

import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
import yaml
from click.testing import CliRunner, Result

import streaming.cli
from streaming.cli import main
from streaming.cli.config import config_command
from streaming.cli.options import Moment, Start
from streaming.cli.output import render, table_lines, to_yaml
from streaming.process import exits
from streaming.settings import ClusterSettingsSource, load
from streaming.settings.reference import render_reference
from tests.streaming.commands import leaves

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


def test_every_command_is_found_under_its_name_and_no_command_is_left_out():
    listed = [below for name in NAMES for below in commands_below(command(name))]
    assert [command(name).name for name in NAMES] == NAMES
    modules = [
        import_module(f"{streaming.cli.__name__}.{module.name}")
        for module in pkgutil.iter_modules(streaming.cli.__path__)
    ]
    made = [each for module in modules for each in vars(module).values() if isinstance(each, click.Command)]
    assert {id(each) for each in made} == {id(each) for each in (main, *listed)}


def test_the_list_of_commands_says_of_each_what_it_is_for_in_one_line():
    message = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    titles = ("Run it", "Operate a cluster", "Look at what happens", "Plan and try")
    groups = [message.split(f"{title}:\n")[1].split("\n\n")[0].splitlines() for title in titles]
    assert [group[0].split()[0] for group in groups] == ["topics", "pause", "status", "simulate"]
    chapter = [line for group in groups for line in group]
    assert [line.split()[0] for line in chapter] == NAMES
    assert all(line.endswith(".") and not line.endswith("...") for line in chapter)


GROUPS = [name for name in NAMES if isinstance(command(name), click.Group)]


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_says_of_each_of_its_commands_what_it_is_for_in_one_line(name: str):
    message = CliRunner().invoke(main, [name, "--help"], terminal_width=80).stdout
    assert "..." not in message.split("Commands:\n")[1]


def test_its_version_comes_with_those_of_what_it_works_with():
    said = CliRunner().invoke(main, ["--version"])
    names = r"pyspark \S+, kafka-python \S+, pulsar-client \S+, Python \S+"
    assert re.fullmatch(rf"trimtab, version \S+ \({names}\)\n", said.output)
    assert said.exit_code == exits.OK


def test_a_name_that_is_no_command_is_refused_as_wrong_use():
    done = CliRunner().invoke(main, ["explode"])
    assert done.exit_code == 2
    assert "No such command 'explode'" in done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"), [(["drian"], "drain"), (["statsu"], "status"), (["rounds", "tial"], "tail")]
)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(typed: list[str], meant: str):
    done = CliRunner().invoke(main, typed)
    assert done.exit_code == 2
    assert f"Did you mean '{meant}'?" in done.stderr


LIGHT = ("contract", "settings", "process", "transport", "cli")
HEAVY = {"kafka", "pulsar", "pyspark", "py4j"}
PROGRAM = """
import json, sys
from streaming.cli import main
try: main(sys.argv[1:])
except SystemExit: print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded_by(*arguments: str, given: str = "") -> set[str]:
    """Modules that a process has loaded when the command has ended."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_no_command_and_a_command_not_the_others():
    def ours(names: set[str]) -> set[str]:
        return {name for name in names if name.startswith("streaming.")}

    assert not {"numpy", "pydantic", "msgspec"} & loaded_by("--help")
    signals = {"streaming.process", "streaming.process.stop_signals"}  # heard while a command is imported
    assert ours(loaded_by("--help")) == {"streaming.cli", "streaming.cli.commands"} | signals
    for_topics = {name for name in ours(loaded_by("topics", "--help")) if name.startswith("streaming.cli.")}
    assert for_topics == {f"streaming.cli.{name}" for name in ("commands", "options", "topics")}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["split", "positions", "a"], ""),
        (["throttle", "plan", "--input", "-"], '{"partitions": []}'),
        (["config"], ""),
        (["replay"], ""),
    ],
    ids=["split", "throttle", "config", "replay"],
)
def test_a_command_that_asks_no_broker_loads_neither_a_client_nor_spark(arguments: list[str], given: str):
    assert not (HEAVY | {"prometheus_client", "pandas", "httpx"}) & loaded_by(*arguments, given=given)


def test_a_throttle_is_planned_and_applied_on_a_cluster_without_spark_and_its_java():
    assert not {"pyspark", "py4j"} & _loaded("streaming.cli.throttle", "streaming.planner.throttle_cluster")


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
def test_its_help_shows_an_example_that_calls_it(path: tuple[str, ...]):
    text = CliRunner().invoke(main, [*path, "--help"]).output
    assert f"    trimtab {' '.join(path)}" in text.partition("\n  Example:\n")[2]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_its_help_has_no_number_that_only_a_machine_needs(path: tuple[str, ...]):
    assert not re.search(r"\d{12}", CliRunner().invoke(main, [*path, "--help"]).output.partition("{")[0])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_its_defaults_are_values_that_its_options_take(path: tuple[str, ...]):
    command = COMMANDS[path]
    context = click.Context(command)
    for option in command.params:
        default = option.get_default(context)
        if isinstance(default, str) and isinstance(option, click.Option):
            option.type.convert(default, option, context)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_option_that_takes_a_time_shows_the_same_forms(path: tuple[str, ...]):
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option) and isinstance(option.type, Moment | Start):
            assert "TIME is RFC 3339, or 10m, 2h, 7d" in (option.help or ""), option.opts


@pytest.mark.parametrize("path", SHOWING, ids=" ".join)
def test_its_output_has_the_same_forms_as_that_of_the_others(path: tuple[str, ...]):
    found = options_of(COMMANDS[path])
    option = found["--format"]
    assert option is found["-o"]
    assert isinstance(option.type, click.Choice)
    wanted = {"toml", "json", "yaml"} if path == ("config",) else {"table", "json", "yaml"}
    assert set(option.type.choices) == wanted


def test_yaml_says_the_same_as_json_in_the_same_order():
    tree = {"b": [1, {"ä": None}], "a": "no"}
    assert yaml.safe_load(to_yaml(tree)) == json.loads(render(tree, "json")) == tree
    assert list(yaml.safe_load(render(tree, "yaml"))) == ["b", "a"]
    answers = [
        CliRunner().invoke(main, ["split", "positions", "persistent://t/n/a", "-o", form]).stdout
        for form in ("json", "yaml")
    ]
    assert json.loads(answers[0]) == yaml.safe_load(answers[1])


def test_a_row_is_one_uncut_line_in_a_pipe_and_is_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
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


def test_the_exit_codes_of_the_help_are_those_there_are():
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    listed = CliRunner().invoke(main, ["--help"]).output.partition("Exit codes:")[2]
    assert {int(code) for code in re.findall(r"(?:^|·)\s*(\d)\s", listed, flags=re.MULTILINE)} == codes


def test_a_shell_can_complete_commands_and_options():
    environ = {"_TRIMTAB_COMPLETE": "bash_complete", "COMP_WORDS": "trimtab rounds --", "COMP_CWORD": "2"}
    found = CliRunner().invoke(main, prog_name="trimtab", env=environ).output
    assert "plain,--help" in found
    first = environ | {"COMP_WORDS": "trimtab st", "COMP_CWORD": "1"}
    assert CliRunner().invoke(main, prog_name="trimtab", env=first).output == "plain,status\n"


@pytest.mark.parametrize("path", TALKING, ids=" ".join)
def test_addresses_and_settings_are_named_in_the_same_way(path: tuple[str, ...]):
    """Commands that read settings take the settings file and both addresses."""
    assert {"--config", "--input", "--output"} <= options_of(COMMANDS[path]).keys()


TOML = """
[input]
url = "kafka://broker-1:9092,broker-2:9092"
[spark.extra]
"spark.sql.x" = 'a "quoted" \\ # text'
[pulsar.rounds]
length_s = 10
[pulsar.guards]
excluded_brokers = ["b1:8080", "b2:8080"]
[pulsar.capacity.brokers."b1:8080"]
messages_per_s = 2000.5
[clusters."east.1".pulsar.avg_shedder]
low_hit_count = 3
"""


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trimtab.toml").write_text(TOML)


def config(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(config_command, arguments, env=environ)


def lines(result: Result) -> dict[str, tuple[str, str]]:
    """Value and source by key."""
    assert result.exit_code == 0, result.output
    split = (line.rsplit("  # ", 1) for line in result.stdout.splitlines() if not line.startswith("#"))
    assignments = ((assignment.split(" = ", 1), source) for assignment, source in split)
    return {key: (value.strip(), source) for (key, value), source in assignments}


def test_every_line_shows_a_value_and_where_it_was_written():
    shown = lines(config(TRIMTAB_CONTROLLER__MODE="act"))
    assert shown["controller.mode"] == ('"act"', "environment TRIMTAB_CONTROLLER__MODE")
    assert shown["pulsar.rounds.length_s"] == ("10", "file trimtab.toml")
    assert shown["pulsar.rounds.lateness_s"] == ("10", "default")
    assert shown['pulsar.capacity.brokers."b1:8080".messages_per_s'] == ("2000.5", "file trimtab.toml")


def test_of_a_cluster_section_only_what_was_written_is_shown():
    shown = lines(config())
    of_clusters = {key: value for key, value in shown.items() if key.startswith("clusters")}
    assert of_clusters == {'clusters."east.1".pulsar.avg_shedder.low_hit_count': ("3", "file trimtab.toml")}


def test_a_cluster_can_be_asked_for_and_its_own_values_say_so():
    shown = lines(config("--cluster", "east.1"))
    assert shown["pulsar.avg_shedder.low_hit_count"] == ("3", 'file trimtab.toml, clusters."east.1"')
    assert shown["pulsar.rounds.length_s"] == ("10", "file trimtab.toml")
    assert not any(key.startswith("clusters") for key in shown)
    assert lines(config("--cluster", "elsewhere"))["pulsar.avg_shedder.low_hit_count"] == ("8", "default")


def test_what_was_changed_is_shown_alone_whatever_else_the_file_repeats(tmp_path: Path):
    repeated = TOML.replace("[pulsar.rounds]", "[pulsar.rounds]\nlateness_s = 10")
    (tmp_path / "trimtab.toml").write_text(repeated)
    shown = lines(config("--changed", TRIMTAB_CONTROLLER__MODE="act"))
    assert sorted(shown) == [
        'clusters."east.1".pulsar.avg_shedder.low_hit_count',
        "controller.mode",
        "input.url",
        'pulsar.capacity.brokers."b1:8080".messages_per_s',
        "pulsar.guards.excluded_brokers",
        "pulsar.rounds.length_s",
        'spark.extra."spark.sql.x"',
    ]


def test_a_settings_file_that_is_no_text_is_named_in_words(tmp_path: Path):
    (tmp_path / "trimtab.toml").write_bytes(b'x = "\xff"')
    assert config().stderr == "Error: trimtab.toml: is not valid TOML: it is not text in UTF-8\n"


def test_of_a_target_only_what_was_written_is_a_change_and_no_change_is_said(tmp_path: Path):
    (tmp_path / "trimtab.toml").write_text('[targets.east-1.kafka]\nbootstrap = "b:9092"\n')
    assert list(lines(config("--changed"))) == ["targets.east-1.kafka.bootstrap"]
    (tmp_path / "trimtab.toml").write_text("")
    done = config("--changed")
    assert (done.stdout, done.stderr) == ("", "nothing differs from the defaults\n")


def test_what_is_printed_is_a_settings_file_that_means_the_same(tmp_path: Path):
    before = load(file=None, flags={}, environ={}).settings
    again = tmp_path / "again.toml"
    again.write_text(config().stdout)
    assert load(file=again, flags={}, environ={}).settings == before
    again.write_text(config("--cluster", "east.1").stdout)
    of_east = load(file=again, flags={}, environ={}).settings
    assert of_east.pulsar == ClusterSettingsSource(before).base("east.1").pulsar


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("east.1", ""),
        ("esat.1", "esat.1 is not named in the settings (did you mean east.1?): what holds for every"),
    ],
)
def test_the_settings_of_a_cluster_that_they_do_not_name_are_shown_with_a_remark(cluster: str, said: str):
    shown = config("--cluster", cluster)
    assert shown.exit_code == 0
    assert shown.stderr.startswith(said)
    assert bool(shown.stderr) is bool(said)


@pytest.mark.parametrize(
    ("targets", "hint"),
    [
        ('[targets."east-1".pulsar]', "they name no Kafka cluster"),
        ('[targets."east-1".pulsar]\n[targets.orders.kafka]', "known here: orders"),
        ('[targets."east-2".kafka]', "did you mean east-2?"),
        ("", "they name no Kafka cluster"),
    ],
)
@pytest.mark.parametrize(
    "command", [["collect", "kafka"], ["execute", "kafka"], ["throttle", "plan", "--input=-", "--cluster"]]
)
def test_a_cluster_without_an_address_of_its_kind_is_refused_and_not_looked_for_on_this_machine(
    tmp_path: Path, targets: str, hint: str, command: list[str]
):
    (tmp_path / "trimtab.toml").write_text(targets)
    done = CliRunner().invoke(main, [*command, "east-1"], input='{"partitions": []}')
    assert done.exit_code == exits.WRONG_USE
    assert (
        f'there is no [targets."east-1".kafka] in the settings ({hint}): add it with bootstrap' in done.stderr
    )


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "rounds tail",
        "actions list",
        "control list",
        "pause --cluster lab --why x",
        "topics create",
        "record -",
        "collect kafka lab --once",
        "collect pulsar east --once --stdout",
        "execute kafka lab --once",
        "throttle plan --cluster lab --input -",
    ],
)
@pytest.mark.parametrize("system", ["kafka", "pulsar"])
def test_every_command_that_finds_no_broker_has_the_exit_code_for_it(
    tmp_path: Path, command: str, system: str
):
    (tmp_path / "trimtab.toml").write_text(
        f'[input]\nurl = "{system}://127.0.0.1:1"\n'
        '[targets.lab.kafka]\nbootstrap = "127.0.0.1:1"\n'
        '[targets.east.pulsar]\nadmin_url = "http://127.0.0.1:1"\n'
        + ('[input.pulsar]\nadmin_url = "http://127.0.0.1:1"\n' if system == "pulsar" else "")
    )
    done = CliRunner().invoke(main, command.split(), input='{"partitions": []}')
    assert done.exit_code == exits.UNREACHABLE, (done.output, done.exception)
    said = [line for line in done.stderr.splitlines() if "nothing listens at 127.0.0.1:1" in line]
    assert len(said) == 1, "once is enough"


@pytest.mark.parametrize(
    ("system", "target"), [("pulsar", 'admin_url = "http://b:8080"'), ("kafka", 'bootstrap = "b:9092"')]
)
@pytest.mark.parametrize(
    ("option", "mode"), [([], "carries actions out"), (["--dry-run"], "dry-run, nothing is changed")]
)
def test_an_executor_says_once_what_it_reads_where_and_whether_it_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, target: str, option: list[str], mode: str
):
    monkeypatch.setattr(f"streaming.executor.{system}.start", lambda *_, **__: Mock())
    (tmp_path / "trimtab.toml").write_text(f"[targets.lab.{system}]\n{target}\n")
    done = CliRunner().invoke(main, ["execute", system, "lab", "--once", "--output", "kafka://o:1", *option])
    assert done.exit_code == 0, (done.output, done.exception)
    reads = "reads trimtab.actions at kafka://o:1"
    writes = "writes results to trimtab.input at kafka://127.0.0.1:9092"
    assert done.stderr.endswith(f"running for lab ({mode}): {reads}, {writes}\n")
    assert done.stderr.count("\n") == 1


def test_the_reference_is_the_page_in_docs():
    assert config("--reference").stdout == render_reference()


@pytest.mark.parametrize("option", ["--fresh", "--adopt", "--skip-lost"])
def test_an_option_for_the_first_start_is_refused_to_a_standby_with_the_command_to_run(option: str):
    done = CliRunner().invoke(main, ["run", "--standby", option])
    assert done.exit_code == exits.WRONG_USE
    assert f"a standby goes on where the leader is: start once with `trimtab run --no-standby {option}`" in (
        " ".join(done.stderr.split())
    )


def test_an_impossible_cluster_name_ends_with_code_2():
    result = config("--cluster", "east 1")
    assert result.exit_code == 2
    assert "1 to 100 of A-Z a-z 0-9 . _ -" in result.stderr


@pytest.mark.parametrize("package", LIGHT)
def test_a_light_package_loads_neither_a_brokers_client_nor_spark(package: str):
    path = import_module(f"streaming.{package}").__path__
    modules = [f"streaming.{package}.{each.name}" for each in pkgutil.iter_modules(path)]
    assert modules
    assert not HEAVY & _loaded(*modules)


def test_what_spark_loads_at_each_start_of_the_query_loads_nothing_that_decides():
    assert not {"numpy", "pydantic", "re2", "state.controller", *HEAVY - {"pyspark", "py4j"}} & _loaded(
        "streaming.spark.operator"
    )


def _loaded(*modules: str) -> set[str]:
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))
