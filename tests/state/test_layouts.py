"""Stored memory has the version of its layout: a newer one is refused, an older one is upgraded or refused, with the way out."""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import msgspec
import pytest

from state import layouts
from state.layouts import VERSION, NewerStateError, OlderStateError
from state.memory import Header, decode_header, encode_header
from tests.state.samples import SAMPLES, pulsar_header


@pytest.mark.parametrize("name", ["header-pulsar", "kafka-memory"])
def test_the_samples_leave_no_field_at_its_default(name: str) -> None:
    """A field that nobody fills would not show that it is stored."""
    early = {"early"}  # only before the system is known: header-early
    left = [each for each in _defaulted(SAMPLES[name].build()) if each not in early]
    assert not left, f"fill these in tests/state/samples.py: {left}"


@pytest.mark.parametrize("name", SAMPLES)
def test_what_was_stored_is_stored_again_in_the_same_bytes(name: str) -> None:
    sample = SAMPLES[name]
    stored = sample.encode(sample.build())
    assert sample.encode(sample.decode(stored)) == stored


def test_memory_of_an_older_version_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_memory_of_a_newer_trimtab_is_refused_with_the_way_out(name: str) -> None:
    newer = bytes([VERSION + 1]) + b"whatever it may be"
    with pytest.raises(
        NewerStateError, match=rf"version {VERSION + 1}, this one knows {VERSION}.*newer one.*--fresh"
    ):
        SAMPLES[name].decode(newer)


@pytest.mark.parametrize("name", SAMPLES)
def test_memory_that_nothing_upgrades_is_refused_with_the_way_out(name: str) -> None:
    sample = SAMPLES[name]
    older = bytes([1]) + sample.encode(sample.build())[1:]
    with pytest.raises(OlderStateError, match=rf"version 1, this one reads {VERSION}.*--fresh"):
        sample.decode(older)


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
