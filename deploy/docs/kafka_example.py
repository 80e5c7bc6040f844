"""The worked example of ``docs/throttling.md`` as events: four partitions move to broker 104, and what the controller decides.

These are two sweeps of a collector, ten seconds apart, played through the controller that runs live.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from state.closing import Identity
from state.outputs.actions import THROTTLE_TYPE
from streaming.contract.kafka import KafkaBrokerData, Move, ReassignmentData, Replica
from streaming.contract.messages import (
    Envelope,
    KafkaLoadReportMessage,
    ReassignmentMessage,
    TickData,
    TickMessage,
)
from streaming.contract.published import ThrottleMessage
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource, Settings

Event = dict[str, Any]

CLUSTER = "kafka-lab"
_SOURCE = f"/trimtab/collect/{CLUSTER}"
_BEGAN = datetime(2026, 3, 2, 9, 0, 5, tzinfo=UTC)
_BETWEEN_S = 10
_SWEEPS = 2
_GB = 10**9
_MB = 10**6


@dataclass(frozen=True, slots=True)
class _Partition:
    topic: str
    number: int
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    leader: int
    writes: int
    size: int


_PARTITIONS = (
    _Partition("t0", 0, (101, 102), (102, 103), 101, 4 * _MB, 12 * _GB),
    _Partition("t0", 1, (102, 103), (103, 104), 102, 8 * _MB, 24 * _GB),
    _Partition("t0", 2, (101, 103), (101, 104), 103, 2 * _MB, 6 * _GB),
    _Partition("t1", 0, (101, 102, 103), (102, 103, 104), 101, 6 * _MB, 30 * _GB),
)
_BROKERS = (101, 102, 103, 104)


def kafka_example(settings: Settings) -> tuple[list[Event], list[Event], dict[type[msgspec.Struct], Event]]:
    """What went in, what came out, and an example of each of Kafka's messages."""
    sent = [event for number in range(_SWEEPS) for event in _sweep(number)]
    sent.append(_tick(_BEGAN + timedelta(seconds=_SWEEPS * _BETWEEN_S)))
    out = io.BytesIO()
    controller = settings.controller
    replay = Replay(
        out,
        name=controller.name,
        identity=Identity(mode="act", action_ttl_s=controller.action_ttl_s),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=controller.max_record_bytes,
    )
    lines = [_event_of(event) for event in sent]
    replay.play(io.BytesIO(b"\n".join(json.dumps(event).encode() for event in lines)), "worked-example")
    outputs = [json.loads(line) for line in out.getvalue().splitlines()]
    newest = {type(event): written for event, written in zip(sent, lines, strict=True)}
    examples: dict[type[msgspec.Struct], Event] = {
        KafkaLoadReportMessage: next(
            written
            for event, written in zip(sent, lines, strict=True)
            if isinstance(event, KafkaLoadReportMessage) and event.data.broker == _BROKERS[0]
        ),
        ReassignmentMessage: newest[ReassignmentMessage],
        ThrottleMessage: next(event for event in outputs if event["type"] == THROTTLE_TYPE),
    }
    return lines, outputs, examples


def _sweep(number: int) -> Iterator[Envelope]:
    time = _BEGAN + timedelta(seconds=number * _BETWEEN_S)
    left_s = (_SWEEPS - 1 - number) * _BETWEEN_S
    yield ReassignmentMessage(
        **_attributes("reassignments", time),
        data=ReassignmentData(moves=[_move(each) for each in _PARTITIONS]),
    )
    for broker in _BROKERS:
        replicas = [
            Replica(
                topic=each.topic,
                partition=each.number,
                leader=each.leader == broker,
                log_size_bytes=each.size - left_s * each.writes,
            )
            for each in _PARTITIONS
            if broker in each.replicas
        ]
        data = KafkaBrokerData(broker=broker, replicas=replicas)
        yield KafkaLoadReportMessage(**_attributes(str(broker), time), data=data)
    yield _tick(time)


def _tick(time: datetime) -> TickMessage:
    return TickMessage(**_attributes("tick", time), data=TickData(asked=[str(each) for each in _BROKERS]))


def _move(each: _Partition) -> Move:
    return Move(
        topic=each.topic,
        partition=each.number,
        replicas=list(each.replicas),
        leader=each.leader,
        adding=[broker for broker in each.target if broker not in each.replicas],
        removing=[broker for broker in each.replicas if broker not in each.target],
        isr=list(each.replicas),
    )


def _attributes(subject: str, time: datetime) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": f"{subject}/{_text(time)}",
        "source": _SOURCE,
        "subject": subject,
        "time": time,
        "cluster": CLUSTER,
    }


def _event_of(message: Envelope) -> Event:
    """An event as a careful producer writes it."""
    event: Event = msgspec.to_builtins(message)
    event["time"] = _text(message.time)
    return {name: value for name, value in event.items() if name != "recordedtime"}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
