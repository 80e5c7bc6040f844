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
    bootstrap, topics = settings.input.bootstrap, settings.topics
    most, options = settings.controller.max_record_bytes, input_link(settings).client_options()
    results = stack.enter_context(
        KafkaEvents(bootstrap, topic=topics.input, max_record_bytes=most, client_options=options)
    )
    control = ControlTopic(bootstrap, topic=topics.control, cluster=cluster, client_options=options)
    return results, stack.enter_context(closing(control))
