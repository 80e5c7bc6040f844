"""One side that is on Pulsar, as ``streaming.kafka.side`` is on Kafka: readers leave no subscription behind.

A client that failed to write is thrown away with the events it still held, and made anew for the next event: after an outage
of the bookies its producer may never recover.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import pulsar

from streaming.contract.encode import SkippedRange
from streaming.process.closeable import Closeable
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused, words_of
from streaming.pulsar import topics
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import (
    AuthAction,
    close,
    explain_denied,
    is_denied,
    keep_ctrl_c,
    read_to_end,
    reader_after,
    require_answer,
)
from streaming.pulsar.commits import WINDOW, Deliveries, NotSent
from streaming.pulsar.executor import PulsarActions, exclusive_writer
from streaming.pulsar.http import AdminError, CredentialsError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.log import PartitionLogs, partitions_count, position_before
from streaming.pulsar.positions import DataLoss, Log, Position, pack, partition_index, partition_names
from streaming.pulsar.publisher import PulsarPublisher, commits_topic_of
from streaming.transport.errors import NoTopic, PublishError
from streaming.transport.side import Begin, Place, Progress, TopicRecord

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 10.0
_POLL_MS = 200
_SILENCE_S = 30.0
"""After so long without a message it is asked whether brokers answer: a reader connects again and again, and says nothing."""


@contextmanager
def explain_errors(link: PulsarLink, topic: str, action: AuthAction) -> Iterator[None]:
    """Turn Pulsar's errors into refusals that name the brokers and the settings, or the permission that is missing.

    ``topic`` is its full name, and ``action`` what is tried on it.
    """
    section = link.section
    try:
        with keep_ctrl_c():
            yield
    except (AdminError, CredentialsError) as error:
        raise Refused(f"[{section}.pulsar]: {explain_denied(error, topic, action)}") from error
    except pulsar.PulsarException as error:
        if is_denied(error):
            raise Refused(f"[{section}.pulsar]: {explain_denied(error, topic, action)}") from error
        raise Refused(
            f"Pulsar at {link.service_url} does not answer as expected: {words_of(error)}. Check that the address is right ({section}.url), "
            f"that the brokers are up, and [{section}.pulsar]."
        ) from error


class PulsarTopicReader(Closeable):
    """Reads all partitions of a topic, or one; each partition's messages come in its order. Raises ``exits.Refused``."""

    def __init__(
        self,
        link: PulsarLink,
        topic: str,
        *,
        begin: Begin = "earliest",
        partition: int | None = None,
        compacted: bool = False,
        silence_s: float | None = None,
    ) -> None:
        del silence_s  # our own limit is short enough for everybody
        self._link = link
        self._topic = link.full_name(topic)
        with self._explain_errors():
            with link.admin() as admin:
                count = partitions_count(admin, self._topic)
                if count is None:
                    raise Refused(
                        f"there is no topic {self._topic} at {link.service_url}: run `trimtab topics create`"
                    )
                names = partition_names(self._topic, count)
                self.partitions_count = len(names)
                partitions = names if partition is None else [names[partition]]
                first = [_first_place(admin, name, begin) for name in partitions]
            self._client = link.client(timeout_s=_TIMEOUT_S)
            self._readers = [
                self._reader(name, done, compacted=compacted)
                for name, done in zip(partitions, first, strict=True)
            ]

    def read_to_end(self) -> Iterator[TopicRecord]:
        """The messages up to the end of the topic."""
        with self._explain_errors():
            for reader in self._readers:
                yield from map(record_of, read_to_end(reader, silence_s=_TIMEOUT_S))

    def follow(self) -> Iterator[TopicRecord]:
        """The messages from here on, for ever."""
        silence, is_away = Deadline(_SILENCE_S), False
        while True:
            for reader in self._readers:
                with self._explain_errors():
                    try:
                        message = reader.read_next(timeout_millis=_POLL_MS)
                    except pulsar.Timeout:
                        continue
                yield record_of(message)
                silence, is_away = Deadline(_SILENCE_S), False
            if silence.is_over:
                is_away = self._is_away(was_away=is_away)
                silence = Deadline(_SILENCE_S)

    def close(self) -> None:
        """Close the connections."""
        close(self._client)

    def _reader(
        self, partition: str, begin: pulsar.MessageId | Position, *, compacted: bool
    ) -> pulsar.Reader:
        if isinstance(begin, Position):
            return reader_after(self._client, partition, begin, is_read_compacted=compacted)
        return self._client.create_reader(partition, begin, is_read_compacted=compacted)

    def _is_away(self, *, was_away: bool) -> bool:
        """Whether brokers do not answer, which is said once."""
        try:
            require_answer(self._link.service_url)
        except pulsar.ConnectError as error:
            if not was_away:
                _LOG.warning("no broker of Pulsar answers: %s. Waiting until they answer", error)
            return True
        return False

    def _explain_errors(self) -> AbstractContextManager[None]:
        return explain_errors(self._link, self._topic, "consume")


def _first_place(admin: PulsarAdmin, partition: str, begin: Begin) -> pulsar.MessageId | Position:
    """Where a reader begins: an end of the log, or after a position."""
    if isinstance(begin, str):
        return pulsar.MessageId.latest if begin == "latest" else pulsar.MessageId.earliest
    return position_before(admin, partition, begin)


def record_of(message: pulsar.Message) -> TopicRecord:
    """A message as a record; a message without content deletes its key, as a record without a value does on Kafka."""
    id_ = message.message_id()
    return TopicRecord(
        key=message.partition_key().encode() or None,
        value=message.data() or None,
        timestamp=message.publish_timestamp(),
        partition=max(partition_index(message.topic_name()), 0),
        offset=pack(Position(id_.ledger_id(), id_.entry_id()), id_.batch_index()),
        headers=[(name, text.encode()) for name, text in message.properties().items()],
    )


def find_lost(link: PulsarLink, places: Sequence[Place]) -> list[SkippedRange]:
    """The ranges after these places that are gone. Raises ``PublishError``."""
    try:
        with link.admin() as admin:
            logs = PartitionLogs(admin, subscription=link.subscription)
            gaps = [_gap(logs.log(place.log), place) for place in places]
    except AdminError as error:
        raise PublishError(f"[{link.section}.pulsar]: {error}") from error
    return [gap for gap in gaps if gap is not None]


def _gap(log: Log, place: Place) -> SkippedRange | None:
    at = Position.parse(place.at)
    try:
        log.require(at, place.log)
    except DataLoss:
        return SkippedRange(
            topic=place.topic,
            partition=place.partition,
            read_until=place.at,
            goes_on_from=str(log.nearest(at)),
        )
    return None


_FLUSH_S = _TIMEOUT_S + 5.0
"""The client gives an event up after ``_TIMEOUT_S``; a client that does not is waited for only a little longer."""
_APPEND_TIMEOUT_S = 20.0


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


class PulsarSide:
    """See ``Side``; the signatures are there."""

    def __init__(self, link: PulsarLink) -> None:
        self.link = link
        self.section = link.section
        self.url = link.service_url
        self.full_name = link.full_name
        self.reader = partial(PulsarTopicReader, link)
        self.append = partial(append, link)
        self.events = partial(open_events, link)
        self.commits_topic = commits_topic_of
        self.publisher = partial(PulsarPublisher, link)
        self.actions = partial(PulsarActions, link)
        self.exclusive_writer = partial(exclusive_writer, link)
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


def open_events(link: PulsarLink, topic: str, *, max_record_bytes: int = 0) -> "PulsarEvents":
    """A producer of one topic. Raises as ``PulsarEvents`` does, and soon where something is wrong with the address for sure."""
    try:
        require_answer(link.service_url)
    except pulsar.ConnectError as error:
        raise PublishError(
            f"no broker of Pulsar answers: {error}. Check the address ({link.section}.url)"
        ) from error
    return PulsarEvents(link, topic, max_record_bytes=max_record_bytes)


@dataclass(slots=True)
class _Connection:
    """A client with its producer, and what it was handed since the last flush."""

    client: pulsar.Client
    producer: pulsar.Producer
    sent: Deliveries = field(default_factory=Deliveries)


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
                self._give_up(f"an event of {len(value)} bytes could not be sent: {words_of(error)}")
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
        client, url = self._link.client(timeout_s=_TIMEOUT_S), self._link.service_url
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
