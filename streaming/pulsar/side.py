"""One side that is on Pulsar: everything that programs do with its brokers and topics."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from streaming.contract.skipped import SkippedRange
from streaming.pulsar import reading, topics
from streaming.pulsar.events import PulsarEvents, append
from streaming.pulsar.executor import PulsarActions, owned
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.publisher import PulsarPublisher
from streaming.pulsar.reading import PulsarTopicReader
from streaming.settings import Settings
from streaming.transport.publishing import RanWith
from streaming.transport.side import Begin, Epochs, Place, Progress, Write
from streaming.transport.topics import BrokersSeen, TopicOutcome, TopicsSeen


@dataclass(frozen=True, slots=True)
class PulsarSide:
    """See ``Side``."""

    link: PulsarLink

    @property
    def section(self) -> str:
        return self.link.section

    @property
    def url(self) -> str:
        return self.link.service_url

    def is_same(self, other: object) -> bool:
        return self == other

    def full_name(self, topic: str) -> str:
        return self.link.full_name(topic)

    def reader(
        self,
        topic: str,
        *,
        begin: Begin | Place = "earliest",
        partition: int | None = None,
        compacted: bool = False,
        silence_s: float | None = None,
    ) -> PulsarTopicReader:
        del silence_s  # the reader's own limit is short enough for everybody
        return PulsarTopicReader(self.link, topic, begin=begin, partition=partition, compacted=compacted)

    def append(
        self,
        topic: str,
        records: Sequence[tuple[str | None, bytes]],
        *,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        append(self.link, topic, records, headers=headers)

    def events(self, topic: str, *, max_record_bytes: int) -> PulsarEvents:
        del max_record_bytes  # the brokers' own limit stands
        return PulsarEvents(self.link, topic)

    def publisher(
        self, *, name: str, commits_topic: str, announce_on: str | None, ran_with: RanWith
    ) -> PulsarPublisher:
        return PulsarPublisher(
            self.link, name=name, commits_topic=commits_topic, announce_on=announce_on, ran_with=ran_with
        )

    def actions(self, topic: str, *, group: str, epochs: Epochs, records_max: int) -> PulsarActions:
        return PulsarActions(self.link, topic, group=group, epochs=epochs, records_max=records_max)

    def owned(self, topic: str, key: str, *, owner: str) -> AbstractContextManager[Write]:
        del owner  # a topic's exclusive producer needs no name
        return owned(self.link, topic, key)

    def find_lost(self, places: Sequence[Place]) -> list[SkippedRange]:
        return reading.find_lost(self.link, places)

    def find_regrown(self, read: Progress) -> str | None:
        """None: what is written after a truncation is in ledgers of its own, so that reading shows it."""
        del read
        return None

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """None: ids of ledgers are never used again, so a position shows whether the topic is still the same."""
        del names
        return {}

    def create_topics(
        self, settings: Settings, only: frozenset[str], *, input_partitions: int
    ) -> list[TopicOutcome]:
        return topics.create(self.link, settings, only, input_partitions=input_partitions)

    def validate_topics(self, settings: Settings, only: frozenset[str]) -> list[str]:
        return topics.validate(self.link, settings, only)

    def brokers_seen(self, topic: str) -> BrokersSeen:
        return topics.brokers_seen(self.link, topic)

    def topics_seen(self, settings: Settings, only: frozenset[str]) -> TopicsSeen:
        return topics.topics_seen(self.link, settings, only)
