"""The control event that is in force for a cluster, read from Pulsar."""

import pulsar

from state.settings import RoundSettings
from streaming.contract.messages import ControlData
from streaming.pulsar.clients import close, connect, read_to_end
from streaming.pulsar.denied import explain_denied
from streaming.settings import Settings
from streaming.transport.errors import PublishError
from streaming.transport.executor import READ_TIMEOUT_S, ControlView


class PulsarControl(ControlView):
    """Reads the control topic on Pulsar. After any failure the next call reads it from its beginning, with a new client."""

    def __init__(self, settings: Settings, *, cluster: str, rounds: RoundSettings) -> None:
        """Does not connect yet."""
        super().__init__(cluster, rounds)
        self._url, self._place = settings.input.url, settings.input.pulsar
        self._topic = self._place.full_name(settings.topics.control)
        self._client: pulsar.Client | None = None
        self._reader: pulsar.Reader | None = None

    def newest(self) -> ControlData | None:
        """See ``ControlView``."""
        try:
            reader = self._reader or self._open()
            for message in read_to_end(reader, silence_s=READ_TIMEOUT_S):
                if message.partition_key() == self._cluster:
                    self._take(message.data(), appended_ms=message.publish_timestamp())
        except pulsar.PulsarException as error:
            self.close()
            why = explain_denied(error, self._topic, "consume")
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
            self._url, token_file=place.token_file, ca_file=place.ca_file, timeout_s=READ_TIMEOUT_S
        )
        self._reader = self._client.create_reader(
            self._topic, pulsar.MessageId.earliest, is_read_compacted=True
        )
        return self._reader
