"""Input on Kafka that is gone: what is missing between a checkpoint and the logs, and saying so on a topic."""

from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from streaming.contract.envelope import EPOCH_HEADER
from streaming.contract.skipped import SkippedRange
from streaming.kafka.answers import retry_until_answered
from streaming.kafka.link import Link
from streaming.ports.places import Place
from streaming.ports.publishing import PublishError

__all__ = ["find_lost", "say"]

_TIMEOUT_S = 20.0


def find_lost(link: Link, places: Sequence[Place]) -> list[SkippedRange]:
    """What is gone after these places. Raises ``NoAnswer``."""
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


def say(link: Link, topic: str, value: bytes, epoch: int) -> None:
    """Append what is skipped, and wait until it is there. Raises ``PublishError``."""
    headers = [(EPOCH_HEADER, str(epoch).encode())]
    try:
        producer = KafkaProducer(bootstrap_servers=link.bootstrap, **link.client_options())
        try:
            producer.send(topic, value=value, headers=headers).get(timeout=_TIMEOUT_S)
        finally:
            producer.close(timeout=_TIMEOUT_S)
    except KafkaError as error:
        raise PublishError(
            f"what is skipped could not be published to {link.bootstrap}: {error!r}"
        ) from error
