"""The control event that is in force for a cluster, read from Kafka."""

from collections.abc import Mapping
from types import MappingProxyType

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from state.settings import RoundSettings
from streaming.contract.messages import ControlData
from streaming.kafka.denied import explain_denied
from streaming.kafka.log import partitions_of, read_to_end
from streaming.kafka.permissions import ANYBODY, Subject, describe_hidden_topic
from streaming.transport.errors import PublishError
from streaming.transport.executor import READ_TIMEOUT_S, ControlView

_REQUEST_TIMEOUT_MS = 20_000


class KafkaControl(ControlView):
    """Reads the control topic on Kafka."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        cluster: str,
        rounds: RoundSettings,
        client_options: Mapping[str, object] = MappingProxyType({}),
        principal: str = ANYBODY,
    ) -> None:
        """Raises ``PublishError`` when the brokers cannot be reached."""
        super().__init__(cluster, rounds)
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
            for record in read_to_end(self._consumer, silence_s=READ_TIMEOUT_S):
                if record.key == self._cluster.encode():
                    self._take(record.value, appended_ms=record.timestamp)
        except KafkaError as error:
            why = explain_denied(error, self._subject, "Read", topic=self._topic)
            raise PublishError(f"the control topic {self._topic} cannot be read: {why}") from error
        return self._data

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close(timeout_ms=round(1000 * READ_TIMEOUT_S))

    def _begin(self) -> None:
        if self._consumer.assignment():
            return
        found = partitions_of(self._consumer, self._topic, timeout_s=READ_TIMEOUT_S)
        if not found:
            raise PublishError(describe_hidden_topic(self._subject, self._topic, "Read"))
        self._consumer.assign([TopicPartition(self._topic, number) for number in sorted(found)])
        self._consumer.seek_to_beginning()
