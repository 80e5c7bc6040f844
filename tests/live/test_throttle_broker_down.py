"""A broker of a real cluster that is down: no failure of an action, and within seconds of its return it gets what it lacks."""

import time
from collections.abc import Callable

import pytest

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists
from streaming.executor.kafka_carry_out import Paced, ThrottleExecutor
from streaming.kafka.client import Unanswered
from streaming.kafka.cluster import KafkaCluster, Throttle, cluster_of
from streaming.settings import KafkaTarget
from streaming.transport.executor import Memory
from tests.live.driving import until
from tests.live.moving import CLUSTER, Moving
from tests.streaming.throttle_actions import F3, L1, L2, action, first, nothing_against_it

pytestmark = pytest.mark.live

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


def test_a_broker_that_is_down_fails_no_action_and_gets_its_rate_and_loses_it_once_it_is_back(
    brokers: LocalKafka, moving: Moving, memory: Memory
) -> None:
    executor, asked = ThrottleExecutor(memory), first(moving.topic)
    with cluster_of(KafkaTarget(bootstrap=brokers.bootstrap), cluster=CLUSTER) as kafka:
        try:
            died(brokers, kafka)
            assert executor.carry_out(kafka, asked, nothing_against_it) == Paced(
                outcome="succeeded", reason=LATER
            )
            assert executor.carry_out(kafka, asked, nothing_against_it) == Paced(
                outcome="succeeded", reason=LATER, was_done_before=True
            )
            found = kafka.throttle(topics=[moving.topic], brokers=[1, 2]).throttle
            assert found.lists == ThrottledLists(
                leader={moving.topic: "0:1,0:2"}, follower={moving.topic: "0:3"}
            )
            assert found.rates_bytes_per_s == {L1: 2_000_000, L2: 2_000_000}

            returned(brokers, kafka)
            assert executor.carry_out(kafka, asked, nothing_against_it) == Paced(outcome="succeeded")
            assert kafka.throttle(topics=[], brokers=[3]).throttle.rates_bytes_per_s == {F3: 2_000_000}

            died(brokers, kafka)
            done = executor.carry_out(
                kafka,
                action("unknown", clear_leader_rates=[1, 2], clear_follower_rates=[3]),
                nothing_against_it,
            )
            assert done == Paced(outcome="succeeded", reason=LATER)
        finally:
            returned(brokers, kafka)
        assert kafka.throttle(topics=[], brokers=[1, 2, 3]).throttle.rates_bytes_per_s == {F3: 2_000_000}
        assert executor.sweep(kafka, nothing_against_it)
        moving.connect()
        assert moving.throttle() == Throttle()
        assert memory.read().is_empty
