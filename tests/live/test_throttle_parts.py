"""Collector and executor of Kafka on a real cluster, each by itself: what they report is true, and nothing of others is touched."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient
from kafka.admin import ConfigResourceType
from kafka.admin._configs import AlterConfigOp
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from state.events import KafkaLoadReport, Reassignment, Rejection, Tick
from streaming.cli import main
from streaming.contract.decode import decode
from streaming.executor import kafka_carry_out
from streaming.executor.kafka_carry_out import Paced, ThrottleExecutor
from streaming.executor.kafka_orders import ThrottleAction
from streaming.executor.orders import Held, Skip
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import Change, KafkaCluster, Throttle, changes_of, list_key, rate_key
from streaming.kafka.events import KafkaEvents
from streaming.kafka.link import Link
from streaming.transport.errors import Taken
from streaming.transport.executor import Memory
from tests.live.driving import until
from tests.live.moving import CLUSTER, Moving
from tests.streaming.throttle_actions import F3, L1, L2, action, first, nothing_against_it

pytestmark = pytest.mark.live


def set_(admin: KafkaAdminClient, topic: str, lists: str, rates: Mapping[BrokerRole, int]) -> None:
    """Set a list and rates as somebody else would."""
    kind = ConfigResourceType.TOPIC
    of_brokers = [
        Change(
            kind=ConfigResourceType.BROKER, name=str(role.broker), key=rate_key(role.role), value=str(rate)
        )
        for role, rate in rates.items()
    ]
    KafkaCluster(admin).apply(
        [Change(kind=kind, name=topic, key=list_key("leader"), value=lists), *of_brokers]
    )


def test_what_was_there_before_comes_back_and_what_others_changed_meanwhile_stays(
    moving: Moving, memory: Memory
) -> None:
    set_(moving.admin, moving.topic, "0:1,7:9", {L1: 500_000})
    executor = ThrottleExecutor(memory)

    assert executor.carry_out(moving.cluster, first(moving.topic), nothing_against_it) == Paced(
        outcome="succeeded"
    )
    assert moving.throttle() == Throttle(
        lists=ThrottledLists(leader={moving.topic: "0:1,0:2,7:9"}, follower={moving.topic: "0:3"}),
        rates_bytes_per_s={L1: 2_000_000, L2: 2_000_000, F3: 2_000_000},
    )
    again = executor.carry_out(moving.cluster, first(moving.topic), nothing_against_it)
    assert again == Paced(outcome="succeeded", was_done_before=True)

    set_(moving.admin, moving.topic, "0:1,0:2,7:9,8:9", {F3: 3_000_000})
    restarted = ThrottleExecutor(memory)
    done = restarted.carry_out(moving.cluster, action("none"), nothing_against_it)
    assert done == Paced(outcome="succeeded")
    assert moving.throttle() == Throttle(
        lists=ThrottledLists(leader={moving.topic: "0:1,7:9,8:9"}),
        rates_bytes_per_s={L1: 500_000, F3: 3_000_000},
    )
    assert memory.read().is_empty
    there = moving.throttle()
    KafkaCluster(moving.admin).apply(
        changes_of(there, ThrottledLists(leader={moving.topic: ""}), {L1: None, F3: None})
    )
    assert moving.throttle() == Throttle()


def test_a_default_rate_of_all_brokers_is_told_apart_from_their_own_and_never_touched(
    moving: Moving, memory: Memory
) -> None:
    there = Throttle(defaults_bytes_per_s={"leader": 9_000_000})
    default(moving.admin, "9000000")
    try:
        until(lambda: moving.throttle() == there, what="the default to be seen")
        executor = ThrottleExecutor(memory)
        assert executor.carry_out(moving.cluster, first(moving.topic), nothing_against_it) == Paced(
            outcome="succeeded"
        )
        set_now = moving.throttle()
        assert set_now.rates_bytes_per_s == {L1: 2_000_000, L2: 2_000_000, F3: 2_000_000}
        assert set_now.defaults_bytes_per_s == there.defaults_bytes_per_s
        assert executor.carry_out(moving.cluster, action("none"), nothing_against_it) == Paced(
            outcome="succeeded"
        )
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


def test_leftovers_are_taken_off_at_the_start_but_not_while_anything_moves(
    moving: Moving, memory: Memory
) -> None:
    moving.fill(5_000_000)
    slow = action(
        add_leader_throttled_replicas={moving.topic: "0:1,0:2"},
        add_follower_throttled_replicas={moving.topic: "0:3"},
        leader_rate_bytes_per_s={"1": 20_000, "2": 20_000},
        follower_rate_bytes_per_s={"3": 20_000},
    )
    ThrottleExecutor(memory).carry_out(moving.cluster, slow, nothing_against_it)
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


def test_an_executor_that_only_looks_changes_nothing(moving: Moving, memory: Memory) -> None:
    message = ThrottleExecutor(memory, dry_run=True).carry_out(
        moving.cluster, first(moving.topic), nothing_against_it
    )
    assert isinstance(message, Skip)
    assert message.reason == "executor-dry-run"
    assert moving.throttle() == Throttle()
    assert memory.read().is_empty


def test_a_sweep_reports_what_moves_and_names_the_broker_that_is_down(
    brokers: LocalKafka, moving: Moving, memory: Memory, tmp_path: Path
) -> None:
    moving.fill(5_000_000)
    rates = {"1": 20_000, "2": 20_000}
    ThrottleExecutor(memory).carry_out(
        moving.cluster,
        action(
            add_leader_throttled_replicas={moving.topic: "0:1,0:2"},
            add_follower_throttled_replicas={moving.topic: "0:3"},
            leader_rate_bytes_per_s=rates,
            follower_rate_bytes_per_s={"3": 20_000},
        ),
        nothing_against_it,
    )
    moving.begin({0: (1, 3)})
    found = swept(brokers, tmp_path)
    (moves,) = (each.report for each in found if isinstance(each, Reassignment))
    move = moves.moves.read()
    assert move.names() == [f"{moving.topic}-0"]
    assert [each.brokers.tolist() for each in (move.sources, move.added, move.target)] == [
        [1, 2],
        [3],
        [1, 3],
    ]
    assert moves.throttled == ThrottledLists(leader={moving.topic: "0:1,0:2"}, follower={moving.topic: "0:3"})
    logs = {each.broker: each.logs for each in found if isinstance(each, KafkaLoadReport)}
    assert logs.keys() == {"1", "2", "3"}
    assert (logs["1"].leader_rate_bytes_per_s, logs["3"].follower_rate_bytes_per_s) == (20_000, 20_000)
    ((_,), (partition,), (log_size_bytes,), (end_offset,)) = logs["1"].replicas.read().tolist()
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


def test_events_that_no_broker_takes_are_given_up_at_the_close(brokers: LocalKafka) -> None:
    lonely = Moving(brokers, {0: (3,)})
    events = KafkaEvents(Link(brokers.bootstrap), lonely.topic, max_record_bytes=1_000)
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
    until(lambda: at in KafkaCluster(lonely.admin).end_offsets([at]), what="broker 3 to lead again")
    assert KafkaCluster(lonely.admin).end_offsets([at]) == {at: 1}, "what was given up is not sent any more"
    lonely.close()


def swept(brokers: LocalKafka, directory: Path) -> list[object]:
    """Events of one sweep of the command, decoded."""
    config = directory / "collect.toml"
    config.write_text(f'[targets."{CLUSTER}".kafka]\nbootstrap = "{brokers.bootstrap}"\n')
    message = CliRunner().invoke(
        main, ["collect", "kafka", CLUSTER, "--config", str(config), "--once", "--stdout"]
    )
    assert message.exit_code == 0, message.output
    found = [decode(line.encode(), key=CLUSTER)[1] for line in message.stdout.splitlines()]
    assert not [each for each in found if isinstance(each, Rejection)]
    assert json.loads(message.stdout.splitlines()[-1])["type"] == "trimtab.tick.v1"
    return list(found)


def test_a_cluster_that_is_not_in_the_settings_or_does_not_answer_is_named(tmp_path: Path) -> None:
    config = tmp_path / "trimtab.toml"
    config.write_text('[targets."kafka-1".kafka]\nbootstrap = "127.0.0.1:1"\n')
    options = ["--config", str(config), "--once", "--stdout"]
    missing = CliRunner().invoke(main, ["collect", "kafka", "other", *options])
    assert 'there is no [targets."other".kafka] in the settings (targets there: kafka-1)' in missing.output
    silent = CliRunner().invoke(main, ["collect", "kafka", "kafka-1", *options])
    assert silent.exit_code != 0
    assert "Kafka at 127.0.0.1:1 does not answer as expected" in silent.output


def second(topic: str) -> ThrottleAction:
    return action(
        add_leader_throttled_replicas={topic: "0:9"},
        add_follower_throttled_replicas={topic: "0:3"},
        leader_rate_bytes_per_s={"2": 3_000_000},
    )


def test_of_two_executors_at_once_the_one_that_was_overtaken_sets_nothing_and_forgets_nothing(
    moving: Moving, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes in after this one has read what is remembered and what is set, and before it writes."""
    other = ThrottleExecutor(memory)
    monkeypatch.setattr(
        kafka_carry_out,
        "changes_of",
        once_before(
            kafka_carry_out.changes_of,
            lambda: other.carry_out(moving.cluster, second(moving.topic), nothing_against_it),
        ),
    )
    overtaken = ThrottleExecutor(memory)
    with pytest.raises(Taken):
        overtaken.carry_out(moving.cluster, first(moving.topic), nothing_against_it)
    assert moving.throttle().rates_bytes_per_s == {L2: 3_000_000}, "the other's alone"
    again = overtaken.carry_out(moving.cluster, first(moving.topic), nothing_against_it)
    assert again == Paced(outcome="succeeded")
    assert other.carry_out(moving.cluster, action("none"), nothing_against_it) == Paced(outcome="succeeded")
    assert moving.throttle() == Throttle()


def test_what_an_executor_sets_after_another_took_all_off_does_not_stay_behind(
    moving: Moving, memory: Memory
) -> None:
    """The other one comes in between this one's last look and its calls: nothing can keep it from making them."""
    other, looked = ThrottleExecutor(memory), []

    def still() -> None:
        if not looked:
            looked.append(other.carry_out(moving.cluster, action("none"), nothing_against_it))

    with pytest.raises(Taken):
        ThrottleExecutor(memory).carry_out(moving.cluster, first(moving.topic), still)
    assert moving.throttle() != Throttle()
    assert other.sweep(moving.cluster, nothing_against_it)
    assert moving.throttle() == Throttle()


def test_what_is_paused_in_the_middle_is_a_failure_and_what_was_done_of_it_is_taken_off(
    moving: Moving, memory: Memory
) -> None:
    asked = []

    def still() -> None:
        asked.append(moving.throttle())
        if len(asked) in {1, 4}:
            raise Held(Skip("paused", "the sale"))

    executor = ThrottleExecutor(memory)
    with pytest.raises(Held):
        executor.carry_out(moving.cluster, first(moving.topic), still)
    assert memory.read().is_empty, "nothing was set"
    with pytest.raises(ClusterError, match="2 of 5 settings made, then paused: the sale"):
        executor.carry_out(moving.cluster, first(moving.topic), still)
    assert moving.throttle() != Throttle()
    assert executor.carry_out(moving.cluster, action("none"), nothing_against_it) == Paced(
        outcome="succeeded"
    )
    assert moving.throttle() == Throttle()


def once_before(plain: Callable[..., Any], work: Callable[[], object]) -> Callable[..., Any]:
    todo = [work]

    def call(*arguments: Any) -> Any:
        if todo:
            todo.pop()()
        return plain(*arguments)

    return call
