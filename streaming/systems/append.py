"""Appending a few records to a topic for a person, on the system that the address of its side names."""

from collections.abc import Sequence

from streaming.kafka.link import input_link
from streaming.pulsar.link import input_on_pulsar
from streaming.settings import Settings

__all__ = ["append_to_input"]


def append_to_input(settings: Settings, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
    """Keys with their values, to a topic on the input's side; returns when the brokers have them. Raises ``exits.Refused``."""
    pulsar = input_on_pulsar(settings)
    if pulsar is not None:
        from streaming.pulsar.append import append as append_on_pulsar  # noqa: PLC0415  Pulsar's client, when needed

        append_on_pulsar(pulsar, topic, records)
    else:
        from streaming.kafka.append import append as append_on_kafka  # noqa: PLC0415  Kafka's client, when needed

        append_on_kafka(input_link(settings), topic, records)
