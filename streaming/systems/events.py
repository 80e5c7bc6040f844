"""Where collectors and executors send their events, and controllers their beats, on the system that an address names."""

from typing import TYPE_CHECKING

from streaming.kafka.events import KafkaEvents
from streaming.kafka.link import Link, input_link, output_link
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings
from streaming.transport.events import EventSink

if TYPE_CHECKING:
    from streaming.pulsar.link import PulsarLink


def event_sink_of(settings: Settings) -> EventSink:
    """The input topic, connected. Raises ``PublishError`` or ``NoTopic``."""
    pulsar, topic = input_on_pulsar(settings), settings.topics.input
    return _on_kafka(settings, input_link(settings), topic) if pulsar is None else _on_pulsar(pulsar, topic)


def beat_sink_of(settings: Settings) -> EventSink:
    """The topic of beats, connected. Raises ``PublishError`` or ``NoTopic``."""
    pulsar, topic = output_on_pulsar(settings), settings.topics.beats
    return _on_kafka(settings, output_link(settings), topic) if pulsar is None else _on_pulsar(pulsar, topic)


def _on_kafka(settings: Settings, link: Link, topic: str) -> EventSink:
    return KafkaEvents(
        link.bootstrap,
        topic=topic,
        max_record_bytes=settings.controller.max_record_bytes,
        client_options=link.client_options(),
        principal=link.principal,
    )


def _on_pulsar(link: "PulsarLink", topic: str) -> EventSink:
    from streaming.pulsar.events import PulsarEvents  # noqa: PLC0415  loads Pulsar's client

    return PulsarEvents(link, topic)
