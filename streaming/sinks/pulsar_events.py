"""Writing events to an input topic on Pulsar, as ``input_events`` does on Kafka."""

import threading

import pulsar

from streaming.pulsar_denied import told
from streaming.pulsar_log.clients import connect, ctrl_c_kept
from streaming.settings import Settings
from streaming.sinks import PublishError
from streaming.sinks.input_events import NoInputTopic

__all__ = ["PulsarEvents"]

_TIMEOUT_MS = 10_000


class PulsarEvents:
    """A producer of the input topic; an ``EventSink``. A batch of the client is an entry, so batches stay small."""

    def __init__(self, settings: Settings) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached and ``NoInputTopic`` when the topic is missing."""
        where = settings.input.pulsar
        self._topic = where.full_name(settings.topics.input)
        self._client = connect(settings.input.url, token_file=where.token_file, ca_file=where.ca_file)
        try:
            with ctrl_c_kept():
                self._producer = self._client.create_producer(
                    self._topic,
                    send_timeout_millis=_TIMEOUT_MS,
                    block_if_queue_full=True,
                    batching_enabled=False,
                )
        except pulsar.TopicNotFound as error:
            self._client.close()
            raise NoInputTopic(
                f"there is no topic {self._topic} at {settings.input.url}: run `trimtab topics create`"
            ) from error
        except pulsar.PulsarException as error:
            self._client.close()
            why = told(error, self._topic, "produce")
            raise PublishError(f"no producer of {self._topic} at {settings.input.url}: {why}") from error
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
            with ctrl_c_kept():
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
