"""The digest of the settings, and the values that a section refuses."""

from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state.guard_settings import GuardSettings
from state.settings import (
    DEFAULTS,
    LONGEST_S,
    MAX_OPEN_ROUNDS_COUNT,
    ClusterSettings,
    InForce,
    KafkaSettings,
    PulsarSettings,
    RoundSettings,
)

RECORDED = Path(__file__).with_name("settings_defaults.json")


@dataclass(frozen=True)
class Guards:
    cooldown_s: float = 1800.0
    budget_count: int = 20


@dataclass(frozen=True)
class Settings:
    guards: Guards = field(default_factory=Guards)
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class GuardsOfTheNextVersion(Guards):
    benefit_points: float = 0.0


@dataclass(frozen=True)
class SettingsOfTheNextVersion:
    guards: GuardsOfTheNextVersion = field(default_factory=GuardsOfTheNextVersion)
    excluded: tuple[str, ...] = ()
    calm_rounds: int = 0


def test_a_new_setting_that_nobody_switched_on_changes_no_digest() -> None:
    assert (
        InForce.from_settings(SettingsOfTheNextVersion()).digest == InForce.from_settings(Settings()).digest
    )
    changed, changed_next = Guards(budget_count=3), GuardsOfTheNextVersion(budget_count=3)
    assert (
        InForce.from_settings(SettingsOfTheNextVersion(guards=changed_next)).digest
        == InForce.from_settings(Settings(guards=changed)).digest
    )


def test_any_value_that_differs_from_its_default_changes_the_digest() -> None:
    seen = {
        InForce.from_settings(each).digest
        for each in (
            Settings(),
            Settings(excluded=("b1",)),
            Settings(guards=Guards(cooldown_s=0)),
            Settings(guards=Guards(budget_count=0)),
            Settings(guards=Guards(cooldown_s=0), excluded=("b1",)),
        )
    }
    assert len(seen) == 5


def test_a_default_cannot_change_its_value_under_the_same_number() -> None:
    """Change a default: raise ``DEFAULTS``, then write ``settings_defaults.json`` anew from what this test prints."""
    recorded = msgspec.json.decode(RECORDED.read_bytes())
    now = msgspec.json.decode(msgspec.json.encode({"pulsar": PulsarSettings(), "kafka": KafkaSettings()}))
    written = msgspec.json.format(msgspec.json.encode({"defaults": DEFAULTS, **now})).decode()
    leaves = _leaves(now)
    changed = [
        f"{path}: {value!r} before, {leaves[path]!r} now"
        for path, value in _leaves({"pulsar": recorded["pulsar"], "kafka": recorded["kafka"]}).items()
        if path in leaves and leaves[path] != value
    ]
    assert not changed or recorded["defaults"] < DEFAULTS, f"raise state.settings.DEFAULTS: {changed}"
    assert RECORDED.read_text().strip() == written, f"write {RECORDED.name} anew:\n{written}"


def test_every_setting_is_covered() -> None:
    """A settings object that is no dataclass, or a field left out of comparison, would hide its changes."""
    for settings in (PulsarSettings(), KafkaSettings()):
        for path, each in _dataclasses(settings):
            assert all(one.compare and one.init for one in fields(each)), path
    assert ClusterSettings().in_force["pulsar"] == InForce.from_settings(PulsarSettings())
    assert ClusterSettings().in_force["kafka"] == InForce.from_settings(KafkaSettings())


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            found.update(_leaves(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def _dataclasses(settings: Any, path: str = "settings") -> list[tuple[str, Any]]:
    inner = [(f"{path}.{each.name}", getattr(settings, each.name)) for each in fields(settings)]
    found = [pair for name, value in inner if is_dataclass(value) for pair in _dataclasses(value, name)]
    return [(path, settings), *found]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"length_s": 0.0}, "length_s is 0.0; expected from a millisecond to"),
        ({"length_s": 0.0004}, "length_s is 0.0004; expected from a millisecond to"),
        ({"length_s": LONGEST_S * 2}, "expected from a millisecond to"),
        ({"lateness_s": -1.0}, "lateness_s is -1.0; expected 0 or more"),
        ({"warmup_rounds": -1}, "warmup_rounds is -1; expected 0 or more"),
        ({"quorum_ratio": -0.1}, "quorum_ratio is -0.1; expected 0 or more"),
        ({"max_report_age_s": -1.0}, "max_report_age_s is -1.0; expected 0 or more"),
        ({"max_ahead_s": -1.0}, "max_ahead_s is -1.0; expected 0 or more"),
        ({"forget_cluster_s": -1.0}, "forget_cluster_s is -1.0; expected 0 or more"),
        (
            {"length_s": 1.0, "lateness_s": MAX_OPEN_ROUNDS_COUNT + 1.0},
            f"at most {MAX_OPEN_ROUNDS_COUNT} rounds of 1 s may be open at once",
        ),
    ],
)
def test_rounds_that_cannot_be_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RoundSettings(**fields)


def test_as_many_rounds_as_there_may_be_open_are_taken() -> None:
    RoundSettings(length_s=1.0, lateness_s=float(MAX_OPEN_ROUNDS_COUNT))
    RoundSettings(length_s=0.001, lateness_s=0.0, max_report_age_s=0.0, max_ahead_s=0.0)


GUARDS = (
    "bundle_cooldown_s",
    "max_unloads_per_round_count",
    "max_unloads_per_broker_count",
    "max_unloads_per_namespace_count",
    "max_unloads_per_hour_count",
    "ineffective_after_rounds",
    "ineffective_rest_s",
    "failing_actions_count",
    "min_unload_benefit_points",
    "calm_after_change_rounds",
)


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_below_nothing_is_refused_and_0_switches_it_off(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} is -1; expected 0 or more \(0 switches it off\)"):
        GuardSettings(**{name: -1})
    GuardSettings(**{name: 0})


def test_no_more_failures_can_be_asked_for_than_are_looked_at() -> None:
    GuardSettings(failing_actions_count=10)
    with pytest.raises(
        ValueError,
        match=r"failing_actions_count is 11; expected 0 or more \(0 switches it off\), and at most the 10",
    ):
        GuardSettings(failing_actions_count=11)


def test_an_average_of_no_samples_is_refused() -> None:
    PulsarSettings(bundle_average_samples=1)
    with pytest.raises(ValueError, match="bundle_average_samples is 0; expected 1 or more"):
        PulsarSettings(bundle_average_samples=0)
