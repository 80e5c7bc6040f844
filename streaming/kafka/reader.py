"""Reads topics on Kafka: committed records only, no consumer group, nothing is left behind on the brokers.

For a start it also says where to begin, and what of the input is gone or not what it was. A log that was truncated and has grown
again holds other records at the offsets that were read. Offsets do not show this. Append times do, within limits: each record
that was read was there when its batch was planned, so a record that was appended later than that, at an offset that had been
read, is another one. A log that grew again before the next batch was planned is not noticed, nor is one on brokers whose clocks
are behind the driver's by more than ``_CLOCKS_APART_MS``. Pulsar needs no such check: what is written after a truncation is in
ledgers of its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from state.layouts import FRESH
from streaming.contract.encode import SkippedRange
from streaming.kafka.client import (
    REACH_TIMEOUT_MS,
    denied_resource,
    open_consumer,
    partitions_of,
    read_to_end,
    retry_until_answered,
)
from streaming.kafka.link import Link, Operation, describe_hidden_topic, describe_missing
from streaming.process.closing import Closing
from streaming.process.exits import Refused
from streaming.transport.side import Begin, Place, Progress

_POLL_MS = 200
_SILENCE_S = 30.0
"""A partition that has lost its leader answers no fetch, and the client raises no error for it."""
_EARLIEST, _LATEST = -2, -1
"""Spark's numbers for them."""
_FIRST_OFFSETS_TIMEOUT_S = 10.0
_CLOCKS_APART_MS = 600_000
_LAST_READ_POLL_MS = 2_000


@contextmanager
def explain_errors(link: Link, topic: str, operation: Operation) -> Iterator[None]:
    """Turn Kafka's errors into refusals that name the brokers, or the permission that is missing."""
    try:
        yield
    except KafkaError as error:
        if denied_resource(error) == "topic":
            raise Refused(describe_missing(link, "topic", topic, [operation])) from error
        raise Refused(
            f"Kafka at {link.bootstrap} does not answer as expected: {error!r}. Check that {link.section}.url is "
            f"right, that the brokers are up, and [{link.section}.security]."
        ) from error


class TopicReader(Closing):
    """Reads all partitions of a topic, or one; each partition's records come in its order. Raises ``exits.Refused``."""

    def __init__(
        self,
        link: Link,
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
            numbers = partitions_of(self._consumer, topic, timeout_s=self._silence_s)
            if not numbers:
                raise Refused(describe_hidden_topic(link, topic, "Read"))
            self.partitions_count = len(numbers)
            wanted = sorted(numbers) if partition is None else [partition]
            self._partitions = [TopicPartition(topic, number) for number in wanted]
            self._consumer.assign(self._partitions)
            self._seek(begin)

    def read_to_end(self) -> Iterator[ConsumerRecord]:
        """The records up to the end of the topic at the time of the call."""
        with self._explain_errors():
            yield from read_to_end(self._consumer, silence_s=self._silence_s)

    def follow(self) -> Iterator[ConsumerRecord]:
        """The records from here on, for ever."""
        while True:
            with self._explain_errors():
                polled = self._consumer.poll(timeout_ms=_POLL_MS)
            for at in self._partitions:
                yield from polled.get(at, ())

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close(autocommit=False)

    def _explain_errors(self) -> AbstractContextManager[None]:
        return explain_errors(self._link, self._topic, "Read")

    def _seek(self, begin: Begin) -> None:
        consumer, partitions = self._consumer, self._partitions
        if begin == "earliest":
            consumer.seek_to_beginning(*partitions)
        elif begin == "latest":
            consumer.seek_to_end(*partitions)
        else:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, max(0, begin)))
            ends = consumer.end_offsets(partitions)
            for at in partitions:
                consumer.seek(at, ends[at] if found[at] is None else found[at].offset)


@contextmanager
def _asking(link: Link, **options: object) -> Iterator[KafkaConsumer]:
    """A consumer for questions about logs. Raises ``NoAnswer``."""
    with retry_until_answered():
        consumer = open_consumer(link, isolation_level="read_uncommitted", **options)
        try:
            yield consumer
        finally:
            consumer.close()


def first_offsets(link: Link, topic: str, begin: Begin) -> dict[str, int]:
    """The first offset to read, by the number of the partition, as Spark's source expects it. Raises ``NoAnswer``."""
    with _asking(link) as consumer:
        partitions = sorted(partitions_of(consumer, topic, timeout_s=_FIRST_OFFSETS_TIMEOUT_S))
        if not isinstance(begin, int):
            return dict.fromkeys(map(str, partitions), _EARLIEST if begin == "earliest" else _LATEST)
        asked = {TopicPartition(topic, number): max(0, begin) for number in partitions}
        found = consumer.offsets_for_times(asked)
    return {str(at.partition): _LATEST if offset is None else offset.offset for at, offset in found.items()}


def find_lost(link: Link, places: Sequence[Place]) -> list[SkippedRange]:
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


def find_regrown(link: Link, read: Progress) -> str | None:
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
