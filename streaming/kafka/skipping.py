"""Input on Kafka that is gone: what is missing between a checkpoint and the logs."""

from collections.abc import Sequence

from kafka import KafkaConsumer, TopicPartition

from streaming.contract.skipped import SkippedRange
from streaming.kafka.answers import retry_until_answered
from streaming.kafka.link import Link
from streaming.transport.reading import Place


def find_lost(link: Link, places: Sequence[Place]) -> list[SkippedRange]:
    """The ranges after these places that are gone. Raises ``NoAnswer``."""
    at = {TopicPartition(place.topic, place.partition): int(place.at) for place in places}
    with retry_until_answered():
        consumer = KafkaConsumer(bootstrap_servers=link.bootstrap, **link.client_options())
        try:
            begins, ends = consumer.beginning_offsets(list(at)), consumer.end_offsets(list(at))
        finally:
            consumer.close()
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
