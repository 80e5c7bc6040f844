"""Lets what was read be trimmed: one consumer of the durable subscription for each partition, which receives nothing.

A consumer that stays connected acknowledges without a word in the broker's log, where resetting the subscription costs six
lines for each batch, and while it is there Pulsar does not expire the subscription.
"""

import pulsar

from streaming.pulsar.positions import Position
from streaming.pulsar.topic_names import partition_index

__all__ = ["Acknowledger"]


class Acknowledger:
    """One partition's consumer; connects at the first call. A predecessor's may still be there: whoever is, may acknowledge."""

    def __init__(self, client: pulsar.Client, partition: str, *, subscription: str) -> None:
        self._client = client
        self._partition = partition
        self._subscription = subscription
        self._consumer: pulsar.Consumer | None = None

    def release(self, done: Position) -> None:
        """Let what is done be trimmed, but for its last entry. Raises ``pulsar.PulsarException``.

        That one keeps its ledger, so that a position whose ledger is gone always means lost data.
        """
        if done.entry < 1:
            return
        before = pulsar.MessageId(partition_index(self._partition), done.ledger, done.entry - 1, -1)
        self._consumer_of_partition().acknowledge_cumulative(before)

    def _consumer_of_partition(self) -> pulsar.Consumer:
        if self._consumer is None:
            self._consumer = self._client.subscribe(
                self._partition,
                self._subscription,
                consumer_type=pulsar.ConsumerType.Failover,
                receiver_queue_size=0,
            )
        return self._consumer
