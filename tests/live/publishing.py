"""A publisher on a real Kafka, with topics and a name of its own; what counts is what a `read_committed` consumer sees."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from streaming.contract.envelope import EPOCH_HEADER
from streaming.kafka.link import Link
from streaming.kafka.publisher import KafkaPublisher
from streaming.transport.publishing import UNNAMED, OutboundRecord, RanWith

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Setting:
    """Topics and a controller name of one test's own."""

    bootstrap: str
    name: str
    actions: str
    commits: str

    def publisher(
        self,
        *,
        timeout_s: float = 20.0,
        claim_wait_s: float = 5.0,
        ran_with: RanWith = UNNAMED,
        announces: bool = False,
    ) -> KafkaPublisher:
        return KafkaPublisher(
            Link(self.bootstrap),
            name=self.name,
            commits_topic=self.commits,
            announce_on=self.actions if announces else None,
            timeout_s=timeout_s,
            claim_wait_s=claim_wait_s,
            ran_with=ran_with,
        )

    def batch(self, number: int, text: str = "batch", count: int = 3) -> list[OutboundRecord]:
        return [
            OutboundRecord(self.actions, "east-1", f"{text} {number}.{place}".encode(), number, place)
            for place in range(count)
        ]

    def another(self) -> "Setting":
        return replace(self, name=f"{self.name}-other")

    def create(self, topic: str) -> None:
        """One partition; that of the commits is compacted."""
        configs = {"cleanup.policy": "compact"} if topic == self.commits else {}
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            made = {topic: {"num_partitions": 1, "replication_factor": 1, "configs": configs}}
            admin.create_topics(made, wait_for_metadata=True)

    def visible(self) -> list[tuple[str, str]]:
        """(value, epoch) of every action that a read_committed consumer sees, up to the end of the log."""
        partition = TopicPartition(self.actions, 0)
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        consumer.assign([partition])
        seen = []
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            seen += [
                (record.value.decode(), dict(record.headers)[EPOCH_HEADER].decode())
                for record in consumer.poll(timeout_ms=200).get(partition, [])
            ]
        consumer.close()
        return seen

    def run(self, body: str) -> "subprocess.CompletedProcess[str]":
        """Run a controller in a process of its own, which may kill itself."""
        program = f"""
            import os, signal, sys
            from kafka import KafkaProducer
            from streaming.kafka.link import Link
            from streaming.kafka.publisher import KafkaPublisher
            from streaming.transport.publishing import OutboundRecord
            from tests.live.checkpoints import at
            publisher = KafkaPublisher(Link({self.bootstrap!r}), name={self.name!r}, commits_topic={self.commits!r})
            def batch(number):
                values = [f"batch {{number}}.{{place}}".encode() for place in range(3)]
                return [OutboundRecord({self.actions!r}, "east-1", value, number, place)
                        for place, value in enumerate(values)]
            def die(*_):
                os.kill(os.getpid(), signal.SIGKILL)
        """
        source = textwrap.dedent(program) + textwrap.dedent(body)
        return subprocess.run(
            [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
        )


def setting_on(bootstrap: str) -> Setting:
    """A setting with its topics made."""
    unique = uuid4().hex[:8]
    made = Setting(bootstrap, f"trimtab-{unique}", f"actions-{unique}", f"commits-{unique}")
    made.create(made.actions)
    made.create(made.commits)
    return made
