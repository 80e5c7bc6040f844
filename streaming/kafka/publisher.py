"""Publishes micro-batches to Kafka exactly once: one transaction holds a batch's records and its marker (KIP-98).

`init_transactions` fences older incarnations and ends their transaction. The record of a take-over is in the transaction of the
claim. Consumers must read with `read_committed`. Only committed markers are ever seen; a reader of them never joins a consumer
group and never writes.
"""

import threading
import time
from collections.abc import Iterable, Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.producer.future import FutureRecordMetadata

from streaming.contract.encode import encode_leader
from streaming.contract.envelope import EPOCH_HEADER, LARGEST_RECORD_BYTES
from streaming.kafka.client import (
    close_producer,
    commit_within,
    describe_error,
    open_consumer,
    open_producer,
    read_to_end,
)
from streaming.kafka.link import KafkaLink, acl_command
from streaming.process.deadline import Deadline
from streaming.transport.errors import NotAllowed, PublishError
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import (
    UNNAMED,
    BatchState,
    Commit,
    Marker,
    OutboundRecord,
    RanWith,
    decode_marker,
    encode_marker,
    finish_batch,
    pieces,
)

_TRANSACTION_TIMEOUT_MS = 60_000
"""Timeout of an ordinary batch's transaction: one that a killed controller left open holds readers back for no longer."""
_TRANSACTION_TIMEOUT_MOST_MS = 900_000
"""A broker refuses more than its ``transaction.max.timeout.ms``, 15 minutes by default."""
_LINGER_MS, _REQUEST_BYTES = 50, 262_144
"""Records of a batch share requests instead of having one each. Nothing waits so long, because a flush sends at once."""
_FENCING_ERRORS = (ProducerFencedError, InvalidProducerEpochError)
_POLL_MS = 50
_FETCH_WAIT_MS = 20
"""How long a broker may hold a fetch back. It answers a connection's requests in order, so the next request waits as long;
with Kafka's default of 500 every batch would wait for that."""


class KafkaPublisher(Publisher):
    """The exactly-once sink of the controller `name`: its `transactional.id`, and the key of its markers.

    `timeout_s` stays well below the transaction timeout of 60 s. A transaction that is left open at the end is ended by the next
    `open`, or its timeout. Our own claim may not be readable at once: the coordinator answers a commit before every reader can
    see it.
    """

    def __init__(
        self,
        link: KafkaLink,
        *,
        name: str,
        commits_topic: str,
        announce_on: str | None = None,
        ran_with: RanWith = UNNAMED,
        timeout_s: float = 20.0,
        claim_wait_s: float = 5.0,
    ) -> None:
        self._timeout_ms = round(timeout_s * 1000)
        self._markers = KafkaMarkers(link, commits_topic, name=name, request_timeout_ms=self._timeout_ms)
        super().__init__(
            self._markers,
            name=name,
            commits_topic=commits_topic,
            announce_on=announce_on,
            ran_with=ran_with,
            timeout_s=timeout_s,
            claim_wait_s=claim_wait_s,
        )
        self._link = link
        self._producer: KafkaProducer | None = None
        self._transaction_timeout_ms = _TRANSACTION_TIMEOUT_MS

    @property
    def _is_connected(self) -> bool:
        return self._producer is not None

    def _connect(self) -> None:
        producer = None
        try:
            producer = open_producer(
                self._link,
                timeout_s=self._timeout_s,
                transactional_id=self._name,
                transaction_timeout_ms=self._transaction_timeout_ms,
                delivery_timeout_ms=self._timeout_ms + _LINGER_MS,
                linger_ms=_LINGER_MS,
                batch_size=_REQUEST_BYTES,
                retry_backoff_ms=5,  # back-to-back transactions take 15 ms instead of 117 ms
                reconnect_backoff_max_ms=1_000,
                max_request_size=LARGEST_RECORD_BYTES,
            )
            producer.init_transactions()
        except TransactionalIdAuthorizationFailedError as error:
            close_producer(producer)
            needed = acl_command(self._link, "transactional-id", self._name, ["Write"])
            raise NotAllowed(
                f"{self._link.principal} lacks the permission Write on transactional id {self._name} "
                f"(controller.name). Run: {needed}"
            ) from error
        except KafkaError as error:
            close_producer(producer)
            raise PublishError(
                f"no transactional producer at {self._link.bootstrap}: {describe_error(error)}"
            ) from error
        self._producer = producer

    def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        close_producer(producer)

    def _newest(self) -> Commit | None:
        return _whole(self._markers.read_to_end(timeout_s=self._timeout_s, past_open=False))

    def _settled(self, *, at_start: bool = False) -> Commit | None:
        """The transaction that failed may be open until fencing has committed or aborted it; readers cannot get past it."""
        others_s = _TRANSACTION_TIMEOUT_MS / 1000 if at_start else 0.0
        return _whole(self._markers.read_to_end(timeout_s=others_s + self._timeout_s))

    def _take_over(self, claimed: Commit, before: Commit | None) -> None:
        del before  # whatever was begun is committed or aborted
        self._commit_all((), claimed, announces=True)

    def _publish(self, begun: Commit, records: Sequence[OutboundRecord], *, is_new: bool) -> BatchState:
        """All of the batch in one transaction. The marker is the newest one, because no part of a batch is ever out alone."""
        del is_new
        self._cover(records)
        self._commit_all(records, finish_batch(begun))
        return BatchState.NEW

    def _cover(self, records: Sequence[OutboundRecord]) -> None:
        """Make the transaction timeout long enough for all pieces; it is fixed for a producer, so a longer one needs a new producer."""
        pieces_count = sum(1 for _ in pieces(records))
        needed_ms = min(_TRANSACTION_TIMEOUT_MOST_MS, (pieces_count + 2) * self._timeout_ms)
        if needed_ms > self._transaction_timeout_ms:
            self._disconnect()
            self._transaction_timeout_ms = needed_ms
            self._owned_commit()

    def _commit_all(
        self, records: Sequence[OutboundRecord], commit: Commit, *, announces: bool = False
    ) -> None:
        """Publish the records and the marker in one transaction; raises `Fenced` or `PublishError`."""
        marker = commit.marker
        try:
            self._transact(records, marker, announces=announces)
        except KafkaError as error:
            what = "the start marker" if marker.batch_id is None else f"batch {marker.batch_id}"
            why = f"{self._link.bootstrap}: {describe_error(error)}"
            is_fenced = isinstance(error, _FENCING_ERRORS)
            raise self._failed(what, why, epoch=marker.epoch, is_fenced=is_fenced) from error
        self._commit = commit

    def _transact(self, records: Sequence[OutboundRecord], marker: Marker, *, announces: bool) -> None:
        producer = self._producer
        assert producer is not None, "call open() before publish()"
        headers = [(EPOCH_HEADER, str(marker.epoch).encode())]
        producer.begin_transaction()
        if announces and self._announce_on is not None:
            value = encode_leader(self._name, epoch=marker.epoch, time_ms=round(time.time() * 1000))
            self._wait_for(
                producer.send(self._announce_on, key=b"", value=value, partition=number, headers=headers)
                for number in sorted(producer.partitions_for(self._announce_on))
            )
        for piece in pieces(records):
            self._wait_for(
                producer.send(record.topic, key=record.key.encode(), value=record.value, headers=headers)
                for record in piece
            )
        value = encode_marker(marker)
        self._wait_for(
            [producer.send(self._commits_topic, key=self._name.encode(), value=value, partition=0)]
        )
        commit_within(self._timeout_s, producer)

    def _wait_for(self, sent: Iterable[FutureRecordMetadata]) -> None:
        """Wait until the broker has all; each piece has ``timeout_s``, so a batch is never too large to be sent in time."""
        futures = list(sent)
        assert self._producer is not None, "call open() before publish()"
        self._producer.flush(timeout=self._timeout_s)
        for future in futures:  # flush() does not raise for a record that failed
            future.get(timeout=0)


def _whole(marker: Marker | None) -> Commit | None:
    return None if marker is None else Commit(marker=marker, lineage=marker.epoch, is_whole=True)


class KafkaMarkers:
    """The newest marker of one controller on the one-partition commits topic.

    The position is kept between calls, so that looking again costs one short fetch; the first look, and the
    first one after a failure, reads the compacted topic from its beginning.
    """

    def __init__(self, link: KafkaLink, topic: str, *, name: str, request_timeout_ms: int) -> None:
        self._link = link
        self._topic = topic
        self._key = name.encode()
        self._partition = TopicPartition(topic, 0)
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
                raise PublishError(
                    f"the markers on {self._topic} could not be read: {describe_error(error)}"
                ) from error
            return self._newest

    def wait_for_epoch_above(self, epoch: int, *, timeout_s: float) -> bool:
        """See ``Markers``; the short look takes some 50 ms."""
        deadline = Deadline(timeout_s)
        while True:
            with self._lock:
                try:
                    for record in self._follower().poll(timeout_ms=_POLL_MS).get(self._partition, ()):
                        self._read(record)
                except KafkaError:
                    self._drop_follower()
                if self._newest is not None and self._newest.epoch > epoch:
                    return True
            if deadline.is_over:
                return False

    def close(self) -> None:
        """See ``Markers``."""
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
        ends = consumer.end_offsets([self._partition], timeout_ms=self._request_timeout_ms)
        return int(ends[self._partition])

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
        return open_consumer(
            self._link,
            isolation_level=isolation_level,
            bootstrap_timeout_ms=self._request_timeout_ms,
            reconnect_backoff_max_ms=1_000,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
