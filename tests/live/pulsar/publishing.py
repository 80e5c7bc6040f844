"""A controller's topics in a namespace of a test's own, batches for them, and what is seen there."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field, replace
from uuid import uuid4

from streaming.contract.envelope import EPOCH_HEADER
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.publisher import PulsarPublisher
from streaming.settings import PulsarTopics
from streaming.transport.publishing import UNNAMED, OutboundRecord, RanWith
from tests.live.driving import ROOT
from tests.live.pulsar.lab import Lab, connected
from tests.live.pulsar.stage import messages

ACTIONS, AUDIT, COMMITS = "trimtab.actions", "trimtab.audit", "trimtab.commits"


@dataclass
class Setting:
    """A namespace with a controller's topics."""

    lab: Lab
    name: str = field(default_factory=lambda: f"trimtab-{uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        """Topics come into being when they are used, deduplicated by their namespace."""
        self.lab.post(f"namespaces/{self.lab.namespace}/deduplication", True)
        place = PulsarTopics(admin_url=self.lab.pulsar.admin_url, namespace=self.lab.namespace)
        self.link = PulsarLink(self.lab.pulsar.service_url, "output", place)
        self.client = connected(self.lab.pulsar)

    def publisher(
        self,
        *,
        timeout_s: float = 20.0,
        claim_wait_s: float = 5.0,
        ran_with: RanWith = UNNAMED,
        announces: bool = False,
    ) -> PulsarPublisher:
        return PulsarPublisher(
            self.link,
            name=self.name,
            commits_topic=COMMITS,
            announce_on=ACTIONS if announces else None,
            timeout_s=timeout_s,
            claim_wait_s=claim_wait_s,
            ran_with=ran_with,
        )

    def batch(self, number: int, text: str = "batch", count: int = 3) -> list[OutboundRecord]:
        return [record for record in batch(number, text, count) if record.topic == ACTIONS]

    def another(self) -> "Setting":
        return replace(self, name=f"{self.name}-other")

    def seen(self, topic: str = ACTIONS) -> list[str]:
        """Values of all messages of an output, in order."""
        return [message.value.decode() for message in messages(self.client, self.link.full_name(topic))]

    def visible(self) -> list[tuple[str, str]]:
        found = messages(self.client, self.link.full_name(ACTIONS))
        return [(message.value.decode(), dict(message.headers)[EPOCH_HEADER].decode()) for message in found]

    def start(self, body: str) -> "subprocess.Popen[str]":
        """A controller in a process of its own; `at` is what is called after each message that is out."""
        program = f"""
            import os, signal, sys
            from streaming.pulsar.link import PulsarLink
            from streaming.settings import PulsarTopics
            from streaming.transport.publishing import OutboundRecord
            from streaming.pulsar.publisher import PulsarPublisher
            from streaming.pulsar.commits import Producers
            from tests.live.checkpoints import at
            place = PulsarTopics(admin_url={self.lab.pulsar.admin_url!r}, namespace={self.lab.namespace!r})
            link = PulsarLink({self.lab.pulsar.service_url!r}, "output", place)
            publisher = PulsarPublisher(link, name={self.name!r}, commits_topic={COMMITS!r})
            def batch(number):
                return [OutboundRecord(topic, "east-1", f"batch {{number}}.{{place}}".encode(), number, place)
                        for topic in ({ACTIONS!r}, {AUDIT!r}) for place in range(3)]
            def die(*_):
                os.kill(os.getpid(), signal.SIGKILL)
            plain_send, plain_commit = Producers.send, Producers.commit
            sent_count, commits_count = 0, 0
            def on_send(count, act):
                def send(self, *arguments, **named):
                    global sent_count
                    plain_send(self, *arguments, **named)
                    named["sent"].wait(timeout_s=20)
                    sent_count += 1
                    if sent_count == count:
                        act()
                Producers.send = send
            def on_commit(count, act):
                def commit(self, *arguments):
                    global commits_count
                    plain_commit(self, *arguments)
                    commits_count += 1
                    if commits_count == count:
                        act()
                Producers.commit = commit
        """
        source = textwrap.dedent(program) + textwrap.dedent(body)
        return subprocess.Popen(
            [sys.executable, "-c", source],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def batch(number: int, text: str = "batch", count: int = 3) -> list[OutboundRecord]:
    return [
        OutboundRecord(topic, "east-1", f"{text} {number}.{place}".encode(), number, place)
        for topic in (ACTIONS, AUDIT)
        for place in range(count)
    ]


def values_of(*numbers: int, text: str = "batch") -> list[str]:
    return [f"{text} {number}.{place}" for number in numbers for place in range(3)]
