"""Today's code (structs, schemas, commands) reads all that any released version wrote."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from streaming.cli.actions import read_action
from tests.streaming.golden import (
    KIND_OF,
    ROOT,
    Event,
    decided,
    folders,
    known_reading,
    lost,
    messages,
    reading,
    version,
)

FOUND = [(folder, event) for folder in folders() for event in messages(folder).values()]
IDS = [f"{folder.name} {event['type']}" for folder, event in FOUND]
MESSAGES = pytest.mark.parametrize(("folder", "event"), FOUND, ids=IDS)

NOT_OURS_TO_READ = {
    "trimtab.pulsar.load-report.v1": {
        "advertisedListeners", "brokerVersionString", "cacheSize", "lastBundleGains",
        "lastBundleLosses", "lastUpdate", "loadManagerClassName", "loadReportType", "maxResourceUsage",
        "nonPersistentTopicsEnabled", "numBundles", "numConsumers", "numProducers", "numTopics",
        "persistentTopicsEnabled", "protocols", "pulsarServiceUrl", "startTimestamp", "webServiceUrl",
    }
}  # fmt: skip
"""Fields of Pulsar in `data` that we do not read; we read every other field of a message."""


def schema(name: str) -> dict[str, Any]:
    text = (ROOT / "docs" / "reference" / "schemas" / KIND_OF[name].schema_name).read_text()
    return dict(json.loads(text))


def as_struct(event: Event) -> Any:
    """All that today's struct reads from a message; times stay ``datetime``."""
    read = msgspec.json.decode(json.dumps(event), type=KIND_OF[event["type"]].message)
    return msgspec.to_builtins(read, builtin_types=(datetime,))


def test_the_present_version_has_a_message_of_every_type():
    folder = Path(__file__).with_name("golden_messages") / f"v{version()}"
    assert set(messages(folder)) == set(KIND_OF), "run: python -m tests.streaming.golden"


def test_the_decisions_among_them_are_those_of_today():
    known = messages(folders()[-1])
    for event in decided():
        assert event == known[event["type"]], "if that is wanted: python -m tests.streaming.golden, make docs"


@MESSAGES
def test_the_struct_of_today_drops_and_changes_nothing_at_any_depth(folder: Path, event: Event):
    unread = NOT_OURS_TO_READ.get(event["type"], set())
    missing = {path: path.rpartition(".")[2] for path in lost(event, as_struct(event))}
    assert set(missing.values()) == unread, f"{folder.name}: dropped or changed now: {list(missing)}"


@MESSAGES
def test_its_readers_of_today_make_the_same_of_it_as_before(folder: Path, event: Event):
    assert list(lost(known_reading(folder, event["type"]), reading(event))) == [], (
        "if only our own terms changed: python -m tests.streaming.golden, and look at the difference"
    )


@MESSAGES
def test_the_schema_of_today_accepts_it(folder: Path, event: Event):  # noqa: ARG001  part of the table
    Draft202012Validator(schema(event["type"])).validate(event)


@pytest.mark.parametrize(
    ("given", "read", "where"),
    [
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["a.b[1].c"]),
        ({"a": {"b": 1}, "c": 1}, {"a": {}}, ["a.b", "c"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a[0]", "a[1]"]),
        ({"a": 0}, {"a": None}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": "1"}, {"a": 1}, ["a"]),
        ({"at": "2026-01-01T00:00:00.000Z"}, {"at": datetime(2026, 1, 1, 1, tzinfo=UTC)}, ["at"]),
        ({"at": "2026-01-01T00:00:00.000Z"}, {"at": datetime(2026, 1, 1, tzinfo=UTC)}, []),
        ({"a": {"b": [1, None]}}, {"a": {"b": [1.0, None], "later": 2}}, []),
    ],
)
def test_what_is_dropped_or_changed_is_found_wherever_it_is(given: object, read: object, where: list[str]):
    assert list(lost(given, read)) == where


def test_a_field_that_a_later_version_adds_is_ignored():
    event = messages(folders()[-1])["trimtab.action.unload.v1"]
    event["data"]["later"] = event["later"] = {"x": 1}
    assert read_action(json.dumps(event).encode()).id == event["id"]
    Draft202012Validator(schema(event["type"])).validate(event)
