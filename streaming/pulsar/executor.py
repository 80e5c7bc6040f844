"""What an executor needs of Pulsar: the actions, the memory of its throttle, and the control event in force.

Executors of a cluster share a durable failover subscription, so only one of them acts. Messages are acknowledged after the
results of their batch are written. A subscription cannot hold the highest epochs; they are read from the log itself, up to
the action that is taken up next. So an executor that restarts and a standby that takes over both know which controllers'
actions are out of date. After any failure the client is made anew.

The memory is the newest value of a compacted topic; whoever changes it takes the topic's exclusive producer first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
import pulsar

from state.settings import RoundSettings
from streaming.contract.envelope import EPOCH_HEADER, read_envelope
from streaming.contract.messages import ControlData
from streaming.process.closing import Closing
from streaming.pulsar.clients import close, connect, explain_denied, read_to_end, reader_after
from streaming.pulsar.http import AdminError, CredentialsError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.log import partitions_count, position_before
from streaming.pulsar.positions import partition_index, topic_path
from streaming.settings import Settings
from streaming.transport.errors import PublishError, Taken
from streaming.transport.executor import (
    LOOKBACK_S,
    READ_TIMEOUT_S,
    ActionRecord,
    ControlView,
    Epochs,
    HeldMemory,
    Remembered,
)

_TIMEOUT_S = 20.0
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


class PulsarActions(Closing):
    """Consumer of the actions topic for ``cluster``'s executors. Not for several threads."""

    def __init__(
        self,
        link: PulsarLink,
        *,
        topic: str,
        cluster: str,
        epochs: Epochs,
        records_max: int,
        now_s: float,
        group: str | None = None,
    ) -> None:
        """``group``: a subscription instead of that of the cluster's executors.

        Raises ``PublishError`` when the brokers cannot be reached or there is no such topic.
        """
        self._link = link
        self._topic = link.full_name(topic)
        self._epochs = epochs
        self._records_max = records_max
        self._subscription = group or f"trimtab-execute-{cluster}"
        self._taken: list[pulsar.Message] = []
        self._begin_ms = round((now_s - LOOKBACK_S) * 1000)
        self._subscribe_from(self._begin_ms)
        self._connection: _Connection | None = self._open()

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order. Raises ``PublishError``."""
        if self._connection is None:
            self._connection = self._open()
        wait_ms = round(1000 * timeout_s)
        found: list[pulsar.Message] = []
        try:
            while len(found) < self._records_max:
                found.append(self._connection.consumer.receive(timeout_millis=wait_ms))
                wait_ms = _NEXT_MS
        except pulsar.Timeout:
            self._require_connected(self._connection)
        except pulsar.PulsarException as error:
            raise self._unreadable(error) from error
        if found:
            self._read_epochs_before(self._connection, found[0].message_id())
        self._taken += found
        return [
            ActionRecord(value=each.data(), epoch_header=_epoch_of(each), partition=_partition_of(each))
            for each in found
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
            raise PublishError(f"actions on {self._topic} could not be acknowledged: {error!r}") from error
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
        own = f"{path}/subscription/{quote(self._subscription, safe='')}"
        try:
            with self._link.admin() as admin:
                if self._subscription in admin.read(f"{path}/subscriptions", list[str]):
                    return
                earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
                admin.call("PUT", own, body=earliest)
                admin.call("POST", f"{own}/resetcursor/{max(0, begin_ms)}")
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


_MEMORY_TIMEOUT_S = 20.0
_FENCED = (pulsar.ProducerFenced, pulsar.AlreadyClosed)
"""Errors of a producer whose place another producer took."""


@dataclass(slots=True)
class PulsarExecutorMemory:
    """The newest value of one cluster on ``topic``. Not for several threads."""

    link: PulsarLink
    topic: str
    cluster: str

    def read(self) -> Remembered:
        """Read the topic to its end. Raises ``PublishError``."""
        try:
            self._require_topic()
            found = self._newest()
        except (pulsar.PulsarException, AdminError, CredentialsError) as error:
            why = explain_denied(error, self._full_name, "consume")
            raise PublishError(f"the topic {self._full_name} cannot be read: {why}") from error
        return Remembered.parse(found or None)

    @contextmanager
    def hold(self) -> Iterator[HeldMemory]:
        """Take the memory until the end of the block. Raises ``PublishError``.

        A topic has one exclusive producer, so the executor of another cluster can take it away, too; the executor that
        lost it starts again.
        """
        client = self.link.client(timeout_s=_MEMORY_TIMEOUT_S)
        try:
            with self._explain_write_errors():
                producer = client.create_producer(
                    self._full_name,
                    access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing,
                    send_timeout_millis=round(1000 * _MEMORY_TIMEOUT_S),
                    batching_enabled=False,
                )
            yield _Held(self, producer, self.read())
        finally:
            close(client)

    def _write(self, producer: pulsar.Producer, remembered: Remembered) -> None:
        """Write what is remembered; a message without content if nothing is left."""
        with self._explain_write_errors():
            producer.send(remembered.value() or b"", partition_key=self.cluster)

    @contextmanager
    def _explain_write_errors(self) -> Iterator[None]:
        try:
            yield
        except _FENCED as error:
            raise Taken(
                f"another executor has taken over the memory on {self._full_name}: {error!r}"
            ) from error
        except pulsar.PulsarException as error:
            why = explain_denied(error, self._full_name, "produce")
            raise PublishError(f"{self._full_name} could not be written: {why}") from error

    @property
    def _full_name(self) -> str:
        return self.link.full_name(self.topic)

    def _require_topic(self) -> None:
        """Raise ``PublishError`` if there is no topic: reading would make it, without its retention."""
        with self.link.admin() as admin:
            if partitions_count(admin, self._full_name) is None:
                raise PublishError(f"there is no topic {self._full_name}: run `trimtab topics create`")

    def _newest(self) -> bytes | None:
        client = self.link.client(timeout_s=_MEMORY_TIMEOUT_S)
        try:
            reader = client.create_reader(self._full_name, pulsar.MessageId.earliest, is_read_compacted=True)
            found: bytes | None = None
            for message in read_to_end(reader, silence_s=_MEMORY_TIMEOUT_S):
                if message.partition_key() == self.cluster:
                    found = message.data()
            return found
        finally:
            close(client)


@dataclass(frozen=True, slots=True)
class _Held:
    memory: PulsarExecutorMemory
    producer: pulsar.Producer
    remembered: Remembered

    def write(self, remembered: Remembered) -> None:
        """See ``HeldMemory``."""
        self.memory._write(self.producer, remembered)  # noqa: SLF001 - two halves of one thing


class PulsarControl(ControlView):
    """Reads the control topic on Pulsar. After any failure the next call reads it from its beginning, with a new client."""

    def __init__(self, settings: Settings, *, cluster: str, rounds: RoundSettings) -> None:
        """Does not connect yet."""
        super().__init__(cluster, rounds)
        self._url, self._place = settings.input.url, settings.input.pulsar
        self._topic = self._place.full_name(settings.topics.control)
        self._client: pulsar.Client | None = None
        self._reader: pulsar.Reader | None = None

    def newest(self) -> ControlData | None:
        """See ``ControlView``."""
        try:
            reader = self._reader or self._open()
            for message in read_to_end(reader, silence_s=READ_TIMEOUT_S):
                if message.partition_key() == self._cluster:
                    self._take(message.data(), appended_ms=message.publish_timestamp())
        except pulsar.PulsarException as error:
            self.close()
            why = explain_denied(error, self._topic, "consume")
            raise PublishError(f"the control topic {self._topic} cannot be read: {why}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        client, self._client, self._reader = self._client, None, None
        if client is not None:
            close(client)

    def _open(self) -> pulsar.Reader:
        place = self._place
        self._client = connect(
            self._url, token_file=place.token_file, ca_file=place.ca_file, timeout_s=READ_TIMEOUT_S
        )
        self._reader = self._client.create_reader(
            self._topic, pulsar.MessageId.earliest, is_read_compacted=True
        )
        return self._reader
