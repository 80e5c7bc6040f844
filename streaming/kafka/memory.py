"""Remembers on a compacted topic which throttle the executor put on a cluster, so that exactly that is taken off again.

It is written before anything is set: after a crash there may be less on the cluster than remembered, never more. An
executor that wants to change the memory takes it: from then on the executor that had it before, perhaps a frozen one,
cannot write any more (its transactional id is fenced), and what is read afterwards is the newest. So no executor
overwrites what it has not read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
)

from streaming.contract.envelope import LARGEST_RECORD_BYTES
from streaming.kafka.denied import explain_denied
from streaming.kafka.ending import close_producer
from streaming.kafka.log import partitions_of, read_to_end
from streaming.kafka.permissions import ANYBODY, Subject, describe_hidden_topic, describe_missing
from streaming.process.within import within
from streaming.transport.errors import PublishError, Taken
from streaming.transport.executor import HeldMemory, Remembered

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
