"""What a summary's settings digest promises across versions of trimtab."""

from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from state.settings import DEFAULTS, ClusterSettings, InForce, KafkaSettings, PulsarSettings

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
    assert InForce.of(SettingsOfTheNextVersion()).digest == InForce.of(Settings()).digest
    changed, changed_next = Guards(budget_count=3), GuardsOfTheNextVersion(budget_count=3)
    assert (
        InForce.of(SettingsOfTheNextVersion(guards=changed_next)).digest
        == InForce.of(Settings(guards=changed)).digest
    )


def test_any_value_that_differs_from_its_default_changes_the_digest() -> None:
    seen = {
        InForce.of(each).digest
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
    assert ClusterSettings().in_force["pulsar"] == InForce.of(PulsarSettings())
    assert ClusterSettings().in_force["kafka"] == InForce.of(KafkaSettings())


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
