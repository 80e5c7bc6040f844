"""Appending a few records to a topic, outside of the batches, on the system that the address of its side names."""

from collections.abc import Sequence

from streaming.contract.envelope import EPOCH_HEADER
from streaming.kafka.link import input_link, output_link
from streaming.ports.publishing import NotAllowed, PublishError
from streaming.process.exits import Refused
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings

__all__ = ["append_to_input", "append_to_output"]


def append_to_input(settings: Settings, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
    """Append keys with their values to a topic on the input's side; returns when the brokers have them. Raises ``exits.Refused``."""
    pulsar = input_on_pulsar(settings)
    if pulsar is not None:
        from streaming.pulsar.append import append as append_on_pulsar  # noqa: PLC0415  Pulsar's client, when needed

        append_on_pulsar(pulsar, topic, records)
    else:
        from streaming.kafka.append import append as append_on_kafka  # noqa: PLC0415  Kafka's client, when needed

        append_on_kafka(input_link(settings), topic, records)


def append_to_output(
    settings: Settings, topic: str, records: Sequence[tuple[str | None, bytes]], *, epoch: int
) -> None:
    """Append values, with their keys where they have any, to a topic on the output's side, as a controller of this epoch.

    Returns when the brokers have them. Raises ``PublishError``.
    """
    headers, pulsar = [(EPOCH_HEADER, str(epoch))], output_on_pulsar(settings)
    try:
        if pulsar is not None:
            from streaming.pulsar.append import append as append_on_pulsar  # noqa: PLC0415  Pulsar's client, when needed

            append_on_pulsar(pulsar, topic, records, headers=headers)
        else:
            from streaming.kafka.append import append as append_on_kafka  # noqa: PLC0415  Kafka's client, when needed

            append_on_kafka(output_link(settings), topic, records, headers=headers)
    except Refused as error:
        from streaming.systems.passing import passes  # noqa: PLC0415  both clients, when needed

        kind = PublishError if passes(error.__cause__) else NotAllowed
        raise kind(error.message) from error
