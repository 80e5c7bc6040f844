"""Time zones come only from the pinned package, never from the machine's own files; decisions depend on nothing else."""

import json
import zoneinfo
from importlib import resources
from pathlib import Path

import pytest

from state.settings import OverlayError
from streaming.settings import ClusterSettingsSource
from streaming.settings.catalog import SettingsError
from streaming.settings.load import load
from streaming.settings.zones import offsets_of
from tests.state.traces import settings_of

SUMMER_2026 = [(1774746000000, 120), (1792890000000, 60)]
"""29 March and 25 October 2026, 01:00 UTC."""


def test_a_zone_is_spans_of_utc_with_one_offset_each() -> None:
    found = list(offsets_of("Europe/Berlin"))
    assert found[0] == (946684800000, 60)
    assert [each for each in found if 1767225600000 <= each[0] < 1798761600000] == SUMMER_2026
    assert offsets_of("Asia/Kolkata") == ((946684800000, 330),)


def test_the_zone_files_of_the_machine_are_not_looked_at(tmp_path: Path) -> None:
    """The machine's zone file of Berlin holds UTC."""
    wrong = tmp_path / "Europe/Berlin"
    wrong.parent.mkdir()
    wrong.write_bytes(resources.files("tzdata").joinpath("zoneinfo", "UTC").read_bytes())
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        offsets_of.cache_clear()
        assert [each for each in offsets_of("Europe/Berlin") if each in SUMMER_2026] == SUMMER_2026
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_an_unknown_zone_is_refused_in_a_file_with_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "trimtab.toml"
    file.write_text('[pulsar.guards]\nquiet_hours = ["08:00-18:00 Europe/Berlim"]\n')
    with pytest.raises(
        SettingsError,
        match=r"trimtab.toml: pulsar.guards.quiet_hours: 'Europe/Berlim' is no time zone; did you mean Europe/Berlin",
    ):
        load(file=file, flags={}, environ={})


def test_an_unknown_zone_is_refused_in_a_control_event() -> None:
    overlay = json.dumps({"pulsar": {"guards": {"quiet_hours": ["08:00-18:00 Mars/Olympus"]}}}).encode()
    with pytest.raises(OverlayError, match="'Mars/Olympus' is no time zone") as found:
        settings_of().overlaid("east-1", overlay)
    assert found.value.reason == "bad-settings"


def test_the_digest_covers_what_a_zone_is_and_only_where_one_is_named() -> None:
    def digest(*spans: str) -> str:
        source = settings_of(guards={"quiet_hours": list(spans)})
        assert isinstance(source, ClusterSettingsSource)
        return source.base("east-1").in_force["pulsar"].digest

    assert len({digest(), digest("08:00-18:00"), digest("08:00-18:00 Europe/Berlin")}) == 3
    assert settings_of(guards={"quiet_hours": ["08:00-18:00"]}).base("east-1").zones == {}
