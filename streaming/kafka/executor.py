"""The executor's view of the actions topic on Kafka, and the key of a compacted topic that one executor owns.

Positions are committed after the results of a batch are written, together with the highest epochs heard in the partition:
a restart neither skips an action nor forgets which controllers' actions are out of date. Standbys of the same cluster
share a consumer group, so only one of them acts. An executor that drops out of the group (frozen, or cut off for longer
than its session lasts) loses the batch it had: nothing of it is committed, and after it joins again it begins where the
group is at that time.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.structs import OffsetAndMetadata

from streaming.contract.envelope import EPOCH_HEADER, LARGEST_RECORD_BYTES
from streaming.kafka.client import (
    ClusterError,
    close_producer,
    commit_within,
    describe_error,
    describe_missing_topic,
    explain_denied,
    find_missing_topic,
    open_consumer,
    open_producer,
    partitions_of,
)
from streaming.kafka.link import KafkaLink, describe_missing
from streaming.process.closeable import Closeable
from streaming.transport.errors import PublishError, Taken
from streaming.transport.side import LOOKBACK_S, ActionRecord, PartitionEpochs, Write

_ASSIGNORS = (StickyPartitionAssignor, RangePartitionAssignor)
"""With the first, an executor that joins leaves partitions where they are; older executors only know the second."""
_TIMEOUT_S = 20.0
_REQUEST_TIMEOUT_MS = round(1000 * _TIMEOUT_S)
_STAY_MS = 200
"""Long enough to join the group again, in a few turns, while a batch is worked on."""
_LOOK_INTERVAL_S = 10.0
"""Time between checks that the group's coordinator answers and the topic is there, while there is nothing to do: a poll shows neither."""


class KafkaActions(Closeable):
    """Consumer of the actions topic in the group of a cluster's executors. Not for several threads."""

    def __init__(
        self,
        link: KafkaLink,
        topic: str,
        *,
        group: str,
        epochs: PartitionEpochs,
        records_max: int,
        **options: object,
    ) -> None:
        """``options`` are passed to the client. Raises ``PublishError`` when the brokers cannot be reached or there is no such topic."""
        self._link = link
        self._topic = topic
        self._group = group
        self._epochs = epochs
        with self._explain_errors(f"no consumer at {link.bootstrap}"):
            self._consumer = open_consumer(
                link,
                group_id=group,
                max_poll_records=records_max,
                partition_assignment_strategy=_ASSIGNORS,
                bootstrap_timeout_ms=_REQUEST_TIMEOUT_MS,
                **options,
            )
        self._start_ms = round((time.time() - LOOKBACK_S) * 1000)
        self._assigned = _Assigned(self._consumer)
        self._looked_s = time.monotonic()
        self._consumer.subscribe([topic], listener=self._assigned)
        try:
            with self._explain_errors("the topics cannot be listed"):
                partitions = partitions_of(self._consumer, topic, timeout_s=_TIMEOUT_S)
        except PublishError:
            self.close()
            raise
        if not partitions:
            self.close()
            raise PublishError(describe_missing_topic(link, topic, "Read"))

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order, partition by partition. Raises ``PublishError``."""
        with self._explain_errors(f"{self._topic} cannot be read"):
            self._consumer.resume(*(self._consumer.assignment() - self._assigned.new))
            self._assigned.are_kept = True
            batches = self._consumer.poll(timeout_ms=round(1000 * timeout_s))
        with self._explain_errors(f"the position in {self._topic} cannot be read"):
            self._begin()
            if not batches:
                self._check_connection()
        return [
            ActionRecord(
                value=record.value,
                epoch_header=dict(record.headers).get(EPOCH_HEADER),
                partition=record.partition,
            )
            for partition in sorted(batches)
            for record in batches[partition]
        ]

    def keep_polled(self) -> None:
        """Stay in the group while the polled batch is worked on. Raises ``PublishError`` once another executor has the batch."""
        with self._explain_errors(f"the group of {self._topic} cannot be kept"):
            self._consumer.pause(*self._consumer.assignment())
            self._consumer.poll(timeout_ms=_STAY_MS)
        self._require_kept()

    def commit(self) -> None:
        """Commit that all records polled so far are dealt with. Raises ``PublishError``; then they may come again.

        The highest epochs heard in a partition are committed beside its position, as JSON.
        """
        self._require_kept()
        with self._explain_errors(f"the position in {self._topic} could not be committed"):
            places = {}
            for partition in self._consumer.assignment():
                epochs = json.dumps(self._epochs.epochs_of(partition.partition), separators=(",", ":"))
                places[partition] = OffsetAndMetadata(self._position(partition), epochs, -1)
            self._consumer.commit(places, timeout_ms=_REQUEST_TIMEOUT_MS)

    def drop(self) -> None:
        """Make the next ``poll`` begin again at the group's committed position."""
        self._assigned.begin_again()

    def is_at_end(self) -> bool:
        """Whether partitions are assigned and all records that are there now have been polled. Raises ``PublishError``."""
        assigned = self._consumer.assignment()
        if not assigned or self._assigned.new:
            return False
        with self._explain_errors(f"the end of {self._topic} cannot be read"):
            ends = self._consumer.end_offsets(assigned, timeout_ms=_REQUEST_TIMEOUT_MS)
            return all(self._position(partition) >= end for partition, end in ends.items())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close(autocommit=False, timeout_ms=_REQUEST_TIMEOUT_MS)

    def _begin(self) -> None:
        """Begin new partitions: at the group's position, with the epochs committed there, or else an hour back."""
        for partition in sorted(self._assigned.new):
            try:
                self._begin_at(partition)
                self._consumer.resume(partition)
            except (
                ValueError,
                KeyError,
            ):  # the client's own thread took it away meanwhile; another executor has it now
                if partition in self._consumer.assignment():
                    raise
            self._assigned.new.discard(partition)

    def _begin_at(self, partition: TopicPartition) -> None:
        committed = self._consumer.committed(partition, metadata=True, timeout_ms=_REQUEST_TIMEOUT_MS)
        if committed is not None:
            self._epochs.begin(partition.partition, json.loads(committed.metadata or "{}"))
            self._consumer.seek(partition, committed.offset)
            return
        self._epochs.begin(partition.partition, {})
        asked = {partition: self._start_ms}
        start = self._consumer.offsets_for_times(asked, timeout_ms=_REQUEST_TIMEOUT_MS)[partition]
        if start is None:
            self._consumer.seek_to_end(partition)
        else:
            self._consumer.seek(partition, start.offset)

    def _check_connection(self) -> None:
        if time.monotonic() - self._looked_s < _LOOK_INTERVAL_S:
            return
        self._consumer.committed(TopicPartition(self._topic, 0), timeout_ms=_REQUEST_TIMEOUT_MS)
        try:
            missing = find_missing_topic(self._link, self._topic, "Read")
        except ClusterError as error:
            raise PublishError(str(error)) from error
        if missing is not None:
            raise PublishError(missing)
        self._looked_s = time.monotonic()

    def _position(self, partition: TopicPartition) -> int:
        position = self._consumer.position(partition, timeout_ms=_REQUEST_TIMEOUT_MS)
        if position is None:
            raise KafkaTimeoutError(f"the position in {partition} is not known")
        return int(position)

    def _require_kept(self) -> None:
        if not self._assigned.are_kept:
            raise PublishError(
                f"this executor lost its actions in progress: it was out of the group {self._group} for a while, or "
                "another executor joined; the executor that has them now carries them out"
            )

    @contextmanager
    def _explain_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            why = explain_denied(error, self._link, "Read", topic=self._topic, group=self._group)
            raise PublishError(f"{what}: {why}") from error
        except (
            KeyError
        ) as error:  # pausing or resuming a partition that the client's own thread took away meanwhile
            raise PublishError(f"{what}: a partition was taken away meanwhile") from error


class _Assigned(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Keeps new partitions from being read until it is known where to begin; a listener may not call Kafka itself.

    It is called in the client's own thread.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self.new: set[TopicPartition] = set()
        self.are_kept = True
        """Whether every partition that was assigned at the last poll has been ours since then."""

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.are_kept = self.are_kept and not revoked
        self.new -= set(revoked)

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.new |= set(assigned)
        self._consumer.pause(*assigned)

    def begin_again(self) -> None:
        """Treat all assigned partitions as new."""
        self.on_partitions_assigned(self._consumer.assignment())


@contextmanager
def exclusive_writer(link: KafkaLink, topic: str, key: str, *, owner: str) -> Iterator[Write]:
    """Writes the key's newest value until the end of the block; a former ``owner`` cannot any more.

    ``owner`` is a transactional id: who begins with it fences who had it. Raises ``Taken`` and ``PublishError``.
    """
    producer: KafkaProducer | None = None

    def write(value: bytes | None) -> None:
        """Write one record; None is a tombstone."""
        assert producer is not None, "it is open before the caller gets this function"
        with explained():
            producer.begin_transaction()
            producer.send(topic, key=key.encode(), value=value).get(timeout=_TIMEOUT_S)
            commit_within(_TIMEOUT_S, producer)

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Taken(
                f"another executor of {key} has taken over the memory on {topic}: {describe_error(error)}"
            ) from error
        except TransactionalIdAuthorizationFailedError as error:
            raise PublishError(describe_missing(link, "transactional-id", owner, ["Write"])) from error
        except KafkaError as error:
            why = explain_denied(error, link, "Write", topic=topic)
            raise PublishError(f"{topic} could not be written: {why}") from error

    try:
        with explained():
            producer = open_producer(
                link, timeout_s=_TIMEOUT_S, transactional_id=owner, max_request_size=LARGEST_RECORD_BYTES
            )
            producer.init_transactions()
        yield write
    finally:
        close_producer(producer)
