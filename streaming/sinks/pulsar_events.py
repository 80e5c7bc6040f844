"""Writing events to an input topic on Pulsar, and reading the control topic there; as ``input_events`` does on Kafka."""

import threading
from datetime import datetime

import msgspec
import pulsar

from streaming.pulsar_log.clients import connect
from streaming.settings import Settings
from streaming.sinks import PublishError
from streaming.sinks.input_events import NoInputTopic
from streaming.wire.messages import ControlData, ControlMessage

__all__ = ["PulsarControl", "PulsarEvents"]

_TIMEOUT_MS = 10_000


class PulsarEvents:
    """A producer of the input topic; an ``EventSink``. A batch of the client is an entry, so batches stay small."""

    def __init__(self, settings: Settings) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached and ``NoInputTopic`` when the topic is missing."""
        where = settings.input.pulsar
        self._topic = where.full_name(settings.topics.input)
        self._client = connect(settings.input.url, token_file=where.token_file, ca_file=where.ca_file)
        try:
            self._producer = self._client.create_producer(
                self._topic, send_timeout_millis=_TIMEOUT_MS, block_if_queue_full=True, batching_enabled=False
            )
        except pulsar.TopicNotFound as error:
            self._client.close()
            raise NoInputTopic(
                f"there is no topic {self._topic} at {settings.input.url}: run `trimtab topics create`"
            ) from error
        except pulsar.PulsarException as error:
            self._client.close()
            raise PublishError(f"no producer of {self._topic} at {settings.input.url}: {error!r}") from error
        self._lock = threading.Lock()
        self._failures: list[str] = []

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        try:
            self._producer.send_async(value, self._sent, partition_key=key)
        except pulsar.PulsarException as error:
            raise PublishError(f"an event of {len(value)} bytes could not be sent: {error!r}") from error

    def flush(self) -> None:
        """See ``EventSink``."""
        try:
            self._producer.flush()
        except pulsar.PulsarException as error:
            raise PublishError(f"events were not written to {self._topic}: {error!r}") from error
        with self._lock:
            failures, self._failures = self._failures, []
        if failures:
            raise PublishError(
                f"{len(failures)} events were not written to {self._topic}; the first: {failures[0]}"
            )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _sent(self, result: pulsar.Result, _id: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            with self._lock:
                self._failures.append(str(result))


class PulsarControl:
    """The newest control event of one cluster: greatest (time, id), wherever in the log it is."""

    def __init__(self, settings: Settings, *, cluster: str) -> None:
        """Raises ``PublishError`` when the topic cannot be read."""
        where = settings.input.pulsar
        self._cluster = cluster
        self._topic = where.full_name(settings.topics.control)
        self._client = connect(settings.input.url, token_file=where.token_file, ca_file=where.ca_file)
        try:
            self._reader = self._client.create_reader(self._topic, pulsar.MessageId.earliest)
        except pulsar.PulsarException as error:
            self._client.close()
            raise PublishError(f"the control topic {self._topic} cannot be read: {error!r}") from error
        self._newest: tuple[datetime, str] | None = None
        self._data: ControlData | None = None

    def newest(self) -> ControlData | None:
        """What is in force now. Raises ``PublishError``: unknown is not unpaused."""
        try:
            while self._reader.has_message_available():
                self._take(self._reader.read_next(timeout_millis=_TIMEOUT_MS))
        except pulsar.PulsarException as error:
            raise PublishError(f"the control topic {self._topic} cannot be read: {error!r}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _take(self, message: pulsar.Message) -> None:
        if message.partition_key() != self._cluster:
            return
        try:
            event = _control.decode(message.data())
        except msgspec.MsgspecError:
            return
        if event.cluster == self._cluster and (self._newest is None or (event.time, event.id) > self._newest):
            self._newest, self._data = (event.time, event.id), event.data


_control = msgspec.json.Decoder(ControlMessage)
