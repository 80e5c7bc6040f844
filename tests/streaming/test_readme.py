"""The README shows what the program prints."""

import io
import json
import re
from pathlib import Path

from state.closing import Identity
from streaming.controller.recording import opened_for_reading
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource, load

_ROOT = Path(__file__).resolve().parents[2]
_RECORDING = _ROOT / "tests/recordings/pulsar-3-brokers.ndjson.gz"


def test_the_decision_in_the_readme_is_the_first_one_of_the_recording():
    settings = load(file=_RECORDING.with_name("pulsar-3-brokers.toml"), flags={}, environ={}).settings
    out = io.BytesIO()
    replay = Replay(
        out,
        name=settings.controller.name,
        identity=Identity(mode=settings.controller.mode),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
        only="actions",
    )
    with opened_for_reading(str(_RECORDING)) as stream:
        replay.play(stream, str(_RECORDING), lambda _size_bytes: None)

    shown = re.search(
        r"<!-- decision: .*? -->\n```json\n(.*?)\n```", (_ROOT / "README.md").read_text(), re.DOTALL
    )

    assert json.loads(shown[1]) == json.loads(out.getvalue().splitlines()[0])


def test_every_file_the_readme_links_to_is_there():
    for page in (
        "README.md",
        "ARCHITECTURE.md",
        "docs/decisions.md",
        "docs/operations.md",
        "docs/scaling.md",
        "docs/deployment.md",
    ):
        text = (_ROOT / page).read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert ((_ROOT / page).parent / target).exists(), f"{page} links to {target}"
