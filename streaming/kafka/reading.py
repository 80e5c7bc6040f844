"""Reads a topic on Kafka for a person: committed records only, no consumer group, nothing is left behind on the brokers."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from streaming.kafka.denied import denied_resource
from streaming.kafka.link import Link
from streaming.kafka.log import partitions_of, read_to_end
from streaming.kafka.permissions import Operation, describe_hidden_topic, describe_missing
from streaming.process.closing import Closing
from streaming.process.exits import Refused
from streaming.transport.reading import Begin, Place

_REACH_TIMEOUT_MS = 8_000
_POLL_MS = 200
_SILENCE_S = 30.0
"""A partition that has lost its leader answers no fetch, and the client raises no error for it."""


@contextmanager
def explain_errors(link: Link, topic: str, operation: Operation) -> Iterator[None]:
    """Turn Kafka's errors into refusals that name the brokers, or the permission that is missing."""
    try:
        yield
    except KafkaError as error:
        if denied_resource(error) == "topic":
            raise Refused(describe_missing(link.subject, "topic", topic, [operation])) from error
        raise Refused(
            f"Kafka at {link.bootstrap} does not answer as expected: {error!r}. Check that {link.section}.url is "
            f"right, that the brokers are up, and [{link.section}.security]."
        ) from error


class TopicReader(Closing):
    """Reads all partitions of a topic, or one; each partition's records come in its order. Raises ``exits.Refused``."""

    def __init__(
        self, link: Link, topic: str, *, begin: Begin | Place = "earliest", partition: int | None = None
    ) -> None:
        self._link = link
        self.topic = topic
        with self._explain_errors():
            self._consumer = KafkaConsumer(
                bootstrap_servers=link.bootstrap,
                bootstrap_timeout_ms=_REACH_TIMEOUT_MS,
                isolation_level="read_committed",
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                fetch_max_wait_ms=_POLL_MS,
                metrics_enabled=False,
                **link.client_options(),
            )
            self._partitions = self._assign(partition)
            self.seek(begin)

    def seek(self, begin: Begin | Place) -> None:
        """Go on reading from ``begin``; a ``Place`` is only for a reader of one partition."""
        with self._explain_errors():
            if isinstance(begin, Place):
                (partition,) = self._partitions
                self._consumer.seek(partition, int(begin.at))
            elif begin == "earliest":
                self._consumer.seek_to_beginning(*self._partitions)
            elif begin == "latest":
                self._consumer.seek_to_end(*self._partitions)
            else:
                self._seek_to_time(int(begin))

    def read_to_end(self) -> Iterator[ConsumerRecord]:
        """The records up to the end of the topic at the time of the call."""
        with self._explain_errors():
            yield from read_to_end(self._consumer, silence_s=_SILENCE_S)

    def read_until(self, place: Place) -> Iterator[ConsumerRecord]:
        """The records up to a place; only for a reader of that one partition."""
        (partition,) = self._partitions
        end = int(place.at)
        with self._explain_errors():
            for record in read_to_end(self._consumer, silence_s=_SILENCE_S, ends={partition: end}):
                if record.offset < end:
                    yield record

    def follow(self) -> Iterator[ConsumerRecord]:
        """The records from here on, for ever."""
        while True:
            yield from self._poll()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close(autocommit=False)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        with explain_errors(self._link, self.topic, "Read"):
            yield

    @property
    def partitions_count(self) -> int:
        """Number of partitions of the topic, whether they are read here or not."""
        return len(partitions_of(self._consumer, self.topic, timeout_s=_SILENCE_S))

    def _assign(self, partition: int | None) -> list[TopicPartition]:
        numbers = partitions_of(self._consumer, self.topic, timeout_s=_SILENCE_S)
        if not numbers:
            raise Refused(describe_hidden_topic(self._link.subject, self.topic, "Read"))
        wanted = sorted(numbers) if partition is None else [partition]
        partitions = [TopicPartition(self.topic, number) for number in wanted]
        self._consumer.assign(partitions)
        return partitions

    def _seek_to_time(self, begin_ms: int) -> None:
        found = self._consumer.offsets_for_times(dict.fromkeys(self._partitions, max(0, begin_ms)))
        ends = self._consumer.end_offsets(self._partitions)
        for at in self._partitions:
            self._consumer.seek(at, ends[at] if found[at] is None else found[at].offset)

    def _poll(self) -> list[ConsumerRecord]:
        with self._explain_errors():
            polled = self._consumer.poll(timeout_ms=_POLL_MS)
        return [record for at in self._partitions for record in polled.get(at, ())]
