"""What a cluster's operators last said, as the executor asks before every action: on Kafka or on Pulsar."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec
import pulsar
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming import pulsar_denied
from streaming.closing import Closing
from streaming.denied import told
from streaming.link import input_link
from streaming.permissions import ANYBODY, Subject, unseen
from streaming.pulsar_log.clients import connect
from streaming.settings import Settings
from streaming.sinks import PublishError
from streaming.wire.messages import ControlData, ControlMessage

__all__ = ["ControlView", "KafkaControl", "PulsarControl", "control_of"]

_REQUEST_TIMEOUT_MS = 20_000
_READ_TIMEOUT_MS = 10_000


class ControlView(Closing):
    """The newest control event of one cluster: greatest (time, id), wherever in the log it is."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._newest: tuple[datetime, str] | None = None
        self._data: ControlData | None = None

    @abstractmethod
    def newest(self) -> ControlData | None:
        """What is in force now: read to the end of the topic. Raises ``PublishError``: unknown is not unpaused."""

    def _take(self, value: bytes | None) -> None:
        """What is no control event, a tombstone too, is the controller's to refuse and changes nothing."""
        try:
            event = _control.decode(value or b"")
        except msgspec.MsgspecError:
            return
        if event.cluster == self._cluster and (self._newest is None or (event.time, event.id) > self._newest):
            self._newest, self._data = (event.time, event.id), event.data


class KafkaControl(ControlView):
    """On Kafka."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        cluster: str,
        client_options: Mapping[str, object] = MappingProxyType({}),
        principal: str = ANYBODY,
    ) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached."""
        super().__init__(cluster)
        self._subject = Subject(bootstrap=bootstrap, principal=principal)
        try:
            self._consumer = KafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                bootstrap_timeout_ms=_REQUEST_TIMEOUT_MS,
                metrics_enabled=False,
                **client_options,
            )
        except KafkaError as error:
            raise PublishError(f"no consumer at {bootstrap}: {error!r}") from error
        self._topic = topic

    def newest(self) -> ControlData | None:
        """See ``ControlView``."""
        try:
            for value in self._new_values():
                self._take(value)
        except KafkaError as error:
            why = told(error, self._subject, "Read", topic=self._topic)
            raise PublishError(f"the control topic {self._topic} cannot be read: {why}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _new_values(self) -> Iterator[bytes | None]:
        if not self._consumer.assignment():
            found = self._consumer.partitions_for_topic(self._topic)
            if not found:
                raise PublishError(unseen(self._subject, self._topic, "Read"))
            self._consumer.assign([TopicPartition(self._topic, number) for number in sorted(found)])
            self._consumer.seek_to_beginning()
        ends = self._consumer.end_offsets(self._consumer.assignment())
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            for records in self._consumer.poll(timeout_ms=200).values():
                yield from (record.value for record in records if record.key == self._cluster.encode())


class PulsarControl(ControlView):
    """On Pulsar."""

    def __init__(self, settings: Settings, *, cluster: str) -> None:
        """Raises ``PublishError`` when the topic cannot be read."""
        super().__init__(cluster)
        where = settings.input.pulsar
        self._topic = where.full_name(settings.topics.control)
        self._client = connect(settings.input.url, token_file=where.token_file, ca_file=where.ca_file)
        try:
            self._reader = self._client.create_reader(self._topic, pulsar.MessageId.earliest)
        except pulsar.PulsarException as error:
            self._client.close()
            raise self._unreadable(error) from error

    def newest(self) -> ControlData | None:
        """See ``ControlView``."""
        try:
            while self._reader.has_message_available():
                message = self._reader.read_next(timeout_millis=_READ_TIMEOUT_MS)
                if message.partition_key() == self._cluster:
                    self._take(message.data())
        except pulsar.PulsarException as error:
            raise self._unreadable(error) from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _unreadable(self, error: Exception) -> PublishError:
        why = pulsar_denied.told(error, self._topic, "consume")
        return PublishError(f"the control topic {self._topic} cannot be read: {why}")


def control_of(settings: Settings, *, cluster: str) -> ControlView:
    """Where the settings say. Raises ``PublishError``."""
    if settings.input.is_pulsar:
        return PulsarControl(settings, cluster=cluster)
    link = input_link(settings)
    return KafkaControl(
        link.bootstrap,
        topic=settings.topics.control,
        cluster=cluster,
        client_options=link.client_options(),
        principal=link.principal,
    )


_control = msgspec.json.Decoder(ControlMessage)
