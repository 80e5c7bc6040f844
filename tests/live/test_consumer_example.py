"""The example consumer of docs/reference/consumers.md carries out what it should and leaves alone what it must not.

Kafka is real; the two admin calls are answered here, by something that looks like a broker and knows what it owns.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from deploy.local.kafka import LocalKafka
from streaming.contract.decode import decode
from streaming.contract.encode import encode_leader
from tests.streaming.events import control
from tests.streaming.http_broker import Answer, Asked, Broker, http_brokers
from tests.support.actions import golden_action, publish
from tests.support.processes import ROOT, Child
from tests.support.stage import Stage

pytestmark = pytest.mark.live

EXAMPLE = ROOT / "docs" / "reference" / "examples" / "carry_out_unloads.py"
OWNED = "shop/orders/0x80000000_0xa0000000"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker that owns one bundle, and can unload it to one other broker."""

    def answer(asked: Asked) -> Answer:
        if asked.method == "GET":
            assert "/topicHashPositions?" in asked.path
            return (200 if f"/{OWNED}/" in asked.path else 412), {}, b"{}"
        return (204 if "broker-2" in asked.path else 409), {}, b""

    with http_brokers() as make:
        yield make(answer)


def unload(broker: Broker, name: str, **data: Any) -> dict[str, Any]:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="milliseconds")
    owned = {"owner": broker.url.removeprefix("http://"), "range": OWNED.rpartition("/")[2]}
    usual = {"expires_at": soon, "precondition": owned, "destination_broker": "broker-2:8080"}
    return golden_action("unload", cluster="lab", id_=name, **usual | data)


def running(stage: Stage) -> Child:
    """The example, in a group of the stage's own."""
    options = ("--bootstrap", stage.bootstrap, "--cluster", "lab", "--group", stage.name)
    names = stage.topics
    topics = ("--actions", names.actions, "--control", names.control, "--input", names.input)
    return Child((sys.executable, str(EXAMPLE), *options, *topics), stage.directory / "example.log")


@pytest.mark.slow
def test_it_goes_on_after_a_restart_of_the_broker(tmp_path: Path, broker: Broker):
    with LocalKafka(tmp_path / "kafka") as kafka:
        stage = Stage(kafka.bootstrap, "restarted", tmp_path)
        stage.create_topics()
        with running(stage) as example:
            for name in ("before", "after"):
                publish(stage, unload(broker, name), epoch=5)
                example.until(lambda: f"{name}: succeeded" in example.output, name)  # noqa: B023
                kafka.restart()
        stage.close()


def test_it_carries_out_what_it_should_and_leaves_the_rest_alone(stage: Stage, broker: Broker):
    announced = json.loads(encode_leader("trimtab", epoch=7, time_ms=0))
    elsewhere = {"bundle": "shop/orders/0x00000000_0x20000000"}
    story = [
        (5, unload(broker, "good"), "succeeded: asked"),
        (5, unload(broker, "good"), "skipped: duplicate"),
        (4, unload(broker, "stale"), "skipped: epoch 4 is stale, a controller with epoch 5 has taken over"),
        (5, unload(broker, "old", expires_at="2026-01-01T00:00:00.000Z"), "skipped: expired"),
        (5, unload(broker, "shown", dry_run=True), "skipped: dry-run"),
        (
            5,
            unload(broker, "later") | {"type": "trimtab.action.split.v1"},
            "skipped: trimtab.action.split.v1",
        ),
        (5, unload(broker, "west") | {"cluster": "west"}, "skipped: another cluster's"),
        (5, unload(broker, "moved", **elsewhere), "skipped: 127.0.0.1"),
        (5, unload(broker, "refused", destination_broker="nowhere:8080"), "failed: HTTP Error 409"),
        (6, unload(broker, "successor"), "succeeded: asked"),
        (7, announced, "skipped: another cluster's"),
        (6, unload(broker, "zombie"), "skipped: epoch 6 is stale, a controller with epoch 7 has taken over"),
    ]
    for epoch, event, _ in story:
        publish(stage, event, epoch=epoch)
    with running(stage) as example:
        lines = example.until(
            lambda: (found := example.output.splitlines()) and len(found) >= len(story) and found,
            "a line for every action",
        )
        for line, (_, event, wanted) in zip(lines, story, strict=True):
            assert line.startswith(f"{event['id']}: {wanted}"), line

        def pause(**data: object) -> None:
            now_s = datetime.now(UTC).timestamp()
            event = control(time_s=now_s, id=f"z{now_s}", cluster="lab", data={"paused": True, **data})
            stage.send([event], to=stage.topics.control)

        pause()
        publish(stage, unload(broker, "while paused"), epoch=7)
        example.until(lambda: "while paused: skipped: paused" in example.output, "the pause to hold")
        pause(until=datetime.now(UTC).isoformat())
        publish(stage, unload(broker, "after its end"), epoch=7)
        example.until(lambda: "after its end: succeeded" in example.output, "its end")

    asked = [unquote(each.path) for each in broker.asked if each.method == "PUT"]
    path = f"/admin/v2/namespaces/{OWNED}/unload?destinationBroker="
    others = ("nowhere:8080", "broker-2:8080", "broker-2:8080")
    assert asked == [path + name for name in ("broker-2:8080", *others)]
    taken = [decode(value, key="lab")[1] for value in stage.values(stage.topics.input)]
    assert [(getattr(event, "action_id", event), getattr(event, "outcome", "")) for event in taken] == [
        ("good", "succeeded"),
        ("moved", "skipped"),
        ("refused", "failed"),
        ("successor", "succeeded"),
        ("while paused", "skipped"),
        ("after its end", "succeeded"),
    ]
