"""Settings: the reference and the sample file match the code, and importing them costs little."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.settings import Settings
from streaming.settings.catalog import dotted, sections
from streaming.settings.reference import render_reference, render_sample
from tests.streaming.settings.given import loaded

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


def test_every_limit_and_unit_is_visible_in_the_reference():
    reference = render_reference()
    assert "| `low_threshold_points` | number | `15` |" in reference
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
        "kafka.capacity.network_bytes_per_s", "kafka.capacity.brokers",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("page", "render"), [("settings.md", render_reference), ("trimtab.sample.toml", render_sample)]
)
def test_the_pages_in_docs_are_up_to_date(page: str, render: Callable[[], str]):
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == render(), "run `make docs`"
