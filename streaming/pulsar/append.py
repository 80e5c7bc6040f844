"""Appending messages to a topic on Pulsar, each acknowledged before the next is sent."""

from collections.abc import Sequence

from streaming.pulsar.clients import close
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.reading import explain_errors

_TIMEOUT_S = 20.0


def append(
    link: PulsarLink,
    topic: str,
    records: Sequence[tuple[str | None, bytes]],
    *,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Append values, with their keys if any; returns when the brokers have them. Raises ``exits.Refused``."""
    name = link.full_name(topic)
    with explain_errors(link, name, "produce"):
        client = link.client(timeout_s=_TIMEOUT_S)
        try:
            producer = client.create_producer(
                name, send_timeout_millis=round(_TIMEOUT_S * 1000), batching_enabled=False
            )
            for key, value in records:
                producer.send(value, partition_key=key, properties=dict(headers))
        finally:
            close(client)
