"""The newest control event of a cluster, which the executor reads before every action: on Kafka or on Pulsar."""

from streaming.kafka.control import KafkaControl
from streaming.kafka.link import input_link
from streaming.ports.control import ControlView
from streaming.pulsar.control import PulsarControl
from streaming.settings import Settings

__all__ = ["control_of"]


def control_of(settings: Settings, *, cluster: str) -> ControlView:
    """The control view of a cluster, on the system that the settings name. Raises ``PublishError``."""
    if settings.input.is_pulsar:
        return PulsarControl(settings, cluster=cluster)
    link = input_link(settings)
    return KafkaControl(
        link.bootstrap,
        topic=settings.topics.control,
        cluster=cluster,
        client_options=link.client_options(),
        principal=link.principal,
    )
