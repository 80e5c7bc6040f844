"""One side that is on Kafka: who does what there, and what is written outside of the batches.

Events of collectors, executors and controllers are not exactly-once, and need not be: they carry ids and times, and a repeated one
changes nothing. An event that cannot be written in time is given up and counted: load is only useful while it is fresh.
"""

import threading
from collections.abc import Sequence
from functools import partial

from kafka.errors import KafkaError, TopicAuthorizationFailedError
from kafka.future import Future

from streaming.kafka import topics
from streaming.kafka.client import close_producer, explain_denied, open_producer
from streaming.kafka.executor import ActionsTopic, owned
from streaming.kafka.link import Link
from streaming.kafka.publisher import KafkaPublisher
from streaming.kafka.reader import TopicReader, explain_errors, find_lost, find_regrown
from streaming.kafka.topics import RECORD_HEADROOM_BYTES
from streaming.process.closing import Closing
from streaming.transport.errors import NoTopic, PublishError

_TIMEOUT_S = 10.0
_APPEND_TIMEOUT_S = 20.0


class KafkaSide:
    """See ``Side``; the signatures are there."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.section = link.section
        self.url = f"kafka://{link.bootstrap}"
        self.reader = partial(TopicReader, link)
        self.append = partial(append, link)
        self.events = partial(KafkaEvents, link)
        self.publisher = partial(KafkaPublisher, link)
        self.actions = partial(ActionsTopic, link)
        self.owned = partial(owned, link)
        self.find_lost = partial(find_lost, link)
        self.find_regrown = partial(find_regrown, link)
        self.topic_ids = partial(topics.topic_ids, link)
        self.create_topics = partial(topics.create, link)
        self.brokers_seen = partial(topics.brokers_seen, link)
        self.topics_seen = partial(topics.topics_seen, link)

    def is_same(self, other: object) -> bool:
        """See ``Side``."""
        return isinstance(other, KafkaSide) and (self.link.bootstrap, self.link.security) == (
            other.link.bootstrap,
            other.link.security,
        )

    def full_name(self, topic: str) -> str:
        """See ``Side``."""
        return topic


class KafkaEvents(Closing):
    """A producer of one topic; an ``EventSink``."""

    def __init__(
        self, link: Link, topic: str, *, max_record_bytes: int, timeout_s: float = _TIMEOUT_S
    ) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached and ``NoTopic`` when the topic is missing."""
        self._link = link
        self._topic = topic
        self._timeout_s = timeout_s
        try:
            self._producer = open_producer(
                link,
                timeout_s=timeout_s,
                acks="all",
                linger_ms=5,
                delivery_timeout_ms=round(timeout_s * 1000) + 5,
                max_request_size=max_record_bytes + RECORD_HEADROOM_BYTES,
            )
            self._require_topic()
        except KafkaError as error:
            raise PublishError(f"no producer at {link.bootstrap}: {error!r}") from error
        self._lock = threading.Lock()
        self._sent: list[Future] = []

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        try:
            future = self._producer.send(self._topic, key=key.encode(), value=value)
        except KafkaError as error:
            raise PublishError(f"an event of {len(value)} bytes could not be sent: {error!r}") from error
        with self._lock:
            self._sent.append(future)

    def flush(self) -> None:
        """See ``EventSink``."""
        with self._lock:
            sent, self._sent = self._sent, []
        failures: list[KafkaError] = []
        for future in sent:
            try:
                future.get(timeout=self._timeout_s)
            except KafkaError as error:
                failures.append(error)
        if failures:
            raise PublishError(
                f"{len(failures)} of {len(sent)} events were not written to {self._topic} at "
                f"{self._link.bootstrap}; the first: {self._explain(failures[0])}"
            )

    def close(self) -> None:
        """Close the connection; what is not written within a second is given up."""
        close_producer(self._producer, wait_s=1)

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

    def _explain(self, error: KafkaError) -> str:
        return explain_denied(error, self._link, "Write", topic=self._topic)


def append(
    link: Link,
    topic: str,
    records: Sequence[tuple[str | None, bytes]],
    *,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Append values, with their keys if any; returns when all in-sync replicas have them. Raises ``exits.Refused``."""
    encoded = [(name, text.encode()) for name, text in headers]
    with explain_errors(link, topic, "Write"):
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
