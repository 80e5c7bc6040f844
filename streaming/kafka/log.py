"""Reads Kafka's logs to their end, and never waits for longer than the caller allows.

kafka-python waits without limit for metadata of a topic, for a position, and for records of a partition that has lost
its leader; each of these is bounded here.
"""

from collections.abc import Iterator, Mapping

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError

from streaming.process.deadline import Deadline, within

_POLL_MS = 200


def partitions_of(consumer: KafkaConsumer, topic: str, *, timeout_s: float) -> frozenset[int]:
    """Numbers of a topic's partitions; empty if there is no such topic. Raises ``KafkaError``; close the consumer then."""
    try:
        return frozenset(
            within(timeout_s, lambda: consumer.partitions_for_topic(topic), what=f"partitions of {topic}")
        )
    except TimeoutError as error:
        raise KafkaTimeoutError(str(error)) from error


def read_to_end(
    consumer: KafkaConsumer, *, silence_s: float, ends: Mapping[TopicPartition, int] | None = None
) -> Iterator[ConsumerRecord]:
    """Records of the assigned partitions, from the consumer's position to ``ends``, or to the end at the time of the call.

    Every partition is fetched from at least once: Kafka gives its end to any client that may describe the topic, and only
    a fetch fails if the client may not read it. Raises ``KafkaError``, also after ``silence_s`` without a record.
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
