"""Where an executor's actions come from and where it remembers: Kafka or Pulsar, as the settings say."""

import time
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from streaming.executor.orders import Epochs
from streaming.kafka.actions import ActionRecord, ActionsTopic
from streaming.kafka.link import output_link
from streaming.kafka.memory import ExecutorMemory, HeldMemory, Remembered
from streaming.pulsar.actions import PulsarActions
from streaming.pulsar.link import output_on_pulsar
from streaming.pulsar.memory import PulsarExecutorMemory
from streaming.settings import Settings

__all__ = ["Actions", "Memory", "actions_of", "memory_of"]


class Actions(Protocol):
    """Actions, each at least once and in order. Methods raise ``PublishError``; after it ``drop``."""

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order, partition by partition."""

    def stay(self) -> None:
        """Say that what was polled is still worked on; to be called every few seconds. Fails once it is another's."""

    def commit(self) -> None:
        """All records polled so far are dealt with."""

    def drop(self) -> None:
        """Forget what was polled and not committed: it comes again, here or elsewhere. Raises nothing."""

    def is_at_end(self) -> bool:
        """Whether everything there was at this moment has been polled."""


class Memory(Protocol):
    """What is remembered of one cluster. Methods raise ``PublishError``."""

    def read(self) -> Remembered:
        """A look at the newest value."""

    def held(self) -> AbstractContextManager[HeldMemory]:
        """Take it from whoever holds it, read it, and change it."""


def actions_of(
    stack: ExitStack, settings: Settings, *, cluster: str, epochs: Epochs, records_max: int
) -> Actions:
    """A consumer of the actions topic; ``stack`` closes it. Raises ``PublishError``."""
    topic, now_s = settings.topics.actions, time.time()
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        return stack.enter_context(
            PulsarActions(
                pulsar, topic=topic, cluster=cluster, epochs=epochs, records_max=records_max, now_s=now_s
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
        )
    )
    actions.require()
    return actions


def memory_of(settings: Settings, *, cluster: str) -> Memory:
    """Not yet connected to anything."""
    topic = settings.topics.executor_kafka
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        return PulsarExecutorMemory(pulsar, topic, cluster)
    link = output_link(settings)
    return ExecutorMemory(link.bootstrap, topic, cluster, link.client_options(), link.principal)
