"""Finds a log on Kafka that was truncated and has grown again: it holds other records at the offsets that were read.

Offsets do not show this. Append times do, within limits: each record that was read was there when its batch was planned, so
a record that was appended later than that, at an offset that had been read, is another one. Pulsar needs no such check: what
is written after a truncation is in ledgers of its own.

Limits: a log that grew again before the next batch was planned is not noticed, nor is one on brokers whose clocks are behind
the driver's by more than ``_CLOCKS_APART_MS``.
"""

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from state.layouts import FRESH
from streaming.kafka.answers import retry_until_answered
from streaming.kafka.link import Link
from streaming.transport.reading import Place, Progress

_CLOCKS_APART_MS = 600_000
_POLL_MS = 2_000


def find_regrown(link: Link, read: Progress) -> str | None:
    """The error text for the first log whose last read record is another one now; None if there is none. Raises ``NoAnswer``."""
    if not read.places:
        return None
    with retry_until_answered():
        return _find_regrown(link, read)


def _find_regrown(link: Link, read: Progress) -> str | None:
    consumer = KafkaConsumer(
        bootstrap_servers=link.bootstrap,
        enable_auto_commit=False,
        max_poll_records=1,
        **link.client_options(),
    )
    try:
        for place in read.places:
            last = _last_read(consumer, place)
            if last is not None and last.timestamp > read.planned_ms + _CLOCKS_APART_MS:
                return (
                    f"{place.topic}, partition {place.partition}: the record at offset {last.offset} was appended after the "
                    f"checkpoint had read up to {place.at}: the log was truncated and has grown again, so records that "
                    f"were never read lie before that. Start over with {FRESH}"
                )
    finally:
        consumer.close()
    return None


def _last_read(consumer: KafkaConsumer, place: Place) -> ConsumerRecord | None:
    """The record before the place; None where it is gone (retention, compaction) or was never there."""
    at, offset = TopicPartition(place.topic, place.partition), int(place.at)
    consumer.assign([at])
    if not consumer.beginning_offsets([at])[at] < offset <= consumer.end_offsets([at])[at]:
        return None
    consumer.seek(at, offset - 1)
    records = consumer.poll(timeout_ms=_POLL_MS).get(at, [])
    return records[0] if records and records[0].offset < offset else None
