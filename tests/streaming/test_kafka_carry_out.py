"""A throttle action that is held, or for brokers of which one is down: its outcome, and what is remembered of it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from kafka.admin import ConfigResourceType

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from policies.throttle.roles import ROLES
from streaming.contract.messages import ActionResultData
from streaming.executor.kafka import ThrottleExecutor
from streaming.executor.memory import Remembered, SetRate
from streaming.executor.orders import Held, Skip, ThrottleAction, ThrottlePrecondition
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster, LogSizes, PartitionState
from streaming.kafka.throttles import Change, Throttle, ThrottlesFound, rate_key
from streaming.transport.errors import Taken
from tests.streaming.throttle_actions import F3, L1, action

CHANGES = [
    Change(kind=ConfigResourceType.BROKER, name=str(number), key="rate", value="1") for number in range(3)
]
DURING = Remembered(rates={"leader:1": SetRate(5, None, earlier=4)})
AFTER = Remembered(rates={"leader:1": SetRate(5, None)})


@dataclass(slots=True)
class Memory:
    """Stands in for the memory on a topic. ``taken`` is what another executor wrote that has taken the memory from its holder."""

    remembered: Remembered = field(default_factory=Remembered)
    taken: Remembered | None = None

    def read(self) -> Remembered:
        return self.remembered

    @contextmanager
    def hold(self) -> Iterator["Memory"]:
        yield self

    def write(self, remembered: Remembered) -> None:
        if self.taken is not None:
            self.remembered, self.taken = self.taken, None
            raise Taken("another has it")
        self.remembered = remembered


class Stopped(Exception):
    """Stands in for the error that the loop raises when it is stopped."""


PAUSED = Held(Skip("paused", "the sale"))


def recheck_that(error: Exception, attempt: int) -> Callable[[], None]:
    attempts = iter(range(1, 99))

    def recheck() -> None:
        if next(attempts) == attempt:
            raise error

    return recheck


MIDWAY = "2 of 3 settings made, then paused: the sale"


@pytest.mark.parametrize(
    ("recheck", "error", "message", "made", "remembered"),
    [
        pytest.param(
            recheck_that(PAUSED, 1), Held, None, 0, Remembered(), id="held before its first setting"
        ),
        pytest.param(recheck_that(PAUSED, 3), ClusterError, MIDWAY, 2, DURING, id="held in the middle"),
        pytest.param(recheck_that(Stopped(), 2), Stopped, None, 1, DURING, id="stopped in the middle"),
    ],
)
def test_of_an_action_that_ends_midway_all_is_remembered_and_of_one_not_begun_nothing(
    recheck: Callable[[], None],
    error: type[Exception],
    message: str | None,
    made: int,
    remembered: Remembered,
):
    memory, put = Memory(), []
    with pytest.raises(error, match=message):
        carry(memory, put, recheck)
    assert (put, memory.remembered) == (CHANGES[:made], remembered)


def test_what_was_set_behind_the_back_of_one_who_took_the_memory_is_remembered_with_his():
    memory, put = Memory(taken=Remembered(rates={"leader:1": SetRate(9, None)})), []
    with pytest.raises(Taken):
        carry(memory, put, lambda: None)
    assert put == CHANGES
    assert memory.remembered == Remembered(rates={"leader:1": SetRate(9, None, earlier=5)})


def carry(memory: Memory, put: list[Change], recheck: Callable[[], None]) -> None:
    """Carry the changes out; ``put`` gets what is set on the cluster."""
    kafka: Any = SimpleNamespace(apply=put.extend)
    ThrottleExecutor(memory)._carry_out_changes(kafka, memory, CHANGES, DURING, AFTER, recheck)


LATER = "LATER, broker 3 is down: its rates stay as they are"


class Cluster:
    """Stands in for a cluster: it keeps what is set, and asks no broker that is down."""

    def __init__(self, *alive: int) -> None:
        self.alive = set(alive)
        self.lists: dict[str, dict[str, str]] = {"leader": {}, "follower": {}}
        self.rates: dict[BrokerRole, int] = {}
        self.unreadable: set[int] = set()
        self.in_sync: tuple[int, ...] = (1, 2, 3)
        self.moves_between_disks = False
        self.hides_disks = False

    def brokers(self) -> dict[int, str]:
        return dict.fromkeys(self.alive, "host")

    def partitions(self, topics: Iterable[str]) -> dict[tuple[str, int], PartitionState]:
        state = PartitionState(replicas=(1, 2, 3), leader=1, in_sync=self.in_sync)
        return {(topic, 0): state for topic in topics}

    def log_sizes(self, _: object, brokers: Iterable[int]) -> LogSizes:
        lags = {("t", 0): dict.fromkeys(brokers, 7)} if self.moves_between_disks else {}
        if self.hides_disks:
            return LogSizes(sizes_bytes={}, usable_bytes={}, failed=dict.fromkeys(brokers, "no answer"))
        return LogSizes(sizes_bytes={}, usable_bytes={}, failed={}, disk_lags=lags)

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
            role = next(name for name in ROLES if change.key in (rate_key(name), f"{name}.{_REPLICAS}"))
            if change.kind is ConfigResourceType.TOPIC:
                self.lists[role] = {change.name: change.value} if change.value else {}
                continue
            assert int(change.name) in self.alive
            assert change.key == rate_key(role)
            key = BrokerRole(role, int(change.name))
            self.rates.pop(key, None)
            if change.value is not None:
                self.rates[key] = int(change.value)


_REPLICAS = "replication.throttled.replicas"
FIRST = action(
    add_leader_throttled_replicas={"t": "0:1"},
    add_follower_throttled_replicas={"t": "0:3"},
    leader_rate_bytes_per_s={1: 9},
    follower_rate_bytes_per_s={3: 9},
)


def carry_down(cluster: Cluster, memory: Memory, asked: ThrottleAction) -> ActionResultData:
    done = ThrottleExecutor(memory).carry_out(cast("KafkaCluster", cluster), asked, lambda: None)
    assert isinstance(done, ActionResultData)
    return done


def test_a_broker_that_is_down_keeps_no_other_from_its_rate_and_the_action_from_no_success():
    cluster, memory = Cluster(1, 2), Memory()
    assert carry_down(cluster, memory, FIRST) == ActionResultData(outcome="succeeded", reason=LATER)
    assert (cluster.lists, cluster.rates) == ({"leader": {"t": "0:1"}, "follower": {"t": "0:3"}}, {L1: 9})
    assert carry_down(cluster, memory, FIRST) == ActionResultData(
        outcome="succeeded", reason=LATER, done_before=True
    )
    cluster.alive.add(3)
    assert carry_down(cluster, memory, FIRST) == ActionResultData(outcome="succeeded")
    assert cluster.rates == {L1: 9, F3: 9}


def test_a_broker_that_is_alive_and_cannot_be_read_is_still_a_failure():
    cluster = Cluster(1, 2)
    cluster.unreadable = {1}
    done = carry_down(cluster, Memory(), FIRST)
    assert done == ActionResultData(
        outcome="failed", reason=f"NOT set or taken off, broker 1: denied; {LATER}"
    )


def test_a_rate_of_ours_on_a_broker_that_is_down_is_taken_off_once_it_is_back():
    cluster, memory = Cluster(1, 2, 3), Memory()
    carry_down(cluster, memory, FIRST)
    cluster.alive.remove(3)
    ended = action("none")
    assert carry_down(cluster, memory, ended) == ActionResultData(outcome="succeeded", reason=LATER)
    assert (cluster.lists, cluster.rates) == ({"leader": {}, "follower": {}}, {F3: 9})
    assert memory.remembered.rates == {"follower:3": SetRate(9, None)}
    executor = ThrottleExecutor(memory)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None) == [LATER]
    cluster.alive.add(3)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None)
    assert (cluster.rates, memory.remembered.is_empty) == ({}, True)


def test_a_follower_on_its_lists_that_is_out_of_sync_keeps_the_throttle_and_one_in_sync_does_not():
    cluster, memory = Cluster(1, 2, 3), Memory()
    cluster.in_sync = (1, 2)
    running = msgspec.structs.replace(FIRST, precondition=ThrottlePrecondition(reassignments="running"))
    assert carry_down(cluster, memory, running) == ActionResultData(outcome="succeeded")
    executor = ThrottleExecutor(memory)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None) == []
    cluster.in_sync = (1, 2, 3)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None)
    assert (cluster.lists, cluster.rates, memory.remembered.is_empty) == (
        {"leader": {}, "follower": {}},
        {},
        True,
    )


def test_an_action_for_a_recovery_that_is_over_is_skipped():
    running = msgspec.structs.replace(FIRST, precondition=ThrottlePrecondition(reassignments="running"))
    done = ThrottleExecutor(Memory()).carry_out(cast("KafkaCluster", Cluster(1, 2, 3)), running, lambda: None)
    assert isinstance(done, Skip)
    assert done.reason == "not-moving"


def test_the_rate_of_disks_is_set_while_they_copy_and_what_was_there_comes_back():
    cluster, memory, disk = Cluster(1, 2, 3), Memory(), BrokerRole("disk", 2)
    cluster.rates[disk], cluster.moves_between_disks = 5, True
    assert carry_down(cluster, memory, action("running", disk_rate_bytes_per_s={2: 9})) == ActionResultData(
        outcome="succeeded"
    )
    assert cluster.rates == {disk: 9}
    executor = ThrottleExecutor(memory)
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None) == []
    cluster.moves_between_disks = False
    assert executor.sweep(cast("KafkaCluster", cluster), lambda: None)
    assert (cluster.rates, memory.remembered.is_empty) == ({disk: 5}, True)


@pytest.mark.parametrize("expected", ["none", "running"])
def test_the_rate_of_disks_stays_where_a_broker_does_not_say_whether_they_copy(expected: str):
    cluster, memory, disk = Cluster(1, 2, 3), Memory(), BrokerRole("disk", 2)
    cluster.moves_between_disks = True
    carry_down(cluster, memory, action("running", disk_rate_bytes_per_s={2: 9}))
    executor, kafka = ThrottleExecutor(memory), cast("KafkaCluster", cluster)
    ended = executor.carry_out(kafka, action("none"), lambda: None)
    assert isinstance(ended, Skip)
    assert ended.reason == "still-moving"
    cluster.hides_disks = True
    why = "it is not known whether replicas still move between disks: broker 2: no answer"
    rates = {2: 9} if expected == "running" else {}
    with pytest.raises(ClusterError, match=why):
        executor.carry_out(kafka, action(expected, disk_rate_bytes_per_s=rates), lambda: None)
    with pytest.raises(ClusterError, match=why):
        executor.sweep(kafka, lambda: None)
    assert cluster.rates == {disk: 9}


def test_a_clean_up_says_what_it_takes_off_and_that_a_rate_from_before_is_put_back():
    cluster, memory = Cluster(1, 2, 3), Memory()
    cluster.rates[L1] = 5
    carry_down(cluster, memory, FIRST)
    assert ThrottleExecutor(memory).sweep(cast("KafkaCluster", cluster), lambda: None) == [
        "what was set before trimtab came is put back, and stays until whoever set it removes it: broker 1: leader.replication.throttled.rate = 5",
        "taken off and read back: broker 3: follower.replication.throttled.rate removed",
        "taken off and read back: topic t: leader.replication.throttled.replicas removed",
        "taken off and read back: topic t: follower.replication.throttled.replicas removed",
    ]


def test_what_was_set_behind_the_back_of_the_memorys_owner_is_remembered_beside_his():
    his = Remembered(
        added=ThrottledLists(leader={"t": "0:1"}),
        rates={"leader:1": SetRate(7, None), "leader:3": SetRate(9, 4)},
    )
    ours = Remembered(
        added=ThrottledLists(leader={"t": "0:2"}, follower={"u": "1:3"}),
        rates={"leader:1": SetRate(5, None), "follower:2": SetRate(6, 2)},
        is_planned=True,
    )
    assert his.with_(ours) == Remembered(
        added=ThrottledLists(leader={"t": "0:1,0:2"}, follower={"u": "1:3"}),
        rates={
            "leader:1": SetRate(7, None, earlier=5),
            "leader:3": SetRate(9, 4),
            "follower:2": SetRate(6, 2),
        },
    )
    assert Remembered().with_(ours).rates == ours.rates
