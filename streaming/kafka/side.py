"""One side that is on Kafka: what reads there, what is written outside of the batches, and who does the rest.

Readers get committed records only, join no consumer group, and leave nothing behind on the brokers. For a start they also say where to
begin, and what of the input is gone or not what it was. A log that was truncated and has grown again holds other records at the
offsets that were read. Offsets do not show this. Append times do, within limits: each record that was read was there when its batch
was planned, so a record that was appended later than that, at an offset that had been read, is another one. A log that grew again
before the next batch was planned is not noticed, nor is one on brokers whose clocks are behind the driver's by more than
``_CLOCKS_APART_MS``. Pulsar needs no such check: what is written after a truncation is in ledgers of its own.

Events of collectors, executors and controllers are not exactly-once, and need not be: they carry ids and times, and a repeated one
changes nothing. An event that cannot be written in time is given up and counted: load is only useful while it is fresh.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.future import Future

from policies.wording import counted
from state.layouts import FRESH
from streaming.contract.encode import SkippedRange
from streaming.kafka import topics
from streaming.kafka.client import (
    REACH_TIMEOUT_MS,
    ClusterError,
    as_no_answer,
    close_producer,
    denied_resource,
    describe_error,
    describe_missing_topic,
    explain_denied,
    explain_unanswered,
    find_missing_topic,
    open_consumer,
    open_producer,
    partitions_of,
    read_to_end,
)
from streaming.kafka.executor import KafkaActions, exclusive_writer
from streaming.kafka.link import KafkaLink, Operation, describe_missing
from streaming.kafka.publisher import KafkaPublisher
from streaming.kafka.topics import RECORD_HEADROOM_BYTES
from streaming.process.closeable import Closeable
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused
from streaming.transport.errors import NoTopic, PublishError
from streaming.transport.side import Begin, Place, Progress

_LOG = logging.getLogger(__name__)
_POLL_MS = 200
_SILENCE_S = 30.0
"""A partition that has lost its leader answers no fetch, and the client raises no error for it."""
_EARLIEST, _LATEST = -2, -1
"""Spark's numbers for them."""
_FIRST_OFFSETS_TIMEOUT_S = 10.0
_CLOCKS_APART_MS = 600_000
_LAST_READ_POLL_MS = 2_000


@contextmanager
def _explain_errors(link: KafkaLink, topic: str, operation: Operation) -> Iterator[None]:
    """Turn Kafka's errors into refusals that name the brokers, or the permission that is missing."""
    try:
        yield
    except KafkaError as error:
        if denied_resource(error) == "topic":
            raise Refused(describe_missing(link, "topic", topic, [operation])) from error
        raise Refused(explain_unanswered(link, error)) from error


class KafkaTopicReader(Closeable):
    """Reads all partitions of a topic, or one; each partition's records come in its order. Raises ``exits.Refused``."""

    def __init__(
        self,
        link: KafkaLink,
        topic: str,
        *,
        begin: Begin = "earliest",
        partition: int | None = None,
        compacted: bool = False,
        silence_s: float | None = None,
    ) -> None:
        del compacted  # compaction removes records for every reader
        self._link = link
        self._topic = topic
        self._silence_s = silence_s or _SILENCE_S
        with self._explain_errors():
            self._consumer = open_consumer(
                link, bootstrap_timeout_ms=REACH_TIMEOUT_MS, fetch_max_wait_ms=_POLL_MS
            )
            try:
                self._begin(begin, partition)
            except BaseException:
                self.close()
                raise

    def _begin(self, begin: Begin, partition: int | None) -> None:
        numbers = partitions_of(self._consumer, self._topic, timeout_s=self._silence_s)
        if not numbers:
            raise Refused(describe_missing_topic(self._link, self._topic, "Read"))
        self.partitions_count = len(numbers)
        wanted = sorted(numbers) if partition is None else [partition]
        self._partitions = [TopicPartition(self._topic, number) for number in wanted]
        self._consumer.assign(self._partitions)
        self._seek(begin)

    def read_to_end(self) -> Iterator[ConsumerRecord]:
        """The records up to the end of the topic at the time of the call."""
        with self._explain_errors():
            yield from read_to_end(self._consumer, silence_s=self._silence_s)

    def follow(self) -> Iterator[ConsumerRecord]:
        """The records from here on, until the topic is deleted."""
        silence, is_away = Deadline(self._silence_s), False
        while True:
            with self._explain_errors():
                polled = self._consumer.poll(timeout_ms=_POLL_MS)
            for at in self._partitions:
                yield from polled.get(at, ())
            if polled or silence.is_over:
                is_away = not polled and self._is_away(was_away=is_away)
                silence = Deadline(self._silence_s)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close(autocommit=False)

    def _is_away(self, *, was_away: bool) -> bool:
        """Whether brokers do not answer, which is said once. Raises ``Refused`` where they answer that the topic is missing."""
        try:
            missing = find_missing_topic(self._link, self._topic, "Read")
        except ClusterError as error:
            if not was_away:
                _LOG.warning("%s Waiting until they answer", error)
            return True
        if missing is not None:
            raise Refused(missing)
        return False

    def _explain_errors(self) -> AbstractContextManager[None]:
        return _explain_errors(self._link, self._topic, "Read")

    def _seek(self, begin: Begin) -> None:
        consumer, partitions = self._consumer, self._partitions
        if begin == "earliest":
            consumer.seek_to_beginning(*partitions)
        elif begin == "latest":
            consumer.seek_to_end(*partitions)
        else:
            offsets = consumer.offsets_for_times(dict.fromkeys(partitions, max(0, begin)))
            ends = consumer.end_offsets(partitions)
            for at in partitions:
                consumer.seek(at, ends[at] if offsets[at] is None else offsets[at].offset)


@contextmanager
def _asking(link: KafkaLink, **options: object) -> Iterator[KafkaConsumer]:
    """A consumer for questions about logs. Raises ``NoAnswer``."""
    with as_no_answer():
        consumer = open_consumer(link, isolation_level="read_uncommitted", **options)
        try:
            yield consumer
        finally:
            consumer.close()


def first_offsets(link: KafkaLink, topic: str, begin: Begin) -> dict[str, int]:
    """The first offset to read, by the number of the partition, as Spark's source expects it. Raises ``NoAnswer``."""
    with _asking(link) as consumer:
        partitions = sorted(partitions_of(consumer, topic, timeout_s=_FIRST_OFFSETS_TIMEOUT_S))
        if not isinstance(begin, int):
            return dict.fromkeys(map(str, partitions), _EARLIEST if begin == "earliest" else _LATEST)
        asked = {TopicPartition(topic, number): max(0, begin) for number in partitions}
        offsets = consumer.offsets_for_times(asked)
    return {str(at.partition): _LATEST if offset is None else offset.offset for at, offset in offsets.items()}


def find_lost(link: KafkaLink, places: Sequence[Place]) -> list[SkippedRange]:
    """The ranges after these places that are gone. Raises ``NoAnswer``."""
    at = {TopicPartition(place.topic, place.partition): int(place.at) for place in places}
    with _asking(link) as consumer:
        begins, ends = consumer.beginning_offsets(list(at)), consumer.end_offsets(list(at))
    return [
        SkippedRange(
            topic=where.topic,
            partition=where.partition,
            read_until=str(offset),
            goes_on_from=str(max(begins[where], min(offset, ends[where]))),
            records_count=begins[where] - offset if begins[where] > offset else None,
        )
        for where, offset in at.items()
        if not begins[where] <= offset <= ends[where]
    ]


def find_regrown(link: KafkaLink, read: Progress) -> str | None:
    """The error text for the first log whose last read record is another one now; None if there is none. Raises ``NoAnswer``."""
    if not read.places:
        return None
    with _asking(link, max_poll_records=1) as consumer:
        for place in read.places:
            last = _last_read(consumer, place)
            if last is not None and last.timestamp > read.planned_ms + _CLOCKS_APART_MS:
                return (
                    f"{place.topic}, partition {place.partition}: the record at offset {last.offset} was appended after the "
                    f"checkpoint had read up to {place.at}: the log was truncated and has grown again, so records that "
                    f"were never read lie before that. Start over with {FRESH}"
                )
    return None


def _last_read(consumer: KafkaConsumer, place: Place) -> ConsumerRecord | None:
    """The record before the place; None where it is gone (retention, compaction) or was never there."""
    at, offset = TopicPartition(place.topic, place.partition), int(place.at)
    consumer.assign([at])
    if not consumer.beginning_offsets([at])[at] < offset <= consumer.end_offsets([at])[at]:
        return None
    consumer.seek(at, offset - 1)
    records = consumer.poll(timeout_ms=_LAST_READ_POLL_MS).get(at, [])
    return records[0] if records and records[0].offset < offset else None


_TIMEOUT_S = 10.0
_APPEND_TIMEOUT_S = 20.0


def append(
    link: KafkaLink,
    topic: str,
    records: Sequence[tuple[str | None, bytes]],
    *,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Append values, with their keys if any; returns when all in-sync replicas have them. Raises ``exits.Refused``."""
    encoded = [(name, text.encode()) for name, text in headers]
    with _explain_errors(link, topic, "Write"):
        producer = open_producer(link, timeout_s=_APPEND_TIMEOUT_S, acks="all", enable_idempotence=True)
        try:
            sent = [
                producer.send(topic, key=None if key is None else key.encode(), value=value, headers=encoded)
                for key, value in records
            ]
            for future in sent:
                future.get(timeout=_APPEND_TIMEOUT_S)
        finally:
            close_producer(producer, wait_s=_APPEND_TIMEOUT_S)


class KafkaSide:
    """See ``Side``; the signatures are there."""

    def __init__(self, link: KafkaLink) -> None:
        self.link = link
        self.section = link.section
        self.url = f"kafka://{link.bootstrap}"
        self.reader = partial(KafkaTopicReader, link)
        self.append = partial(append, link)
        self.events = partial(KafkaEvents, link)
        self.publisher = partial(KafkaPublisher, link)
        self.actions = partial(KafkaActions, link)
        self.exclusive_writer = partial(exclusive_writer, link)
        self.find_lost = partial(find_lost, link)
        self.find_regrown = partial(find_regrown, link)
        self.topic_ids = partial(topics.topic_ids, link)
        self.create_topics = partial(topics.create, link)
        self.brokers_seen = partial(topics.brokers_seen, link)
        self.topics_seen = partial(topics.topics_seen, link)

    def commits_topic(self, topic: str, name: str) -> str:  # noqa: ARG002  one topic for all
        """See ``Side``."""
        return topic

    def is_same(self, other: object) -> bool:
        """See ``Side``."""
        return isinstance(other, KafkaSide) and (self.link.bootstrap, self.link.security) == (
            other.link.bootstrap,
            other.link.security,
        )

    def full_name(self, topic: str) -> str:
        """See ``Side``."""
        return topic


class KafkaEvents(Closeable):
    """A producer of one topic; an ``EventSink``."""

    def __init__(
        self, link: KafkaLink, topic: str, *, max_record_bytes: int, timeout_s: float = _TIMEOUT_S
    ) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached and ``NoTopic`` when the topic is missing."""
        self._link = link
        self._topic = topic
        self._timeout_s = timeout_s
        self._open = partial(
            open_producer,
            link,
            timeout_s=timeout_s,
            acks="all",
            linger_ms=5,
            delivery_timeout_ms=round(timeout_s * 1000) + 5,
            max_request_size=max_record_bytes + RECORD_HEADROOM_BYTES,
        )
        try:
            self._producer = self._open()
            self._require_topic()
        except KafkaError as error:
            raise PublishError(explain_unanswered(link, error)) from error
        self._lock = threading.Lock()
        self._sent: list[Future] = []

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        try:
            future = self._producer.send(self._topic, key=key.encode(), value=value)
        except KafkaError as error:
            why = describe_error(error)
            raise PublishError(
                f"an event of {len(value)} bytes could not be sent to {self._topic}: {why}"
            ) from error
        with self._lock:
            self._sent.append(future)

    def flush(self) -> None:
        """See ``EventSink``."""
        with self._lock:
            sent, self._sent = self._sent, []
        failures: list[KafkaError] = []
        deadline = Deadline(self._timeout_s)
        for future in sent:
            try:
                future.get(timeout=deadline.left_s)
            except KafkaError as error:
                failures.append(error)
        if failures:
            self._renew()
            missing = self._find_missing(failures[0])
            raise PublishError(
                f"{len(failures)} of {counted(len(sent), 'event')} not written to {self._topic} at "
                f"{self._link.bootstrap}; the first: {missing or self._explain(failures[0])}"
            ) from (None if missing else failures[0])

    def close(self) -> None:
        """Close the connection; what is not written within a second is given up."""
        close_producer(self._producer, wait_s=1)

    def _renew(self) -> None:
        """Take a new producer, if brokers answer: one of kafka-python sends nothing to a topic that was deleted and made anew."""
        try:
            made = self._open()
        except KafkaError:
            return
        before, self._producer = self._producer, made
        close_producer(before)

    def _require_topic(self) -> None:
        """Raise ``NoTopic`` if the topic is missing, and ``PublishError`` if Kafka hides it because we may not describe it."""
        try:
            partitions = self._producer.partitions_for(self._topic)
        except TopicAuthorizationFailedError as error:
            close_producer(self._producer)
            raise PublishError(self._explain(error)) from error
        except KafkaError:
            partitions = None
        if not partitions:
            close_producer(self._producer)
            raise NoTopic(
                f"there is no topic {self._topic} at {self._link.bootstrap}: run `trimtab topics create`"
            )

    def _find_missing(self, error: KafkaError) -> str | None:
        """The sentence about a topic that is missing, for which a producer waits until its time is over; None for other errors."""
        if isinstance(error, KafkaTimeoutError):
            with suppress(ClusterError):  # brokers that do not answer
                return find_missing_topic(self._link, self._topic, "Write")
        return None

    def _explain(self, error: KafkaError) -> str:
        if isinstance(error, KafkaTimeoutError):
            return f"no broker took it within {self._timeout_s:g} s"
        return explain_denied(error, self._link, "Write", topic=self._topic)
