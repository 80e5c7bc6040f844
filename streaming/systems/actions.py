"""Where an executor's actions come from and where it keeps its memory: Kafka or Pulsar, as the settings say."""

import time
from contextlib import ExitStack

from streaming.kafka.executor import ActionsTopic, ExecutorMemory
from streaming.kafka.link import output_link
from streaming.pulsar.executor import PulsarActions, PulsarExecutorMemory
from streaming.pulsar.link import output_on_pulsar
from streaming.settings import Settings
from streaming.transport.executor import Actions, Epochs, Memory


def actions_of(
    stack: ExitStack, settings: Settings, *, cluster: str, epochs: Epochs, records_max: int
) -> Actions:
    """A consumer of the actions topic for a cluster's executors; ``stack`` closes it. Raises ``PublishError``."""
    return records_of(
        stack,
        settings,
        topic=settings.topics.actions,
        group=f"trimtab-execute-{cluster}",
        cluster=cluster,
        epochs=epochs,
        records_max=records_max,
    )


def records_of(
    stack: ExitStack,
    settings: Settings,
    *,
    topic: str,
    group: str,
    cluster: str,
    epochs: Epochs,
    records_max: int,
) -> Actions:
    """A consumer of a topic of the output's side that remembers its position; ``stack`` closes it. Raises ``PublishError``."""
    now_s = time.time()
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        return stack.enter_context(
            PulsarActions(
                pulsar,
                topic=topic,
                cluster=cluster,
                epochs=epochs,
                records_max=records_max,
                now_s=now_s,
                group=group,
            )
        )
    link = output_link(settings)
    actions = stack.enter_context(
        ActionsTopic(
            link.bootstrap,
            topic=topic,
            cluster=cluster,
            epochs=epochs,
            records_max=records_max,
            now_s=now_s,
            client_options=link.client_options(),
            principal=link.principal,
            group=group,
        )
    )
    actions.require()
    return actions


def memory_of(settings: Settings, *, cluster: str) -> Memory:
    """The memory of a cluster's executors, not yet connected to anything."""
    topic = settings.topics.executor_kafka
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        return PulsarExecutorMemory(pulsar, topic, cluster)
    link = output_link(settings)
    return ExecutorMemory(link.bootstrap, topic, cluster, link.client_options(), link.principal)
