"""A throttle action for brokers of which one is down: everything else is set, it is no failure, and nothing is forgotten."""

from collections.abc import Iterable
from typing import cast

from kafka.admin import ConfigResourceType

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.executor.kafka import ThrottleExecutor
from streaming.executor.orders import Done, ThrottleAction
from streaming.kafka.cluster import Change, KafkaCluster, Throttle, ThrottlesFound, rate_key
from streaming.transport.executor import Rate
from tests.streaming.test_kafka_carry_out import Memory
from tests.streaming.throttle_actions import F3, L1, action

LATER = "LATER, broker 3 is down: its rates stay as they are"


class Cluster:
    """Stands in for a cluster: it keeps what is set, and asks no broker that is down."""

    def __init__(self, *alive: int) -> None:
        self.alive = set(alive)
        self.lists: dict[str, dict[str, str]] = {"leader": {}, "follower": {}}
        self.rates: dict[BrokerRole, int] = {}
        self.unreadable: set[int] = set()

    def brokers(self) -> dict[int, str]:
        return dict.fromkeys(self.alive, "host")

    def partitions(self, topics: Iterable[str]) -> dict[tuple[str, int], object]:
        return {(topic, 0): object() for topic in topics}

    def reassignments(self) -> dict[tuple[str, int], object]:
        return {}

    def throttle(self, *, topics: object, brokers: Iterable[int]) -> ThrottlesFound:
        del topics
        asked = set(brokers)
        assert asked <= self.alive, "a broker that is down is not asked: that takes until a timeout"
        rates = {role: rate for role, rate in self.rates.items() if role.broker in asked - self.unreadable}
        lists = ThrottledLists(leader=dict(self.lists["leader"]), follower=dict(self.lists["follower"]))
        return ThrottlesFound(
            throttle=Throttle(lists=lists, rates_bytes_per_s=rates),
            failed=dict.fromkeys(sorted(asked & self.unreadable), "denied"),
        )

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            role = "leader" if change.key.startswith("leader") else "follower"
            if change.kind is ConfigResourceType.TOPIC:
                self.lists[role] = {change.name: change.value} if change.value else {}
                continue
            assert int(change.name) in self.alive
            assert change.key == rate_key(role)  # type: ignore[arg-type]
            key = BrokerRole(role, int(change.name))  # type: ignore[arg-type]
            self.rates.pop(key, None)
            if change.value is not None:
                self.rates[key] = int(change.value)


FIRST = action(
    add_leader_throttled_replicas={"t": "0:1"},
    add_follower_throttled_replicas={"t": "0:3"},
    leader_rate_bytes_per_s={1: 9},
    follower_rate_bytes_per_s={3: 9},
)


def carry(cluster: Cluster, memory: Memory, asked: ThrottleAction) -> Done:
    done = ThrottleExecutor(memory).carry_out(cast("KafkaCluster", cluster), asked, lambda: None)
    assert isinstance(done, Done)
    return done


def test_a_broker_that_is_down_keeps_no_other_from_its_rate_and_the_action_from_no_success() -> None:
    cluster, memory = Cluster(1, 2), Memory()
    assert carry(cluster, memory, FIRST) == Done(outcome="succeeded", reason=LATER)
    assert (cluster.lists, cluster.rates) == ({"leader": {"t": "0:1"}, "follower": {"t": "0:3"}}, {L1: 9})
    assert carry(cluster, memory, FIRST) == Done(outcome="succeeded", reason=LATER, was_done_before=True)
    cluster.alive.add(3)
    assert carry(cluster, memory, FIRST) == Done(outcome="succeeded")
    assert cluster.rates == {L1: 9, F3: 9}


def test_a_broker_that_is_alive_and_cannot_be_read_is_still_a_failure() -> None:
    cluster = Cluster(1, 2)
    cluster.unreadable = {1}
    done = carry(cluster, Memory(), FIRST)
    assert done == Done(outcome="failed", reason=f"NOT set or taken off, broker 1: denied; {LATER}")


def test_a_rate_of_ours_on_a_broker_that_is_down_is_taken_off_once_it_is_back() -> None:
    cluster, memory = Cluster(1, 2, 3), Memory()
    carry(cluster, memory, FIRST)
    cluster.alive.remove(3)
    ended = action("none")
    assert carry(cluster, memory, ended) == Done(outcome="succeeded", reason=LATER)
    assert (cluster.lists, cluster.rates) == ({"leader": {}, "follower": {}}, {F3: 9})
    assert memory.remembered.rates == {"follower:3": Rate(9, None)}
    executor = ThrottleExecutor(memory)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None) == [LATER]
    cluster.alive.add(3)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None)
    assert (cluster.rates, memory.remembered.is_empty) == ({}, True)
