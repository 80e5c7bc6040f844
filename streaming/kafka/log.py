"""Reading Kafka's logs to their end, never for longer than was asked for.

kafka-python waits without limit for metadata of a topic, for a position, and for records of a partition that has lost
its leader; each of these is bounded here.
"""

from collections.abc import Iterator, Mapping

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError

from streaming.process.deadline import Deadline
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


def read_to_end(
    consumer: KafkaConsumer, *, silence_s: float, ends: Mapping[TopicPartition, int] | None = None
) -> Iterator[ConsumerRecord]:
    """Records of what is assigned, from where it stands to ``ends``, or to the end there is now.

    Every partition is asked at least once: Kafka tells the end of a partition to whoever may describe its topic, and only
    a fetch says who may not read it. Raises ``KafkaError``, and does so after ``silence_s`` without a record.
    """
    assigned = sorted(consumer.assignment())
    ends = ends or consumer.end_offsets(assigned, timeout_ms=round(1000 * silence_s))
    deadline = Deadline(silence_s)
    while not all(_is_read(consumer, partition, ends[partition]) for partition in assigned):
        polled = consumer.poll(timeout_ms=_POLL_MS)
        for partition in assigned:
            yield from polled.get(partition, ())
        if polled:
            deadline = Deadline(silence_s)
        elif deadline.is_over:
            topics = ", ".join(sorted({partition.topic for partition in assigned}))
            raise KafkaTimeoutError(
                f"{topics} could not be read to its end: nothing came for {silence_s:g} s. Does each partition have a leader?"
            )


def _is_read(consumer: KafkaConsumer, partition: TopicPartition, end: int) -> bool:
    if consumer.highwater(partition) is None:  # it is known from the first answer to a fetch
        return False
    position = consumer.position(partition, timeout_ms=_POLL_MS)
    return position is not None and position >= end
