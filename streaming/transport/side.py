"""One side's brokers, whichever system they are on: what is read there, what is written, and how far reading got.

A controller reads from the input's side and writes to the output's; they may be on different systems.

Sending events is not exactly-once, and it need not be: input events carry ids and times, and a repeated one changes nothing.
An executor gets its actions each at least once and in order, and with them the epochs that tell which controllers' actions are
out of date.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Protocol

from streaming.contract.encode import SkippedRange
from streaming.settings import Settings
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import RanWith
from streaming.transport.topics import BrokersSeen, TopicOutcome, TopicsSeen

Begin = Literal["earliest", "latest"] | int
"""Where reading begins; a number is milliseconds since the epoch."""
Write = Callable[[bytes | None], None]
"""Writes the newest value of a key; None deletes it."""
LOOKBACK_S = 3600.0
"""How far back a first start reads actions: actions that have not expired are younger, and expired ones get their result."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far one partition has been read."""

    topic: str
    partition: int
    """0 for a topic without partitions."""
    log: str
    """Name of the partition's log at its broker: on Kafka the topic's."""
    at: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far all partitions have been read."""

    places: list[Place] = field(default_factory=list)
    planned_ms: int = 0
    """When the batch was planned, by the driver's clock."""


def order_of(at: str) -> tuple[int, ...]:
    """The numbers by which places of one partition are compared."""
    return tuple(map(int, at.split(":")))


def is_past(ranges: Sequence[SkippedRange], places: Sequence[Place]) -> bool:
    """Whether reading is past every gap."""
    at = {(place.topic, place.partition): place.at for place in places}
    return all(
        gap.where not in at
        or (at[gap.where] != gap.read_until and order_of(at[gap.where]) >= order_of(gap.goes_on_from))
        for gap in ranges
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A record; ``offset`` rises along its partition, ``timestamp`` is when it was appended, in ms since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int
    offset: int
    headers: Sequence[tuple[str, bytes]]


class Reader(AbstractContextManager["Reader"], Protocol):
    """Partitions of one topic; each partition's records come in its order. Raises ``exits.Refused``."""

    @property
    def partitions_count(self) -> int:
        """How many partitions the topic has, whether or not they are read here."""

    def read_to_end(self) -> Iterator[TopicRecord]:
        """The records up to the end of the topic at the time of the call."""

    def follow(self) -> Iterator[TopicRecord]:
        """The records from here on, for ever."""

    def close(self) -> None:
        """Close the connections."""


class EventSink(Protocol):
    """A place to which events are sent. Thread-safe."""

    def send(self, key: str, value: bytes) -> None:
        """Hand an event over; raises ``PublishError`` if that is impossible. ``flush`` reports whether it was written."""

    def flush(self) -> None:
        """Wait until all events handed over are written; raises ``PublishError`` naming how many are not."""

    def close(self) -> None:
        """Close connections."""


class LineEvents:
    """Events as lines of a file, for ``trimtab replay``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``; the key is in the event."""
        del key
        with self._lock:
            self._file.write(value + b"\n")

    def flush(self) -> None:
        """See ``EventSink``."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """Does nothing, because the caller closes the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """A record of the actions topic."""

    value: bytes
    epoch_header: bytes | None
    partition: int = 0


@dataclass(slots=True)
class PartitionEpochs:
    """The highest epoch read so far of each source in each partition, or of each cluster: it applies to the records that follow there.

    Actions that an older controller published before it stay valid, even if they are carried out later.
    """

    _highest: dict[int | str, dict[str, int]] = field(default_factory=dict)

    def note(self, partition: int | str, source: str, epoch: int) -> int:
        """Take note of the epoch of the partition's next record; returns the highest epoch of the source so far, this one included."""
        epochs = self._highest.setdefault(partition, {})
        epochs[source] = max(epoch, epochs.get(source, epoch))
        return epochs[source]

    def epochs_of(self, partition: int) -> Mapping[str, int]:
        """The highest epoch so far of each source in a partition."""
        return self._highest.get(partition, {})

    def forget(self) -> None:
        """Forget all epochs, because the partitions are read again from an earlier place."""
        self._highest.clear()

    def begin(self, partition: int, epochs: Mapping[str, int]) -> None:
        """Reading of a partition begins (again) at a place; ``epochs`` are those that were read before it."""
        self._highest[partition] = dict(epochs)


class Actions(Protocol):
    """Actions, each at least once and in order. Methods raise ``PublishError``; call ``drop`` after it."""

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order, partition by partition."""

    def keep_polled(self) -> None:
        """Keep the polled records while they are worked on; call it every few seconds. Fails once another executor has them."""

    def commit(self) -> None:
        """Note that all records polled so far are dealt with."""

    def drop(self) -> None:
        """Forget the records that were polled and not committed: they come again, here or at another executor. Raises nothing."""

    def is_at_end(self) -> bool:
        """Whether no record that exists at this moment is left to poll, once the polled ones are committed."""


class Side(Protocol):
    """One side's brokers; ``section`` is its name in the settings. Each object it gives connects when it is made, or when it is used."""

    @property
    def section(self) -> str:
        """``input`` or ``output``."""

    @property
    def url(self) -> str:
        """Their address, with the system before it."""

    def is_same(self, other: object) -> bool:
        """Whether another side leads to the same brokers as the same user."""

    def full_name(self, topic: str) -> str:
        """The name of a topic in places and origins."""

    def reader(
        self,
        topic: str,
        *,
        begin: Begin = "earliest",
        partition: int | None = None,
        compacted: bool = False,
        silence_s: float | None = None,
    ) -> Reader:
        """Reader of a topic, or of one of its partitions if ``partition`` is given. Raises ``exits.Refused``.

        ``compacted``: in the compacted part, the newest record of each key is enough. On Kafka compaction removes the others for
        every reader, on Pulsar only for readers that ask for that. ``silence_s`` is how long a broker may say nothing.
        """

    def append(
        self,
        topic: str,
        records: Sequence[tuple[str | None, bytes]],
        *,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Append values, with their keys if any; returns when the brokers have them. Raises ``exits.Refused``."""

    def events(self, topic: str, *, max_record_bytes: int) -> EventSink:
        """A topic to which events are sent, connected. Raises ``PublishError`` or ``NoTopic``."""

    def commits_topic(self, topic: str, name: str) -> str:
        """The topic of the markers of the controller ``name``, where the settings call it ``topic``."""

    def publisher(
        self, *, name: str, commits_topic: str, announce_on: str | None, ran_with: RanWith
    ) -> Publisher:
        """The publisher of the controller ``name``, not yet connected to anything."""

    def actions(
        self, topic: str, *, group: str, epochs: PartitionEpochs, records_max: int
    ) -> AbstractContextManager[Actions]:
        """A consumer of a topic whose position the brokers keep under ``group``. Raises ``PublishError``."""

    def exclusive_writer(self, topic: str, key: str, *, owner: str) -> AbstractContextManager[Write]:
        """Take a compacted topic's key away from who writes it, until the end of the block.

        Both raise ``Taken`` where another process took it since, and ``PublishError``.
        """

    def find_lost(self, places: Sequence[Place]) -> list[SkippedRange]:
        """The ranges of records that are gone after these places. Raises ``NoAnswer`` or ``PublishError``."""

    def find_regrown(self, read: Progress) -> str | None:
        """The message about a log that was truncated and has grown again. Raises ``NoAnswer``."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Ids of those topics that have one: a topic that was deleted and made anew has another. Raises ``NoAnswer``."""

    def create_topics(
        self, settings: Settings, only: frozenset[str], *, input_partitions: int
    ) -> list[TopicOutcome]:
        """Make those of the topics that are missing. Raises ``StartError``."""

    def brokers_seen(self, topic: str) -> BrokersSeen:
        """The brokers that answer; ``topic`` is one of theirs. Raises ``StartError``."""

    def topics_seen(self, settings: Settings, only: frozenset[str]) -> TopicsSeen:
        """Those topics, compared with what they should be; nothing is changed. Raises ``StartError``."""
