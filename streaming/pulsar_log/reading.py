"""Reading a range of a partition, the same messages every time.

A range between two positions of a persistent partition never changes, so a batch that is read again after a crash is the
same batch. What must not vary is where it ends: a range ends with a whole entry, and the size of a producer's batch is
part of the id of each of its messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pulsar

from streaming.pulsar_log.positions import DataLoss, Position
from streaming.pulsar_log.topics import partition_index

__all__ = ["Message", "read_range"]

_POLL_MS = 2_000
_QUEUE = 1_000
_BATCH_SIZE_FIELD = 6
"""Of ``MessageIdData`` in ``PulsarApi.proto``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message and its place; ``batch_index`` is -1 for one that was sent alone."""

    position: Position
    batch_index: int
    key: str
    value: bytes
    publish_ms: int


def read_range(
    client: pulsar.Client, partition: str, *, start: Position, end: Position, fail_on_data_loss: bool
) -> Iterator[Message]:
    """Messages after ``start`` up to and including ``end``. Raises ``DataLoss`` when the end is never reached."""
    first = pulsar.MessageId(partition_index(partition), start.ledger, start.entry, -1)
    reader = client.create_reader(partition, first, receiver_queue_size=_QUEUE)
    try:
        while True:
            try:
                found = reader.read_next(timeout_millis=_POLL_MS)
            except pulsar.Timeout:
                if reader.has_message_available():
                    continue
                if fail_on_data_loss:
                    raise DataLoss(
                        f"{partition}: the log ends before {end}, which was there when the batch was planned. Was the "
                        "topic truncated, or made anew? Start over with --fresh"
                    ) from None
                return
            id_ = found.message_id()
            position = Position(id_.ledger_id(), id_.entry_id())
            if position > end:
                return
            if position > start:
                yield Message(
                    position=position,
                    batch_index=id_.batch_index(),
                    key=found.partition_key(),
                    value=found.data(),
                    publish_ms=found.publish_timestamp(),
                )
                if position == end and id_.batch_index() + 1 >= _batch_size(id_.serialize()):
                    return
    finally:
        reader.close()


def _batch_size(serialized: bytes) -> int:
    """Messages in the batch that an id belongs to; 0 for one that was sent alone. All of its fields are varints."""
    at = 0
    while at < len(serialized):
        tag, at = _varint(serialized, at)
        value, at = _varint(serialized, at)
        if tag >> 3 == _BATCH_SIZE_FIELD:
            return value
    return 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004  the continuation bit
            return value, at
