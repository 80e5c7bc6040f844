"""The executor's consumer on a real Kafka, in its group: while it works or is frozen, and when another executor joins."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from kafka import KafkaAdminClient, KafkaConsumer

from deploy.local.kafka import LocalKafka
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.executor import KafkaActions
from streaming.kafka.link import KafkaLink
from streaming.kafka.side import KafkaTopicReader
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused
from streaming.transport.errors import PublishError
from streaming.transport.side import ActionRecord, PartitionEpochs
from tests.support.actions import publish, results, throttle
from tests.support.controllers import is_frozen
from tests.support.processes import Child, is_ready, until
from tests.support.stage import Stage

pytestmark = pytest.mark.live


POLL_INTERVAL_S = 7.0
"""Seconds after which the client leaves the group if it is not polled; no shorter than the session, whose minimum is 6 s."""


def consumer(stage: Stage, stack: ExitStack) -> KafkaActions:
    options = {
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_000,
        "max_poll_interval_ms": round(1000 * POLL_INTERVAL_S),
    }
    return stack.enter_context(
        KafkaActions(
            KafkaLink(stage.bootstrap),
            stage.topics.actions,
            group=f"trimtab-execute-{stage.name}",
            epochs=PartitionEpochs(),
            records_max=10,
            **options,
        )
    )


@pytest.fixture
def admin(kafka: LocalKafka) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as made:
        yield made


def say(stage: Stage, value: bytes) -> None:
    stage.send_raw(b"c", value, to=stage.topics.actions)
    stage.flush()


def polled(*actions: KafkaActions) -> list[bytes]:
    """The next batch that any of them gets."""
    found: list[ActionRecord] = until(
        lambda: next(filter(None, (each.poll(timeout_s=0.3) for each in actions)), []), what="a batch"
    )
    return [record.value for record in found]


def stays(actions: KafkaActions, *, while_: Callable[[], bool]) -> None:
    while while_():
        actions.keep_polled()


def test_a_batch_that_takes_longer_than_the_poll_interval_is_kept(stage: Stage):
    with ExitStack() as stack:
        actions = consumer(stage, stack)
        say(stage, b"long")
        assert polled(actions) == [b"long"]
        say(stage, b"meanwhile")
        deadline = Deadline(2 * POLL_INTERVAL_S)
        stays(actions, while_=lambda: not deadline.is_over)
        actions.commit()
        assert polled(actions) == [b"meanwhile"]


def test_what_was_polled_before_the_group_changed_comes_again_to_who_has_it_then(stage: Stage):
    with ExitStack() as stack:
        first = consumer(stage, stack)
        say(stage, b"a1")
        assert polled(first) == [b"a1"]
        second = consumer(stage, stack)
        found: list[ActionRecord] = []

        def taken() -> bool:
            found.extend(second.poll(timeout_s=0.3))
            try:
                first.keep_polled()
            except PublishError as error:
                return "this executor lost its actions" in str(error)
            return False

        until(taken, what="the group to change")
        with pytest.raises(PublishError, match="this executor lost its actions"):
            first.commit()
        first.drop()
        assert ([record.value for record in found] or polled(first, second)) == [b"a1"]


def test_a_replica_that_joins_waits_for_work_that_another_one_has(stage: Stage, admin: KafkaAdminClient):
    """The executor that has the partition keeps it, and the other one gets it only when the first one ends."""
    with ExitStack() as stack:
        with ExitStack() as own:
            first = consumer(stage, own)
            say(stage, b"a1")
            assert polled(first) == [b"a1"]
            first.commit()
            second = consumer(stage, stack)
            until(lambda: _have_joined(admin, stage, first, second), what="the other one to join")
            for value in (b"a2", b"a3"):
                say(stage, value)
                until(lambda: first.poll(timeout_s=0.3), what="the next action")
                first.commit()
                assert second.poll(timeout_s=0.3) == []
        say(stage, b"a4")
        assert polled(second) == [b"a4"]


def _have_joined(admin: KafkaAdminClient, stage: Stage, *actions: KafkaActions) -> bool:
    """Poll all of them; whether the group has settled with each."""
    assert [each.poll(timeout_s=0.3) for each in actions] == [[] for _ in actions]
    group = f"trimtab-execute-{stage.name}"
    found = admin.describe_groups([group])[group]
    return len(found["members"]) == len(actions) and found["group_state"] == "Stable"


def test_a_dropped_batch_comes_again_to_the_same_executor(stage: Stage):
    with ExitStack() as stack:
        actions = consumer(stage, stack)
        say(stage, b"a1")
        assert polled(actions) == [b"a1"]
        actions.commit()
        say(stage, b"a2")
        assert polled(actions) == [b"a2"]
        actions.drop()
        assert polled(actions) == [b"a2"]


def test_a_topic_deleted_under_an_executor_is_named_and_read_again_when_it_is_made_anew(
    stage: Stage, admin: KafkaAdminClient
):
    with ExitStack() as stack:
        actions = consumer(stage, stack)
        actions.poll(timeout_s=0.3)
        admin.delete_topics([stage.topics.actions])
        with pytest.raises(PublishError, match=f"there is no topic {stage.topics.actions} at "):
            until(lambda: actions.poll(timeout_s=0.3), what="the error")
        stage.create_topics()
        say(stage, b"anew")
        assert polled(actions) == [b"anew"]


def test_a_topic_is_named_when_it_is_deleted_under_its_reader(stage: Stage, admin: KafkaAdminClient):
    with KafkaTopicReader(KafkaLink(stage.bootstrap), stage.topics.audit, silence_s=1.0) as reader:
        admin.delete_topics([stage.topics.audit])
        with pytest.raises(Refused, match=f"there is no topic {stage.topics.audit} at "):
            next(reader.follow())


def test_a_partition_that_leaves_while_it_is_asked_for_is_left(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    with ExitStack() as stack:
        first = consumer(stage, stack)
        say(stage, b"a1")
        committed, clients = KafkaConsumer.committed, []

        def committed_and_taken(client: KafkaConsumer, *arguments: object, **named: object) -> object:
            found = committed(client, *arguments, **named)
            client.unsubscribe()
            clients.append(client)
            return found

        monkeypatch.setattr(KafkaConsumer, "committed", committed_and_taken)
        until(lambda: first.poll(timeout_s=0.3) == [] and clients, what="it to leave")
        assert not clients[0].assignment()
        monkeypatch.undo()
        assert first.poll(timeout_s=0.3) == []


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
        program = (sys.executable, "-m", "tests.support.misbehaving", "pauses", "", self.point)
        asked = ("execute", "kafka", self.cluster, "--config", str(config))
        self.child = Child((*program, *asked), self.stage.directory / "executor.log")

    def close(self) -> None:
        self.child.close()

    def say(self, id_: str, entry: str, *, lives_s: float = 600.0) -> datetime:
        """Publish an action that throttles a replica; returns when it expires."""
        expires = datetime.now(UTC) + timedelta(seconds=lives_s)
        named = {"cluster": self.cluster, "id_": id_, "expires_at": expires.isoformat()}
        publish(self.stage, throttle(self.stage.topics.audit, entry, {}, **named))
        return expires

    def results(self) -> list[tuple[str, str]]:
        """Action and outcome, with the reason's name, of every result that was written."""
        found = [(each["subject"], each["data"]) for each in results(self.stage)]
        return [
            (id_, f"{data['outcome']} {(data['reason'] or '').partition(':')[0]}".strip())
            for id_, data in found
        ]

    def wait_for(self, *wanted: str) -> None:
        """Wait for exactly these actions to have succeeded, in order."""
        self.child.until(lambda: len(self.results()) >= len(wanted), f"{wanted}")
        assert self.results() == [(each, "succeeded") for each in wanted]

    def throttled(self) -> str:
        """The replicas that are throttled."""
        found = KafkaCluster(self.admin).throttle(topics=[self.stage.topics.audit], brokers=[])
        return found.throttle.lists.leader.get(self.stage.topics.audit, "")

    def committed(self) -> int:
        """The committed position of the group."""
        found = self.admin.list_group_offsets([self.group])[self.group]
        return sum(each.offset for each in found.values())

    def members(self) -> int:
        return len(self.admin.describe_groups([self.group])[self.group]["members"])

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The executor has stopped itself; after the block it goes on, once its group has removed it."""
        self.child.until(lambda: is_frozen(self.child), "it to stop itself")
        yield
        until(lambda: not self.members(), what="the group to be without it")
        os.kill(self.child.process.pid, signal.SIGCONT)


def test_frozen_for_longer_than_an_action_lives_it_does_not_call(stage: Stage, admin: KafkaAdminClient):
    with closing(Executor(stage, admin, "before-gate")) as executor:
        expires = executor.say("late", "0:7", lives_s=10.0)
        with executor.frozen():
            until(lambda: datetime.now(UTC) > expires, what="the action to expire")
        skipped = ("late", "skipped expired")
        executor.child.until(lambda: skipped in executor.results(), "a result")
        executor.say("new", "0:1")
        executor.child.until(lambda: ("new", "succeeded") in executor.results(), "the next")
        assert executor.throttled() == "0:1", "only what was in time"
        assert {outcome for action, outcome in executor.results() if action == "late"} == {"skipped expired"}
        assert [each for each in executor.results() if each[0] == "new"] == [("new", "succeeded")], "once"
        executor.child.until(lambda: is_ready(executor.child), "it to be ready")
        assert executor.child.terminate() == 0


def test_dropped_out_of_its_group_it_joins_again_and_goes_on(stage: Stage, admin: KafkaAdminClient):
    with closing(Executor(stage, admin, "before-commit")) as executor:
        executor.say("a1", "0:1")
        with executor.frozen():
            pass
        executor.say("a2", "0:1,0:2")
        executor.wait_for("a1", "a1", "a2")
        executor.say("a3", "0:3")
        executor.wait_for("a1", "a1", "a2", "a3")
        assert executor.throttled() == "0:1,0:2,0:3"
        executor.child.until(lambda: executor.committed() == 3, "all three to be committed")
        assert executor.child.terminate() == 0
