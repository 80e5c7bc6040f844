"""Writing control events to Pulsar, each acknowledged before the next is sent."""

from collections.abc import Sequence

from streaming.operators.overlay import Planned
from streaming.pulsar.clients import close
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.reading import explained

__all__ = ["write_to_pulsar"]

_TIMEOUT_S = 20.0


def write_to_pulsar(link: PulsarLink, topic: str, events: Sequence[Planned]) -> None:
    """Returns when the brokers have them. Raises ``exits.Refused``."""
    name = link.full_name(topic)
    with explained(link, name, "produce"):
        client = link.client(timeout_s=_TIMEOUT_S)
        try:
            producer = client.create_producer(
                name, send_timeout_millis=round(_TIMEOUT_S * 1000), batching_enabled=False
            )
            for event in events:
                producer.send(event.value, partition_key=event.cluster)
        finally:
            close(client)
