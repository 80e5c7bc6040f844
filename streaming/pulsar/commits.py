"""What a controller on Pulsar writes down beside each batch, and the producers whose names and numbers make a re-run harmless.

Pulsar has no transactions for this client, so a batch becomes visible message by message. Therefore the marker is written
twice: before the first message of a batch, with the digest of all of it, and after the last. Between the two, the first
part of the batch in publishing order is out, and a re-run sends the whole batch again: the broker drops the messages that it
has, by producer name and sequence id. Both are pure functions of what is written down, so they are the same after any crash.

Messages of a topic reach it in the order in which they are sent, so after any failure the first of them are out, without
a gap. To keep it so, nothing is sent after the first failure, no send times out by itself, and a failed connection is
thrown away whole: a gap would never be closed, because the broker drops messages below the highest sequence id it has.

Only one controller at a time writes to its commits topic, because its producer is exclusive; so only the end of the log is ever
read, and the topic need not be compacted.
"""

import threading
import time
from collections.abc import Mapping

import msgspec
import pulsar

from streaming.contract.envelope import EPOCH_HEADER
from streaming.process.deadline import Deadline
from streaming.process.exits import words_of
from streaming.pulsar.clients import close, read_to_end
from streaming.pulsar.link import PulsarLink
from streaming.transport.errors import CheckpointMismatch, PublishError
from streaming.transport.publishing import Commit

_PLACE_BITS = 32
"""Bits of a sequence id for the place; a batch has far fewer outputs than 2^32, and batch ids stay below 2^31."""
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Commit)
_LOOK_MS = 1
"""A look takes the messages that the broker has sent already, without a request."""
_POLL_MS = 50
_NAME_RETRY_S = 0.2
_COMPRESSION = pulsar.CompressionType.ZSTD
"""Pulsar's size limit of 5 MiB counts compressed bytes: replica lists of 8 MiB, the largest outputs, are then below it."""
WINDOW = 500
"""Most messages under way at a time; below the client's own limit of 1,000, at which sending would block without end."""


def encode_commit(commit: Commit) -> bytes:
    """The commit as the JSON value of a message of the commits topic."""
    return _ENCODER.encode(commit)


def decode_commit(value: bytes, *, topic: str) -> Commit:
    """Read a message of the commits topic back; raises ``CheckpointMismatch`` when it is none."""
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise CheckpointMismatch(
            f"the last message of {topic} is not a marker ({error}): "
            "is the topic used by something else, or written by a newer version of trimtab?"
        ) from error


def producer_name(name: str, commit: Commit) -> str:
    """Name of the producers of the outputs; the broker lets only one producer of a name connect to a topic."""
    return f"{name}/{commit.lineage}"


def announcer_name(name: str) -> str:
    """Name of the producer that announces a take-over, with the epoch as its sequence id.

    It is not the name of the outputs' producers: their ids rise with the batches, and an epoch among them would make the
    broker drop the rest of a batch that was begun.
    """
    return f"{name}/leader"


def sequence_id(batch_id: int, place: int) -> int:
    """Sequence id of the output at a place, from 0, in its batch's publishing order; rises, with gaps. Never 0, which Pulsar replaces."""
    return (batch_id << _PLACE_BITS) + place + 1


class PulsarMarkers:
    """The newest ``Commit`` on ``topic``, by its full name. The connection is opened when it is needed."""

    def __init__(self, link: PulsarLink, topic: str, *, timeout_s: float) -> None:
        self._link = link
        self._topic = topic
        self._timeout_s = timeout_s
        self._client: pulsar.Client | None = None
        self._reader: pulsar.Reader | None = None
        self._newest: Commit | None = None
        self._lock = threading.Lock()

    def newest(self) -> Commit | None:
        """The newest commit at the time of the call; None on an empty topic. Raises ``PublishError``."""
        with self._lock:
            try:
                reader = self._follower()
                for message in read_to_end(reader, silence_s=self._timeout_s):
                    self._take(message)
            except pulsar.PulsarException as error:
                self._drop()  # a reader whose broker was killed may never give out another message
                raise PublishError(
                    f"the markers on {self._topic} could not be read: {words_of(error)}"
                ) from error
            return self._newest

    def wait_for_epoch_above(self, epoch: int, *, timeout_s: float) -> bool:
        """Whether a marker with a higher epoch is there, or appears within ``timeout_s`` (0: one short look).

        False also while the broker cannot be reached: publishing raises the error then.
        """
        deadline = Deadline(timeout_s)
        while True:
            if self._read_new(_POLL_MS if timeout_s else _LOOK_MS) > epoch:
                return True
            if deadline.is_over:
                return False

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock:
            self._drop()

    def _read_new(self, wait_ms: int) -> int:
        """Take the messages that have come; returns the newest epoch known. A short look does not wait for another thread's read."""
        if self._lock.acquire(blocking=wait_ms > _LOOK_MS):
            try:
                while self._reader is not None:
                    self._take(self._reader.read_next(timeout_millis=wait_ms))
            except pulsar.Timeout:
                pass
            except pulsar.PulsarException:
                self._drop()
            finally:
                self._lock.release()
        newest = self._newest
        return 0 if newest is None else newest.marker.epoch

    def _take(self, message: pulsar.Message) -> None:
        self._newest = decode_commit(message.data(), topic=self._topic)

    def _follower(self) -> pulsar.Reader:
        if self._reader is None:
            self._client = self._link.client(timeout_s=self._timeout_s)
            self._newest = None
            self._reader = self._client.create_reader(
                self._topic, pulsar.MessageId.latest, start_message_id_inclusive=True
            )
        return self._reader

    def _drop(self) -> None:
        client, self._client, self._reader = self._client, None, None
        if client is not None:
            close(client)


class NotSent(Exception):
    """The broker did not take a message, or did not answer in time; ``result`` is None for the latter."""

    def __init__(self, what: str, result: pulsar.Result | None) -> None:
        super().__init__(what)
        self.result = result


class Deliveries:
    """Counts answers of the broker; called from the client's own threads."""

    def __init__(self) -> None:
        self._answered = threading.Condition()
        self._under_way = 0
        self._failure: pulsar.Result | None = None
        self.new_count = 0
        """Messages the broker did not have yet."""

    def sending(self) -> None:
        """Note that one more message is under way."""
        with self._answered:
            self._under_way += 1

    def answer(self, result: pulsar.Result, id_: pulsar.MessageId | None) -> None:
        """The callback of a send. A duplicate is answered with an id that no message has."""
        with self._answered:
            self._under_way -= 1
            if result != pulsar.Result.Ok:
                self._failure = self._failure or result
            elif id_ is not None and id_.ledger_id() >= 0:
                self.new_count += 1
            self._answered.notify_all()

    def wait(self, *, timeout_s: float, most: int = 0) -> None:
        """Wait until at most ``most`` messages are under way; raises ``NotSent``."""
        deadline = Deadline(timeout_s)
        with self._answered:
            while self._failure is None and self._under_way > most:
                if deadline.is_over:
                    raise NotSent(f"no answer within {timeout_s:g} s", None) from pulsar.Timeout()
                self._answered.wait(deadline.left_s)
            if self._failure is not None:
                is_late = self._failure == pulsar.Result.Timeout
                raise NotSent(str(self._failure), self._failure) from (pulsar.Timeout() if is_late else None)


class Producers:
    """One connection. Every method raises ``pulsar.PulsarException`` or ``NotSent``; after that only call ``close``."""

    def __init__(self, link: PulsarLink, *, commits_topic: str, timeout_s: float) -> None:
        """Fences the producer that held the commits topic; ``commits_topic`` is the topic's full name."""
        self._link = link
        self._timeout_s = timeout_s
        self._client = link.client(timeout_s=timeout_s)
        self._outputs: dict[str, pulsar.Producer] = {}
        try:
            self._commits = self._client.create_producer(
                commits_topic,
                access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing,
                send_timeout_millis=0,
                batching_enabled=False,
            )
        except pulsar.PulsarException:
            self.close()
            raise

    def commit(self, key: str, value: bytes) -> None:
        """Write to the commits topic and wait for the broker."""
        sent = Deliveries()
        sent.sending()
        self._commits.send_async(value, sent.answer, partition_key=key)
        sent.wait(timeout_s=self._timeout_s)

    def take_names(self, topics: Mapping[str, str], *, wait_s: float) -> None:
        """Open the producers that are missing; ``topics`` maps full names of topics to the producer's name on each.

        If a name is in use, wait for it: its holder was fenced on the commits topic, and gives up when it notices.
        """
        deadline = Deadline(wait_s)
        for topic, name in topics.items():
            if topic not in self._outputs:
                self._outputs[topic] = self._take(topic, name, deadline)

    def send(
        self, topic: str, key: str, value: bytes, *, sequence_id: int, epoch: int, sent: Deliveries
    ) -> None:
        """Hand a message over; first raises if one before it failed."""
        sent.wait(timeout_s=self._timeout_s, most=WINDOW - 1)
        sent.sending()
        self._outputs[topic].send_async(
            value,
            sent.answer,
            partition_key=key,
            sequence_id=sequence_id,
            properties={EPOCH_HEADER: str(epoch)},
        )

    def announce(self, topic: str, value: bytes, *, name: str, epoch: int, wait_s: float) -> None:
        """Send one message to every partition of a topic, under a name and with a sequence id of its own; wait for the broker."""
        deadline, sent = Deadline(wait_s), Deliveries()
        for partition in self._client.get_topic_partitions(topic):
            producer = self._take(partition, name, deadline)
            sent.sending()
            producer.send_async(value, sent.answer, sequence_id=epoch, properties={EPOCH_HEADER: str(epoch)})
        sent.wait(timeout_s=self._timeout_s)

    def close(self) -> None:
        """Close without waiting: messages that are not answered by now must not be sent any more."""
        close(self._client)

    def _take(self, topic: str, name: str, deadline: Deadline) -> pulsar.Producer:
        while True:
            try:
                return self._client.create_producer(
                    topic,
                    producer_name=name,
                    send_timeout_millis=0,
                    batching_enabled=False,
                    compression_type=_COMPRESSION,
                )
            except pulsar.ProducerBusy:
                if deadline.is_over:
                    raise
            time.sleep(_NAME_RETRY_S)
