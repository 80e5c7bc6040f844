"""Settings: which of defaults, file, environment and flags wins, and which side is on which system."""

from pathlib import Path

import pytest

from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings, SettingsError, load
from tests.streaming.settings.given import loaded


def test_without_anything_written_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = load(file=None, flags={}, environ={"PATH": "/bin", "CONTROLLER": "x"})
    assert nothing.settings == Settings()
    assert set(nothing.sources.values()) == {"default"}
    assert nothing.settings.controller.mode == "dry-run"


def test_the_file_of_the_working_directory_is_read_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trimtab.toml").write_text("[metrics]\nport = 1\n")
    (tmp_path / "other.toml").write_text("[metrics]\nport = 2\n")
    here = load(file=None, flags={}, environ={})
    assert (here.settings.metrics.port, here.sources["metrics.port"]) == (1, "file trimtab.toml")
    assert load(file=Path("other.toml"), flags={}, environ={}).settings.metrics.port == 2


def test_flags_win_over_the_environment_the_environment_over_the_file_the_file_over_defaults(
    tmp_path: Path,
) -> None:
    result = loaded(
        tmp_path,
        "[pulsar.rounds]\nlength_s = 1\nlateness_s = 1\nwarmup_rounds = 5\n",
        flags={"pulsar.rounds.length_s": 3.0, "controller.mode": None, "spark.checkpoint": Path("/x")},
        TRIMTAB_PULSAR__ROUNDS__LENGTH_S="2",
        TRIMTAB_PULSAR__ROUNDS__LATENESS_S="2",
        TRIMTAB_CONTROLLER__MODE="act",
    )
    rounds = result.settings.pulsar.rounds
    assert (rounds.length_s, rounds.lateness_s, rounds.warmup_rounds, rounds.quorum_ratio) == (
        3.0,
        2.0,
        5,
        0.6,
    )
    assert result.settings.controller.mode == "act"
    assert result.settings.spark.checkpoint == "/x"
    assert result.sources["pulsar.rounds.length_s"] == "flag --length-s"
    assert result.sources["pulsar.rounds.lateness_s"] == "environment TRIMTAB_PULSAR__ROUNDS__LATENESS_S"
    assert result.sources["pulsar.rounds.warmup_rounds"] == f"file {tmp_path}/trimtab.toml"
    assert result.sources["pulsar.rounds.quorum_ratio"] == "default"


def test_the_environment_converts_text_and_reads_lists_and_tables_as_json(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[spark.extra]\n"spark.a" = "1"\n',
        TRIMTAB_PULSAR__SKIP_SAMPLE_AFTER_MOVE="false",
        TRIMTAB_PULSAR__CAPACITY__MESSAGES_PER_S="2000",
        TRIMTAB_PULSAR__GUARDS__EXCLUDED_BROKERS='["b1:8080"]',
        TRIMTAB_PULSAR__CAPACITY__BROKERS='{"b1:8080": {"bytes_per_s": 5}}',
        TRIMTAB_SPARK__EXTRA='{"spark.b": "2"}',
        TRIMTAB_CLUSTERS='{"east-1": {"pulsar": {"bundle_average_samples": 3}}}',
    ).settings
    assert settings.pulsar.skip_sample_after_move is False
    assert settings.pulsar.capacity.messages_per_s == 2000.0
    assert settings.pulsar.guards.excluded_brokers == ("b1:8080",)
    assert settings.pulsar.capacity.brokers["b1:8080"].bytes_per_s == 5.0
    assert settings.spark.extra == {"spark.a": "1", "spark.b": "2"}
    assert settings.clusters["east-1"].pulsar.bundle_average_samples == 3


def test_a_whole_number_is_fine_where_a_number_is_expected(tmp_path: Path) -> None:
    length_s = loaded(tmp_path, "[pulsar.rounds]\nlength_s = 60\n").settings.pulsar.rounds.length_s
    assert isinstance(length_s, float)


def test_the_file_may_contradict_itself_if_the_environment_mends_it(tmp_path: Path) -> None:
    result = loaded(
        tmp_path,
        "[pulsar.avg_shedder]\nlow_threshold_points = 50\n",
        TRIMTAB_PULSAR__AVG_SHEDDER__HIGH_THRESHOLD_POINTS="60",
    )
    assert result.settings.pulsar.avg_shedder.high_threshold_points == 60.0


def test_the_output_is_where_the_input_is_unless_it_is_said(tmp_path: Path) -> None:
    assert loaded(tmp_path, '[input]\nurl = "kafka://a:1,b:2"').settings.output_bootstrap == "a:1,b:2"
    assert loaded(tmp_path, '[output]\nurl = "kafka://c:3"').settings.output_bootstrap == "c:3"


@pytest.mark.parametrize(
    ("source", "target", "input_on", "output_on"),
    [
        ("kafka://a:1", None, None, None),
        ("kafka://a:1", "pulsar://b:2", None, "pulsar://b:2"),
        ("pulsar://a:1", "kafka://b:2", "pulsar://a:1", None),
        ("pulsar://a:1", None, "pulsar://a:1", "pulsar://a:1"),
        ("pulsar+ssl://a:1", "pulsar://b:2,c:3", "pulsar+ssl://a:1", "pulsar://b:2,c:3"),
    ],
)
def test_each_side_is_on_the_system_its_address_names(
    tmp_path: Path, source: str, target: str | None, input_on: str | None, output_on: str | None
) -> None:
    text = f'[input]\nurl = "{source}"\n' + ("" if target is None else f'[output]\nurl = "{target}"\n')
    settings = loaded(tmp_path, text).settings
    found = [link and link.service_url for link in (input_on_pulsar(settings), output_on_pulsar(settings))]
    assert found == [input_on, output_on]
    assert settings.output_is_pulsar == (output_on is not None)


def test_an_output_without_an_address_is_in_the_inputs_namespace(tmp_path: Path) -> None:
    text = '[input]\nurl = "pulsar://a:1"\n[input.pulsar]\nnamespace = "ops/t"\n'
    link = output_on_pulsar(loaded(tmp_path, text).settings)
    assert link is not None
    assert link.full_name("x") == "persistent://ops/t/x"
    with pytest.raises(SettingsError, match="set url too, or remove pulsar"):
        loaded(tmp_path, text + '[output.pulsar]\nnamespace = "ops/other"\n')
    with pytest.raises(SettingsError, match="pulsar://host:port"):
        loaded(tmp_path, '[output]\nurl = "pulsar://nowhere"\n')
