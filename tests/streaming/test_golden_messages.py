"""What any released version wrote, today's code reads: its structs, its schemas, its commands."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from state.events import Rejection
from streaming.actions.event import ACTION_PREFIX, read_action, read_round
from streaming.docs.kinds import KINDS
from streaming.wire.decode import decode
from tests.streaming.golden import ROOT, folders, messages, version

KIND_OF = {kind.type: kind for kind in KINDS}
MESSAGES = [
    pytest.param(event, id=f"{folder.name} {name}")
    for folder in folders()
    for name, event in messages(folder).items()
]


def schema(name: str) -> dict[str, Any]:
    text = (ROOT / "docs" / "schemas" / KIND_OF[name].schema_name).read_text()
    return dict(json.loads(text))


def test_the_present_version_has_a_message_of_every_type() -> None:
    folder = Path(__file__).with_name("golden_messages") / f"v{version()}"
    assert set(messages(folder)) == set(KIND_OF), "run: python -m tests.streaming.golden"


@pytest.mark.parametrize("event", MESSAGES)
def test_the_struct_of_today_reads_it(event: dict[str, Any]) -> None:
    kind = KIND_OF[event["type"]].message
    read = msgspec.to_builtins(msgspec.json.decode(json.dumps(event).encode(), type=kind))
    known = {name: value for name, value in read["data"].items() if name in event["data"]}
    changed = [
        name
        for name, value in known.items()
        if isinstance(value, str | bool | int) and value != event["data"][name]
    ]
    assert known or not event["data"]
    assert not changed, "a field means something else now"


@pytest.mark.parametrize("event", MESSAGES)
def test_the_schema_of_today_accepts_it(event: dict[str, Any]) -> None:
    Draft202012Validator(schema(event["type"])).validate(event)


@pytest.mark.parametrize("event", MESSAGES)
def test_the_controller_or_the_commands_of_today_take_it(event: dict[str, Any]) -> None:
    value = json.dumps(event).encode()
    if KIND_OF[event["type"]].is_read:
        cluster, taken = decode(value, key=event["cluster"])
        assert not isinstance(taken, Rejection), taken
        assert cluster == event["cluster"]
    elif event["type"].startswith(ACTION_PREFIX):
        assert read_action(value).data.reason == event["data"]["reason"]
    elif event["type"] == "trimtab.round.v1":
        found = read_round(value, cluster=event["cluster"], number=event["data"]["round"])
        assert found is not None
        assert found.data.actions == event["data"]["actions"]


def test_a_field_that_a_later_version_adds_is_ignored() -> None:
    event = json.loads(json.dumps(messages(folders()[-1])["trimtab.action.unload.v1"]))
    event["data"]["later"] = event["later"] = {"x": 1}
    assert read_action(json.dumps(event).encode()).id == event["id"]
    Draft202012Validator(schema(event["type"])).validate(event)
