"""Reading Kafka's logs to their end, never for longer than was asked for.

kafka-python waits without limit for metadata of a topic, for a position, and for records of a partition that has lost
its leader; each of these is bounded here.
"""

import time
from collections.abc import Iterator

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError

from streaming.process.within import within

__all__ = ["partitions_of", "read_to_end"]

_POLL_MS = 200


def partitions_of(consumer: KafkaConsumer, topic: str, *, timeout_s: float) -> frozenset[int]:
    """Numbers of a topic's partitions; none where there is no such topic. Raises ``KafkaError``; close the consumer then."""
    try:
        return frozenset(
            within(timeout_s, lambda: consumer.partitions_for_topic(topic), what=f"partitions of {topic}")
        )
    except TimeoutError as error:
        raise KafkaTimeoutError(str(error)) from error


def read_to_end(consumer: KafkaConsumer, *, timeout_s: float) -> Iterator[ConsumerRecord]:
    """Records of what is assigned, from where it stands to the end there is now. Raises ``KafkaError``, in time."""
    deadline_s = time.monotonic() + timeout_s

    def left_ms(part: str) -> int:
        left = round(1000 * (deadline_s - time.monotonic()))
        if left <= 0:
            raise KafkaTimeoutError(
                f"{part}: not known after {timeout_s:g} s; does each partition have a leader?"
            )
        return left

    def is_behind(partition: TopicPartition, end: int) -> bool:
        position = consumer.position(partition, timeout_ms=left_ms(f"the end of {partition.topic}"))
        return position is None or position < end

    assigned = consumer.assignment()
    ends = consumer.end_offsets(assigned, timeout_ms=left_ms("end offsets"))
    while any(is_behind(partition, end) for partition, end in ends.items()):
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            yield from records
