"""Reads a topic on Pulsar, as ``streaming.kafka.reader`` does on Kafka, and finds input that is gone: no subscription stays behind."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pulsar

from streaming.contract.encode import SkippedRange
from streaming.process.closing import Closing
from streaming.process.exits import Refused
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import (
    AuthAction,
    close,
    explain_denied,
    is_denied,
    keep_ctrl_c,
    read_to_end,
    reader_after,
)
from streaming.pulsar.http import AdminError, CredentialsError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.log import PartitionLogs, partitions_count, position_before
from streaming.pulsar.positions import DataLoss, Log, Position, pack, partition_index, partition_names
from streaming.transport.errors import PublishError
from streaming.transport.side import Begin, Place, TopicRecord

_TIMEOUT_MS = 10_000
_POLL_MS = 200


@contextmanager
def explain_errors(link: PulsarLink, topic: str, action: AuthAction) -> Iterator[None]:
    """Turn Pulsar's errors into refusals that name the brokers and the settings, or the permission that is missing.

    ``topic`` is its full name, and ``action`` what is tried on it.
    """
    section = link.section
    try:
        with keep_ctrl_c():
            yield
    except (AdminError, CredentialsError) as error:
        raise Refused(f"[{section}.pulsar]: {explain_denied(error, topic, action)}") from error
    except pulsar.PulsarException as error:
        if is_denied(error):
            raise Refused(f"[{section}.pulsar]: {explain_denied(error, topic, action)}") from error
        raise Refused(
            f"Pulsar at {link.service_url} does not answer as expected: {error!r}. Check that {section}.url is right, "
            f"that the brokers are up, and [{section}.pulsar]."
        ) from error


class PulsarTopicReader(Closing):
    """Reads all partitions of a topic, or one; each partition's messages come in its order. Raises ``exits.Refused``."""

    def __init__(
        self,
        link: PulsarLink,
        topic: str,
        *,
        begin: Begin = "earliest",
        partition: int | None = None,
        compacted: bool = False,
        silence_s: float | None = None,
    ) -> None:
        del silence_s  # our own limit is short enough for everybody
        self._link = link
        self._topic = link.full_name(topic)
        with self._explain_errors():
            with link.admin() as admin:
                names = self._partitions(admin)
                self.partitions_count = len(names)
                partitions = names if partition is None else [names[partition]]
                first = [_first_place(admin, each, begin) for each in partitions]
            self._client = link.client(timeout_s=_TIMEOUT_MS / 1000)
            self._readers = [
                self._reader(each, done, compacted=compacted)
                for each, done in zip(partitions, first, strict=True)
            ]

    def read_to_end(self) -> Iterator[TopicRecord]:
        """The messages up to the end of the topic."""
        with self._explain_errors():
            for reader in self._readers:
                yield from map(record_of, read_to_end(reader, silence_s=_TIMEOUT_MS / 1000))

    def follow(self) -> Iterator[TopicRecord]:
        """The messages from here on, for ever."""
        while True:
            for reader in self._readers:
                with self._explain_errors():
                    try:
                        found = reader.read_next(timeout_millis=_POLL_MS)
                    except pulsar.Timeout:
                        continue
                yield record_of(found)

    def close(self) -> None:
        """Close the connections."""
        close(self._client)

    def _reader(
        self, partition: str, begin: pulsar.MessageId | Position, *, compacted: bool
    ) -> pulsar.Reader:
        if isinstance(begin, Position):
            return reader_after(self._client, partition, begin, is_read_compacted=compacted)
        return self._client.create_reader(partition, begin, is_read_compacted=compacted)

    def _explain_errors(self) -> AbstractContextManager[None]:
        return explain_errors(self._link, self._topic, "consume")

    def _partitions(self, admin: PulsarAdmin) -> list[str]:
        count = partitions_count(admin, self._topic)
        if count is None:
            raise Refused(
                f"there is no topic {self._topic} at {self._link.service_url}: run `trimtab topics create`"
            )
        return partition_names(self._topic, count)


def _first_place(admin: PulsarAdmin, partition: str, begin: Begin) -> pulsar.MessageId | Position:
    """Where a reader begins: an end of the log, or after a position."""
    if isinstance(begin, str):
        return pulsar.MessageId.latest if begin == "latest" else pulsar.MessageId.earliest
    return position_before(admin, partition, begin)


def record_of(message: pulsar.Message) -> TopicRecord:
    """A message as a record; a message without content deletes its key, as a record without a value does on Kafka."""
    id_ = message.message_id()
    return TopicRecord(
        key=message.partition_key().encode() or None,
        value=message.data() or None,
        timestamp=message.publish_timestamp(),
        partition=max(partition_index(message.topic_name()), 0),
        offset=pack(Position(id_.ledger_id(), id_.entry_id()), id_.batch_index()),
        headers=[(name, text.encode()) for name, text in message.properties().items()],
    )


def find_lost(link: PulsarLink, places: Sequence[Place]) -> list[SkippedRange]:
    """The ranges after these places that are gone. Raises ``PublishError``."""
    try:
        with link.admin() as admin:
            logs = PartitionLogs(admin, subscription=link.subscription)
            found = [_gap(logs.log(place.log), place) for place in places]
    except AdminError as error:
        raise PublishError(f"[{link.section}.pulsar]: {error}") from error
    return [gap for gap in found if gap is not None]


def _gap(log: Log, place: Place) -> SkippedRange | None:
    at = Position.parse(place.at)
    try:
        log.require(at, place.log)
    except DataLoss:
        return SkippedRange(
            topic=place.topic,
            partition=place.partition,
            read_until=place.at,
            goes_on_from=str(log.nearest(at)),
        )
    return None
