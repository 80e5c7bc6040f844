"""What the executor put on a cluster, remembered on a compacted topic, so that exactly that is taken off again.

It is written before anything is set: after a crash there may be less on the cluster than remembered, never more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from policies.throttle.lists import ThrottledLists
from streaming.denied import told
from streaming.kafka_log import partitions_of, read_to_end
from streaming.permissions import ANYBODY, Subject, unseen
from streaming.sinks import LARGEST_RECORD_BYTES, PublishError
from streaming.sinks.kafka_ending import end

_TIMEOUT_S = 20.0


class Rate(msgspec.Struct, frozen=True):
    """A rate of ours on a broker."""

    ours: int
    before: int | None
    """What was there before; None: nothing."""
    earlier: int | None = None
    """Ours before that one, while nobody knows which of them is there."""


class Remembered(msgspec.Struct, frozen=True):
    """All of one cluster; plain values, stored as JSON."""

    added: ThrottledLists = ThrottledLists()
    """Entries that were not there before."""
    rates: dict[str, Rate] = {}
    """By role, as in ``leader:101``."""
    is_planned: bool = False
    """Whether it is for a move that had not begun when it was looked at last, and so is no leftover."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of ours is there."""
        return not (self.added.leader or self.added.follower or self.rates)

    @classmethod
    def parse(cls, value: bytes | None) -> Self:
        """Of the value of a record; without one nothing is remembered."""
        return cls() if value is None else msgspec.json.decode(value, type=cls)

    def value(self) -> bytes | None:
        """For a record; None where nothing of ours is there."""
        return None if self.is_empty else msgspec.json.encode(self)


@dataclass(slots=True)
class ExecutorMemory:
    """The newest value of one cluster on ``topic``. Not for several threads."""

    bootstrap: str
    topic: str
    cluster: str
    options: Mapping[str, object] = field(default_factory=dict)
    principal: str = ANYBODY

    def read(self) -> Remembered:
        """Read the topic to its end. Raises ``PublishError``."""
        try:
            found = self._newest()
        except KafkaError as error:
            why = told(error, self._subject, "Read", topic=self.topic)
            raise PublishError(f"the topic {self.topic} cannot be read: {why}") from error
        return Remembered.parse(found)

    def write(self, remembered: Remembered) -> None:
        """Replace the value; a tombstone where nothing is left. Raises ``PublishError``."""
        try:
            producer = KafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks="all",
                max_request_size=LARGEST_RECORD_BYTES,
                **self.options,
            )
            try:
                sent = producer.send(self.topic, key=self.cluster.encode(), value=remembered.value())
                sent.get(timeout=_TIMEOUT_S)
            finally:
                end(producer)
        except KafkaError as error:
            why = told(error, self._subject, "Write", topic=self.topic)
            raise PublishError(f"{self.topic} could not be written, so nothing is set: {why}") from error

    @property
    def _subject(self) -> Subject:
        return Subject(bootstrap=self.bootstrap, principal=self.principal)

    def _newest(self) -> bytes | None:
        with KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, enable_auto_commit=False, **self.options
        ) as consumer:
            if not partitions_of(consumer, self.topic, timeout_s=_TIMEOUT_S):
                raise PublishError(unseen(self._subject, self.topic, "Read"))
            at = TopicPartition(self.topic, 0)
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            found: bytes | None = None
            for record in read_to_end(consumer, timeout_s=_TIMEOUT_S):
                if record.key == self.cluster.encode():
                    found = record.value
            return found
