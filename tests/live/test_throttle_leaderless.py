"""A control topic whose only replica is away, on a real Kafka of three brokers: the executor waits for it, and yet ends when told."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from deploy.local.kafka import LocalKafka
from streaming.contract.envelope import EPOCH_HEADER
from streaming.executor.kafka import start
from streaming.executor.metrics import ExecutorMetrics
from streaming.kafka.cluster import KafkaCluster
from streaming.settings import load
from tests.live.driving import EXIT_S, until
from tests.live.stage import Stage

pytestmark = pytest.mark.live

CLUSTER = "kafka-1"


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


def say_expired(stage: Stage) -> None:
    """Publish an expired action, which the gate skips once it can check it."""
    data = {
        "precondition": {"reassignments": "unknown"},
        "expires_at": (datetime.now(UTC) - timedelta(seconds=1)).isoformat(),
        "dry_run": False,
        **{
            f"{change}_{role}_throttled_replicas": {}
            for change in ("add", "remove")
            for role in ("leader", "follower")
        },
        **{f"{role}_rate_bytes_per_s": {} for role in ("leader", "follower")},
        **{f"clear_{role}_rates": [] for role in ("leader", "follower")},
    }
    event = {
        "id": "a1",
        "source": "/c",
        "type": "trimtab.action.throttle.v1",
        "cluster": CLUSTER,
        "data": data,
    }
    stage.send_raw(
        CLUSTER.encode(), json.dumps(event).encode(), to=stage.topics.actions, headers=[(EPOCH_HEADER, b"1")]
    )
    stage.flush()


@pytest.mark.slow
def test_without_a_leader_of_the_control_topic_nothing_is_carried_out_and_the_executor_ends_when_told(
    brokers: LocalKafka, stage: Stage
) -> None:
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
            say_expired(stage)
            thread.start()
            until(lambda: not loop.readiness()[0].ok, what="the executor to say that it cannot go on")
            assert "control topic" in loop.readiness()[0].detail
            assert all(check.ok for check in loop.liveness())
            assert not stage.values(stage.topics.input), "unknown is not unpaused"
            told_s = time.monotonic()
            loop.stop()
            thread.join(EXIT_S)
            assert not thread.is_alive(), (
                f"still waiting {time.monotonic() - told_s:.0f} s after it was told to end"
            )
        finally:
            brokers.start_node(away)
