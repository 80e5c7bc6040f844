"""What an executor needs of Kafka: the actions, the memory of its throttle, and the control event in force.

Positions are committed after the results of a batch are written, together with the highest epochs heard in the partition:
a restart neither skips an action nor forgets which controllers' actions are out of date. Standbys of the same cluster
share a consumer group, so only one of them acts. An executor that drops out of the group (frozen, or cut off for longer
than its session lasts) loses the batch it had: nothing of it is committed, and after it joins again it begins where the
group is at that time.

The memory is the newest value of a compacted topic. An executor that wants to change it takes it: from then on the executor that
had it before, perhaps a frozen one, cannot write any more (its transactional id is fenced), and what is read afterwards is
the newest. So no executor overwrites what it has not read.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

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

from state.settings import RoundSettings
from streaming.contract.envelope import EPOCH_HEADER, LARGEST_RECORD_BYTES
from streaming.contract.messages import ControlData
from streaming.kafka.client import close_producer, explain_denied, partitions_of, read_to_end
from streaming.kafka.link import ANYBODY, Subject, describe_hidden_topic, describe_missing
from streaming.process.closing import Closing
from streaming.process.within import within
from streaming.transport.errors import PublishError, Taken
from streaming.transport.executor import (
    LOOKBACK_S,
    READ_TIMEOUT_S,
    ActionRecord,
    ControlView,
    Epochs,
    HeldMemory,
    Remembered,
)

_ASSIGNORS = (StickyPartitionAssignor, RangePartitionAssignor)
"""With the first, an executor that joins leaves partitions where they are; older executors only know the second."""
_REQUEST_TIMEOUT_MS = 20_000
_STAY_MS = 200
"""Long enough to join the group again, in a few turns, while a batch is worked on."""
_LOOK_INTERVAL_S = 10.0
"""Time between checks that the group's coordinator answers, while there is nothing to do: a poll does not show it."""


class ActionsTopic(Closing):
    """Consumer of the actions topic in the group of ``cluster``'s executors. Not for several threads."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        cluster: str,
        epochs: Epochs,
        records_max: int,
        now_s: float,
        client_options: Mapping[str, object] = MappingProxyType({}),
        principal: str = ANYBODY,
        group: str | None = None,
    ) -> None:
        """``group`` replaces the group of the cluster's executors. Raises ``PublishError`` when the brokers cannot be reached."""
        self._epochs = epochs
        self._group = group or f"trimtab-execute-{cluster}"
        self._subject = Subject(bootstrap=bootstrap, principal=principal)
        self._topic = topic
        with self._explain_errors(f"no consumer at {bootstrap}"):
            self._consumer = KafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=self._group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                max_poll_records=records_max,
                partition_assignment_strategy=_ASSIGNORS,
                bootstrap_timeout_ms=_REQUEST_TIMEOUT_MS,
                metrics_enabled=False,
                **client_options,
            )
        self._start_ms = round((now_s - LOOKBACK_S) * 1000)
        self._assigned = _Assigned(self._consumer)
        self._looked_s = time.monotonic()
        self._consumer.subscribe([topic], listener=self._assigned)

    def require(self) -> None:
        """Raise ``PublishError`` unless the topic exists."""
        with self._explain_errors("the topics cannot be listed"):
            found = partitions_of(self._consumer, self._topic, timeout_s=_REQUEST_TIMEOUT_MS / 1000)
        if not found:
            raise PublishError(describe_hidden_topic(self._subject, self._topic, "Read"))

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
        """Commit that all records polled so far are dealt with. Raises ``PublishError``; then they may come again."""
        self._require_kept()
        with self._explain_errors(f"the position in {self._topic} could not be committed"):
            self._consumer.commit(
                {
                    partition: OffsetAndMetadata(
                        self._position(partition), self._encode_epochs(partition), -1
                    )
                    for partition in self._consumer.assignment()
                },
                timeout_ms=_REQUEST_TIMEOUT_MS,
            )

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
                ValueError
            ):  # the client's own thread took it away while Kafka was asked; another executor has it now
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
        found = self._consumer.offsets_for_times(asked, timeout_ms=_REQUEST_TIMEOUT_MS)[partition]
        if found is None:
            self._consumer.seek_to_end(partition)
        else:
            self._consumer.seek(partition, found.offset)

    def _encode_epochs(self, partition: TopicPartition) -> str:
        """The highest epochs heard in the partition, as JSON; they are committed beside the position."""
        return json.dumps(self._epochs.epochs_of(partition.partition), separators=(",", ":"))

    def _check_connection(self) -> None:
        if time.monotonic() - self._looked_s < _LOOK_INTERVAL_S:
            return
        self._consumer.committed(TopicPartition(self._topic, 0), timeout_ms=_REQUEST_TIMEOUT_MS)
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
            why = explain_denied(error, self._subject, "Read", topic=self._topic, group=self._group)
            raise PublishError(f"{what}: {why}") from error


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


_TIMEOUT_S = 20.0


@dataclass(slots=True)
class ExecutorMemory:
    """The newest value of one cluster on ``topic``. Not for several threads."""

    bootstrap: str
    topic: str
    cluster: str
    options: Mapping[str, object] = field(default_factory=dict)
    principal: str = ANYBODY

    def read(self) -> Remembered:
        """Read the topic to its end, without taking the memory. Raises ``PublishError``."""
        try:
            found = self._newest()
        except KafkaError as error:
            why = explain_denied(error, self._subject, "Read", topic=self.topic)
            raise PublishError(f"the topic {self.topic} cannot be read: {why}") from error
        return Remembered.parse(found)

    @contextmanager
    def hold(self) -> Iterator[HeldMemory]:
        """Take the memory until the end of the block. Raises ``PublishError``."""
        producer: KafkaProducer | None = None
        try:
            with self._explain_write_errors():
                producer = self._producer()
                producer.init_transactions()
            yield _Held(self, producer, self.read())
        finally:
            close_producer(producer)

    def _producer(self) -> KafkaProducer:
        timeout_ms = round(1000 * _TIMEOUT_S)
        return KafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=self._transactional_id,
            bootstrap_timeout_ms=timeout_ms,
            max_block_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms,
            max_request_size=LARGEST_RECORD_BYTES,
            allow_auto_create_topics=False,
            metrics_enabled=False,
            **self.options,
        )

    def _write(self, producer: KafkaProducer, remembered: Remembered) -> None:
        """Write what is remembered; a tombstone if nothing is left."""
        with self._explain_write_errors():
            producer.begin_transaction()
            sent = producer.send(self.topic, key=self.cluster.encode(), value=remembered.value())
            sent.get(timeout=_TIMEOUT_S)
            try:
                within(_TIMEOUT_S, producer.commit_transaction, what="commit")
            except TimeoutError as error:
                raise KafkaTimeoutError(str(error)) from error

    @contextmanager
    def _explain_write_errors(self) -> Iterator[None]:
        try:
            yield
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Taken(
                f"another executor of {self.cluster} has taken over the memory on {self.topic}: {error!r}"
            ) from error
        except TransactionalIdAuthorizationFailedError as error:
            raise PublishError(
                describe_missing(self._subject, "transactional-id", self._transactional_id, ["Write"])
            ) from error
        except KafkaError as error:
            why = explain_denied(error, self._subject, "Write", topic=self.topic)
            raise PublishError(f"{self.topic} could not be written: {why}") from error

    @property
    def _transactional_id(self) -> str:
        return f"trimtab-execute-{self.cluster}"

    @property
    def _subject(self) -> Subject:
        return Subject(bootstrap=self.bootstrap, principal=self.principal)

    def _newest(self) -> bytes | None:
        with KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            **self.options,
        ) as consumer:
            if not partitions_of(consumer, self.topic, timeout_s=_TIMEOUT_S):
                raise PublishError(describe_hidden_topic(self._subject, self.topic, "Read"))
            at = TopicPartition(self.topic, 0)
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            found: bytes | None = None
            for record in read_to_end(consumer, silence_s=_TIMEOUT_S):
                if record.key == self.cluster.encode():
                    found = record.value
            return found


@dataclass(frozen=True, slots=True)
class _Held:
    memory: ExecutorMemory
    producer: KafkaProducer
    remembered: Remembered

    def write(self, remembered: Remembered) -> None:
        """See ``HeldMemory``."""
        self.memory._write(self.producer, remembered)  # noqa: SLF001 - two halves of one thing


_CONTROL_TIMEOUT_MS = 20_000


class KafkaControl(ControlView):
    """Reads the control topic on Kafka."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        cluster: str,
        rounds: RoundSettings,
        client_options: Mapping[str, object] = MappingProxyType({}),
        principal: str = ANYBODY,
    ) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached."""
        super().__init__(cluster, rounds)
        self._subject = Subject(bootstrap=bootstrap, principal=principal)
        try:
            self._consumer = KafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                bootstrap_timeout_ms=_CONTROL_TIMEOUT_MS,
                metrics_enabled=False,
                **client_options,
            )
        except KafkaError as error:
            raise PublishError(f"no consumer at {bootstrap}: {error!r}") from error
        self._topic = topic

    def newest(self) -> ControlData | None:
        """See ``ControlView``."""
        try:
            self._begin()
            for record in read_to_end(self._consumer, silence_s=READ_TIMEOUT_S):
                if record.key == self._cluster.encode():
                    self._take(record.value, appended_ms=record.timestamp)
        except KafkaError as error:
            why = explain_denied(error, self._subject, "Read", topic=self._topic)
            raise PublishError(f"the control topic {self._topic} cannot be read: {why}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close(timeout_ms=round(1000 * READ_TIMEOUT_S))

    def _begin(self) -> None:
        if self._consumer.assignment():
            return
        found = partitions_of(self._consumer, self._topic, timeout_s=READ_TIMEOUT_S)
        if not found:
            raise PublishError(describe_hidden_topic(self._subject, self._topic, "Read"))
        self._consumer.assign([TopicPartition(self._topic, number) for number in sorted(found)])
        self._consumer.seek_to_beginning()
