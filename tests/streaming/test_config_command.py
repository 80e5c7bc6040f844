"""``trimtab config``: what it prints can be trusted, and fed back."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming.cli.config import config_command
from streaming.settings import ClusterSettingsSource, load
from streaming.settings.reference import render_reference

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


def test_every_line_shows_a_value_and_where_it_was_written() -> None:
    shown = lines(config(TRIMTAB_CONTROLLER__MODE="act"))
    assert shown["controller.mode"] == ('"act"', "environment TRIMTAB_CONTROLLER__MODE")
    assert shown["pulsar.rounds.length_s"] == ("10", "file trimtab.toml")
    assert shown["pulsar.rounds.lateness_s"] == ("10", "default")
    assert shown['pulsar.capacity.brokers."b1:8080".messages_per_s'] == ("2000.5", "file trimtab.toml")


def test_of_a_cluster_section_only_what_was_written_is_shown() -> None:
    shown = lines(config())
    of_clusters = {key: value for key, value in shown.items() if key.startswith("clusters")}
    assert of_clusters == {'clusters."east.1".pulsar.avg_shedder.low_hit_count': ("3", "file trimtab.toml")}


def test_a_cluster_can_be_asked_for_and_its_own_values_say_so() -> None:
    shown = lines(config("--cluster", "east.1"))
    assert shown["pulsar.avg_shedder.low_hit_count"] == ("3", 'file trimtab.toml, clusters."east.1"')
    assert shown["pulsar.rounds.length_s"] == ("10", "file trimtab.toml")
    assert not any(key.startswith("clusters") for key in shown)
    assert lines(config("--cluster", "elsewhere"))["pulsar.avg_shedder.low_hit_count"] == ("8", "default")


def test_what_is_printed_is_a_settings_file_that_means_the_same(tmp_path: Path) -> None:
    before = load(file=None, flags={}, environ={}).settings
    again = tmp_path / "again.toml"
    again.write_text(config().stdout)
    assert load(file=again, flags={}, environ={}).settings == before
    again.write_text(config("--cluster", "east.1").stdout)
    of_east = load(file=again, flags={}, environ={}).settings
    assert of_east.pulsar == ClusterSettingsSource(before).base("east.1").pulsar


def test_json_holds_the_same() -> None:
    shown = json.loads(config("--format", "json").stdout)
    assert shown["pulsar.guards.excluded_brokers"] == {
        "value": ["b1:8080", "b2:8080"],
        "source": "file trimtab.toml",
    }
    assert shown["output.url"] == {"value": None, "source": "default"}


def test_the_reference_is_the_page_in_docs() -> None:
    assert config("--reference").stdout == render_reference()


def test_a_wrong_file_ends_with_code_2_and_names_the_key() -> None:
    Path("bad.toml").write_text("[controller]\nmod = 'act'\n")
    result = config("--config", "bad.toml")
    assert result.exit_code == 2
    assert "bad.toml: controller.mod: unknown setting; did you mean mode?" in result.stderr


def test_an_impossible_cluster_name_ends_with_code_2() -> None:
    result = config("--cluster", "east 1")
    assert result.exit_code == 2
    assert "1 to 100 of A-Z a-z 0-9 . _ -" in result.stderr
