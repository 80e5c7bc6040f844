"""Publishes micro-batches to Kafka exactly once, and hands over cleanly from one controller to the next.

One transaction holds a batch's records and a marker saying "this batch of this query is out" (KIP-98). The
order at start is fixed: `init_transactions` fences older incarnations and ends their transaction; only then
are marker and checkpoint read, compared, and the marker written again with the next epoch. That last write is
the claim: the process with the highest epoch on the commits topic is the controller. So a fenced process knows
whether it has a successor (it must end), or whether its transaction timed out or a newcomer refused to start
(it may go on).

A record of the take-over goes to every partition of the actions topic in the transaction of the claim, so that consumers hear
of it before the first decision. Every record carries the epoch in the header `trimtab-epoch`. Consumers must read with `read_committed`.
This module does not retry a batch: the caller does, with back-off, after a `PublishError`.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

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

from streaming.contract.envelope import EPOCH_HEADER, LARGEST_RECORD_BYTES
from streaming.contract.leader import encode_leader
from streaming.kafka.client import close_producer, commit_within, open_consumer, open_producer, read_to_end
from streaming.kafka.link import Link, acl_command
from streaming.process.closing import Closing
from streaming.process.deadline import Deadline
from streaming.transport.errors import ADOPT, CheckpointMismatch, Fenced, NotAllowed, PublishError, StartWith
from streaming.transport.publishing import (
    UNNAMED,
    BatchState,
    Checkpoint,
    Marker,
    OutboundRecord,
    RanWith,
    compare_batch,
    decode_marker,
    digest,
    encode_marker,
    mark_published,
    next_start,
    pieces,
    sort_records,
    superseded_error,
)

_TRANSACTION_TIMEOUT_MS = 60_000
"""Timeout of an ordinary batch's transaction: one that a killed controller left open holds readers back for no longer."""
_TRANSACTION_TIMEOUT_MOST_MS = 900_000
"""A broker refuses more than its ``transaction.max.timeout.ms``, 15 minutes by default."""
_LINGER_MS, _REQUEST_BYTES = 50, 262_144
"""Records of a batch share requests instead of having one each. Nothing waits so long, because a flush sends at once."""
_FENCING_ERRORS = (ProducerFencedError, InvalidProducerEpochError)


class KafkaPublisher(Closing):
    """The exactly-once sink of the controller `name`: its `transactional.id`, and the key of its markers.

    `announce_on` is the topic of actions, where each take-over is announced in every partition. `ran_with` is noted with
    each batch. `timeout_s` bounds each wait for the broker while publishing and stays well below the transaction timeout of 60 s; `claim_wait_s` is how long a fenced
    publisher waits for its successor's claim. `publish` is for one thread at a time; `is_superseded` may be
    called from another.
    """

    def __init__(
        self,
        link: Link,
        *,
        name: str,
        commits_topic: str,
        announce_on: str | None = None,
        ran_with: RanWith = UNNAMED,
        timeout_s: float = 20.0,
        claim_wait_s: float = 5.0,
    ) -> None:
        self._link = link
        self._name = name
        self._commits_topic = commits_topic
        self._announce_on = announce_on
        self._ran_with = ran_with
        self._timeout_s = timeout_s
        self._claim_wait_s = claim_wait_s
        self._markers = MarkerTopic(link, commits_topic, name=name, request_timeout_ms=self._timeout_ms)
        self._producer: KafkaProducer | None = None
        self._transaction_timeout_ms = _TRANSACTION_TIMEOUT_MS
        self._marker: Marker | None = None

    def read_marker(self) -> Marker | None:
        """The newest marker, None if there is none; fences no producer. Raises `PublishError` or `CheckpointMismatch`."""
        return self._markers.read_to_end(timeout_s=self._timeout_s, past_open=False)

    def check(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> None:
        """Raise what `open` would raise now, without fencing: after a refusal the running controller goes on.

        The marker is read before the checkpoint, because a batch is planned before it is published.
        """
        self._next(self.read_marker(), read(), start_with)

    def open(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> int:
        """Take over as the controller of this name and return its epoch, which is above every earlier one.

        `read` reads the checkpoint; it is called when no other process can publish any more. Raises
        `CheckpointMismatch` when it disagrees with the marker and `start_with` says to go on from it,
        `Fenced` when yet another controller starts at the same time, `PublishError` when the broker cannot
        be reached, and whatever `read` raises.
        """
        self._producer = self._connect()
        try:
            marker = self._markers.read_to_end(timeout_s=_TRANSACTION_TIMEOUT_MS / 1000 + self._timeout_s)
            claim = self._next(marker, read(), start_with)
            self._commit((), claim, announces=True)
        except Exception:
            self.close()
            raise
        return claim.epoch

    def _next(self, marker: Marker | None, checkpoint: Checkpoint, start_with: StartWith) -> Marker:
        return next_start(marker, checkpoint, name=self._name, start_with=start_with, now_s=time.time())

    def publish(
        self,
        batch_id: int,
        query_id: str,
        records: Sequence[OutboundRecord],
    ) -> BatchState:
        """Make a batch's records visible, all or none, if they are not out already.

        An empty batch needs no transaction and no marker, so gaps in the markers' batch ids are normal; this
        looks for a successor all the same. Raises `CheckpointMismatch`, `Fenced`, or `PublishError`,
        after which the same batch may be tried again.
        """
        marker = self._owned_marker()
        batch_digest = digest(records)
        version = self._ran_with.version
        found = compare_batch(
            marker, batch_id=batch_id, query_id=query_id, batch_digest=batch_digest, version=version
        )
        if found and records:
            ordered = sort_records(records)
            self._cover(ordered)
            done = mark_published(
                marker,
                batch_id=batch_id,
                query_id=query_id,
                batch_digest=batch_digest,
                ran_with=self._ran_with,
            )
            self._commit(ordered, done)
        else:
            self.ensure_owner()
        return found

    @property
    def marker(self) -> Marker:
        """Our newest marker, for the last batch that is out; raises `PublishError` before `open`."""
        if self._marker is None:
            raise PublishError(f'the publisher of "{self._name}" is not open: call open() first')
        return self._marker

    def ensure_owner(self) -> None:
        """Ask the broker whether a newer controller of this name has claimed its epoch, and raise `Fenced` if so.

        Raises `PublishError` when there is no answer. Our own claim may not be readable yet: the coordinator answers
        a commit before every reader can see it.
        """
        epoch = self.marker.epoch
        newest = self._markers.read_to_end(timeout_s=self._timeout_s, past_open=False)
        if newest is not None and newest.epoch > epoch:
            raise superseded_error(self._name, epoch=epoch)

    def is_superseded(self) -> bool:
        """Whether a newer controller of this name has claimed its epoch. For a watch loop; takes some 50 ms.

        Without it a controller that has nothing to publish would not notice its successor.
        """
        if self._marker is None:
            return False
        return self._markers.wait_for_epoch_above(self._marker.epoch, timeout_s=0)

    def close(self) -> None:
        """Close all connections. A transaction left open is ended by the next `open`, or its timeout."""
        self._drop_producer()
        self._markers.close()

    def _cover(self, records: Sequence[OutboundRecord]) -> None:
        """Make the transaction timeout long enough for all pieces; it is fixed for a producer, so a longer one needs a new producer."""
        pieces_count = sum(1 for _ in pieces(records))
        needed_ms = min(_TRANSACTION_TIMEOUT_MOST_MS, (pieces_count + 2) * self._timeout_ms)
        if needed_ms > self._transaction_timeout_ms:
            self._drop_producer()
            self._transaction_timeout_ms = needed_ms
            self._owned_marker()

    def _owned_marker(self) -> Marker:
        """The marker to go on from; first gets a new producer if the last publish failed."""
        if self._producer is None:
            self._take_back(self.marker.epoch)
        return self.marker

    def _take_back(self, epoch: int) -> None:
        """Get a new producer unless a successor has claimed a higher epoch: we must not fence it.

        The marker shows whether the transaction that failed was committed after all. It is read once fencing has
        committed or aborted that transaction; until then it may be open, and readers cannot get past it.
        """
        self.ensure_owner()
        self._producer = self._connect()
        try:
            self._marker = self._read_own_marker(epoch)
        except (CheckpointMismatch, PublishError, Fenced):
            self._drop_producer()
            raise

    def _read_own_marker(self, epoch: int) -> Marker:
        newest = self._markers.read_to_end(timeout_s=self._timeout_s)
        if newest is None or newest.epoch < epoch:
            raise CheckpointMismatch(
                f'the marker of "{self._name}" has vanished from {self._commits_topic} while in use (epoch '
                f"{epoch}): was the topic deleted? Restart with {ADOPT}."
            )
        if newest.epoch > epoch:
            raise superseded_error(self._name, epoch=epoch)
        return newest

    def _connect(self) -> KafkaProducer:
        """A producer that has fenced its predecessors; raises `PublishError`."""
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
            raise NotAllowed(self._explain_refused()) from error
        except KafkaError as error:
            close_producer(producer)
            raise PublishError(f"no transactional producer at {self._link.bootstrap}: {error!r}") from error
        return producer

    def _explain_refused(self) -> str:
        needed = acl_command(self._link, "transactional-id", self._name, ["Write"])
        return (
            f"{self._link.principal} lacks the permission Write on transactional id {self._name} "
            f"(controller.name). Run: {needed}"
        )

    @property
    def _timeout_ms(self) -> int:
        return round(self._timeout_s * 1000)

    def _commit(self, records: Sequence[OutboundRecord], marker: Marker, *, announces: bool = False) -> None:
        """Publish the records and the marker in one transaction; raises `Fenced` or `PublishError`."""
        try:
            self._transact(records, marker, announces=announces)
        except KafkaError as error:
            self._drop_producer()
            self._explain(error, marker)
        self._marker = marker

    def _transact(self, records: Sequence[OutboundRecord], marker: Marker, *, announces: bool) -> None:
        producer = self._producer
        assert producer is not None, "call open() before publish()"
        headers = [(EPOCH_HEADER, str(marker.epoch).encode())]
        producer.begin_transaction()
        if announces and self._announce_on is not None:
            self._announce(producer, self._announce_on, marker.epoch, headers)
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

    def _announce(
        self, producer: KafkaProducer, topic: str, epoch: int, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        """Write to every partition which controller's actions count from here on."""
        value = encode_leader(self._name, epoch=epoch, time_ms=round(time.time() * 1000))
        self._wait_for(
            producer.send(topic, key=b"", value=value, partition=number, headers=headers)
            for number in sorted(producer.partitions_for(topic))
        )

    def _wait_for(self, sent: Iterable[FutureRecordMetadata]) -> None:
        """Wait until the broker has all; each piece has ``timeout_s``, so a batch is never too large to be sent in time."""
        futures = list(sent)
        assert self._producer is not None, "call open() before publish()"
        self._producer.flush(timeout=self._timeout_s)
        for future in futures:  # flush() does not raise for a record that failed
            future.get(timeout=0)

    def _explain(self, error: KafkaError, marker: Marker) -> None:
        """Turn a failed transaction into the error that says what to do.

        Fencing alone does not mean that there is a successor: the coordinator also fences a transaction that timed
        out, and a newcomer fences first and may then refuse its checkpoint. Only a claim means a successor.
        """
        wait_s = self._claim_wait_s if isinstance(error, _FENCING_ERRORS) else 0.0
        if self._markers.wait_for_epoch_above(marker.epoch, timeout_s=wait_s):
            raise superseded_error(self._name, epoch=marker.epoch) from error
        batch = "the start marker" if marker.batch_id is None else f"batch {marker.batch_id}"
        raise PublishError(f"{batch} could not be published to {self._link.bootstrap}: {error!r}") from error

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        close_producer(producer)  # what is not committed by now must not be sent any more


_POLL_MS = 50
_FETCH_WAIT_MS = 20
"""How long a broker may hold a fetch back. It answers a connection's requests in order, so the next request waits as long;
with Kafka's default of 500 every batch would wait for that."""


class MarkerTopic:
    """The newest marker of one controller on the one-partition commits topic.

    The position is kept between calls, so that looking again costs one short fetch; the first look, and the
    first one after a failure, reads the compacted topic from its beginning.
    """

    def __init__(self, link: Link, topic: str, *, name: str, request_timeout_ms: int) -> None:
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
        return open_consumer(
            self._link,
            isolation_level=isolation_level,
            bootstrap_timeout_ms=self._request_timeout_ms,
            reconnect_backoff_max_ms=1_000,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
