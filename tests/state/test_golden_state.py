"""The state of every released trimtab can be read, and a layout that was released never changes under its number."""

from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state.engine import layouts
from state.engine.encoding import decode_header, encode_header
from state.engine.layouts import VERSION, NewerStateError, OlderStateError
from state.engine.memory import Header
from streaming.ports.checkpoint import Card
from tests.state.golden_state import recorded
from tests.state.golden_state.samples import SAMPLES, pulsar_header

FOLDERS = recorded.folders()
COMMAND = "python -m tests.state.golden_state"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        pytest.param(folder, name, id=f"{folder.name}-{name}")
        for folder in FOLDERS
        for name in SAMPLES
        if (folder / f"{name}.bin").exists()  # 0.1.0 had no batches
    ],
)
def test_what_a_released_trimtab_stored_is_read_as_it_meant_it(folder: Path, name: str):
    """A newer layout upgrades it; fields that came later have whatever the upgrade gives them."""
    now = recorded.shown(SAMPLES[name].decode((folder / f"{name}.bin").read_bytes()))
    stored = msgspec.json.decode((folder / f"{name}.json").read_bytes())
    assert not list(recorded.differences(stored, now, name))


def test_a_changed_layout_has_a_version_of_its_own():
    folder = recorded.current()
    assert folder is not None, f"record what version {VERSION} stores: {COMMAND}"
    found = recorded.layout_in(folder)
    remedy = (
        "raise state.engine.layouts.VERSION and write the upgrade from the version before"
        if found.is_released
        else f"run {COMMAND}: this version is not released yet"
    )
    assert found.structs == recorded.structs(), f"the layout of stored memory changed: {remedy}"
    for name, sample in SAMPLES.items():
        stored = (folder / f"{name}.bin").read_bytes()
        assert sample.encode(sample.build()) == stored, f"{name} is stored in another way: {remedy}"


def test_the_versions_of_the_layouts_rise_one_by_one_and_each_has_an_upgrade_to_the_next():
    versions = sorted(recorded.layout_in(folder).version for folder in FOLDERS)
    assert versions == list(range(versions[0], VERSION + 1))
    assert sorted(layouts.UPGRADES) == versions[:-1]
    assert all(recorded.layout_in(each).is_released for each in FOLDERS if each != recorded.current())


@pytest.mark.parametrize("name", ["header-pulsar", "kafka-memory"])
def test_the_recorded_values_leave_no_field_at_its_default(name: str):
    """A field that nobody fills would not show that it is stored."""
    early = {"early"}  # only before the system is known: header-early
    left = [each for each in _defaulted(SAMPLES[name].build()) if each not in early]
    assert not left, f"fill these in tests/state/golden_state/samples.py: {left}"


def test_memory_of_an_older_version_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch):
    def named(kind: layouts.Kind, body: Any) -> Any:
        return [*body[:3], 7, *body[4:]] if kind == "header" else body

    before = encode_header(pulsar_header())
    monkeypatch.setattr(layouts, "VERSION", VERSION + 2)
    monkeypatch.setitem(layouts.UPGRADES, VERSION, named)
    monkeypatch.setitem(layouts.UPGRADES, VERSION + 1, lambda _, body: body)
    after = decode_header(before)
    assert after == msgspec.structs.replace(pulsar_header(), partition=7)
    assert encode_header(after)[0] == VERSION + 2


@pytest.mark.parametrize("name", SAMPLES)
def test_memory_of_a_newer_trimtab_is_refused_with_the_way_out(name: str):
    newer = bytes([VERSION + 1]) + b"whatever it may be"
    with pytest.raises(
        NewerStateError, match=rf"version {VERSION + 1}, this one knows {VERSION}.*newer one.*--fresh"
    ):
        SAMPLES[name].decode(newer)


@pytest.mark.parametrize("name", SAMPLES)
def test_memory_from_before_the_first_release_is_refused_with_the_way_out(name: str):
    sample = SAMPLES[name]
    older = bytes([1]) + sample.encode(sample.build())[1:]
    with pytest.raises(OlderStateError, match=r"before 0\.1\.0 \(memory version 1\).*--fresh"):
        sample.decode(older)


def test_what_is_released_is_not_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    recorded.write()
    recorded.write(release=True)
    with pytest.raises(recorded.Released, match=r"raise state\.engine\.layouts\.VERSION"):
        recorded.write()


def test_the_card_of_an_older_checkpoint_is_read():
    """Its versions came later."""
    card = msgspec.json.decode(
        b'{"controller":"c","memory_version":2,"length_s":60.0,"cluster_length_s":{}}', type=Card
    )
    assert (card.trimtab_version, card.spark_version) == ("", "")


def _defaulted(value: Any) -> list[str]:
    if is_dataclass(value):
        return [
            each.name
            for each in fields(value)
            if getattr(value, each.name)
            == (each.default if each.default_factory is MISSING else each.default_factory())
        ]
    assert isinstance(value, Header)
    empty = Header(length_ms=0)
    return [name for name in Header.__struct_fields__ if getattr(value, name) == getattr(empty, name)]
