"""Settings given as a file, flags and environment, and the messages about wrong ones."""

from pathlib import Path

import pytest

from streaming.settings import ClusterSettingsSource, Loaded, SettingsError, load

EAST = """
[pulsar.avg_shedder]
low_hit_count = 5
[pulsar.capacity.brokers."b1:8080"]
messages_per_s = 100
[clusters."east-1".pulsar.avg_shedder]
high_hit_count = 1
[clusters."east-1".pulsar.capacity.brokers."b2:8080"]
messages_per_s = 200
"""


def loaded(
    tmp_path: Path, toml: str = "", *, flags: dict[str, object] | None = None, **environ: str
) -> Loaded:
    file = tmp_path / "trimtab.toml"
    file.write_text(toml, encoding="utf-8")
    return load(file=file, flags=flags or {}, environ=environ)


def refusal(
    tmp_path: Path, toml: str = "", *, flags: dict[str, object] | None = None, **environ: str
) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, toml, flags=flags, **environ)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def source(tmp_path: Path, toml: str = "") -> ClusterSettingsSource:
    return ClusterSettingsSource(loaded(tmp_path, toml).settings)
