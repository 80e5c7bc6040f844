"""Where a first start begins to read a topic on Kafka, in the form that Spark's source expects."""

from kafka import KafkaConsumer, TopicPartition

from streaming.kafka.answers import retry_until_answered
from streaming.kafka.link import Link
from streaming.kafka.log import partitions_of
from streaming.transport.reading import Begin

_EARLIEST, _LATEST = -2, -1
"""Spark's numbers for them."""
_TIMEOUT_S = 10.0


def first_offsets(link: Link, topic: str, begin: Begin) -> dict[str, int]:
    """The first offset to read, by the number of the partition. Raises ``NoAnswer``."""
    with retry_until_answered():
        consumer = KafkaConsumer(bootstrap_servers=link.bootstrap, **link.client_options())
        try:
            return _offsets(consumer, topic, begin)
        finally:
            consumer.close()


def _offsets(consumer: KafkaConsumer, topic: str, begin: Begin) -> dict[str, int]:
    partitions = sorted(partitions_of(consumer, topic, timeout_s=_TIMEOUT_S))
    if not isinstance(begin, int):
        return dict.fromkeys(map(str, partitions), _EARLIEST if begin == "earliest" else _LATEST)
    found = consumer.offsets_for_times(
        {TopicPartition(topic, number): max(0, begin) for number in partitions}
    )
    return {str(at.partition): _LATEST if offset is None else offset.offset for at, offset in found.items()}
