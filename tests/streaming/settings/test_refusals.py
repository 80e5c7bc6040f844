"""Settings: what is refused, and how it is named."""

from pathlib import Path

import pytest

from streaming.settings import SettingsError, load
from tests.streaming.settings.given import refusal


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
            "trimtab.toml: metrics.zzz: unknown setting; known here: collector_port, executor_port, host, port",
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
            "[kafka.capacity]\nbrokers = 1.5e300",
            "trimtab.toml: kafka.capacity.brokers: expected at most 1e+18, up or down, found 1.5e+300",
            id="a number that is too large where a table should be is no fault of ours",
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
            '[clusters."e".pulsar]\nbundle_average_samples = 3\n[pulsar]\nlength_s = 10',
            "trimtab.toml: pulsar.length_s: unknown setting; did you mean pulsar.rounds.length_s?",
            id="nor for an unknown key that it inherits",
        ),
        pytest.param(
            "[pulsar.rounds]\nlength_s = 1e10",
            "trimtab.toml: pulsar.rounds.length_s: expected at most 1e+09 seconds, found 10000000000.0",
            id="a round whose end no calendar holds",
        ),
        pytest.param(
            "[controller]\naction_ttl_s = 1e12",
            "trimtab.toml: controller.action_ttl_s: expected at most 1e+09 seconds, found 1000000000000.0",
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
            "[controller]\naction_ttl_s = 0",
            "trimtab.toml: controller.action_ttl_s: expected more than 0, found 0",
            id="an action that is over at once",
        ),
        pytest.param(
            "[targets.e.pulsar]\nsweeps_per_round_count = 1",
            "trimtab.toml: targets.e.pulsar.sweeps_per_round_count: expected 2 or more, found 1",
            id="too few sweeps, named with their target",
        ),
        pytest.param(
            "[metrics]\nport = 70000",
            "trimtab.toml: metrics.port: expected at most 65535, found 70000",
            id="a port that no machine has",
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
def test_a_wrong_file_is_refused_and_the_message_names_the_key(tmp_path: Path, toml: str, line: str):
    assert refusal(tmp_path, toml) == [line]


def test_every_problem_is_listed_at_once(tmp_path: Path):
    toml = '[pulsar.rounds]\nlength = 1\nlateness_s = "1"\n[pulsar.usage]\ncpu_weight = -1\n'
    lines = refusal(tmp_path, toml, flags={"metrics.port": "x"}, TRIMTAB_CONTROLER__MODE="act")
    assert [line.split(":")[0] for line in lines] == [
        "TRIMTAB_CONTROLER__MODE", "--metrics-port", "trimtab.toml", "trimtab.toml", "trimtab.toml",
    ]  # fmt: skip
    assert lines[-1] == "trimtab.toml: pulsar.usage: cpu_weight is -1.0; it must be from 0 to 1e+06"


def test_a_section_with_an_unreadable_value_is_not_judged_by_its_default(tmp_path: Path):
    toml = '[pulsar.avg_shedder]\nlow_threshold_points = 50\nhigh_threshold_points = "60"\n'
    assert len(refusal(tmp_path, toml)) == 1


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read: No such file or directory"):
        load(file=tmp_path / "none.toml", flags={}, environ={})


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path):
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
def test_a_wrong_variable_is_refused_by_name(tmp_path: Path, environ: dict[str, str], line: str):
    assert refusal(tmp_path, **environ) == [line]
