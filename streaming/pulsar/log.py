"""Partitions and their logs: reads a range of a partition, with the same messages every time, and lets Pulsar trim what was read.

A range between two positions of a persistent partition never changes, so a batch that is read again after a crash is the
same batch. Its end must not vary, either: a range ends with a whole entry, and the size of a producer's batch is
part of the id of each of its messages.

Each partition has one consumer of the durable subscription that keeps unread messages; it receives nothing. A consumer that stays
connected acknowledges without a line in the broker's log, while resetting the subscription costs six lines for each batch. And
while a consumer is connected Pulsar does not expire the subscription.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
import pulsar

from state.layouts import FRESH
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import reader_after
from streaming.pulsar.http import AdminError
from streaming.pulsar.positions import (
    _PERSISTENT,
    DataLoss,
    Ledger,
    Log,
    Position,
    partition_index,
    partition_names,
    topic_path,
)

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
            while (message := self._next(reader)) is not None:
                id_ = message.message_id()
                position = Position(id_.ledger_id(), id_.entry_id())
                if position > end:
                    self._at, self._ahead = end, message
                    return
                if position > start:
                    yield Message(
                        position=position,
                        batch_index=id_.batch_index(),
                        key=message.partition_key(),
                        value=message.data(),
                        publish_ms=message.publish_timestamp(),
                    )
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


class Acknowledger:
    """One partition's consumer; it connects at the first call. A predecessor's may still be connected: any may acknowledge."""

    def __init__(self, client: pulsar.Client, partition: str, *, subscription: str) -> None:
        self._client = client
        self._partition = partition
        self._subscription = subscription
        self._consumer: pulsar.Consumer | None = None

    def release(self, done: Position) -> None:
        """Let Pulsar trim what is done, except its last entry. Raises ``pulsar.PulsarException``.

        The last entry keeps its ledger, so that a position whose ledger is gone always means lost data.
        """
        if done.entry < 1:
            return
        if self._consumer is None:
            self._consumer = self._client.subscribe(
                self._partition,
                self._subscription,
                consumer_type=pulsar.ConsumerType.Failover,
                receiver_queue_size=0,
            )
        before = pulsar.MessageId(partition_index(self._partition), done.ledger, done.entry - 1, -1)
        self._consumer.acknowledge_cumulative(before)


class NonPersistentTopic(Exception):
    """A topic without a log cannot be read again after a crash."""


class _Partitions(msgspec.Struct, frozen=True):
    partitions: int


class _LedgerStats(msgspec.Struct, frozen=True):
    ledgerId: int  # noqa: N815  Pulsar's names
    entries: int


class _Cursor(msgspec.Struct, frozen=True):
    markDeletePosition: str  # noqa: N815


class _Found(msgspec.Struct, frozen=True):
    ledgerId: int  # noqa: N815
    entryId: int  # noqa: N815


class _InternalStats(msgspec.Struct, frozen=True):
    ledgers: list[_LedgerStats]
    currentLedgerEntries: int  # noqa: N815
    lastConfirmedEntry: str | None = None  # noqa: N815
    cursors: dict[str, _Cursor] = {}


class PartitionLogs:
    """The logs of a topic's partitions, and one durable subscription on each. Every method raises ``AdminError``."""

    def __init__(self, admin: PulsarAdmin, *, subscription: str) -> None:
        self._admin = admin
        self._subscription = subscription

    def partitions(self, topic: str) -> list[str]:
        """Full names of a topic's partitions; the topic's own name if it has none. Raises ``NonPersistentTopic``."""
        if not topic.startswith(_PERSISTENT):
            raise NonPersistentTopic(
                f"{topic} is not persistent: its messages are gone once sent, and a batch could not be read again after "
                f"a crash. Use a {_PERSISTENT}… topic"
            )
        count = self._admin.read(f"{topic_path(topic)}/partitions", _Partitions).partitions
        return partition_names(topic, count)

    def log(self, partition: str) -> Log:
        """The log as it is now. The newest ledger is still being written, so its entries are in a field of their own."""
        stats = self._admin.read(f"{topic_path(partition)}/internalStats", _InternalStats)
        *closed, open_ = stats.ledgers
        newest = Ledger(open_.ledgerId, max(open_.entries, stats.currentLedgerEntries))
        cursor = stats.cursors.get(self._subscription)
        return Log(
            [*(Ledger(ledger.ledgerId, ledger.entries) for ledger in closed), newest],
            written=None if stats.lastConfirmedEntry is None else Position.parse(stats.lastConfirmedEntry),
            acknowledged=None if cursor is None else Position.parse(cursor.markDeletePosition),
        )

    def before(self, partition: str, time_ms: int) -> Position:
        """The position before the first message published at ``time_ms`` or later; the end if there is none."""
        position = position_before(self._admin, partition, time_ms)
        return min(position, self.log(partition).last)

    def protect(self, partition: str) -> None:
        """Make the subscription at the beginning, so that nothing that is there now is trimmed; an existing one stays as it is."""
        body = {"ledgerId": -1, "entryId": -1, "partitionIndex": partition_index(partition)}
        try:
            self._admin.call("PUT", self._path(partition), body=body)
        except AdminError as error:
            if error.failure != "conflict":
                raise

    def _path(self, partition: str) -> str:
        return f"{topic_path(partition)}/subscription/{quote(self._subscription, safe='')}"


def partitions_count(admin: PulsarAdmin, topic: str) -> int | None:
    """Number of partitions, 0 for a topic without partitions; None where there is no such topic. Raises ``AdminError``."""
    path = topic_path(topic)
    try:
        count = admin.read(f"{path}/partitions", _Partitions).partitions
        if not count:
            admin.get(f"{path}/internalStats")
    except AdminError as error:
        if error.failure != "not-found":
            raise
        return None
    return count


def position_before(admin: PulsarAdmin, partition: str, time_ms: int) -> Position:
    """The position before the first message published at ``time_ms`` or later; before the next one to be written if there is none.

    The broker searches its log for it (``getMessageIdByTimestamp``). Raises ``AdminError``.
    """
    first = admin.read(f"{topic_path(partition)}/messageid/{max(0, time_ms)}", _Found)
    return Position(first.ledgerId, first.entryId - 1)
