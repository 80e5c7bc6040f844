"""A cluster's control as an operator's command finds it and changes it."""

import json
from datetime import UTC, datetime

import msgspec

from state.events import System
from state.outputs import Configured, canonical
from state.settings import Mode
from streaming.cli.control import Edit, Planned, Standing, find_standings, plan
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.load import compose
from streaming.transport.side import TopicRecord
from tests.streaming.events import control
from tests.streaming.records import on_topic

SETTINGS = ClusterSettingsSource(Settings())
ASKED = {"who": "maria", "why": "the sale"}
"""Who wants a change, and why."""
NOW_MS = 1_700_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
LOW_10 = {"pulsar": {"avg_shedder": {"low_threshold_points": 10}}}


def shown(
    tree: dict[str, object], *, system: System = "pulsar", mode: Mode = "dry-run"
) -> tuple[System, Configured]:
    """What a round shows of a controller with these settings."""
    in_force = ClusterSettingsSource(compose(tree)).base("east-1").in_force[system]
    different = msgspec.json.decode(canonical(in_force.different))
    return system, Configured(mode=mode, approval="none", settings_digest=in_force.digest, settings=different)


HERE = compose({"pulsar": {"avg_shedder": {"low_threshold_points": 20}, "rounds": {"lateness_s": 60.0}}})
"""The settings where the operator stands; the controller's are others."""
CONTROLLERS = {"pulsar": {"avg_shedder": {"low_threshold_points": 13}, "rounds": {"lateness_s": 5.0}}}
KNOWN = ClusterSettingsSource(HERE, {"east-1": shown(CONTROLLERS)})


def record(value: bytes, *, key: str = "east-1", offset: int = 0, appended_ms: int = NOW_MS) -> TopicRecord:
    return on_topic(value, key=key.encode(), at_ms=appended_ms, offset=offset)


def stands(*values: bytes) -> Standing:
    records = [record(value, offset=offset) for offset, value in enumerate(values)]
    return find_standings(records, SETTINGS).get("east-1", Standing())


def planned(
    edit: Edit, *values: bytes, now_ms: int = NOW_MS, settings: ClusterSettingsSource = SETTINGS
) -> Planned:
    return plan(
        "east-1",
        edit=edit,
        **ASKED,
        stands=stands(*values),
        settings=settings,
        now_ms=now_ms,
        nonce="n",
    )


def data_of(event: Planned) -> dict[str, object]:
    written = json.loads(event.value)["data"]
    assert isinstance(written, dict)
    return written


FULL = control(
    time_s=1_699_999_000,
    id="a",
    data={"paused": True, "mode": "act", "settings": LOW_10, "who": "jo", "why": "x"},
)
