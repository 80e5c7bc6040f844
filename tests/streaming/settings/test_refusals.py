"""Settings: what is refused and how it is named; the reference and the sample file match the code."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import get_args

import pytest

from policies.bounds import bounds_of
from streaming.settings import Settings, SettingsError, load
from streaming.settings.catalog import dotted, sections
from streaming.settings.load import read_tree
from streaming.settings.reference import render_reference, render_sample
from tests.streaming.settings.given import loaded, refusal

WRONG = [
    # the rule, what the file says, and what is said of it after the name of the file
    ("an unknown key names the nearest of its section", "[pulsar.avg_shedder]\nlow_threshold = 10",
        "pulsar.avg_shedder.low_threshold: unknown setting; did you mean pulsar.avg_shedder.low_threshold_points?"),
    ("a key in the wrong section names the right one", "[pulsar]\nlength_s = 10",
        "pulsar.length_s: unknown setting; did you mean pulsar.rounds.length_s?"),
    ("an unknown section names the nearest", "[pulsr]\n",
        "pulsr: unknown setting; did you mean pulsar?"),
    ("a section below another is never said to be one of the outermost", "[input.kafka]\nsecurity = 1",
        "input.kafka: unknown setting; known here: pulsar, security, url"),
    ("a key like no other is told what there is", "[metrics]\nzzz = 1",
        "metrics.zzz: unknown setting; known here: collector_port, executor_port, host, port"),
    ("a misspelt key of a cluster's section names the nearest",
        '[clusters."east-1".pulsar.avg_shedder]\nlow_hits_count = 3',
        ("clusters.east-1.pulsar.avg_shedder.low_hits_count: unknown setting; "
        "did you mean clusters.east-1.pulsar.avg_shedder.low_hit_count?")),
    ("a cluster's section holds nothing but decisions", '[clusters."east.1".controller]\nmode = "act"',
        'clusters."east.1".controller: unknown setting; known here: kafka, pulsar'),
    ("a section in the wrong place names the right place", '[clusters."east-1".avg_shedder]\n',
        "clusters.east-1.avg_shedder: unknown setting; did you mean clusters.east-1.pulsar.avg_shedder?"),
    ("a cluster's name is checked", '[clusters."east 1".pulsar]\n',
        "clusters.\"east 1\": a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -"),
    ("a number that is too large where a table should be is no fault of ours", "[kafka.capacity]\nbrokers = 1.5e300",
        "kafka.capacity.brokers: expected at most 1e+18, up or down, found 1.5e+300"),
    ("a number in quotes is not a number", '[pulsar.rounds]\nlength_s = "15"',
        'pulsar.rounds.length_s: expected a finite number, found "15"'),
    ("a truth value is not a number", "[pulsar.avg_shedder]\nlow_hit_count = true",
        "pulsar.avg_shedder.low_hit_count: expected a whole number, found true"),
    ("a fraction is not a count", "[pulsar.avg_shedder]\nlow_hit_count = 2.5",
        "pulsar.avg_shedder.low_hit_count: expected a whole number, found 2.5"),
    ("infinity is not a number", "[pulsar.capacity]\nmessages_per_s = inf",
        "pulsar.capacity.messages_per_s: expected a finite number, found Infinity"),
    ("nan is not a number", "[pulsar.usage]\ncpu_weight = nan",
        "pulsar.usage.cpu_weight: expected a finite number, found NaN"),
    ("a date is not a text", "[spark]\ncheckpoint = 2026-01-01",
        'spark.checkpoint: expected a text in quotes, found "2026-01-01"'),
    ("a choice lists what may be chosen", '[controller]\nmode = "live"',
        'controller.mode: expected one of "dry-run", "act", found "live"'),
    ("a single text is not a list", '[pulsar.guards]\nexcluded_brokers = "b1"',
        'pulsar.guards.excluded_brokers: expected a list of texts, found "b1"'),
    ("a section is a table", 'pulsar = "avg"',
        'pulsar: expected a table, found "avg"'),
    ("a Spark key without quotes is refused", "[spark.extra]\nspark.task.cpus = 1",
        'spark.extra.spark: expected a text in quotes, found {"task": {"cpus": 1}}'),
    ("a low threshold above the high one names the section", "[pulsar.avg_shedder]\nlow_threshold_points = 50",
        ("pulsar.avg_shedder: low_threshold_points is 50.0, above high_threshold_points 40.0; the low "
        "threshold must not exceed the high one")),
    ("a cluster's section is judged together with what it inherits",
        '[pulsar.avg_shedder]\nlow_threshold_points = 30\n[clusters."e".pulsar.avg_shedder]\nhigh_threshold_points = 20',
        ("clusters.e.pulsar.avg_shedder: low_threshold_points is 30.0, above high_threshold_points 20.0; "
        "the low threshold must not exceed the high one")),
    ("a cluster's section is not blamed for what it inherits",
        '[clusters."e".pulsar]\nbundle_average_samples = 3\n[pulsar.rounds]\nlength_s = 0',
        "pulsar.rounds.length_s: expected from a millisecond to 1,000,000,000 s, found 0"),
    ("nor for an unknown key that it inherits",
        '[clusters."e".pulsar]\nbundle_average_samples = 3\n[pulsar]\nlength_s = 10',
        "pulsar.length_s: unknown setting; did you mean pulsar.rounds.length_s?"),
    ("a round whose end no calendar holds", "[pulsar.rounds]\nlength_s = 1e10",
        "pulsar.rounds.length_s: expected at most 1,000,000,000 seconds, found 10000000000.0"),
    ("an action whose expiry no calendar holds", "[controller]\naction_ttl_s = 1e12",
        "controller.action_ttl_s: expected at most 1,000,000,000 seconds, found 1000000000000.0"),
    ("a placement that there is not", '[pulsar]\nplacement = "least-message-rate"',
        ('pulsar.placement: expected one of "broker", "least-long-term-message-rate", '
        '"least-resource-usage", found "least-message-rate"; did you mean "least-long-term-message-rate"?')),
    ("a limit that would let nothing move", "[pulsar.uniform_load_shedder]\nmax_unload_bundles_count = 0",
        "pulsar.uniform_load_shedder.max_unload_bundles_count: expected 1 or more, or -1 (no limit), found 0"),
    ("an action that is over at once", "[controller]\naction_ttl_s = 0",
        "controller.action_ttl_s: expected more than 0, found 0"),
    ("too few sweeps, named with their target", "[targets.e.pulsar]\nsweeps_per_round_count = 1",
        "targets.e.pulsar.sweeps_per_round_count: expected 2 or more, found 1"),
    ("a port that no machine has", "[metrics]\nport = 70000",
        "metrics.port: expected from 0 to 65535, found 70000"),
    ("a port in an address that no machine has", '[input]\nurl = "kafka://here:9092,there:99999"',
        ("input.url: expected kafka://host:port[,host:port] or pulsar://host:port[,host:port], ports from 1 to 65535, "
        'found "kafka://here:9092,there:99999"')),
    ("the same of a Kafka cluster", '[targets.e.kafka]\nbootstrap = "here:65536"',
        'targets.e.kafka.bootstrap: expected host:port[,host:port], ports from 1 to 65535, found "here:65536"'),
    ("the same of a Pulsar cluster, where 0 is none either", '[targets.e.pulsar]\nadmin_url = "http://here:0"',
        ("targets.e.pulsar: admin_url is 'http://here:0'; expected http://host:port[,host:port] or https://…, "
        "ports from 1 to 65535")),
    ("a trigger interval that would kill the workers is refused", "[spark]\ntrigger_interval_s = 31",
        ("spark.trigger_interval_s: expected more than 0 and at most 30, because Spark kills Python workers that "
        "idle for 60 s, found 31")),
    ("an address without a scheme is refused", '[input]\nurl = "localhost:9092"',
        ("input.url: expected kafka://host:port[,host:port] or pulsar://host:port[,host:port], ports from 1 to 65535, "
        'found "localhost:9092"')),
    ("two topics of one name are refused", '[topics]\naudit = "trimtab.input"',
        "topics: input and audit are both 'trimtab.input'; every topic needs its own name"),
    ("a syntax error names the line", "[pulsar\n",
        "is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 8)"),
]  # fmt: skip


@pytest.mark.parametrize(("toml", "line"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_file_is_refused_and_the_message_names_the_key(tmp_path: Path, toml: str, line: str):
    assert refusal(tmp_path, toml) == [f"trimtab.toml: {line}"]


def test_every_problem_is_listed_at_once(tmp_path: Path):
    toml = '[pulsar.rounds]\nlength = 1\nlateness_s = "1"\n[pulsar.usage]\ncpu_weight = -1\n'
    lines = refusal(tmp_path, toml, flags={"metrics.port": "x"}, TRIMTAB_CONTROLER__MODE="act")
    assert [line.split(":")[0] for line in lines] == [
        "TRIMTAB_CONTROLER__MODE", "--metrics-port", "trimtab.toml", "trimtab.toml", "trimtab.toml",
    ]  # fmt: skip
    assert lines[-1] == "trimtab.toml: pulsar.usage.cpu_weight: expected from 0 to 1,000,000, found -1"


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


ROOT = Path(__file__).parents[3]


def test_every_setting_has_a_docstring_and_a_row_in_the_reference():
    reference = render_reference()
    chapters = {chapter.split("`")[1]: chapter for chapter in reference.split("\n## ")[1:]}
    for section in sections():
        heading = "[" + dotted(section.path).replace("NAME", '"NAME"') + "]"
        assert section.doc
        assert not section.doc.startswith(f"{section.path[-1]}(")
        for setting in section.settings:
            assert setting.doc, f"{dotted(section.path)}.{setting.name} has no docstring"
            assert f"\n| `{setting.name}` |" in chapters[heading]


BOUNDED = {(each.section, each.name): each for section in sections() for each in section.settings}


@pytest.mark.parametrize(
    ("section", "name"),
    [key for key in BOUNDED if key[1] in bounds_of(key[0])],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_bound_holds_for_what_is_read_and_for_what_code_makes(section: type, name: str):
    kind = BOUNDED[section, name].kind
    if NoneType in get_args(kind):
        kind = get_args(kind)[0]
    wrong = {int: -2, float: -2.0, str: ""}.get(kind, ["a b"])
    expected = re.escape(bounds_of(section)[name].words)
    with pytest.raises(ValueError, match=f"{name} is .*; expected {expected}"):
        section(**{name: wrong})
    with pytest.raises(SettingsError, match=f"^{name}: expected {expected}, found "):
        read_tree({name: wrong}, section)


def test_every_limit_and_unit_is_visible_in_the_reference():
    reference = render_reference()
    assert "| `max_unload_ratio` | number, from 0 to 1 | `0.5` |" in reference
    assert "| `low_threshold_points` | number, 0 or more | `15` |" in reference
    assert "Pulsar: `loadBalancerAvgShedderLowThreshold` |" in reference
    assert '| `mode` | `"dry-run"` or `"act"` | `"dry-run"` |' in reference


def recommended() -> Settings:
    """The defaults, except where the sample recommends another value."""
    defaults = Settings()
    pulsar = replace(defaults.pulsar, shedding_policy="fleet-planner")
    return replace(defaults, pulsar=pulsar)


def test_the_sample_file_changes_nothing_but_what_it_recommends(tmp_path: Path):
    assert loaded(tmp_path, render_sample()).settings == recommended()


def test_the_sample_file_uncommented_is_the_defaults(tmp_path: Path):
    uncommented = re.sub(r"(?m)^#(?=\w+ = )", "", render_sample())
    result = loaded(tmp_path, uncommented)
    assert result.settings == recommended()
    written = {key for key, origin in result.sources.items() if origin.startswith("file ")}
    unset = {key for key in result.sources if key not in written}
    security = ("ca_file", "certificate_file", "key_file", "username", "password", "password_file")
    assert unset == {
        *(f"{side}.security.{name}" for side in ("input", "output") for name in security),
        "clusters", "targets", "pulsar.approval.standing", "input.pulsar.token_file", "input.pulsar.ca_file", "output.pulsar.token_file", "output.pulsar.ca_file", "output.url", "metrics.collector_port", "metrics.executor_port", "spark.master", "spark.jars_dir", "spark.extra",
        "pulsar.capacity.messages_per_s", "pulsar.capacity.bytes_per_s", "pulsar.capacity.brokers",
        "pulsar.capacity.topics_count", "pulsar.capacity.sessions_count",
        "pulsar.guards.max_unloads_per_round_count", "pulsar.guards.max_unloads_per_hour_count", "pulsar.guards.max_moved_per_hour_ratio",
        "kafka.capacity.network_bytes_per_s", "kafka.capacity.disk_bytes_per_s", "kafka.throttle.cluster_bytes_per_s", "kafka.capacity.brokers",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("page", "render"), [("settings.md", render_reference), ("trimtab.sample.toml", render_sample)]
)
def test_the_pages_in_docs_are_up_to_date(page: str, render: Callable[[], str]):
    assert (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8") == render(), "run `make docs`"
