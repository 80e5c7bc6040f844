"""Settings: which of defaults, file, environment, flags, cluster section and overlay wins, and what a time zone is."""

import json
import pickle
import re
import zoneinfo
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from state.outputs import Configured, canonical
from state.settings import ClusterSettings, OverlayError, PulsarSettings, SettingsSource
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import ClusterSettingsSource, Settings, SettingsError, load
from streaming.settings.zones import offsets_of
from tests.state.traces import settings_of
from tests.streaming.settings.given import EAST, loaded, source


def test_a_cluster_section_is_merged_key_by_key_over_pulsar(tmp_path: Path):
    settings = source(tmp_path, EAST)
    east, other = settings.base("east-1").pulsar, settings.base("west-1").pulsar
    assert (east.avg_shedder.low_hit_count, east.avg_shedder.high_hit_count) == (5, 1)
    assert (other.avg_shedder.low_hit_count, other.avg_shedder.high_hit_count) == (5, 2)
    assert sorted(east.capacity.brokers) == ["b1:8080", "b2:8080"]
    assert sorted(other.capacity.brokers) == ["b1:8080"]


def test_the_environment_reaches_what_a_cluster_section_does_not_name(tmp_path: Path):
    result = loaded(
        tmp_path,
        EAST,
        TRIMTAB_PULSAR__AVG_SHEDDER__LOW_HIT_COUNT="6",
        TRIMTAB_PULSAR__AVG_SHEDDER__HIGH_HIT_COUNT="4",
    )
    east = result.settings.clusters["east-1"].pulsar.avg_shedder
    assert (east.low_hit_count, east.high_hit_count) == (6, 1)


def test_equal_settings_have_equal_digests_however_they_were_written(tmp_path: Path):
    digest = source(tmp_path).base("x").in_force["pulsar"].digest
    assert re.fullmatch(r"[0-9a-f]{16}", digest)
    assert digest == ClusterSettings(pulsar=PulsarSettings()).in_force["pulsar"].digest
    assert source(tmp_path, "[pulsar.rounds]\nlength_s = 60\n").base("x").in_force["pulsar"].digest == digest
    assert source(tmp_path, "[pulsar.rounds]\nlength_s = 61\n").base("x").in_force["pulsar"].digest != digest
    assert (
        source(tmp_path, EAST).base("east-1").in_force["pulsar"].digest
        != source(tmp_path, EAST).base("west-1").in_force["pulsar"].digest
    )


def test_settings_are_made_again_from_what_a_round_shows_of_them_and_only_if_it_is_all(tmp_path: Path):
    theirs = source(tmp_path, EAST).base("east-1")
    different = msgspec.json.decode(canonical(theirs.in_force["pulsar"].different))
    digest = theirs.in_force["pulsar"].digest
    configured = Configured(mode="act", approval="none", settings_digest=digest, settings=different)
    known = ClusterSettingsSource(Settings(), {"east-1": ("pulsar", configured)})
    assert known.base("east-1").pulsar == theirs.pulsar
    assert known.configured("east-1") == configured
    assert known.base("west-1").pulsar == PulsarSettings()
    assert known.configured("west-1") is None
    for unusable in ({"settings": None}, {"settings_digest": "another"}, {"settings": {"unknown": 1}}):
        shown = msgspec.structs.replace(configured, **unusable)
        unknown = ClusterSettingsSource(Settings(), {"east-1": ("pulsar", shown)})
        assert (unknown.base("east-1").pulsar, unknown.configured("east-1")) == (PulsarSettings(), None)


def test_an_overlay_changes_what_it_names_and_nothing_else(tmp_path: Path):
    settings: SettingsSource = source(tmp_path, EAST)
    over = settings.overlaid("east-1", b'{"pulsar": {"avg_shedder": {"low_hit_count": 3}}}')
    assert (over.pulsar.avg_shedder.low_hit_count, over.pulsar.avg_shedder.high_hit_count) == (3, 1)
    assert over.pulsar.capacity == settings.base("east-1").pulsar.capacity
    assert over.in_force["pulsar"].digest != settings.base("east-1").in_force["pulsar"].digest
    assert settings.base("east-1").pulsar.avg_shedder.low_hit_count == 5


@pytest.mark.parametrize("overlay", [b"{}", b'{"pulsar": {}}', b'{"pulsar": {"rounds": {}}}'])
def test_an_overlay_that_says_nothing_leaves_the_digest_alone(tmp_path: Path, overlay: bytes):
    settings = source(tmp_path, EAST)
    assert settings.overlaid("east-1", overlay) == settings.base("east-1")


def test_an_overlay_may_unset_a_declared_capacity(tmp_path: Path):
    settings = source(tmp_path, "[pulsar.capacity]\nmessages_per_s = 5\n")
    over = settings.overlaid("x", b'{"pulsar": {"capacity": {"messages_per_s": null}}}')
    assert over.pulsar.capacity.messages_per_s is None


@pytest.mark.parametrize(
    ("overlay", "reason", "message"),
    [
        (
            b'{"pulsar": {"rounds": {"length_s": 10}}}',
            "not-changeable",
            "pulsar.rounds.length_s: cannot be changed",
        ),
        (
            b'{"pulsar": {"rounds": {"lengthy": 10}}}',
            "not-changeable",
            "pulsar.rounds.lengthy: cannot be changed",
        ),
        (b'{"plusar": {}}', "bad-settings", "plusar: unknown setting; did you mean pulsar?"),
        (
            b'{"controller": {"mode": "act"}}',
            "bad-settings",
            "controller: unknown setting; known here: kafka, pulsar",
        ),
        (b'{"pulsar": {"avg_sheder": {}}}', "bad-settings", "did you mean pulsar.avg_shedder?"),
        (b'{"pulsar": {"avg_shedder": {"low_hit_count": "3"}}}', "bad-settings", "expected a whole number"),
        (
            b'{"pulsar": {"avg_shedder": {"low_threshold_points": 41}}}',
            "bad-settings",
            "pulsar.avg_shedder: low_",
        ),
        (
            b'{"pulsar": {"avg_shedder": {"low_hit_count": 100000000000000000000}}}',
            "bad-settings",
            "expected a whole number, found 100000000000000000000, which is too large",
        ),
        (b'{"pulsar": {"bundle_average_samples": -9007199254740993}}', "bad-settings", "too large"),
        (b'{"pulsar": 1}', "bad-settings", "pulsar: expected a table, found 1"),
        (b'{"pulsar": {"rounds": 1}}', "bad-settings", "pulsar.rounds: expected a table"),
        (b"[]", "bad-settings", "expected an object"),
        (b"", "bad-settings", "not JSON"),
        (b'{"pulsar": {"usage": {"cpu_weight": NaN}}}', "bad-settings", "not JSON"),
        (b'{"pulsar": {"usage": {"cpu_weight": 1e999}}}', "bad-settings", ""),
        (b'{"\\ud800": 1}', "bad-settings", ""),
        (b'{"pulsar": {"shedding_policy": "\xff"}}', "bad-settings", ""),
        (b"[" * 100_000, "bad-settings", ""),
        (b'{"pulsar": {"shedding_policy": ' + b"[" * 900 + b"]" * 900 + b"}}", "bad-settings", ""),
    ],
)
def test_a_wrong_overlay_is_refused_with_a_reason(tmp_path: Path, overlay: bytes, reason: str, message: str):
    with pytest.raises(OverlayError) as caught:
        source(tmp_path).overlaid("x", overlay)
    assert caught.value.reason == reason
    assert message in str(caught.value)
    str(caught.value).encode()


def test_the_source_travels_to_another_process_unchanged(tmp_path: Path):
    settings = source(tmp_path, EAST)
    overlay = b'{"pulsar": {"bundle_average_samples": 2}}'
    again = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own bytes
    assert again.base("east-1") == settings.base("east-1")
    assert again.overlaid("east-1", overlay) == settings.overlaid("east-1", overlay)


def test_without_anything_written_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    nothing = load(file=None, flags={}, environ={"PATH": "/bin", "CONTROLLER": "x"})
    assert nothing.settings == Settings()
    assert set(nothing.sources.values()) == {"default"}
    assert nothing.settings.controller.mode == "dry-run"


def test_the_file_of_the_directory_is_read_unless_another_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trimtab.toml").write_text("[metrics]\nport = 1\n")
    (tmp_path / "other.toml").write_text("[metrics]\nport = 2\n")
    here = load(file=None, flags={}, environ={})
    assert (here.settings.metrics.port, here.sources["metrics.port"]) == (1, "file trimtab.toml")
    assert load(file=Path("other.toml"), flags={}, environ={}).settings.metrics.port == 2


def test_flags_win_over_the_environment_the_environment_over_the_file_the_file_over_defaults(tmp_path: Path):
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


def test_the_environment_converts_text_and_reads_lists_and_tables_as_json(tmp_path: Path):
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


def test_a_whole_number_is_fine_where_a_number_is_expected(tmp_path: Path):
    length_s = loaded(tmp_path, "[pulsar.rounds]\nlength_s = 60\n").settings.pulsar.rounds.length_s
    assert isinstance(length_s, float)


def test_the_file_may_contradict_itself_if_the_environment_mends_it(tmp_path: Path):
    result = loaded(
        tmp_path,
        "[pulsar.avg_shedder]\nlow_threshold_points = 50\n",
        TRIMTAB_PULSAR__AVG_SHEDDER__HIGH_THRESHOLD_POINTS="60",
    )
    assert result.settings.pulsar.avg_shedder.high_threshold_points == 60.0


def test_the_output_is_where_the_input_is_unless_it_is_said(tmp_path: Path):
    assert loaded(tmp_path, '[input]\nurl = "kafka://a:1,b:2"').settings.output_bootstrap == "a:1,b:2"
    assert loaded(tmp_path, '[output]\nurl = "kafka://c:3"').settings.output_bootstrap == "c:3"


@pytest.mark.parametrize(
    ("source", "target", "input_on", "output_on"),
    [
        ("kafka://a:1", None, None, None),
        ("kafka://a:1", "pulsar://localhost:2", None, "pulsar://localhost:2"),
        ("pulsar://127.0.0.1:1", "kafka://b:2", "pulsar://127.0.0.1:1", None),
        ("pulsar://[::1]:1", None, "pulsar://[::1]:1", "pulsar://[::1]:1"),
        (
            "pulsar+ssl://localhost:1",
            "pulsar://127.0.0.2:2,localhost:3",
            "pulsar+ssl://localhost:1",
            "pulsar://127.0.0.2:2,localhost:3",
        ),
    ],
)
def test_each_side_is_on_the_system_its_address_names(
    tmp_path: Path, source: str, target: str | None, input_on: str | None, output_on: str | None
):
    text = f'[input]\nurl = "{source}"\n' + ("" if target is None else f'[output]\nurl = "{target}"\n')
    settings = loaded(tmp_path, text).settings
    found = [link and link.service_url for link in (input_on_pulsar(settings), output_on_pulsar(settings))]
    assert found == [input_on, output_on]
    assert settings.output_is_pulsar == (output_on is not None)


def test_an_output_without_an_address_is_in_the_inputs_namespace(tmp_path: Path):
    text = '[input]\nurl = "pulsar://localhost:1"\n[input.pulsar]\nnamespace = "ops/t"\n'
    link = output_on_pulsar(loaded(tmp_path, text).settings)
    assert link.full_name("x") == "persistent://ops/t/x"
    with pytest.raises(SettingsError, match="set url too, or remove pulsar"):
        loaded(tmp_path, text + '[output.pulsar]\nnamespace = "ops/other"\n')
    with pytest.raises(SettingsError, match="pulsar://host:port"):
        loaded(tmp_path, '[output]\nurl = "pulsar://nowhere"\n')


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        (
            "pulsar://localhost:1,b:2",
            "url is at b: set it to the web service of those brokers, such as http://b:8080",
        ),
        ("pulsar+ssl://b:2", "such as https://b:8443"),
    ],
)
def test_brokers_elsewhere_are_not_looked_after_by_the_admin_api_of_this_machine(
    tmp_path: Path, side: str, url: str, remedy: str
):
    with pytest.raises(SettingsError, match=f"{side}: pulsar.admin_url is the default.*{remedy}"):
        loaded(tmp_path, f'[{side}]\nurl = "{url}"\n')
    settings = loaded(tmp_path, f'[{side}]\nurl = "{url}"\npulsar.admin_url = "http://b:8080"\n').settings
    assert settings.output_is_pulsar


SUMMER_2026 = [(1774746000000, 120), (1792890000000, 60)]
"""29 March and 25 October 2026, 01:00 UTC."""


def test_a_zone_is_spans_of_utc_with_one_offset_each():
    found = list(offsets_of("Europe/Berlin"))
    assert found[0] == (946684800000, 60)
    assert [each for each in found if 1767225600000 <= each[0] < 1798761600000] == SUMMER_2026
    assert offsets_of("Asia/Kolkata") == ((946684800000, 330),)


def test_the_zone_files_of_the_machine_are_not_looked_at(tmp_path: Path):
    """The machine's zone file of Berlin holds UTC."""
    wrong = tmp_path / "Europe/Berlin"
    wrong.parent.mkdir()
    wrong.write_bytes(resources.files("tzdata").joinpath("zoneinfo", "UTC").read_bytes())
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        offsets_of.cache_clear()
        assert [each for each in offsets_of("Europe/Berlin") if each in SUMMER_2026] == SUMMER_2026
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_an_unknown_zone_is_refused_in_a_file_with_the_nearest_one(tmp_path: Path):
    file = tmp_path / "trimtab.toml"
    file.write_text('[pulsar.guards]\nquiet_hours = ["08:00-18:00 Europe/Berlim"]\n')
    with pytest.raises(
        SettingsError,
        match=r"trimtab.toml: pulsar.guards.quiet_hours: 'Europe/Berlim' is no time zone; did you mean Europe/Berlin",
    ):
        load(file=file, flags={}, environ={})


def test_an_unknown_zone_is_refused_in_a_control_event():
    overlay = json.dumps({"pulsar": {"guards": {"quiet_hours": ["08:00-18:00 Mars/Olympus"]}}}).encode()
    with pytest.raises(OverlayError, match="'Mars/Olympus' is no time zone") as found:
        settings_of().overlaid("east-1", overlay)
    assert found.value.reason == "bad-settings"


def test_the_digest_covers_what_a_zone_is_and_only_where_one_is_named():
    def digest(*spans: str) -> str:
        source = settings_of(guards={"quiet_hours": list(spans)})
        return source.base("east-1").in_force["pulsar"].digest

    assert len({digest(), digest("08:00-18:00"), digest("08:00-18:00 Europe/Berlin")}) == 3
    assert settings_of(guards={"quiet_hours": ["08:00-18:00"]}).base("east-1").zones == {}
