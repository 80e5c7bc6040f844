"""A topic that moves on a real Kafka of three brokers: data in it, producers at a steady rate, progress by log sizes."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from uuid import uuid4

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from deploy.local.kafka import LocalKafka, Node
from streaming.collector.kafka import KafkaCollector
from streaming.collector.metrics import CollectorMetrics
from streaming.executor.kafka import ThrottleLoop, start
from streaming.executor.metrics import ExecutorMetrics
from streaming.kafka.client import close_producer
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.link import KafkaLink
from streaming.kafka.side import KafkaEvents
from streaming.kafka.throttles import Throttle
from streaming.settings import Settings
from tests.support.processes import meanwhile

CLUSTER = "kafka-1"
BROKERS = (1, 2, 3)
RECORD_BYTES = 16_384
_FILL_BYTES = 100_000
_STEP_S = 0.02
_BURST_S = 0.5
"""A producer that a busy machine kept from writing for longer does not catch up: that would be traffic that grows."""


class UsualFetches(LocalKafka):
    """A Kafka with Kafka's own fetch sizes: a throttle is only as fine as a fetch, and the local Kafka's are for 32 MiB records."""

    def _more_properties(self, _node: Node) -> str:
        return "replica.fetch.max.bytes=1048576\nreplica.fetch.response.max.bytes=10485760\n"


class TwoDisks(LocalKafka):
    """A Kafka with two log directories for each broker.

    Its fetches are as small beside the rates of a test as Kafka's own are beside those of a real network. With fetches of a megabyte and a
    rate of a megabyte a second, ten seconds' worth passes at once, every ten seconds.
    """

    def _more_properties(self, node: Node) -> str:
        return (
            "replica.fetch.max.bytes=131072\nreplica.fetch.backoff.ms=100\n"
            f"log.dirs={node.store},{node.store}-2\n"
        )


Target = Mapping[int, Sequence[int]]
"""Replicas of each partition."""


@dataclass(slots=True)
class Moving:
    """A topic of a test's own; ``assigned`` is where its partitions are at first."""

    kafka: LocalKafka
    assigned: Target
    topic: str = field(init=False)
    admin: KafkaAdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.topic = f"mv-{uuid4().hex[:8]}"
        self.connect()
        self.admin.create_topics(
            {self.topic: {"assignments": {number: list(found) for number, found in self.assigned.items()}}},
            wait_for_metadata=True,
        )

    def connect(self) -> None:
        """Take a new client: kafka-python remembers the broker that answers as controller, even one that has gone."""
        self.admin = KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)

    def fill(
        self, bytes_each: int, *, record_bytes: int = _FILL_BYTES, only: Collection[int] | None = None
    ) -> None:
        """Write so much to each partition, or each of ``only``."""
        with KafkaProducer(bootstrap_servers=self.kafka.bootstrap, acks="all") as producer:
            for _ in range(bytes_each // record_bytes):
                for number in only or self.assigned:
                    producer.send(self.topic, b"x" * record_bytes, partition=number)
            producer.flush()

    def written(
        self, bytes_per_s: int, *, waits: list[tuple[float, float]] | None = None
    ) -> AbstractContextManager[None]:
        """Producers write so much to each partition until the end of the block.

        With ``waits`` they wait for all in-sync replicas, and note when each record was sent, and how long that took, in seconds.
        """
        return meanwhile(partial(self._write, bytes_per_s, waits))

    def _write(
        self, bytes_per_s: int, waits: list[tuple[float, float]] | None, stop: threading.Event
    ) -> None:
        acks: Literal[1, "all"] = 1 if waits is None else "all"
        producer = KafkaProducer(
            bootstrap_servers=self.kafka.bootstrap, acks=acks, batch_size=2 * RECORD_BYTES
        )

        def note(sent_s: float, _answer: object) -> None:
            if waits is not None:
                waits.append((sent_s, time.monotonic() - sent_s))

        began_s, sent, burst = time.monotonic(), 0, int(_BURST_S * bytes_per_s / RECORD_BYTES)
        try:
            while not stop.wait(_STEP_S):
                due = int((time.monotonic() - began_s) * bytes_per_s / RECORD_BYTES)
                for _ in range(min(due - sent, burst)):
                    for number in self.assigned:
                        record = producer.send(self.topic, b"x" * RECORD_BYTES, partition=number)
                        record.add_callback(partial(note, time.monotonic()))
                sent = due
        finally:
            close_producer(producer, wait_s=1)

    def miss(self, broker: int, bytes_each: int) -> float:
        """Stop a broker, and write so much to each partition at once; returns when it stopped, in seconds of ``time.monotonic``.

        More than passes at once, which is ten seconds' worth of the rates, and long before it is back, so that it is no write rate.
        """
        self.kafka.stop_node(broker)
        stopped_s = time.monotonic()
        self.connect()
        self.fill(bytes_each, record_bytes=RECORD_BYTES)
        return stopped_s

    def begin(self, target: Target) -> None:
        """Start the reassignment."""
        self.admin.alter_partition_reassignments(
            {TopicPartition(self.topic, number): list(replicas) for number, replicas in target.items()}
        )

    def cancel(self) -> None:
        """Cancel the reassignment."""
        self.admin.alter_partition_reassignments(
            {TopicPartition(self.topic, number): None for number in self.assigned}
        )

    @property
    def cluster(self) -> KafkaCluster:
        """The cluster as programs see it."""
        return KafkaCluster(self.admin)

    def is_moving(self) -> bool:
        """Whether Kafka still carries it out."""
        return any(topic == self.topic for topic, _ in KafkaCluster(self.admin).reassignments())

    def leader(self, number: int) -> int:
        """The broker that leads a partition."""
        return KafkaCluster(self.admin).partitions([self.topic])[self.topic, number].leader

    def left_bytes(self, target: Target) -> int:
        """What the replicas of ``target`` still lack, all together."""
        states = KafkaCluster(self.admin).partitions([self.topic])
        where = [(self.topic, number) for number in target]
        sizes = KafkaCluster(self.admin).log_sizes(where, BROKERS).sizes_bytes
        return sum(
            max(sizes[each].get(states[each].leader, 0) - sizes[each].get(broker, 0), 0)
            for each in where
            for broker in set(target[each[1]]) - set(self.assigned[each[1]])
        )

    def behind_bytes(self, broker: int) -> int | None:
        """What a broker's replicas lack by their offsets, of what ``written`` wrote; None while it does not tell of all of them."""
        states = self.cluster.partitions([self.topic])
        ends = self.cluster.end_offsets({where: state.leader for where, state in states.items()})
        own = self.cluster.replica_end_offsets(broker, states)  # later, so that one in sync lacks nothing
        if len(own) < len(states) or len(ends) < len(states):
            return None
        return sum(max(ends[where] - own[where], 0) for where in states) * RECORD_BYTES

    def throttle(self) -> Throttle:
        """All that is set on the topic and on any broker."""
        return KafkaCluster(self.admin).throttle(topics=[self.topic], brokers=BROKERS).throttle

    def close(self) -> None:
        """Close the connection; what still moves is cancelled."""
        if self.is_moving():
            self.cancel()
        self.admin.delete_topics([self.topic])
        self.admin.close()


@contextmanager
def collecting(settings: Settings, *, cluster: str) -> Iterator[KafkaCollector]:
    """A cluster's collector, at work until the end of the block."""
    with ExitStack() as stack:
        sink = stack.enter_context(
            KafkaEvents(
                KafkaLink(settings.input.bootstrap),
                settings.topics.input,
                max_record_bytes=settings.controller.max_record_bytes,
            )
        )
        target = settings.targets[cluster].kafka
        collector = KafkaCollector(
            settings, CollectorMetrics(cluster), cluster=cluster, target=target, sink=sink
        )
        stack.callback(collector.close)
        stack.enter_context(_at_work(collector))
        yield collector


@contextmanager
def pipeline(settings: Settings, *, cluster: str) -> Iterator[tuple[KafkaCollector, ThrottleLoop]]:
    """Collector and executor of a cluster, at work until the end of the block."""
    with ExitStack() as stack:
        collector = stack.enter_context(collecting(settings, cluster=cluster))
        target = settings.targets[cluster].kafka
        executor = start(
            stack, settings, ExecutorMetrics(cluster), cluster=cluster, target=target, dry_run=False
        )
        stack.enter_context(_at_work(executor))
        yield collector, executor


@contextmanager
def _at_work(program: KafkaCollector | ThrottleLoop) -> Iterator[None]:
    thread = threading.Thread(target=program.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        program.stop()
        thread.join()


def planned(path: Path, topic: str, target: Target) -> None:
    """Write Kafka's own reassignment.json."""
    rows = [
        f'{{"topic": "{topic}", "partition": {number}, "replicas": {list(replicas)}}}'
        for number, replicas in target.items()
    ]
    path.write_text(f'{{"version": 1, "partitions": [{", ".join(rows)}]}}')
