"""Producers of one connection to Pulsar: an exclusive one on the commits topic, one with a fixed name on each output topic.

Messages of a topic reach it in the order in which they are sent, so after any failure the first of them are out, without
a gap. To keep it so, nothing is sent after the first failure, no send times out by itself, and a failed connection is
thrown away whole: a gap would never be closed, because the broker drops messages below the highest sequence id it has.
"""

import threading
import time
from collections.abc import Mapping

import pulsar

from streaming.contract.envelope import EPOCH_HEADER
from streaming.process.deadline import Deadline
from streaming.pulsar.clients import close
from streaming.pulsar.link import PulsarLink

_NAME_RETRY_S = 0.2
_COMPRESSION = pulsar.CompressionType.ZSTD
"""Pulsar's size limit of 5 MiB counts compressed bytes: replica lists of 8 MiB, the largest outputs, are then below it."""
WINDOW = 500
"""Most messages under way at a time; below the client's own limit of 1,000, at which sending would block without end."""


class NotSent(Exception):
    """The broker did not take a message, or did not answer in time; ``result`` is None for the latter."""

    def __init__(self, what: str, result: pulsar.Result | None) -> None:
        super().__init__(what)
        self.result = result


class Acknowledged:
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
                    raise NotSent(f"no answer within {timeout_s:g} s", None)
                self._answered.wait(deadline.left_s)
            if self._failure is not None:
                raise NotSent(str(self._failure), self._failure)


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
        sent = Acknowledged()
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
        self, topic: str, key: str, value: bytes, *, sequence_id: int, epoch: int, sent: Acknowledged
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
        deadline, sent = Deadline(wait_s), Acknowledged()
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
