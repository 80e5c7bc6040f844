"""Lets Pulsar trim what was read: each partition has one consumer of the durable subscription, which receives nothing.

A consumer that stays connected acknowledges without a line in the broker's log, while resetting the subscription costs six
lines for each batch. And while a consumer is connected Pulsar does not expire the subscription.
"""

import pulsar

from streaming.pulsar.positions import Position
from streaming.pulsar.topic_names import partition_index


class Acknowledger:
    """One partition's consumer; it connects at the first call. A predecessor's may still be connected: any may acknowledge."""

    def __init__(self, client: pulsar.Client, partition: str, *, subscription: str) -> None:
        self._client = client
        self._partition = partition
        self._subscription = subscription
        self._consumer: pulsar.Consumer | None = None

    def release(self, done: Position) -> None:
        """Let Pulsar trim what is done, except its last entry. Raises ``pulsar.PulsarException``.

        The last entry keeps its ledger, so that a position whose ledger is gone always means lost data.
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
