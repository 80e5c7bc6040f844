"""What a cluster's operators last said, as the executor asks before every action: on Kafka or on Pulsar."""

import time
from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec
import pulsar
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming.contract.messages import ControlData, ControlMessage
from streaming.kafka.denied import told
from streaming.kafka.link import input_link
from streaming.kafka.log import partitions_of, read_to_end
from streaming.kafka.permissions import ANYBODY, Subject, unseen
from streaming.ports.publishing import PublishError
from streaming.process.closing import Closing
from streaming.pulsar import denied as pulsar_denied
from streaming.pulsar.clients import close, connect
from streaming.settings import Settings

__all__ = ["ControlView", "KafkaControl", "PulsarControl", "control_of"]

_REQUEST_TIMEOUT_MS = 20_000
_READ_TIMEOUT_S = 10.0
"""A gate that waits longer for the control topic would keep a process from ending when it is told to."""


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
            self._begin()
            for record in read_to_end(self._consumer, timeout_s=_READ_TIMEOUT_S):
                if record.key == self._cluster.encode():
                    self._take(record.value)
        except KafkaError as error:
            why = told(error, self._subject, "Read", topic=self._topic)
            raise PublishError(f"the control topic {self._topic} cannot be read: {why}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close(timeout_ms=round(1000 * _READ_TIMEOUT_S))

    def _begin(self) -> None:
        if self._consumer.assignment():
            return
        found = partitions_of(self._consumer, self._topic, timeout_s=_READ_TIMEOUT_S)
        if not found:
            raise PublishError(unseen(self._subject, self._topic, "Read"))
        self._consumer.assign([TopicPartition(self._topic, number) for number in sorted(found)])
        self._consumer.seek_to_beginning()


class PulsarControl(ControlView):
    """On Pulsar. Whatever fails, the topic is read with a new client, from its beginning, when it is asked for again."""

    def __init__(self, settings: Settings, *, cluster: str) -> None:
        """Not yet connected."""
        super().__init__(cluster)
        self._url, self._place = settings.input.url, settings.input.pulsar
        self._topic = self._place.full_name(settings.topics.control)
        self._client: pulsar.Client | None = None
        self._reader: pulsar.Reader | None = None

    def newest(self) -> ControlData | None:
        """See ``ControlView``."""
        deadline_s = time.monotonic() + _READ_TIMEOUT_S
        try:
            reader = self._reader or self._open()
            while reader.has_message_available():
                left_ms = max(1, round(1000 * (deadline_s - time.monotonic())))
                message = reader.read_next(timeout_millis=left_ms)
                if message.partition_key() == self._cluster:
                    self._take(message.data())
        except pulsar.PulsarException as error:
            self.close()
            why = pulsar_denied.told(error, self._topic, "consume")
            raise PublishError(f"the control topic {self._topic} cannot be read: {why}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        client, self._client, self._reader = self._client, None, None
        if client is not None:
            close(client)

    def _open(self) -> pulsar.Reader:
        place = self._place
        self._client = connect(
            self._url, token_file=place.token_file, ca_file=place.ca_file, timeout_s=_READ_TIMEOUT_S
        )
        self._reader = self._client.create_reader(
            self._topic, pulsar.MessageId.earliest, is_read_compacted=True
        )
        return self._reader


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
