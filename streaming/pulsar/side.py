"""One side that is on Pulsar: who does what there, and what is written outside of the batches, as on Kafka.

A client that failed to write is thrown away with the events it still held, and made anew for the next event: after an outage
of the bookies its producer may never recover.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pulsar

from streaming.pulsar import topics
from streaming.pulsar.clients import close, explain_denied, keep_ctrl_c
from streaming.pulsar.commits import WINDOW, Acknowledged, NotSent
from streaming.pulsar.executor import PulsarActions, owned
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.publisher import PulsarPublisher
from streaming.pulsar.reader import PulsarTopicReader, explain_errors, find_lost
from streaming.transport.errors import NoTopic, PublishError
from streaming.transport.side import Progress

_TIMEOUT_S = 10.0
_FLUSH_S = _TIMEOUT_S + 5.0
"""The client gives an event up after ``_TIMEOUT_S``; a client that does not is waited for only a little longer."""
_APPEND_TIMEOUT_S = 20.0


class PulsarSide:
    """See ``Side``; the signatures are there."""

    def __init__(self, link: PulsarLink) -> None:
        self.link = link
        self.section = link.section
        self.url = link.service_url
        self.full_name = link.full_name
        self.reader = partial(PulsarTopicReader, link)
        self.append = partial(append, link)
        self.events = partial(PulsarEvents, link)
        self.publisher = partial(PulsarPublisher, link)
        self.actions = partial(PulsarActions, link)
        self.owned = partial(owned, link)
        self.find_lost = partial(find_lost, link)
        self.create_topics = partial(topics.create, link)
        self.brokers_seen = partial(topics.brokers_seen, link)
        self.topics_seen = partial(topics.topics_seen, link)

    def is_same(self, other: object) -> bool:
        """See ``Side``."""
        return isinstance(other, PulsarSide) and self.link == other.link

    def find_regrown(self, read: Progress) -> str | None:
        """None: what is written after a truncation is in ledgers of its own, so that reading shows it."""
        del read
        return None

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """None: ids of ledgers are never used again, so a position shows whether the topic is still the same."""
        del topics
        return {}


@dataclass(slots=True)
class _Connection:
    """A client with its producer, and what it was handed since the last flush."""

    client: pulsar.Client
    producer: pulsar.Producer
    sent: Acknowledged = field(default_factory=Acknowledged)


class PulsarEvents:
    """A producer of one topic; an ``EventSink``. The client does not batch: each event is an entry."""

    def __init__(self, link: PulsarLink, topic: str, *, max_record_bytes: int = 0) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached and ``NoTopic`` when the topic is missing."""
        del max_record_bytes  # the brokers' own limit stands
        self._link, self._topic = link, link.full_name(topic)
        self._lock = threading.Lock()
        self._connection: _Connection | None = self._connect()
        self._given_up = ""
        """Why events since the last flush were lost with their client; empty if none were."""

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        with self._lock:
            connection = self._connection = self._connection or self._reconnect()
            try:
                connection.sent.wait(timeout_s=_FLUSH_S, most=WINDOW - 1)
                connection.sent.sending()
                connection.producer.send_async(value, connection.sent.answer, partition_key=key)
            except (pulsar.PulsarException, NotSent) as error:
                self._give_up(f"an event of {len(value)} bytes could not be sent: {error!r}")
                raise PublishError(self._given_up) from error

    def flush(self) -> None:
        """See ``EventSink``."""
        with self._lock:
            lost, self._given_up = self._given_up, ""
            connection = self._connection
            try:
                if connection is not None:
                    with keep_ctrl_c():
                        connection.sent.wait(timeout_s=_FLUSH_S)
            except NotSent as error:
                self._give_up("")
                raise PublishError(f"events were not written to {self._topic}: {error}") from error
        if lost:
            raise PublishError(f"events were not written to {self._topic}: {lost}")

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._give_up("")

    def _give_up(self, why: str) -> None:
        self._given_up = why
        connection, self._connection = self._connection, None
        if connection is not None:
            close(connection.client)

    def _reconnect(self) -> _Connection:
        try:
            return self._connect()
        except NoTopic as error:  # it was there at the start
            raise PublishError(str(error)) from error

    def _connect(self) -> _Connection:
        client, url = self._link.client(), self._link.service_url
        try:
            with keep_ctrl_c():
                producer = client.create_producer(
                    self._topic, send_timeout_millis=round(1000 * _TIMEOUT_S), batching_enabled=False
                )
        except pulsar.TopicNotFound as error:
            close(client)
            raise NoTopic(f"there is no topic {self._topic} at {url}: run `trimtab topics create`") from error
        except pulsar.PulsarException as error:
            close(client)
            why = explain_denied(error, self._topic, "produce")
            raise PublishError(f"no producer of {self._topic} at {url}: {why}") from error
        return _Connection(client, producer)


def append(
    link: PulsarLink,
    topic: str,
    records: Sequence[tuple[str | None, bytes]],
    *,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Append values, with their keys if any; returns when the brokers have them. Raises ``exits.Refused``."""
    name = link.full_name(topic)
    with explain_errors(link, name, "produce"):
        client = link.client(timeout_s=_APPEND_TIMEOUT_S)
        try:
            producer = client.create_producer(
                name, send_timeout_millis=round(_APPEND_TIMEOUT_S * 1000), batching_enabled=False
            )
            for key, value in records:
                producer.send(value, partition_key=key, properties=dict(headers))
        finally:
            close(client)
