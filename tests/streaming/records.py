"""Records as they are on a topic, and the beats and recorded records that some of them hold."""

from typing import Any

from streaming.contract.beat import Beat, encode
from streaming.contract.encode import Origin
from streaming.controller.recording import Recorded
from streaming.transport.side import TopicRecord

BEAT = Beat(name="main", instance="a:1", epoch=7, batch=3, at="then", version="1", session_s=10.0)


def on_topic(
    value: bytes | None,
    *,
    key: bytes | None = b"east-1",
    at_ms: int = 0,
    partition: int = 0,
    offset: int = 0,
    epoch: int | None = None,
) -> TopicRecord:
    """A record, with its controller's epoch if it has one."""
    headers = () if epoch is None else [("trimtab-epoch", str(epoch).encode())]
    return TopicRecord(
        key=key, value=value, timestamp=at_ms, partition=partition, offset=offset, headers=headers
    )


def beat_on_topic(beat: Beat, *, at_ms: int = 0) -> TopicRecord:
    return on_topic(encode(beat), key=beat.name.encode(), at_ms=at_ms)


def recorded(value: bytes | None, *, at_ms: int, is_control: bool = False, **place: Any) -> Recorded:
    """A record as a recording has it; ``place`` is its partition and offset."""
    topic = "trimtab.control" if is_control else "trimtab.input"
    origin = Origin(**{"topic": topic, "partition": 0, "offset": 0} | place)
    return Recorded(origin=origin, key=b"east-1", value=value, appended_ms=at_ms, is_control=is_control)
