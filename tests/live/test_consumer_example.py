"""The example consumer of docs/consumers.md carries out what it should and leaves alone what it must not.

Kafka is real; the two admin calls are answered here, by something that looks like a broker and knows what it owns.
"""

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from kafka import KafkaProducer

from deploy.local.kafka import LocalKafka
from streaming.contract.decode import decode
from streaming.contract.envelope import EPOCH_HEADER
from streaming.contract.leader import encode_leader
from tests.streaming.events import control
from tests.streaming.golden import folders, messages
from tests.support.processes import ROOT, Child
from tests.support.stage import Stage

pytestmark = pytest.mark.live

EXAMPLE = ROOT / "docs" / "examples" / "carry_out_unloads.py"
UNLOAD = messages(folders()[-1])["trimtab.action.unload.v1"]
OWNED = "shop/orders/0x80000000_0xa0000000"


class Broker(BaseHTTPRequestHandler):
    """Answers for one bundle; keeps the unloads it was asked for."""

    unloads: list[str]

    def do_GET(self) -> None:
        assert "/topicHashPositions?" in self.path
        self._answer(200 if f"/{OWNED}/" in self.path else 412, b"{}")

    def do_PUT(self) -> None:
        self.unloads.append(unquote(self.path))
        self._answer(204 if "broker-2" in self.path else 409, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def broker() -> Iterator[ThreadingHTTPServer]:
    Broker.unloads = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Broker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def running(stage: Stage) -> Child:
    """The example, in a group of the stage's own."""
    options = ("--bootstrap", stage.bootstrap, "--cluster", "lab", "--group", stage.name)
    names = stage.topics
    topics = ("--actions", names.actions, "--control", names.control, "--input", names.input)
    return Child((sys.executable, str(EXAMPLE), *options, *topics), stage.directory / "example.log")


@pytest.mark.slow
def test_it_goes_on_after_a_restart_of_the_broker(tmp_path: Path, broker: ThreadingHTTPServer):
    with LocalKafka(tmp_path / "kafka") as kafka:
        stage = Stage(kafka.bootstrap, "restarted", tmp_path)
        stage.create_topics()
        with running(stage) as example:
            for name in ("before", "after"):
                _publish_unload(stage, name, owner=f"127.0.0.1:{broker.server_port}")
                example.until(lambda: f"{name}: succeeded" in example.output, name)  # noqa: B023
                kafka.restart()
        stage.close()


def _publish_unload(stage: Stage, name: str, *, owner: str) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="milliseconds")
    data = UNLOAD["data"] | {"expires_at": soon, "dry_run": False, "destination_broker": "broker-2:8080"}
    data["precondition"] = {"owner": owner, "range": "0x80000000_0xa0000000"}
    producer = KafkaProducer(bootstrap_servers=stage.bootstrap, acks="all")
    value = json.dumps(UNLOAD | {"id": name, "data": data}).encode()
    headers = [(EPOCH_HEADER, b"5")]
    producer.send(stage.topics.actions, key=b"lab", value=value, headers=headers).get(20)
    producer.close()


def test_it_carries_out_what_it_should_and_leaves_the_rest_alone(stage: Stage, broker: ThreadingHTTPServer):
    owner = f"127.0.0.1:{broker.server_port}"
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="milliseconds")

    def unload(name: str, **data: object) -> dict[str, Any]:
        usual = UNLOAD["data"] | {"expires_at": soon, "dry_run": False}
        usual["precondition"] = {"owner": owner, "range": "0x80000000_0xa0000000"}
        return UNLOAD | {"id": name, "data": usual | {"destination_broker": "broker-2:8080"} | data}

    story = [
        (5, unload("good"), "succeeded: asked"),
        (5, unload("good"), "skipped: duplicate"),
        (4, unload("stale"), "skipped: epoch 4 is stale, a controller with epoch 5 has taken over"),
        (5, unload("old", expires_at="2026-01-01T00:00:00.000Z"), "skipped: expired"),
        (5, unload("shown", dry_run=True), "skipped: dry-run"),
        (5, unload("later") | {"type": "trimtab.action.split.v1"}, "skipped: trimtab.action.split.v1"),
        (5, unload("west") | {"cluster": "west"}, "skipped: another cluster's"),
        (5, unload("moved", bundle="shop/orders/0x00000000_0x20000000"), "skipped: 127.0.0.1"),
        (5, unload("refused", destination_broker="nowhere:8080"), "failed: HTTP Error 409"),
        (6, unload("successor"), "succeeded: asked"),
        (7, json.loads(encode_leader("trimtab", epoch=7, time_ms=0)), "skipped: another cluster's"),
        (6, unload("zombie"), "skipped: epoch 6 is stale, a controller with epoch 7 has taken over"),
    ]
    producer = KafkaProducer(bootstrap_servers=stage.bootstrap, acks="all")

    def publish(epoch: int, event: dict[str, Any]) -> None:
        headers = [(EPOCH_HEADER, str(epoch).encode())]
        value = json.dumps(event).encode()
        producer.send(stage.topics.actions, key=event["cluster"].encode(), value=value, headers=headers).get(
            20
        )

    for epoch, event, _ in story:
        publish(epoch, event)
    with running(stage) as example:
        lines = example.until(
            lambda: (found := example.output.splitlines()) and len(found) >= len(story) and found,
            "a line for every action",
        )
        for line, (_, event, wanted) in zip(lines, story, strict=True):
            assert line.startswith(f"{event['id']}: {wanted}"), line
        pause = control(time_s=datetime.now(UTC).timestamp(), cluster="lab", data={"paused": True})
        stage.send([pause], to=stage.topics.control)
        publish(7, unload("while paused"))
        example.until(lambda: "while paused: skipped: paused" in example.output, "the pause to hold")
        now = datetime.now(UTC)
        ended = control(
            time_s=now.timestamp(), id="z", cluster="lab", data={"paused": True, "until": now.isoformat()}
        )
        stage.send([ended], to=stage.topics.control)
        publish(7, unload("after its end"))
        example.until(lambda: "after its end: succeeded" in example.output, "its end")
    producer.close()

    wanted_unload = "/admin/v2/namespaces/shop/orders/0x80000000_0xa0000000/unload?destinationBroker="
    assert Broker.unloads == [
        wanted_unload + name for name in ("broker-2:8080", "nowhere:8080", "broker-2:8080", "broker-2:8080")
    ]
    results = stage.values(stage.topics.input)
    taken = [decode(value, key="lab")[1] for value in results]
    assert [(getattr(event, "action_id", event), getattr(event, "outcome", "")) for event in taken] == [
        ("good", "succeeded"),
        ("moved", "skipped"),
        ("refused", "failed"),
        ("successor", "succeeded"),
        ("while paused", "skipped"),
        ("after its end", "succeeded"),
    ]
