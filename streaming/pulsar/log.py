"""Reads a range of a partition, with the same messages every time.

A range between two positions of a persistent partition never changes, so a batch that is read again after a crash is the
same batch. Its end must not vary, either: a range ends with a whole entry, and the size of a producer's batch is
part of the id of each of its messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pulsar

from state.layouts import FRESH
from streaming.pulsar.clients import reader_after
from streaming.pulsar.positions import DataLoss, Position

_POLL_MS = 2_000
_QUEUE = 200
"""Messages that a reader fetches ahead; each worker keeps up to that many of each partition between two batches, too."""
_BATCH_SIZE_FIELD = 6
"""Field of ``MessageIdData`` in ``PulsarApi.proto``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message and its place; ``batch_index`` is -1 for one that was sent alone."""

    position: Position
    batch_index: int
    key: str
    value: bytes
    publish_ms: int


class PartitionReader:
    """Reads ranges of one partition, with the same reader as long as each range follows the last one.

    A new reader costs the broker a dozen lines of its log. Other workers may have read what is between two ranges of
    ours: a few messages are read and skipped, for more of them a new reader is made. Not for several threads at once.
    """

    def __init__(self, client: pulsar.Client, partition: str) -> None:
        self._client = client
        self._partition = partition
        self._reader: pulsar.Reader | None = None
        self._at: Position | None = None
        """The last entry that is done."""
        self._ahead: pulsar.Message | None = None
        """A message that was taken already and is after the requested range."""

    def read(self, start: Position, end: Position, *, fail_on_data_loss: bool) -> Iterator[Message]:
        """Messages after ``start`` up to and including ``end``. Raises ``DataLoss`` when the end is never reached."""
        reader = self._reader_after(start)
        self._at = None
        try:
            while (found := self._next(reader)) is not None:
                id_ = found.message_id()
                position = Position(id_.ledger_id(), id_.entry_id())
                if position > end:
                    self._at, self._ahead = end, found
                    return
                if position > start:
                    yield _message(found, position)
                    if position == end and id_.batch_index() + 1 >= _batch_size(id_.serialize()):
                        self._at = end
                        return
            if fail_on_data_loss:
                raise DataLoss(
                    f"{self._partition}: the log ends before {end}, which was there when the batch was planned. Was the "
                    f"topic truncated, or made anew? Start over with {FRESH}"
                )
        finally:
            if self._at is None:
                self.close()

    def close(self) -> None:
        """Give the reader up; the next range gets another."""
        reader, self._reader = self._reader, None
        self._at = self._ahead = None
        if reader is not None:
            reader.close()

    def _reader_after(self, start: Position) -> pulsar.Reader:
        """A reader that has not yet read what comes after ``start``."""
        if self._reader is None or self._at is None or not _is_near(self._at, start):
            self.close()
            self._reader = reader_after(self._client, self._partition, start, receiver_queue_size=_QUEUE)
        return self._reader

    def _next(self, reader: pulsar.Reader) -> pulsar.Message | None:
        """The next message; None at the end of the log."""
        ahead, self._ahead = self._ahead, None
        while ahead is None:
            try:
                return reader.read_next(timeout_millis=_POLL_MS)
            except pulsar.Timeout:
                if not reader.has_message_available():
                    return None
        return ahead


def _is_near(at: Position, start: Position) -> bool:
    """Whether ``start`` is ``at``, or after it by no more entries than a reader fetches ahead."""
    return at == start or (at.ledger == start.ledger and 0 < start.entry - at.entry <= _QUEUE)


def _message(found: pulsar.Message, position: Position) -> Message:
    return Message(
        position=position,
        batch_index=found.message_id().batch_index(),
        key=found.partition_key(),
        value=found.data(),
        publish_ms=found.publish_timestamp(),
    )


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
