"""Remembers on a compacted topic on Pulsar what the executor put on a cluster, as ``streaming.kafka.memory`` does on Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pulsar

from streaming.pulsar.admin import AdminError
from streaming.pulsar.admin.http import CredentialsError
from streaming.pulsar.clients import close, read_to_end
from streaming.pulsar.denied import explain_denied
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.topic_names import partitions_count
from streaming.transport.errors import PublishError, Taken
from streaming.transport.executor import HeldMemory, Remembered

_TIMEOUT_S = 20.0
_FENCED = (pulsar.ProducerFenced, pulsar.AlreadyClosed)
"""Errors of a producer whose place another producer took."""


@dataclass(slots=True)
class PulsarExecutorMemory:
    """The newest value of one cluster on ``topic``. Not for several threads."""

    link: PulsarLink
    topic: str
    cluster: str

    def read(self) -> Remembered:
        """Read the topic to its end. Raises ``PublishError``."""
        try:
            self._require_topic()
            found = self._newest()
        except (pulsar.PulsarException, AdminError, CredentialsError) as error:
            why = explain_denied(error, self._full_name, "consume")
            raise PublishError(f"the topic {self._full_name} cannot be read: {why}") from error
        return Remembered.parse(found or None)

    @contextmanager
    def hold(self) -> Iterator[HeldMemory]:
        """Take the memory until the end of the block. Raises ``PublishError``.

        A topic has one exclusive producer, so the executor of another cluster can take it away, too; the executor that
        lost it starts again.
        """
        client = self.link.client(timeout_s=_TIMEOUT_S)
        try:
            with self._explain_write_errors():
                producer = client.create_producer(
                    self._full_name,
                    access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing,
                    send_timeout_millis=round(1000 * _TIMEOUT_S),
                    batching_enabled=False,
                )
            yield _Held(self, producer, self.read())
        finally:
            close(client)

    def _write(self, producer: pulsar.Producer, remembered: Remembered) -> None:
        """Write what is remembered; a message without content if nothing is left."""
        with self._explain_write_errors():
            producer.send(remembered.value() or b"", partition_key=self.cluster)

    @contextmanager
    def _explain_write_errors(self) -> Iterator[None]:
        try:
            yield
        except _FENCED as error:
            raise Taken(
                f"another executor has taken over the memory on {self._full_name}: {error!r}"
            ) from error
        except pulsar.PulsarException as error:
            why = explain_denied(error, self._full_name, "produce")
            raise PublishError(f"{self._full_name} could not be written: {why}") from error

    @property
    def _full_name(self) -> str:
        return self.link.full_name(self.topic)

    def _require_topic(self) -> None:
        """Raise ``PublishError`` if there is no topic: reading would make it, without its retention."""
        with self.link.admin() as admin:
            if partitions_count(admin, self._full_name) is None:
                raise PublishError(f"there is no topic {self._full_name}: run `trimtab topics create`")

    def _newest(self) -> bytes | None:
        client = self.link.client(timeout_s=_TIMEOUT_S)
        try:
            reader = client.create_reader(self._full_name, pulsar.MessageId.earliest, is_read_compacted=True)
            found: bytes | None = None
            for message in read_to_end(reader, silence_s=_TIMEOUT_S):
                if message.partition_key() == self.cluster:
                    found = message.data()
            return found
        finally:
            close(client)


@dataclass(frozen=True, slots=True)
class _Held:
    memory: PulsarExecutorMemory
    producer: pulsar.Producer
    remembered: Remembered

    def write(self, remembered: Remembered) -> None:
        """See ``HeldMemory``."""
        self.memory._write(self.producer, remembered)  # noqa: SLF001 - two halves of one thing
