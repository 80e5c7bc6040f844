"""Where the events of collectors and executors go, on the system the input's address names."""

from streaming.kafka.events import KafkaEvents
from streaming.kafka.link import input_link
from streaming.ports.events import EventSink
from streaming.settings import Settings

__all__ = ["event_sink_of"]


def event_sink_of(settings: Settings) -> EventSink:
    """Connected. Raises ``PublishError`` or ``NoInputTopic``."""
    if settings.input.is_pulsar:
        from streaming.pulsar.events import PulsarEvents  # noqa: PLC0415  loads Pulsar's client

        return PulsarEvents(settings)
    link = input_link(settings)
    return KafkaEvents(
        link.bootstrap,
        topic=settings.topics.input,
        max_record_bytes=settings.controller.max_record_bytes,
        client_options=link.client_options(),
        principal=link.principal,
    )
