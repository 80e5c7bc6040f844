"""The executor's view of actions on Pulsar, and the compacted topic that one executor owns, as on Kafka.

Executors of a cluster share a durable failover subscription, so only one of them acts. Messages are acknowledged after the
results of their batch are written. A subscription cannot hold the highest epochs; they are read from the log itself, up to
the action that is taken up next. So an executor that restarts and a standby that takes over both know which controllers'
actions are out of date. After any failure the client is made anew.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
import pulsar

from streaming.contract.envelope import EPOCH_HEADER, read_envelope
from streaming.process.closeable import Closeable
from streaming.process.exits import words_of
from streaming.pulsar.clients import close, explain_denied, reader_after
from streaming.pulsar.http import AdminError, CredentialsError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.log import position_before
from streaming.pulsar.positions import partition_index, topic_path
from streaming.transport.errors import PublishError, Taken
from streaming.transport.side import LOOKBACK_S, ActionRecord, PartitionEpochs, Write

_TIMEOUT_S = 20.0
_FENCED = (pulsar.ProducerFenced, pulsar.AlreadyClosed)
"""Errors of a producer whose place another producer took."""
_NEXT_MS = 5
"""How long to wait for one more message once there is one."""


class _Backlog(msgspec.Struct, frozen=True):
    msgBacklog: int  # noqa: N815  Pulsar's name


class _Stats(msgspec.Struct, frozen=True):
    subscriptions: dict[str, _Backlog]


@dataclass(slots=True)
class _Connection:
    """A client with what it reads."""

    client: pulsar.Client
    consumer: pulsar.Consumer
    log: pulsar.Reader
    ahead: pulsar.Message | None = None
    """Read from the log; not yet known to come before the actions that are taken up next."""


class PulsarActions(Closeable):
    """Consumer of the actions topic for ``cluster``'s executors. Not for several threads."""

    def __init__(
        self, link: PulsarLink, topic: str, *, group: str, epochs: PartitionEpochs, records_max: int
    ) -> None:
        """``group`` is the subscription. Raises ``PublishError`` when the brokers cannot be reached or there is no such topic."""
        self._link = link
        self._topic = link.full_name(topic)
        self._epochs = epochs
        self._records_max = records_max
        self._subscription = group
        self._taken: list[pulsar.Message] = []
        self._begin_ms = round((time.time() - LOOKBACK_S) * 1000)
        self._subscribe_from(self._begin_ms)
        self._connection: _Connection | None = self._open()

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order. Raises ``PublishError``."""
        if self._connection is None:
            self._connection = self._open()
        wait_ms = round(1000 * timeout_s)
        messages: list[pulsar.Message] = []
        try:
            while len(messages) < self._records_max:
                messages.append(self._connection.consumer.receive(timeout_millis=wait_ms))
                wait_ms = _NEXT_MS
        except pulsar.Timeout:
            self._require_connected(self._connection)
        except pulsar.PulsarException as error:
            raise self._unreadable(error) from error
        if messages:
            self._read_epochs_before(self._connection, messages[0].message_id())
        self._taken += messages
        return [
            ActionRecord(
                value=message.data(), epoch_header=_epoch_of(message), partition=_partition_of(message)
            )
            for message in messages
        ]

    def keep_polled(self) -> None:
        """Nothing to do: the client keeps the connection by itself."""

    def commit(self) -> None:
        """Acknowledge that all records polled so far are dealt with. Raises ``PublishError``; then they may come again."""
        assert self._connection is not None, "call poll() before commit()"
        try:
            for message in self._taken:
                self._connection.consumer.acknowledge(message)
        except pulsar.PulsarException as error:
            raise PublishError(
                f"actions on {self._topic} could not be acknowledged: {words_of(error)}"
            ) from error
        self._taken = []

    def drop(self) -> None:
        """Close the client, which may never recover; messages that are not acknowledged come again, to a new client."""
        connection, self._connection = self._connection, None
        self._taken = []
        if connection is not None:
            close(connection.client)

    def is_at_end(self) -> bool:
        """Whether all actions that are there now have been dealt with. Raises ``PublishError``."""
        try:
            with self._link.admin() as admin:
                stats = admin.read(f"{topic_path(self._topic)}/stats", _Stats)
        except (AdminError, CredentialsError) as error:
            raise self._unreadable(error) from error
        return stats.subscriptions[self._subscription].msgBacklog == 0

    def close(self) -> None:
        """Let a standby take over."""
        self.drop()

    def _open(self) -> "_Connection":
        try:
            with self._link.admin() as admin:
                begin = position_before(admin, self._topic, self._begin_ms)
        except (AdminError, CredentialsError) as error:
            raise self._unreadable(error) from error
        client = self._link.client(timeout_s=_TIMEOUT_S)
        try:
            consumer = client.subscribe(
                self._topic, self._subscription, consumer_type=pulsar.ConsumerType.Failover
            )
            log = reader_after(client, self._topic, begin)
            self._epochs.forget()
        except pulsar.PulsarException as error:
            close(client)
            raise self._unreadable(error) from error
        return _Connection(client, consumer, log)

    def _require_connected(self, connection: "_Connection") -> None:
        """Raise ``PublishError`` unless connected: the client reconnects silently, so an empty poll may have reached no broker."""
        if not connection.consumer.is_connected():
            raise PublishError(f"{self._topic} at {self._link.service_url} cannot be read: not connected")

    def _subscribe_from(self, begin_ms: int) -> None:
        """Make the subscription if there is none yet; it begins at ``begin_ms``: older actions have expired."""
        path = topic_path(self._topic)
        subscription = f"{path}/subscription/{quote(self._subscription, safe='')}"
        try:
            with self._link.admin() as admin:
                if self._subscription in admin.read(f"{path}/subscriptions", list[str]):
                    return
                earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
                admin.call("PUT", subscription, body=earliest)
                admin.call("POST", f"{subscription}/resetcursor/{max(0, begin_ms)}")
        except AdminError as error:
            if error.failure == "refused":  # there is nothing to go back to
                return
            if error.failure == "not-found":
                raise PublishError(f"there is no topic {self._topic}: run `trimtab topics create`") from error
            raise self._unreadable(error) from error
        except CredentialsError as error:
            raise self._unreadable(error) from error

    def _read_epochs_before(self, connection: "_Connection", first: pulsar.MessageId) -> None:
        """Learn the epochs of the actions before ``first``, which this or another executor took up."""
        try:
            while True:
                if connection.ahead is None:
                    if not connection.log.has_message_available():
                        return
                    connection.ahead = connection.log.read_next(timeout_millis=round(1000 * _TIMEOUT_S))
                if _place(connection.ahead.message_id()) >= _place(first):
                    return
                self._note_epoch(connection.ahead)
                connection.ahead = None
        except pulsar.PulsarException as error:
            raise self._unreadable(error) from error

    def _note_epoch(self, message: pulsar.Message) -> None:
        epoch = _epoch_of(message)
        try:
            envelope = read_envelope(message.data())
            if epoch is not None:
                self._epochs.note(_partition_of(message), envelope.source, int(epoch))
        except (msgspec.MsgspecError, ValueError):
            return  # it was reported as unreadable when it was taken up

    def _unreadable(self, error: Exception) -> PublishError:
        why = explain_denied(error, self._topic, "consume")
        return PublishError(f"{self._topic} at {self._link.service_url} cannot be read: {why}")


def _epoch_of(message: pulsar.Message) -> bytes | None:
    text = message.properties().get(EPOCH_HEADER)
    return None if text is None else text.encode()


def _partition_of(message: pulsar.Message) -> int:
    return max(partition_index(message.topic_name()), 0)


def _place(id_: pulsar.MessageId) -> tuple[int, int, int]:
    return (id_.ledger_id(), id_.entry_id(), id_.batch_index())


@contextmanager
def exclusive_writer(link: PulsarLink, topic: str, key: str, *, owner: str) -> Iterator[Write]:
    """Writes the key's newest value until the end of the block; who had the topic before cannot any more.

    A topic has one exclusive producer, so the executor of another cluster can take it away, too; the executor that
    lost it starts again. Raises ``Taken`` and ``PublishError``.
    """
    del owner  # a topic's exclusive producer needs no name
    name = link.full_name(topic)

    def write(value: bytes | None) -> None:
        """Write one message; one without content deletes the key."""
        with explained():
            producer.send(value or b"", partition_key=key)

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except _FENCED as error:
            raise Taken(f"another executor has taken over the memory on {name}: {words_of(error)}") from error
        except pulsar.PulsarException as error:
            why = explain_denied(error, name, "produce")
            raise PublishError(f"{name} could not be written: {why}") from error

    client = link.client(timeout_s=_TIMEOUT_S)
    try:
        with explained():
            producer = client.create_producer(
                name,
                access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing,
                send_timeout_millis=round(1000 * _TIMEOUT_S),
                batching_enabled=False,
            )
        yield write
    finally:
        close(client)
