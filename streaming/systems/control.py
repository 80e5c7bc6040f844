"""The newest control event of a cluster, which the executor reads before every action: on Kafka or on Pulsar."""

from state.events import System
from state.systems import rounds_of
from streaming.kafka.executor import KafkaControl
from streaming.kafka.link import input_link
from streaming.pulsar.executor import PulsarControl
from streaming.settings import ClusterSettingsSource, Settings
from streaming.transport.executor import ControlView


def control_of(settings: Settings, *, cluster: str, system: System) -> ControlView:
    """The control view of a cluster of a system; the topic is on the input's side. Raises ``PublishError``."""
    rounds = rounds_of(system, ClusterSettingsSource(settings).base(cluster))
    if settings.input.is_pulsar:
        return PulsarControl(settings, cluster=cluster, rounds=rounds)
    link = input_link(settings)
    return KafkaControl(
        link.bootstrap,
        topic=settings.topics.control,
        cluster=cluster,
        rounds=rounds,
        client_options=link.client_options(),
        principal=link.principal,
    )
