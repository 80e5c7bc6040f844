"""Each component on a real Kafka with access control: its documented permissions are enough, and any one less is named."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from deploy.local.secure_kafka import SecureKafka
from streaming.kafka.cluster import KafkaCluster
from streaming.process.exits import REFUSED
from streaming.settings import TopicNames
from tests.live.access import Access, Entry, by_password, documented, settings_of
from tests.live.driving import command
from tests.live.golden_events import (
    CLUSTER,
    decided,
    events_for_the_controller,
    publish,
    results,
    throttle_of,
)
from tests.live.moving import planned
from tests.live.stage import Stage, staged

pytestmark = pytest.mark.live


@pytest.fixture
def stage(secure: SecureKafka, tmp_path: Path) -> Iterator[Stage]:
    """A stage whose own clients are the superuser of the plaintext listener."""
    with staged(secure.bootstrap, tmp_path) as made:
        yield made


@pytest.fixture
def moved(secure: SecureKafka, stage: Stage) -> str:
    """A topic that is to be moved."""
    name = f"orders.{stage.name}"
    with KafkaAdminClient(bootstrap_servers=secure.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1)], wait_for_metadata=True)
    return name


def entries_of(component: str, stage: Stage) -> list[Entry]:
    """The documented entries, for this stage's topics."""
    names = dict(zip(asdict(TopicNames()).values(), asdict(stage.topics).values(), strict=True))
    return [entry._replace(name=names.get(entry.name, entry.name)) for entry in documented(component)]


def trimtab(*arguments: str, code: int = 0) -> str:
    """What a command prints, without a process of its own."""
    return command(*arguments, code=code).output


@contextmanager
def one_less(access: Access, user: str, entries: list[Entry]) -> Iterator[Iterator[Entry]]:
    """An iterator of the entries, each taken back while it is looked at; all are there before and after."""

    def each() -> Iterator[Entry]:
        for entry in entries:
            access.take_back(user, entry)
            yield entry
            access.allow(user, [entry])

    access.allow(user, entries)
    yield each()


def test_an_operators_commands_work_with_their_permissions_and_write_nothing_before_naming_the_one_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access
) -> None:
    known = f'[clusters."{CLUSTER}".pulsar.avg_shedder]\nlow_hit_count = 4\n'
    config = str(settings_of(secure, stage, "operator", "SCRAM-SHA-256", more=known))
    pause = ("pause", "--config", config, "--all", "--why", "the sale")
    with one_less(access, "operator", entries_of("Operators' commands", stage)) as each:
        for entry in each:
            assert f"User:operator {entry.lacking}" in trimtab(*pause, code=REFUSED)
            assert stage.values(stage.topics.control) == []
        assert "paused: no -> yes" in trimtab(*pause)


def test_watching_works_with_its_permissions_and_names_the_one_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access
) -> None:
    action = decided(stage)
    config = str(settings_of(secure, stage, "onlooker", "SCRAM-SHA-512"))
    why = ("actions", "why", "--config", config, action["id"])
    status = ("status", "--config", config)
    rejected = ("rejected", "tail", "--config", config, "--from", "earliest", "--no-follow")
    asking = {
        stage.topics.control: (status, 0),
        stage.topics.beats: (status, 0),
        stage.topics.dead_letter: (rejected, REFUSED),
    }
    with one_less(access, "onlooker", entries_of("Watching", stage)) as each:
        for entry in each:
            command_, code = asking.get(entry.name, (why, REFUSED))
            assert f"User:onlooker {entry.lacking}" in trimtab(*command_, code=code)
        assert "Bundles of the brokers that fired" in trimtab(*why)
        assert "as configured, no control event" in trimtab(*status)
        assert trimtab(*rejected) == ""


def on_the_cluster(operation: str) -> Entry:
    return Entry("cluster", "kafka-cluster", operation)


def on_topics(operation: str) -> Entry:
    return Entry("topic", "*", operation)


def test_a_collector_works_with_its_permissions_and_names_the_one_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access, moved: str
) -> None:
    plan = stage.directory / "reassignment.json"
    planned(plan, moved, {0: (1, 2)})
    more = target_settings(secure, stage, "reader", f'planned_file = "{plan}"')
    config = str(settings_of(secure, stage, "collector", "PLAIN", more=more))
    sweep = ("collect", "kafka", CLUSTER, "--config", config, "--once")
    looking = documented("A Kafka cluster whose moves are looked at")
    access.allow("reader", looking)
    with one_less(access, "collector", entries_of("Collectors", stage)) as each:
        for entry in each:
            assert f"User:collector {entry.lacking}" in trimtab(*sweep, code=REFUSED)
        trimtab(*sweep)
    assert failures(stage) == {"2": "not registered in the cluster"}

    asked = {
        on_the_cluster("Describe"): "reassignments cannot be read: is DESCRIBE on the cluster allowed?",
        on_topics("Describe"): f"topic {moved} cannot be described (one of 1): is DESCRIBE on it allowed?",
        on_topics("DescribeConfigs"): f"the settings of topic {moved} cannot be read",
        on_the_cluster("DescribeConfigs"): "the settings of broker 1 cannot be read",
    }
    assert set(asked) == set(looking)
    for entry, sentence in asked.items():
        access.take_back("reader", entry)
        if entry == on_the_cluster("DescribeConfigs"):
            trimtab(*sweep)
            message = failures(stage)["1"]  # a broker that cannot be read costs its own numbers only
        else:
            message = trimtab(*sweep, code=REFUSED)
        assert sentence in message
        assert "allowed" in message
        access.allow("reader", [entry])


def test_an_executor_works_with_its_permissions_and_names_the_one_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access, moved: str
) -> None:
    more = target_settings(secure, stage, "hand")
    config = str(settings_of(secure, stage, "executor", "SCRAM-SHA-512", more=more))
    execute = ("execute", "kafka", CLUSTER, "--config", config, "--once")
    pacing = documented("A Kafka cluster whose moves are paced")
    access.allow("hand", [*documented("A Kafka cluster whose moves are looked at"), *pacing])
    publish(stage, stage.topics.actions, throttle_of(moved, number=1))
    stage.send_raw(b"west-1", b"{}", to=stage.topics.executor_kafka)
    stage.flush()
    with one_less(access, "executor", entries_of("Executors", stage)) as each:
        for entry in each:
            assert f"User:executor {entry.lacking}" in trimtab(*execute, code=REFUSED)
        trimtab(*execute)
    assert results(stage)[-1]["outcome"] == "succeeded"
    with KafkaAdminClient(bootstrap_servers=secure.bootstrap) as admin:
        found = KafkaCluster(admin).throttle(topics=[moved], brokers=[1]).throttle
    assert (found.lists.leader, set(found.rates_bytes_per_s.values())) == ({moved: "0:1"}, {1_000_000})

    asked = {
        on_the_cluster("AlterConfigs"): "is ALTER_CONFIGS on the cluster allowed?",
        on_topics("AlterConfigs"): f"is ALTER_CONFIGS on topic {moved} allowed?",
    }
    assert set(asked) == set(pacing)
    for number, (entry, sentence) in enumerate(asked.items(), start=2):
        access.take_back("hand", entry)
        publish(stage, stage.topics.actions, throttle_of(moved, number=number))
        trimtab(*execute)
        assert results(stage)[-1]["outcome"] == "failed"
        assert sentence in results(stage)[-1]["reason"]
        access.allow("hand", [entry])


def target_settings(secure: SecureKafka, stage: Stage, user: str, *lines: str) -> str:
    """The Kafka with access control as the cluster that is read or acted on, as another user."""
    section = f'targets."{CLUSTER}".kafka'
    reached = "\n".join((f"[{section}]", f'bootstrap = "{secure.secure_bootstrap}"', *lines))
    return f"{reached}\n" + by_password(secure, stage, user, "SCRAM-SHA-256", section=f"{section}.security")


def failures(stage: Stage) -> dict[str, str]:
    """What failed in the newest sweep."""
    return dict(events_for_the_controller(stage, "trimtab.tick.v1")[-1]["failed"])


@pytest.mark.slow
def test_the_doctor_works_with_its_permissions_and_says_what_it_could_not_check_without_one(
    secure: SecureKafka, stage: Stage, access: Access
) -> None:
    config = str(settings_of(secure, stage, "doctor", "SCRAM-SHA-512"))
    runs = [entry for entry in entries_of("The controller", stage) if entry.kind == "topic"]
    access.allow("doctor", runs)
    with one_less(access, "doctor", entries_of("Doctor", stage)) as each:
        for entry in each:
            assert f"User:doctor {entry.lacking}" in trimtab("doctor", "--config", config, code=REFUSED)
        findings = json.loads(trimtab("doctor", "--config", config, "-o", "json", code=REFUSED))
    assert {(each["check"], each["outcome"]) for each in findings if each["outcome"] != "ok"} == {
        ("permissions", "not checked"),  # the transactional id
        ("leader", "problem"),
        ("reports", "problem"),
        ("rounds", "problem"),
        ("clocks", "not checked"),
    }
    writes = next(entry for entry in runs if entry.operation == "Write")
    access.take_back("doctor", writes)
    found = trimtab("doctor", "--config", config, code=REFUSED)
    assert f"User:doctor {writes.lacking}" in found
