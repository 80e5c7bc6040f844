"""Where an executor's results go and control events come from: Kafka or Pulsar, as the settings say."""

from contextlib import ExitStack, closing

from streaming.execute.actions_topic import ControlTopic
from streaming.link import input_link
from streaming.settings import Settings
from streaming.sinks.event_sink import event_sink_of
from streaming.sinks.input_events import EventSink
from streaming.sinks.pulsar_events import PulsarControl

__all__ = ["input_side"]


def input_side(
    stack: ExitStack, settings: Settings, cluster: str
) -> tuple[EventSink, ControlTopic | PulsarControl]:
    """Results and control; ``stack`` closes them. Raises ``PublishError`` or ``NoInputTopic``."""
    results = stack.enter_context(closing(event_sink_of(settings)))
    return results, stack.enter_context(closing(_control(settings, cluster)))


def _control(settings: Settings, cluster: str) -> ControlTopic | PulsarControl:
    if settings.input.is_pulsar:
        return PulsarControl(settings, cluster=cluster)
    link = input_link(settings)
    return ControlTopic(
        link.bootstrap,
        topic=settings.topics.control,
        cluster=cluster,
        client_options=link.client_options(),
        principal=link.principal,
    )
