"""Reads a controller's markers back from the commits topic of a Kafka cluster.

Only committed markers are seen. A reader never joins a consumer group and never writes. It may be used from
several threads.
"""

import threading
from collections.abc import Mapping
from types import MappingProxyType

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError, KafkaTimeoutError

from streaming.kafka.log import read_to_end
from streaming.process.deadline import Deadline
from streaming.transport.errors import PublishError
from streaming.transport.publishing import Marker, decode_marker

_POLL_MS = 50
_FETCH_WAIT_MS = 20
"""How long a broker may hold a fetch back. It answers a connection's requests in order, so the next request waits as long;
with Kafka's default of 500 every batch would wait for that."""


class MarkerTopic:
    """The newest marker of one controller on the one-partition commits topic.

    The position is kept between calls, so that looking again costs one short fetch; the first look, and the
    first one after a failure, reads the compacted topic from its beginning.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        name: str,
        client_options: Mapping[str, object],
        request_timeout_ms: int,
    ) -> None:
        self._topic = topic
        self._key = name.encode()
        self._partition = TopicPartition(topic, 0)
        self._options = MappingProxyType({"bootstrap_servers": bootstrap, **client_options})
        self._request_timeout_ms = request_timeout_ms
        self._consumer: KafkaConsumer | None = None
        self._newest: Marker | None = None
        self._lock = threading.Lock()

    def read_to_end(self, *, timeout_s: float, past_open: bool = True) -> Marker | None:
        """The newest marker that was in the topic at the time of the call; None if there was none.

        `past_open` waits for transactions that are open now, also those of another controller on the same topic;
        without it they and the records after them are left out. Raises `PublishError` when no record comes for
        `timeout_s` before the end.
        """
        with self._lock:
            try:
                end = self._end_offset(past_open=past_open)
                ends = {self._partition: end}
                try:
                    for record in read_to_end(self._follower(), silence_s=timeout_s, ends=ends):
                        self._read(record)
                except KafkaTimeoutError as error:
                    raise PublishError(self._describe_stuck(end, timeout_s)) from error
            except KafkaError as error:
                self._drop_follower()
                raise PublishError(f"the markers on {self._topic} could not be read: {error!r}") from error
            return self._newest

    def wait_for_epoch_above(self, epoch: int, *, timeout_s: float) -> bool:
        """Whether a marker with a higher epoch is there, or appears within `timeout_s` (0: one short look).

        False also while the broker cannot be reached: publishing raises the error then.
        """
        deadline = Deadline(timeout_s)
        while True:
            with self._lock:
                try:
                    self._take()
                except KafkaError:
                    self._drop_follower()
                if self._newest is not None and self._newest.epoch > epoch:
                    return True
            if deadline.is_over:
                return False

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock:
            self._drop_follower()

    def _describe_stuck(self, end: int, timeout_s: float) -> str:
        return (
            f"{self._topic} cannot be read to offset {end}: a transaction has been open for {timeout_s:g} s. A "
            "transaction of another controller ends at its timeout; to find and end one that a killed broker left "
            f"open, run: kafka-transactions.sh find-hanging --topic {self._topic} --partition 0"
        )

    def _end_offset(self, *, past_open: bool) -> int:
        """The end of the log, or the beginning of its first open transaction."""
        if not past_open:
            return self._end_of(self._follower())
        consumer = self._connect("read_uncommitted")
        try:
            return self._end_of(consumer)
        finally:
            consumer.close()

    def _end_of(self, consumer: KafkaConsumer) -> int:
        found = consumer.end_offsets([self._partition], timeout_ms=self._request_timeout_ms)
        return int(found[self._partition])

    def _take(self) -> None:
        for record in self._follower().poll(timeout_ms=_POLL_MS).get(self._partition, ()):
            self._read(record)

    def _read(self, record: ConsumerRecord) -> None:
        if record.key != self._key:
            return
        deleted = record.value is None
        self._newest = (
            None if deleted else decode_marker(record.value, topic=self._topic, offset=record.offset)
        )

    def _follower(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = self._connect("read_committed")
            self._consumer.assign([self._partition])
            self._consumer.seek_to_beginning(self._partition)
            self._newest = None
        return self._consumer

    def _drop_follower(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False)

    def _connect(self, isolation_level: str) -> KafkaConsumer:
        return KafkaConsumer(
            isolation_level=isolation_level,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=self._request_timeout_ms,
            reconnect_backoff_max_ms=1_000,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            metrics_enabled=False,
            **self._options,
        )
