"""Where an executor's results go and control events come from: Kafka or Pulsar, as the settings say."""

from contextlib import ExitStack, closing

from streaming.execute.actions_topic import ControlTopic
from streaming.link import input_link
from streaming.settings import Settings
from streaming.sinks.input_events import EventSink, KafkaEvents
from streaming.sinks.pulsar_events import PulsarControl, PulsarEvents

__all__ = ["input_side"]


def input_side(
    stack: ExitStack, settings: Settings, cluster: str
) -> tuple[EventSink, ControlTopic | PulsarControl]:
    """Results and control; ``stack`` closes them. Raises ``PublishError`` or ``NoInputTopic``."""
    if settings.input.is_pulsar:
        return (
            stack.enter_context(closing(PulsarEvents(settings))),
            stack.enter_context(closing(PulsarControl(settings, cluster=cluster))),
        )
    link, topics = input_link(settings), settings.topics
    options, principal = link.client_options(), link.principal
    results = stack.enter_context(
        KafkaEvents(
            link.bootstrap,
            topic=topics.input,
            max_record_bytes=settings.controller.max_record_bytes,
            client_options=options,
            principal=principal,
        )
    )
    control = ControlTopic(
        link.bootstrap, topic=topics.control, cluster=cluster, client_options=options, principal=principal
    )
    return results, stack.enter_context(closing(control))
