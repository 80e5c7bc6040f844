"""Settings: what is refused and how it is named, who wins, clusters, overlays, and the generated pages."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from state.settings import ClusterSettings, OverlayError, PulsarSettings, SettingsSource
from streaming.pulsar_link import input_on_pulsar, output_on_pulsar
from streaming.settings import ClusterSettingsSource, Loaded, Settings, SettingsError, load
from streaming.settings.catalog import sections
from streaming.settings.errors import dotted
from streaming.settings.reference import render_reference, render_sample

ROOT = Path(__file__).parents[2]


def loaded(
    tmp_path: Path, toml: str = "", *, flags: dict[str, object] | None = None, **environ: str
) -> Loaded:
    file = tmp_path / "trimtab.toml"
    file.write_text(toml, encoding="utf-8")
    return load(file=file, flags=flags or {}, environ=environ)


def refusal(
    tmp_path: Path, toml: str = "", *, flags: dict[str, object] | None = None, **environ: str
) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, toml, flags=flags, **environ)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def source(tmp_path: Path, toml: str = "") -> ClusterSettingsSource:
    return ClusterSettingsSource(loaded(tmp_path, toml).settings)


# What is refused


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        pytest.param(
            "[pulsar.avg_shedder]\nlow_threshold = 10",
            "trimtab.toml: pulsar.avg_shedder.low_threshold: unknown setting; did you mean low_threshold_points?",
            id="an unknown key names the nearest of its section",
        ),
        pytest.param(
            "[pulsar]\nlength_s = 10",
            "trimtab.toml: pulsar.length_s: unknown setting; did you mean pulsar.rounds.length_s?",
            id="a key in the wrong section names the right one",
        ),
        pytest.param(
            "[pulsr]\n",
            "trimtab.toml: pulsr: unknown setting; did you mean pulsar?",
            id="an unknown section names the nearest",
        ),
        pytest.param(
            "[metrics]\nzzz = 1",
            "trimtab.toml: metrics.zzz: unknown setting; known here: host, port",
            id="a key like no other is told what there is",
        ),
        pytest.param(
            '[clusters."east-1".pulsar.avg_shedder]\nlow_hits_count = 3',
            "trimtab.toml: clusters.east-1.pulsar.avg_shedder.low_hits_count: unknown setting; "
            "did you mean low_hit_count?",
            id="a misspelt key of a cluster's section names the nearest",
        ),
        pytest.param(
            '[clusters."east.1".controller]\nmode = "act"',
            'trimtab.toml: clusters."east.1".controller: unknown setting; known here: kafka, pulsar',
            id="a cluster's section holds nothing but decisions",
        ),
        pytest.param(
            '[clusters."east-1".avg_shedder]\n',
            "trimtab.toml: clusters.east-1.avg_shedder: unknown setting; "
            "did you mean clusters.east-1.pulsar.avg_shedder?",
            id="a section in the wrong place names the right place",
        ),
        pytest.param(
            '[clusters."east 1".pulsar]\n',
            'trimtab.toml: clusters."east 1": a cluster\'s name is 1 to 100 of A-Z a-z 0-9 . _ -',
            id="a cluster's name is checked",
        ),
        pytest.param(
            '[pulsar.rounds]\nlength_s = "15"',
            'trimtab.toml: pulsar.rounds.length_s: expected a finite number, found "15"',
            id="a number in quotes is not a number",
        ),
        pytest.param(
            "[pulsar.avg_shedder]\nlow_hit_count = true",
            "trimtab.toml: pulsar.avg_shedder.low_hit_count: expected a whole number, found true",
            id="a truth value is not a number",
        ),
        pytest.param(
            "[pulsar.avg_shedder]\nlow_hit_count = 2.5",
            "trimtab.toml: pulsar.avg_shedder.low_hit_count: expected a whole number, found 2.5",
            id="a fraction is not a count",
        ),
        pytest.param(
            "[pulsar.capacity]\nmessages_per_s = inf",
            "trimtab.toml: pulsar.capacity.messages_per_s: expected a finite number, found Infinity",
            id="infinity is not a number",
        ),
        pytest.param(
            "[pulsar.usage]\ncpu_weight = nan",
            "trimtab.toml: pulsar.usage.cpu_weight: expected a finite number, found NaN",
            id="nan is not a number",
        ),
        pytest.param(
            "[spark]\ncheckpoint = 2026-01-01",
            'trimtab.toml: spark.checkpoint: expected a text in quotes, found "2026-01-01"',
            id="a date is not a text",
        ),
        pytest.param(
            '[controller]\nmode = "live"',
            'trimtab.toml: controller.mode: expected one of "dry-run", "act", found "live"',
            id="a choice lists what may be chosen",
        ),
        pytest.param(
            '[pulsar.guards]\nexcluded_brokers = "b1"',
            'trimtab.toml: pulsar.guards.excluded_brokers: expected a list of texts, found "b1"',
            id="a single text is not a list",
        ),
        pytest.param(
            'pulsar = "avg"', 'trimtab.toml: pulsar: expected a table, found "avg"', id="a section is a table"
        ),
        pytest.param(
            "[spark.extra]\nspark.task.cpus = 1",
            'trimtab.toml: spark.extra.spark: expected a text in quotes, found {"task": {"cpus": 1}}',
            id="a Spark key without quotes is refused",
        ),
        pytest.param(
            "[pulsar.avg_shedder]\nlow_threshold_points = 50",
            "trimtab.toml: pulsar.avg_shedder: low_threshold_points is 50.0, above high_threshold_points 40.0; "
            "the low threshold must not exceed the high one",
            id="a low threshold above the high one names the section",
        ),
        pytest.param(
            "[pulsar.avg_shedder]\nlow_threshold_points = 30\n"
            '[clusters."e".pulsar.avg_shedder]\nhigh_threshold_points = 20',
            "trimtab.toml: clusters.e.pulsar.avg_shedder: low_threshold_points is 30.0, above "
            "high_threshold_points 20.0; the low threshold must not exceed the high one",
            id="a cluster's section is judged together with what it inherits",
        ),
        pytest.param(
            '[clusters."e".pulsar]\nbundle_average_samples = 3\n[pulsar.rounds]\nlength_s = 0',
            "trimtab.toml: pulsar.rounds: length_s is 0.0; a round lasts at least a millisecond",
            id="a cluster's section is not blamed for what it inherits",
        ),
        pytest.param(
            "[pulsar.rounds]\nlength_s = 1e10",
            "trimtab.toml: pulsar.rounds: length_s is 10000000000.0; a round lasts at most 1e+09 s",
            id="a round whose end no calendar holds",
        ),
        pytest.param(
            "[controller]\naction_ttl_s = 1e12",
            "trimtab.toml: controller: action_ttl_s is 1000000000000.0; expected more than 0 and at most 1e+09",
            id="an action whose expiry no calendar holds",
        ),
        pytest.param(
            '[pulsar]\nplacement = "least-message-rate"',
            'trimtab.toml: pulsar.placement: expected one of "broker", "least-long-term-message-rate", '
            '"least-resource-usage", found "least-message-rate"',
            id="a placement that there is not",
        ),
        pytest.param(
            "[pulsar.uniform_load_shedder]\nmax_unload_bundles_count = 0",
            "trimtab.toml: pulsar.uniform_load_shedder: max_unload_bundles_count is 0; it must be 1 or more, or -1 "
            "(no limit)",
            id="a limit that would let nothing move",
        ),
        pytest.param(
            "[spark]\ntrigger_interval_s = 31",
            "trimtab.toml: spark: trigger_interval_s is 31.0; expected above 0 and at most 30, because Spark kills "
            "Python workers that idle for 60 s",
            id="a trigger interval that would kill the workers is refused",
        ),
        pytest.param(
            '[input]\nurl = "localhost:9092"',
            "trimtab.toml: input: url is 'localhost:9092'; expected kafka://host:port[,host:port]",
            id="an address without a scheme is refused",
        ),
        pytest.param(
            '[topics]\naudit = "trimtab.input"',
            "trimtab.toml: topics: input and audit are both 'trimtab.input'; every topic needs its own name",
            id="two topics of one name are refused",
        ),
        pytest.param(
            "[pulsar\n",
            "trimtab.toml: is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 8)",
            id="a syntax error names the line",
        ),
    ],
)
def test_a_wrong_file_is_refused_and_the_message_names_the_key(tmp_path: Path, toml: str, line: str) -> None:
    assert refusal(tmp_path, toml) == [line]


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    toml = '[pulsar.rounds]\nlength = 1\nlateness_s = "1"\n[pulsar.usage]\ncpu_weight = -1\n'
    lines = refusal(tmp_path, toml, flags={"metrics.port": "x"}, TRIMTAB_CONTROLER__MODE="act")
    assert [line.split(":")[0] for line in lines] == [
        "trimtab.toml", "trimtab.toml", "TRIMTAB_CONTROLER__MODE", "--metrics-port", "trimtab.toml",
    ]  # fmt: skip
    assert lines[-1] == "trimtab.toml: pulsar.usage: cpu_weight is -1.0; it must be from 0 to 1e+06"


def test_a_section_with_an_unreadable_value_is_not_judged_by_its_default(tmp_path: Path) -> None:
    toml = '[pulsar.avg_shedder]\nlow_threshold_points = 50\nhigh_threshold_points = "60"\n'
    assert len(refusal(tmp_path, toml)) == 1


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read: No such file or directory"):
        load(file=tmp_path / "none.toml", flags={}, environ={})


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "trimtab.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="is not valid TOML"):
        load(file=tmp_path / "trimtab.toml", flags={}, environ={})


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        pytest.param(
            {"TRIMTAB_PULSAR__ROUNDS__LENGTH": "10"},
            "TRIMTAB_PULSAR__ROUNDS__LENGTH: unknown variable; did you mean TRIMTAB_PULSAR__ROUNDS__LENGTH_S?",
            id="an unknown variable names the nearest",
        ),
        pytest.param(
            {"TRIMTAB_PULSAR__ROUNDS__LENGTH_S": "inf"},
            'TRIMTAB_PULSAR__ROUNDS__LENGTH_S: pulsar.rounds.length_s: expected a finite number, found "inf"',
            id="infinity is no number here either",
        ),
        pytest.param(
            {"TRIMTAB_PULSAR__GUARDS__EXCLUDED_BROKERS": "b1"},
            "TRIMTAB_PULSAR__GUARDS__EXCLUDED_BROKERS: pulsar.guards.excluded_brokers: expected a list of texts as "
            'JSON, such as ["a", "b"] or {"a": "b"}, found "b1"',
            id="a list is JSON",
        ),
        pytest.param(
            {"TRIMTAB_PULSAR__AVG_SHEDDER__HIGH_THRESHOLD_POINTS": "10"},
            "TRIMTAB_PULSAR__AVG_SHEDDER__HIGH_THRESHOLD_POINTS: pulsar.avg_shedder: low_threshold_points is 15.0, "
            "above high_threshold_points 10.0; the low threshold must not exceed the high one",
            id="a contradiction names the variable it came with",
        ),
    ],
)
def test_a_wrong_variable_is_refused_by_name(tmp_path: Path, environ: dict[str, str], line: str) -> None:
    assert refusal(tmp_path, **environ) == [line]


# Who wins


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
    with pytest.raises(SettingsError, match="give url too, or remove pulsar"):
        loaded(tmp_path, text + '[output.pulsar]\nnamespace = "ops/other"\n')
    with pytest.raises(SettingsError, match="pulsar://host:port"):
        loaded(tmp_path, '[output]\nurl = "pulsar://nowhere"\n')


# Clusters

EAST = """
[pulsar.avg_shedder]
low_hit_count = 5
[pulsar.capacity.brokers."b1:8080"]
messages_per_s = 100
[clusters."east-1".pulsar.avg_shedder]
high_hit_count = 1
[clusters."east-1".pulsar.capacity.brokers."b2:8080"]
messages_per_s = 200
"""


def test_a_cluster_section_is_merged_key_by_key_over_pulsar(tmp_path: Path) -> None:
    settings = source(tmp_path, EAST)
    east, other = settings.base("east-1").pulsar, settings.base("west-1").pulsar
    assert (east.avg_shedder.low_hit_count, east.avg_shedder.high_hit_count) == (5, 1)
    assert (other.avg_shedder.low_hit_count, other.avg_shedder.high_hit_count) == (5, 2)
    assert sorted(east.capacity.brokers) == ["b1:8080", "b2:8080"]
    assert sorted(other.capacity.brokers) == ["b1:8080"]


def test_the_environment_reaches_what_a_cluster_section_does_not_name(tmp_path: Path) -> None:
    result = loaded(
        tmp_path,
        EAST,
        TRIMTAB_PULSAR__AVG_SHEDDER__LOW_HIT_COUNT="6",
        TRIMTAB_PULSAR__AVG_SHEDDER__HIGH_HIT_COUNT="4",
    )
    east = result.settings.clusters["east-1"].pulsar.avg_shedder
    assert (east.low_hit_count, east.high_hit_count) == (6, 1)


def test_equal_settings_have_equal_digests_however_they_were_written(tmp_path: Path) -> None:
    digest = source(tmp_path).base("x").digest
    assert re.fullmatch(r"[0-9a-f]{16}", digest)
    assert digest == ClusterSettings(pulsar=PulsarSettings()).digest
    assert source(tmp_path, "[pulsar.rounds]\nlength_s = 60\n").base("x").digest == digest
    assert source(tmp_path, "[pulsar.rounds]\nlength_s = 61\n").base("x").digest != digest
    assert source(tmp_path, EAST).base("east-1").digest != source(tmp_path, EAST).base("west-1").digest


# Overlays


def test_an_overlay_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    settings: SettingsSource = source(tmp_path, EAST)
    over = settings.overlaid("east-1", b'{"pulsar": {"avg_shedder": {"low_hit_count": 3}}}')
    assert (over.pulsar.avg_shedder.low_hit_count, over.pulsar.avg_shedder.high_hit_count) == (3, 1)
    assert over.pulsar.capacity == settings.base("east-1").pulsar.capacity
    assert over.digest != settings.base("east-1").digest
    assert settings.base("east-1").pulsar.avg_shedder.low_hit_count == 5


@pytest.mark.parametrize("overlay", [b"{}", b'{"pulsar": {}}', b'{"pulsar": {"rounds": {}}}'])
def test_an_overlay_that_says_nothing_leaves_the_digest_alone(tmp_path: Path, overlay: bytes) -> None:
    settings = source(tmp_path, EAST)
    assert settings.overlaid("east-1", overlay) == settings.base("east-1")


def test_an_overlay_may_unset_a_declared_capacity(tmp_path: Path) -> None:
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
        (b'{"pulsar": {"avg_sheder": {}}}', "bad-settings", "did you mean avg_shedder?"),
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
def test_a_wrong_overlay_is_refused_with_its_reason(
    tmp_path: Path, overlay: bytes, reason: str, message: str
) -> None:
    with pytest.raises(OverlayError) as caught:
        source(tmp_path).overlaid("x", overlay)
    assert caught.value.reason == reason
    assert message in str(caught.value)
    str(caught.value).encode()


def test_the_source_travels_to_another_process_unchanged(tmp_path: Path) -> None:
    settings = source(tmp_path, EAST)
    overlay = b'{"pulsar": {"bundle_average_samples": 2}}'
    again = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own bytes
    assert again.base("east-1") == settings.base("east-1")
    assert again.overlaid("east-1", overlay) == settings.overlaid("east-1", overlay)


def test_importing_the_settings_loads_neither_spark_nor_a_broker_client() -> None:
    code = (
        "import sys, streaming.settings, streaming.commands.config; "
        "print(*sorted({'pyspark', 'kafka', 'prometheus_client', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == ""


# The generated pages


def test_every_setting_has_a_docstring_and_a_row_in_the_reference() -> None:
    reference = render_reference()
    chapters = {chapter.split("`")[1]: chapter for chapter in reference.split("\n## ")[1:]}
    for section in sections():
        heading = "[" + dotted(section.path).replace("NAME", '"NAME"') + "]"
        assert section.doc
        assert not section.doc.startswith(f"{section.path[-1]}(")
        for setting in section.settings:
            assert setting.doc, f"{dotted(section.path)}.{setting.name} has no docstring"
            assert f"\n| `{setting.name}` |" in chapters[heading]


def test_every_limit_and_unit_is_visible_in_the_reference() -> None:
    reference = render_reference()
    assert "| `low_threshold_points` | number | `15` |" in reference
    assert "Pulsar: `loadBalancerAvgShedderLowThreshold` |" in reference
    assert '| `mode` | `"dry-run"` or `"act"` | `"dry-run"` |' in reference


def test_the_sample_file_changes_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, render_sample()).settings == Settings()


def test_the_sample_file_uncommented_is_the_defaults(tmp_path: Path) -> None:
    uncommented = re.sub(r"(?m)^#(?=\w+ = )", "", render_sample())
    result = loaded(tmp_path, uncommented)
    assert result.settings == Settings()
    written = {key for key, origin in result.sources.items() if origin.startswith("file ")}
    unset = {key for key in result.sources if key not in written}
    security = ("ca_file", "certificate_file", "key_file", "username", "password", "password_file")
    assert unset == {
        *(f"{side}.security.{name}" for side in ("input", "output") for name in security),
        "clusters", "targets", "input.pulsar.token_file", "input.pulsar.ca_file", "output.pulsar.token_file", "output.pulsar.ca_file", "output.url", "spark.master", "spark.jars_dir", "spark.extra",
        "pulsar.capacity.messages_per_s", "pulsar.capacity.bytes_per_s", "pulsar.capacity.brokers",
        "kafka.capacity.network_bytes_per_s", "kafka.capacity.brokers",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("page", "render"), [("settings.md", render_reference), ("trimtab.sample.toml", render_sample)]
)
def test_the_pages_in_docs_are_up_to_date(page: str, render: Callable[[], str]) -> None:
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == render(), "run `make docs`"
