"""Settings of one cluster: its section overrides the common one, a control event's overlay overrides both."""

import pickle
import re
from pathlib import Path

import pytest

from state.settings import ClusterSettings, OverlayError, PulsarSettings, SettingsSource
from tests.streaming.settings.given import EAST, loaded, source


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
    digest = source(tmp_path).base("x").in_force["pulsar"].digest
    assert re.fullmatch(r"[0-9a-f]{16}", digest)
    assert digest == ClusterSettings(pulsar=PulsarSettings()).in_force["pulsar"].digest
    assert source(tmp_path, "[pulsar.rounds]\nlength_s = 60\n").base("x").in_force["pulsar"].digest == digest
    assert source(tmp_path, "[pulsar.rounds]\nlength_s = 61\n").base("x").in_force["pulsar"].digest != digest
    assert (
        source(tmp_path, EAST).base("east-1").in_force["pulsar"].digest
        != source(tmp_path, EAST).base("west-1").in_force["pulsar"].digest
    )


def test_an_overlay_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    settings: SettingsSource = source(tmp_path, EAST)
    over = settings.overlaid("east-1", b'{"pulsar": {"avg_shedder": {"low_hit_count": 3}}}')
    assert (over.pulsar.avg_shedder.low_hit_count, over.pulsar.avg_shedder.high_hit_count) == (3, 1)
    assert over.pulsar.capacity == settings.base("east-1").pulsar.capacity
    assert over.in_force["pulsar"].digest != settings.base("east-1").in_force["pulsar"].digest
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
