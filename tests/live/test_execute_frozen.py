"""An executor's process that is frozen for longer than its group waits, on a real Kafka: it joins again and goes on."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from deploy.local.kafka import LocalKafka
from streaming.contract.envelope import EPOCH_HEADER
from streaming.contract.messages import ActionResultMessage, type_of
from streaming.kafka.cluster import KafkaCluster
from tests.live.driving import Child, ask, until
from tests.live.stage import Stage

pytestmark = pytest.mark.live


@dataclass(slots=True)
class Executor:
    """An executor's process and the topics around it; its actions throttle one of these topics, by its list only."""

    stage: Stage
    admin: KafkaAdminClient
    point: str
    child: Child = field(init=False)

    @property
    def cluster(self) -> str:
        """A cluster, and so a group, of the test's own."""
        return f"kafka-{self.stage.name}"

    @property
    def group(self) -> str:
        return f"trimtab-execute-{self.cluster}"

    def __post_init__(self) -> None:
        target = f'[targets."{self.cluster}".kafka]\nbootstrap = "{self.stage.bootstrap}"\n'
        config = self.stage.settings(base=target)
        program = (sys.executable, "-m", "tests.live.freezing", self.point)
        asked = ("execute", "kafka", self.cluster, "--config", str(config))
        self.child = Child((*program, *asked), self.stage.directory / "executor.log")

    def say(self, id_: str, entry: str, *, lives_s: float = 600.0) -> datetime:
        """Publish an action that throttles a replica; returns when it expires."""
        expires = datetime.now(UTC) + timedelta(seconds=lives_s)
        data = {
            "precondition": {"reassignments": "unknown"},
            "expires_at": expires.isoformat(),
            "dry_run": False,
            "add_leader_throttled_replicas": {self.stage.topics.audit: entry},
            "add_follower_throttled_replicas": {},
            "remove_leader_throttled_replicas": {},
            "remove_follower_throttled_replicas": {},
            "leader_rate_bytes_per_s": {},
            "follower_rate_bytes_per_s": {},
            "clear_leader_rates": [],
            "clear_follower_rates": [],
        }
        event = {
            "specversion": "1.0",
            "id": id_,
            "source": "/c",
            "type": "trimtab.action.throttle.v1",
            "cluster": self.cluster,
            "data": data,
        }
        self.stage.send_raw(
            self.cluster.encode(),
            json.dumps(event).encode(),
            to=self.stage.topics.actions,
            headers=[(EPOCH_HEADER, b"1")],
        )
        self.stage.flush()
        return expires

    def results(self) -> list[tuple[str, str]]:
        """Action and outcome, with the reason's name, of every result that was written."""
        events = [json.loads(value) for value in self.stage.values(self.stage.topics.input)]
        return [
            (
                each["subject"],
                f"{each['data']['outcome']} {(each['data']['reason'] or '').partition(':')[0]}".strip(),
            )
            for each in events
            if each["type"] == type_of(ActionResultMessage)
        ]

    def wait_for(self, *wanted: tuple[str, str]) -> None:
        """Wait for exactly these results, in order."""
        until(lambda: len(self.results()) >= len(wanted), what=f"{wanted}", running=[self.child])
        assert self.results() == list(wanted)

    def throttled(self) -> str:
        """The replicas that are throttled."""
        found = KafkaCluster(self.admin).throttle(topics=[self.stage.topics.audit], brokers=[])
        return found.throttle.lists.leader.get(self.stage.topics.audit, "")

    def members(self) -> int:
        return len(self.admin.describe_groups([self.group])[self.group]["members"])

    def is_frozen(self) -> bool:
        status = Path(f"/proc/{self.child.process.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "T"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The executor has stopped itself; after the block it goes on, once its group has removed it."""
        until(self.is_frozen, what="it to stop itself", running=[self.child])
        yield
        until(lambda: not self.members(), what="the group to be without it")
        os.kill(self.child.process.pid, signal.SIGCONT)


@pytest.fixture
def admin(kafka: LocalKafka) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as made:
        yield made


@contextmanager
def started(stage: Stage, admin: KafkaAdminClient, point: str) -> Iterator[Executor]:
    executor = Executor(stage, admin, point)
    try:
        yield executor
    finally:
        executor.child.close()


def test_frozen_for_longer_than_an_action_lives_it_does_not_call_and_then_goes_on(
    stage: Stage, admin: KafkaAdminClient
) -> None:
    with started(stage, admin, "before-gate") as executor:
        expires = executor.say("late", "0:7", lives_s=10.0)
        with executor.frozen():
            until(lambda: datetime.now(UTC) > expires, what="the action to expire")
        until(
            lambda: ("late", "skipped expired") in executor.results(),
            what="a result",
            running=[executor.child],
        )
        executor.say("new", "0:1")
        until(lambda: ("new", "succeeded") in executor.results(), what="the next", running=[executor.child])
        assert executor.throttled() == "0:1", "only what was in time"
        assert {outcome for action, outcome in executor.results() if action == "late"} == {"skipped expired"}
        assert [each for each in executor.results() if each[0] == "new"] == [("new", "succeeded")], "once"
        url = executor.child.url
        until(lambda: ask(f"{url}/readyz").status == 200, what="it to be ready", running=[executor.child])
        assert ask(f"{url}/healthz").status == 200
        assert executor.child.terminate() == 0


def test_dropped_out_of_its_group_before_the_commit_it_joins_again_and_does_not_repeat_one_action_for_ever(
    stage: Stage, admin: KafkaAdminClient
) -> None:
    with started(stage, admin, "before-commit") as executor:
        executor.say("a1", "0:1")
        with executor.frozen():
            pass
        executor.say("a2", "0:1,0:2")
        executor.wait_for(("a1", "succeeded"), ("a1", "succeeded"), ("a2", "succeeded"))
        executor.say("a3", "0:3")
        executor.wait_for(("a1", "succeeded"), ("a1", "succeeded"), ("a2", "succeeded"), ("a3", "succeeded"))
        assert executor.throttled() == "0:1,0:2,0:3"
        until(lambda: committed(executor) == 3, what="all three to be committed", running=[executor.child])
        assert executor.child.terminate() == 0


def committed(executor: Executor) -> int:
    """The committed position of the group."""
    found = executor.admin.list_group_offsets([executor.group])[executor.group]
    return sum(each.offset for each in found.values())
