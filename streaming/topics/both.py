"""Topics of the input and of the output, each on the system its address names: made, and checked at start.

Control events are on the input's side, whichever system that is; everything the controller writes is on the output's.
"""

from types import ModuleType

from streaming.link import Link, input_link, output_link, same_brokers
from streaming.settings import Settings
from streaming.topics.kafka import TopicOutcome, create, validate

__all__ = ["create_all", "validate_all"]


def create_all(settings: Settings, *, input_partitions: int) -> list[TopicOutcome]:
    """Make what is missing on both sides; raises ``StartError``."""
    on_pulsar = (
        _pulsar_topics().create(settings, input_partitions=input_partitions) if _uses_pulsar(settings) else []
    )
    return on_pulsar + [
        outcome
        for link, only in _kafka_sides(settings)
        for outcome in create(
            link.bootstrap,
            settings.topics,
            input_partitions=input_partitions,
            max_record_bytes=settings.controller.max_record_bytes,
            only=only,
            client_options=link.client_options(),
            principal=link.principal,
        )
    ]


def validate_all(settings: Settings) -> list[str]:
    """Check both sides; returns warnings, raises ``StartError``."""
    on_pulsar = _pulsar_topics().validate(settings) if _uses_pulsar(settings) else []
    return on_pulsar + [
        warning
        for link, only in _kafka_sides(settings)
        for warning in validate(
            link.bootstrap,
            settings.topics,
            max_record_bytes=settings.controller.max_record_bytes,
            only=only,
            client_options=link.client_options(),
            principal=link.principal,
        )
    ]


def _uses_pulsar(settings: Settings) -> bool:
    return settings.input.is_pulsar or settings.output_is_pulsar


def _kafka_sides(settings: Settings) -> list[tuple[Link, frozenset[str] | None]]:
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


def _pulsar_topics() -> ModuleType:
    from streaming.topics import pulsar  # noqa: PLC0415  only with Pulsar its client is needed

    return pulsar
