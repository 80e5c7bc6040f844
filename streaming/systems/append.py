"""Appending a few records to a topic, outside of the batches, on the system that the address of its side names."""

from collections.abc import Sequence

from streaming.contract.envelope import EPOCH_HEADER
from streaming.kafka.link import Link, input_link, output_link
from streaming.process.exits import Refused
from streaming.pulsar.link import PulsarLink, input_on_pulsar, output_on_pulsar
from streaming.settings import Settings
from streaming.transport.errors import NotAllowed, PublishError


def append_to_input(settings: Settings, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
    """Append keys with their values to a topic on the input's side; returns when the brokers have them. Raises ``exits.Refused``."""
    _append(input_on_pulsar(settings) or input_link(settings), topic, records)


def append_to_output(
    settings: Settings, topic: str, records: Sequence[tuple[str | None, bytes]], *, epoch: int
) -> None:
    """Append values, with their keys where they have any, to a topic on the output's side, as a controller of this epoch.

    Returns when the brokers have them. Raises ``PublishError``.
    """
    link = output_on_pulsar(settings) or output_link(settings)
    try:
        _append(link, topic, records, headers=[(EPOCH_HEADER, str(epoch))])
    except Refused as error:
        from streaming.systems.passing import passes  # noqa: PLC0415  both clients, when needed

        kind = PublishError if passes(error.__cause__) else NotAllowed
        raise kind(error.message) from error


def _append(
    link: Link | PulsarLink,
    topic: str,
    records: Sequence[tuple[str | None, bytes]],
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    if isinstance(link, PulsarLink):
        from streaming.pulsar.events import append as append_on_pulsar  # noqa: PLC0415  Pulsar's client, when needed

        append_on_pulsar(link, topic, records, headers=headers)
    else:
        from streaming.kafka.events import append as append_on_kafka  # noqa: PLC0415  Kafka's client, when needed

        append_on_kafka(link, topic, records, headers=headers)
