"""The examples of the docs: the golden message of every type, and the rounds of a recorded Kafka cluster."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec

from state.closing import Identity
from state.outputs.actions import ROUND_TYPE
from streaming.controller.published import Published, decode
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource, Settings

Event = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDING = "tests/recordings/pulsar-3-brokers.ndjson.gz"
"""What most of the golden messages were taken from."""
_MOVE = REPOSITORY / "tests" / "recordings" / "kafka-4-brokers.ndjson"
"""The worked example of docs/use/throttling.md: two sweeps of a collector while four partitions move to broker 104."""


def golden_messages(version: str) -> dict[str, Event]:
    """An event of every type, as this version writes or reads it."""
    folder = REPOSITORY / "tests" / "streaming" / "golden_messages" / f"v{version}"
    events = (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json"))
    return {event["type"]: event for event in events}


def kafka_rounds() -> list[Published]:
    """What a controller says of the cluster whose partitions move."""
    out, settings = io.BytesIO(), Settings()
    replay = Replay(
        out,
        name=settings.controller.name,
        identity=Identity(mode="act", action_ttl_s=settings.controller.action_ttl_s),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
    )
    with _MOVE.open("rb") as recorded:
        replay.play(recorded, _MOVE.name)
    lines = out.getvalue().splitlines()
    return [decode(line) for line in lines if msgspec.json.decode(line)["type"] == ROUND_TYPE]
