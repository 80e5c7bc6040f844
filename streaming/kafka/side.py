"""One side that is on Kafka: everything that programs do with its brokers and topics."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from streaming.contract.skipped import SkippedRange
from streaming.kafka import reading, topics
from streaming.kafka.events import KafkaEvents, append
from streaming.kafka.executor import ActionsTopic, owned
from streaming.kafka.link import Link, same_brokers
from streaming.kafka.publisher import KafkaPublisher
from streaming.kafka.reading import TopicReader
from streaming.settings import Settings
from streaming.transport.publishing import RanWith
from streaming.transport.side import Begin, Epochs, Place, Progress, Write
from streaming.transport.topics import BrokersSeen, TopicOutcome, TopicsSeen


@dataclass(frozen=True, slots=True)
class KafkaSide:
    """See ``Side``."""

    link: Link

    @property
    def section(self) -> str:
        return self.link.section

    @property
    def url(self) -> str:
        return f"kafka://{self.link.bootstrap}"

    def is_same(self, other: object) -> bool:
        return isinstance(other, KafkaSide) and same_brokers(self.link, other.link)

    def full_name(self, topic: str) -> str:
        return topic

    def reader(
        self,
        topic: str,
        *,
        begin: Begin | Place = "earliest",
        partition: int | None = None,
        compacted: bool = False,
        silence_s: float | None = None,
    ) -> TopicReader:
        del compacted  # compaction removes records for every reader
        return TopicReader(self.link, topic, begin=begin, partition=partition, silence_s=silence_s)

    def append(
        self,
        topic: str,
        records: Sequence[tuple[str | None, bytes]],
        *,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        append(self.link, topic, records, headers=headers)

    def events(self, topic: str, *, max_record_bytes: int) -> KafkaEvents:
        return KafkaEvents(self.link, topic, max_record_bytes=max_record_bytes)

    def publisher(
        self, *, name: str, commits_topic: str, announce_on: str | None, ran_with: RanWith
    ) -> KafkaPublisher:
        return KafkaPublisher(
            self.link, name=name, commits_topic=commits_topic, announce_on=announce_on, ran_with=ran_with
        )

    def actions(self, topic: str, *, group: str, epochs: Epochs, records_max: int) -> ActionsTopic:
        return ActionsTopic(self.link, topic, group=group, epochs=epochs, records_max=records_max)

    def owned(self, topic: str, key: str, *, owner: str) -> AbstractContextManager[Write]:
        return owned(self.link, topic, key, owner=owner)

    def find_lost(self, places: Sequence[Place]) -> list[SkippedRange]:
        return reading.find_lost(self.link, places)

    def find_regrown(self, read: Progress) -> str | None:
        return reading.find_regrown(self.link, read)

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        return topics.topic_ids(self.link, names)

    def create_topics(
        self, settings: Settings, only: frozenset[str], *, input_partitions: int
    ) -> list[TopicOutcome]:
        size = settings.controller.max_record_bytes
        return topics.create(
            self.link, settings.topics, input_partitions=input_partitions, max_record_bytes=size, only=only
        )

    def validate_topics(self, settings: Settings, only: frozenset[str]) -> list[str]:
        size = settings.controller.max_record_bytes
        return topics.validate(self.link, settings.topics, max_record_bytes=size, only=only)

    def brokers_seen(self, topic: str) -> BrokersSeen:
        del topic
        return topics.brokers_seen(self.link)

    def topics_seen(self, settings: Settings, only: frozenset[str]) -> TopicsSeen:
        size = settings.controller.max_record_bytes
        return topics.topics_seen(self.link, settings.topics, max_record_bytes=size, only=only)
