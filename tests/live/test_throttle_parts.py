"""Collector and executor of Kafka on a real cluster: what they report is true, nothing of others is touched, brokers may be away."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResourceType
from kafka.admin._configs import AlterConfigOp
from kafka.errors import KafkaError
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from state.events import KafkaLoadReport, Reassignment, Rejection, Tick
from streaming.contract.decode import decode
from streaming.contract.messages import ActionResultData
from streaming.executor import kafka
from streaming.executor.kafka import ThrottleExecutor, start
from streaming.executor.memory import Memory
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import Held, Skip, ThrottleAction
from streaming.kafka.client import ClusterError, Unanswered
from streaming.kafka.cluster import KafkaCluster, cluster_of
from streaming.kafka.link import KafkaLink
from streaming.kafka.side import KafkaEvents
from streaming.kafka.throttles import Change, Throttle, changes_of, list_key, rate_key
from streaming.process.exits import UNREACHABLE, WRONG_USE
from streaming.settings import KafkaTarget, load
from streaming.transport.errors import PublishError, Taken
from tests.streaming.throttle_actions import F3, L1, L2, action, first, nothing_against_it
from tests.support.actions import publish, throttle
from tests.support.moving import CLUSTER, Moving
from tests.support.processes import EXIT_S, command, until
from tests.support.stage import Stage

pytestmark = pytest.mark.live

DONE = ActionResultData(outcome="succeeded")


def set_(admin: KafkaAdminClient, topic: str, lists: str, rates: Mapping[BrokerRole, int]) -> None:
    """Set a list and rates as somebody else would."""
    kind = ConfigResourceType.TOPIC
    changes = [Change(kind=kind, name=topic, key=list_key("leader"), value=lists)]
    for role, rate in rates.items():
        of_broker = {"kind": ConfigResourceType.BROKER, "name": str(role.broker)}
        changes.append(Change(**of_broker, key=rate_key(role.role), value=str(rate)))
    KafkaCluster(admin).apply(changes)


def test_what_was_there_before_comes_back_and_what_others_changed_stays(moving: Moving, memory: Memory):
    set_(moving.admin, moving.topic, "0:1,7:9", {L1: 500_000})
    executor = ThrottleExecutor(memory)

    assert executor.carry_out(moving.cluster, first(moving.topic), nothing_against_it) == DONE
    assert moving.throttle() == Throttle(
        lists=ThrottledLists(leader={moving.topic: "0:1,0:2,7:9"}, follower={moving.topic: "0:3"}),
        rates_bytes_per_s={L1: 2_000_000, L2: 2_000_000, F3: 2_000_000},
    )
    again = executor.carry_out(moving.cluster, first(moving.topic), nothing_against_it)
    assert again == ActionResultData(outcome="succeeded", done_before=True)

    set_(moving.admin, moving.topic, "0:1,0:2,7:9,8:9", {F3: 3_000_000})
    restarted = ThrottleExecutor(memory)
    done = restarted.carry_out(moving.cluster, action("none"), nothing_against_it)
    assert done == DONE
    assert moving.throttle() == Throttle(
        lists=ThrottledLists(leader={moving.topic: "0:1,7:9,8:9"}),
        rates_bytes_per_s={L1: 500_000, F3: 3_000_000},
    )
    assert memory.read().is_empty
    there = moving.throttle()
    KafkaCluster(moving.admin).apply(
        changes_of(there, ThrottledLists(leader={moving.topic: ""}), {L1: None, F3: None})
    )
    until(lambda: moving.throttle() == Throttle(), what="every broker to know that all is gone")


def test_a_default_rate_of_all_brokers_is_never_touched(moving: Moving, memory: Memory):
    there = Throttle(defaults_bytes_per_s={"leader": 9_000_000})
    default(moving.admin, "9000000")
    try:
        until(lambda: moving.throttle() == there, what="the default to be seen")
        executor = ThrottleExecutor(memory)
        assert executor.carry_out(moving.cluster, first(moving.topic), nothing_against_it) == DONE
        set_now = moving.throttle()
        assert set_now.rates_bytes_per_s == {L1: 2_000_000, L2: 2_000_000, F3: 2_000_000}
        assert set_now.defaults_bytes_per_s == there.defaults_bytes_per_s
        assert executor.carry_out(moving.cluster, action("none"), nothing_against_it) == DONE
        assert moving.throttle() == there, "not written to the brokers, and not waited for to go away"
    finally:
        default(moving.admin, None)
    until(lambda: moving.throttle() == Throttle(), what="the default to be gone")


def default(admin: KafkaAdminClient, rate: str | None) -> None:
    """Set the default rate as ``kafka-configs --entity-default`` does; the admin client takes numbered brokers only."""
    operation = AlterConfigOp.DELETE if rate is None else AlterConfigOp.SET
    request = IncrementalAlterConfigsRequest(
        resources=[(ConfigResourceType.BROKER, "", [(rate_key("leader"), operation.value, rate)])],
        validate_only=False,
    )
    answer = admin._manager.run(admin._manager.send, request)
    assert [each.error_code for each in answer.responses] == [0]


def test_leftovers_are_taken_off_at_the_start_if_nothing_moves(moving: Moving, memory: Memory):
    moving.fill(5_000_000)
    ThrottleExecutor(memory).carry_out(moving.cluster, slow(moving.topic), nothing_against_it)
    moving.begin({0: (1, 3)})
    left = moving.throttle()
    looked = ThrottleExecutor(memory)
    assert looked.sweep(moving.cluster, nothing_against_it) == []
    assert moving.throttle() == left
    ended = looked.carry_out(moving.cluster, action("none"), nothing_against_it)
    assert isinstance(ended, Skip)
    assert ended.reason == "still-moving"

    moving.cancel()
    until(lambda: not moving.is_moving(), what="the move to be cancelled")
    begun = looked.carry_out(moving.cluster, action("running"), nothing_against_it)
    assert isinstance(begun, Skip)
    assert begun.reason == "not-moving"
    assert len(looked.sweep(moving.cluster, nothing_against_it)) == 5
    assert moving.throttle() == Throttle()


def test_an_executor_that_only_looks_changes_nothing(moving: Moving, memory: Memory):
    message = ThrottleExecutor(memory, dry_run=True).carry_out(
        moving.cluster, first(moving.topic), nothing_against_it
    )
    assert isinstance(message, Skip)
    assert message.reason == "executor-dry-run"
    assert moving.throttle() == Throttle()
    assert memory.read().is_empty


def test_a_sweep_reports_what_moves_and_who_is_down(
    brokers: LocalKafka, moving: Moving, memory: Memory, tmp_path: Path
):
    moving.fill(5_000_000)
    ThrottleExecutor(memory).carry_out(moving.cluster, slow(moving.topic), nothing_against_it)
    moving.begin({0: (1, 3)})
    found = swept(brokers, tmp_path)
    (moves,) = (each.report for each in found if isinstance(each, Reassignment))
    move = moves.copies
    assert move.names() == [f"{moving.topic}-0"]
    assert [each.brokers.tolist() for each in (move.sources, move.destinations, move.target)] == [
        [1, 2],
        [3],
        [1, 3],
    ]
    assert moves.throttled == ThrottledLists(leader={moving.topic: "0:1,0:2"}, follower={moving.topic: "0:3"})
    logs = {each.broker: each.logs for each in found if isinstance(each, KafkaLoadReport)}
    assert logs.keys() == {"1", "2", "3"}
    assert (logs["1"].rates["leader"], logs["3"].rates["follower"]) == (20_000, 20_000)
    ((_, partition, log_size_bytes, end_offset, *_),) = logs["1"].replicas.columns.tolist()
    assert (partition, end_offset) == (0, 50)
    assert log_size_bytes >= 5_000_000

    brokers.stop_node(3)
    try:
        until(lambda: 3 not in KafkaCluster(moving.admin).brokers(), what="broker 3 to be missed")
        found = swept(brokers, tmp_path)
        (tick,) = (each for each in found if isinstance(each, Tick))
        assert (tick.asked, dict(tick.failed)) == (("1", "2", "3"), {"3": "not registered in the cluster"})
        assert {each.broker for each in found if isinstance(each, KafkaLoadReport)} == {"1", "2"}
    finally:
        brokers.start_node(3)
        moving.connect()
    moving.cancel()
    until(lambda: not moving.is_moving(), what="the move to be cancelled")
    assert ThrottleExecutor(memory).sweep(moving.cluster, nothing_against_it)
    assert moving.throttle() == Throttle()


def test_events_that_no_broker_takes_are_given_up_at_the_close(brokers: LocalKafka):
    lonely = Moving(brokers, {0: (3,)})
    events = KafkaEvents(KafkaLink(brokers.bootstrap), lonely.topic, max_record_bytes=1_000)
    events.send(CLUSTER, b"taken")
    events.flush()
    brokers.stop_node(3)
    try:
        events.send(CLUSTER, b"lost")
        events.close()
    finally:
        brokers.start_node(3)
    lonely.connect()
    at = (lonely.topic, 0)
    until(lambda: at in KafkaCluster(lonely.admin).end_offsets({at: 3}), what="broker 3 to lead again")
    assert KafkaCluster(lonely.admin).end_offsets({at: 3}) == {at: 1}, (
        "what was given up is not sent any more"
    )
    lonely.close()


def test_events_are_written_again_after_their_topic_was_deleted_and_made_anew(brokers: LocalKafka):
    topic = f"sink-{uuid4().hex[:8]}"
    made = {topic: {"num_partitions": 1, "replication_factor": 1}}
    with (
        KafkaAdminClient(bootstrap_servers=brokers.bootstrap) as admin,
        ExitStack() as stack,
    ):
        admin.create_topics(made, wait_for_metadata=True)
        events = stack.enter_context(
            KafkaEvents(KafkaLink(brokers.bootstrap), topic, max_record_bytes=1_000, timeout_s=3.0)
        )
        events.send(CLUSTER, b"before")
        events.flush()
        admin.delete_topics([topic])
        events.send(CLUSTER, b"meanwhile")
        why = f"not written to {topic} at .*: there is no topic {topic} at .*: run `trimtab topics create`"
        with pytest.raises(PublishError, match=why):
            events.flush()
        admin.create_topics(made, wait_for_metadata=True)

        def is_written() -> bool:
            with suppress(PublishError):
                events.send(CLUSTER, b"again")
                events.flush()
                return True
            return False

        until(is_written, what="an event")


def swept(brokers: LocalKafka, directory: Path) -> list[object]:
    """Events of one sweep of the command, decoded."""
    config = directory / "collect.toml"
    config.write_text(f'[targets."{CLUSTER}".kafka]\nbootstrap = "{brokers.bootstrap}"\n')
    message = command("collect", "kafka", CLUSTER, "--config", str(config), "--once", "--stdout")
    found = [decode(line.encode(), key=CLUSTER)[1] for line in message.stdout.splitlines()]
    assert not [each for each in found if isinstance(each, Rejection)]
    assert json.loads(message.stdout.splitlines()[-1])["type"] == "trimtab.tick.v1"
    return list(found)


def test_a_cluster_that_is_not_in_the_settings_or_does_not_answer_is_named(tmp_path: Path):
    config = tmp_path / "trimtab.toml"
    config.write_text('[targets."kafka-1".kafka]\nbootstrap = "127.0.0.1:1"\n')
    options = ("--config", str(config), "--once", "--stdout")
    missing = command("collect", "kafka", "other", *options, code=WRONG_USE)
    assert 'there is no [targets."other".kafka] in the settings (known here: kafka-1)' in missing.output
    silent = command("collect", "kafka", "kafka-1", *options, code=UNREACHABLE)
    assert "no broker of Kafka answers: nothing listens at 127.0.0.1:1 (connection refused)" in silent.output


def slow(topic: str) -> ThrottleAction:
    """So slow that what moves does not end."""
    return action(
        add_leader_throttled_replicas={topic: "0:1,0:2"},
        add_follower_throttled_replicas={topic: "0:3"},
        leader_rate_bytes_per_s={1: 20_000, 2: 20_000},
        follower_rate_bytes_per_s={3: 20_000},
    )


def second(topic: str) -> ThrottleAction:
    return action(
        add_leader_throttled_replicas={topic: "0:9"},
        add_follower_throttled_replicas={topic: "0:3"},
        leader_rate_bytes_per_s={2: 3_000_000},
    )


def test_of_two_executors_the_overtaken_one_sets_nothing(
    moving: Moving, memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    """The other one comes in after this one has read what is remembered and what is set, and before it writes."""
    other = ThrottleExecutor(memory)
    monkeypatch.setattr(
        kafka,
        "changes_of",
        once_before(
            kafka.changes_of,
            lambda: other.carry_out(moving.cluster, second(moving.topic), nothing_against_it),
        ),
    )
    overtaken = ThrottleExecutor(memory)
    with pytest.raises(Taken):
        overtaken.carry_out(moving.cluster, first(moving.topic), nothing_against_it)
    assert moving.throttle().rates_bytes_per_s == {L2: 3_000_000}, "the other's alone"
    again = overtaken.carry_out(moving.cluster, first(moving.topic), nothing_against_it)
    assert again == DONE
    assert other.carry_out(moving.cluster, action("none"), nothing_against_it) == DONE
    assert moving.throttle() == Throttle()


def test_what_is_set_after_another_took_all_off_does_not_stay_behind(moving: Moving, memory: Memory):
    """The other one comes in between this one's last look and its calls: nothing can keep it from making them."""
    other, looked = ThrottleExecutor(memory), []

    def recheck() -> None:
        if not looked:
            looked.append(other.carry_out(moving.cluster, action("none"), nothing_against_it))

    with pytest.raises(Taken):
        ThrottleExecutor(memory).carry_out(moving.cluster, first(moving.topic), recheck)
    assert moving.throttle() != Throttle()
    assert other.sweep(moving.cluster, nothing_against_it)
    assert moving.throttle() == Throttle()


def test_what_is_paused_in_the_middle_is_a_failure_and_taken_off(moving: Moving, memory: Memory):
    asked = []

    def recheck() -> None:
        asked.append(moving.throttle())
        if len(asked) in {1, 4}:
            raise Held(Skip("paused", "the sale"))

    executor = ThrottleExecutor(memory)
    with pytest.raises(Held):
        executor.carry_out(moving.cluster, first(moving.topic), recheck)
    assert memory.read().is_empty, "nothing was set"
    with pytest.raises(ClusterError, match="2 of 5 settings made, then paused: the sale"):
        executor.carry_out(moving.cluster, first(moving.topic), recheck)
    assert moving.throttle() != Throttle()
    assert executor.carry_out(moving.cluster, action("none"), nothing_against_it) == DONE
    assert moving.throttle() == Throttle()


def once_before(plain: Callable[..., Any], work: Callable[[], object]) -> Callable[..., Any]:
    todo = [work]

    def call(*arguments: Any) -> Any:
        if todo:
            todo.pop()()
        return plain(*arguments)

    return call


REACHED_S = 20.0
"""How soon an open client has to reach a broker that came back: its metadata are at most 5 s old. kafka-python by itself took 288 s."""
LATER = "LATER, broker 3 is down: its rates stay as they are"


def died(brokers: LocalKafka, kafka: KafkaCluster) -> None:
    brokers.stop_node(3)
    until(answered(lambda: 3 not in kafka.brokers()), what="broker 3 to be missed")


def returned(brokers: LocalKafka, kafka: KafkaCluster) -> None:
    """Start broker 3, and wait until an open client reads its settings."""
    brokers.start_node(3)
    began_s = time.monotonic()
    until(
        answered(lambda: 3 in kafka.brokers() and not kafka.throttle(topics=[], brokers=[3]).failed),
        what="the open client to reach broker 3",
    )
    assert time.monotonic() - began_s < REACHED_S


def answered(condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, false while the client asks the broker that is down, or on its way up."""

    def asked() -> bool:
        try:
            return condition()
        except Unanswered:
            return False

    return asked


def test_a_broker_that_is_down_gets_its_rate_once_it_is_back(
    brokers: LocalKafka, moving: Moving, memory: Memory
):
    executor, asked = ThrottleExecutor(memory), first(moving.topic)
    with cluster_of(KafkaTarget(bootstrap=brokers.bootstrap), cluster=CLUSTER) as kafka:
        try:
            died(brokers, kafka)
            assert executor.carry_out(kafka, asked, nothing_against_it) == ActionResultData(
                outcome="succeeded", reason=LATER
            )
            assert executor.carry_out(kafka, asked, nothing_against_it) == ActionResultData(
                outcome="succeeded", reason=LATER, done_before=True
            )
            found = kafka.throttle(topics=[moving.topic], brokers=[1, 2]).throttle
            assert found.lists == ThrottledLists(
                leader={moving.topic: "0:1,0:2"}, follower={moving.topic: "0:3"}
            )
            assert found.rates_bytes_per_s == {L1: 2_000_000, L2: 2_000_000}

            returned(brokers, kafka)
            assert executor.carry_out(kafka, asked, nothing_against_it) == DONE
            assert kafka.throttle(topics=[], brokers=[3]).throttle.rates_bytes_per_s == {F3: 2_000_000}

            died(brokers, kafka)
            done = executor.carry_out(
                kafka,
                action("unknown", clear_leader_rates=[1, 2], clear_follower_rates=[3]),
                nothing_against_it,
            )
            assert done == ActionResultData(outcome="succeeded", reason=LATER)
        finally:
            returned(brokers, kafka)
        assert kafka.throttle(topics=[], brokers=[1, 2, 3]).throttle.rates_bytes_per_s == {F3: 2_000_000}
        assert executor.sweep(kafka, nothing_against_it)
        moving.connect()
        assert moving.throttle() == Throttle()
        assert memory.read().is_empty


@pytest.fixture
def stage(brokers: LocalKafka, tmp_path: Path) -> Iterator[Stage]:
    """A stage without topics yet."""
    made = Stage(brokers.bootstrap, f"t-{uuid4().hex[:8]}", tmp_path)
    yield made
    made.close()


def placed(brokers: LocalKafka, stage: Stage) -> int:
    """Make the topics on broker 1, but the control topic on the broker returned, which the groups do not need either."""
    with KafkaAdminClient(bootstrap_servers=brokers.bootstrap) as admin:
        offsets = "__consumer_offsets"
        until(lambda: group_asked(admin) and KafkaCluster(admin).partitions([offsets]), what="groups")
        away = next(
            each for each in (3, 2) if each != KafkaCluster(admin).partitions([offsets])[offsets, 0].leader
        )
        names = stage.topics
        on = {names.input: 1, names.actions: 1, names.executor_kafka: 1, names.control: away}
        topics = {topic: {"assignments": {0: [broker]}} for topic, broker in on.items()}
        admin.create_topics(topics, wait_for_metadata=True)
    return away


def group_asked(admin: KafkaAdminClient) -> bool:
    """Ask for any group, which makes the topic of positions; whether that succeeded."""
    try:
        admin.describe_groups(["any"])
    except KafkaError:
        return False
    return True


@pytest.mark.slow
def test_without_a_leader_of_the_control_topic_nothing_is_carried_out(brokers: LocalKafka, stage: Stage):
    away = placed(brokers, stage)
    target = f'[targets."{CLUSTER}".kafka]\nbootstrap = "{brokers.bootstrap}"\n'
    config = stage.settings(base=target)
    settings = load(file=config, flags={}, environ={}).settings
    with ExitStack() as stack:
        loop = start(
            stack,
            settings,
            ExecutorMetrics(CLUSTER),
            cluster=CLUSTER,
            target=settings.targets[CLUSTER].kafka,
            dry_run=True,
        )
        thread = threading.Thread(target=loop.run, daemon=True)
        brokers.stop_node(away)
        try:
            past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
            publish(stage, throttle("t", "0:1", {}, cluster=CLUSTER, expires_at=past))
            thread.start()
            until(lambda: not loop.readiness()[0].ok, what="the executor to say that it cannot go on")
            assert "control topic" in loop.readiness()[0].detail
            assert all(check.ok for check in loop.liveness())
            assert not stage.values(stage.topics.input), "unknown is not unpaused"
            loop.stop()
            thread.join(EXIT_S)
            assert not thread.is_alive(), "it was told to end"
        finally:
            brokers.start_node(away)
