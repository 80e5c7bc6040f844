"""Topics of the input and of the output, each on the system that its address names: they are made here, and checked at a start.

Control events are on the input's side, whichever system that is; everything the controller writes is on the output's.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from streaming.kafka.link import Link, input_link, output_link, same_brokers
from streaming.kafka.topics import create, validate
from streaming.settings import Settings
from streaming.transport.topics import TopicOutcome

Found = TypeVar("Found")


def create_all(settings: Settings, *, input_partitions: int) -> list[TopicOutcome]:
    """Make what is missing on both sides; raises ``StartError``."""
    outcomes: list[TopicOutcome] = []
    if _uses_pulsar(settings):
        from streaming.pulsar import topics  # noqa: PLC0415  only with Pulsar its client is needed

        outcomes += topics.create(settings, input_partitions=input_partitions)
    return outcomes + _on_kafka(settings, partial(create, input_partitions=input_partitions))


def validate_all(settings: Settings) -> list[str]:
    """Check both sides; returns warnings, raises ``StartError``."""
    warnings: list[str] = []
    if _uses_pulsar(settings):
        from streaming.pulsar import topics  # noqa: PLC0415  only with Pulsar its client is needed

        warnings += topics.validate(settings)
    return warnings + _on_kafka(settings, validate)


def _uses_pulsar(settings: Settings) -> bool:
    return settings.input.is_pulsar or settings.output_is_pulsar


def _on_kafka(settings: Settings, look: Callable[..., list[Found]]) -> list[Found]:
    """What ``look``, which is ``create`` or ``validate``, finds on each side that is on Kafka."""
    return [
        found
        for link, only in kafka_sides(settings)
        for found in look(
            link.bootstrap,
            settings.topics,
            max_record_bytes=settings.controller.max_record_bytes,
            only=only,
            client_options=link.client_options(),
            principal=link.principal,
        )
    ]


def kafka_sides(settings: Settings) -> list[tuple[Link, frozenset[str] | None]]:
    """Where to look for which topics; None is all of them."""
    names = settings.topics
    read = frozenset({names.input, names.control})
    written = frozenset(names.all) - read
    sides: list[tuple[Link, frozenset[str] | None]] = []
    if not settings.input.is_pulsar:
        sides.append((input_link(settings), read))
    if not settings.output_is_pulsar:
        sides.append((output_link(settings), written))
    if len(sides) > 1 and same_brokers(sides[0][0], sides[1][0]):
        return [(sides[0][0], None)]
    return sides
