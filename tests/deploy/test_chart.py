"""The chart's values: what they may be follows from the settings, and the chart's own fit."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from pydantic import SecretStr

from deploy.helm.__main__ import SCHEMA, render
from streaming.settings.catalog import FREE_NAME, sections
from streaming.settings.targets import is_secret

ROOT = Path(__file__).resolve().parents[2]
CHART = SCHEMA.parent
SAMPLES = sorted((Path(__file__).parent / "values").glob("*.yaml"))


def complaints(values: object) -> list[str]:
    """What the schema says against values."""
    return [error.message for error in Draft7Validator(json.loads(SCHEMA.read_text())).iter_errors(values)]


def below(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The schema of a section of the settings."""
    found = schema["properties"]["settings"]
    for part in path:
        found = found["additionalProperties"] if part == FREE_NAME else found["properties"][part]
    return dict(found)


def with_setting(path: str, value: object) -> dict[str, Any]:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    table = values["settings"]
    *parts, name = path.split("/")
    for part in parts:
        table = table.setdefault(part, {})
    table[name] = value
    return dict(values)


def test_the_schema_in_the_chart_is_the_one_that_the_settings_give():
    assert SCHEMA.read_text() == render(), "run: make docs"
    Draft7Validator.check_schema(json.loads(render()))


def test_every_setting_that_is_no_secret_may_be_set_and_nothing_else():
    schema = json.loads(render())
    for section in sections():
        own = below(schema, section.path)
        assert own["additionalProperties"] is False, section.path
        shown = {member.name for member in section.settings if not is_secret(member.kind)}
        assert shown <= set(own["properties"]), section.path


def test_the_values_of_the_chart_and_of_the_samples_fit():
    assert complaints(yaml.safe_load((CHART / "values.yaml").read_text())) == []
    for sample in SAMPLES:
        frame = with_setting("controller/mode", "dry-run")
        given = yaml.safe_load(sample.read_text())
        assert complaints({**frame, **given}) == [], sample.name


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("pulsar/avg_shedder/low_hit_cuont", 3, "'low_hit_cuont' was unexpected"),
        ("pulsar/avg_shedder/low_hit_count", 3.5, "3.5 is not of type 'integer'"),
        ("pulsar/avg_shedder/low_threshold_points", "15", "'15' is not of type 'number'"),
        ("controller/mode", "on", "'on' is not one of ['dry-run', 'act']"),
        ("spark/extra", {"spark.executor.cores": 2}, "2 is not of type 'string'"),
        ("clusters/east-1/pulsar/rounds/length_s", "30", "'30' is not of type 'number'"),
        ("input/security/password", "hunter2", "'password' was unexpected"),
    ],
)
def test_what_trimtab_would_refuse_helm_refuses_before(path: str, value: object, message: str):
    assert any(message in complaint for complaint in complaints(with_setting(path, value)))


def test_no_secret_has_a_place_in_the_values():
    secret = {
        (*section.path, member.name)
        for section in sections()
        for member in section.settings
        if is_secret(member.kind)
    }
    assert ("input", "security", "password") in secret
    schema = json.loads(render())
    assert not [path for path in secret if path[-1] in below(schema, path[:-1])["properties"]]
    assert SecretStr.__name__ not in render()


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]


def test_dashboards_and_rules_of_the_chart_are_those_beside_it():
    assert (CHART / "files/dashboards").resolve() == ROOT / "deploy/grafana/dashboards"
    assert (CHART / "files/prometheus").resolve() == ROOT / "deploy/prometheus"


def test_the_chart_asks_for_the_memory_of_the_largest_measured_load_and_a_quarter_more():
    page = (ROOT / "docs/run/scaling.md").read_text()
    head = next(line for line in page.splitlines() if line.startswith("| clusters |")).split("|")
    place = next(number for number, name in enumerate(head) if name.strip() == "resident, MiB")
    rows = [line.split("|") for line in page.splitlines() if re.match(r"\| \d+ \| \d+ \|", line)]
    resident_mib = [int(row[place].replace(",", "")) for row in rows if len(row) == len(head)]
    resources = yaml.safe_load((CHART / "values.yaml").read_text())["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "3Gi"
    assert 1.25 * max(resident_mib) <= 3 * 1024
