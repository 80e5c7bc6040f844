"""A real Kafka with SASL_SSL and access control: the documented permissions are enough, and any one less is named."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.kafka import cluster
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.link import input_link, output_link
from streaming.kafka.publisher import KafkaPublisher
from streaming.kafka.throttles import Throttle, changes_of
from streaming.process.exits import REFUSED
from streaming.settings import TopicNames, load
from streaming.transport.errors import PublishError
from tests.support.actions import CLUSTER, decided, publish, results, throttle
from tests.support.loads import played
from tests.support.moving import planned
from tests.support.permissions import Access, Entry, User, documented, password_of
from tests.support.processes import Warm, command
from tests.support.secure_kafka import SecureKafka
from tests.support.stage import QUICK, Stage, at, cluster_of, replayed, staged

pytestmark = pytest.mark.live

LOOKING, PACING = (f"A Kafka cluster whose moves are {done}" for done in ("looked at", "paced"))
ON_CLUSTER = {
    name: Entry("cluster", "kafka-cluster", name) for name in ("AlterConfigs", "Describe", "DescribeConfigs")
}
ON_TOPICS = {name: Entry("topic", "*", name) for name in ON_CLUSTER}


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


def test_operators_commands_name_the_permission_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access
):
    operator = User("operator", "SCRAM-SHA-256", secure, stage, access)
    known = f'[clusters."{CLUSTER}".pulsar.avg_shedder]\nlow_hit_count = 4\n'
    config = str(operator.settings(more=known))
    pause = ("pause", "--config", config, "--all", "--why", "the sale")
    for lacking in operator.one_less("Operators' commands"):
        assert lacking in command(*pause, code=REFUSED).output
        assert stage.values(stage.topics.control) == []
    assert "paused: no -> yes" in command(*pause).output


def test_watching_names_the_permission_that_is_missing(secure: SecureKafka, stage: Stage, access: Access):
    onlooker, action = User("onlooker", "SCRAM-SHA-512", secure, stage, access), decided(stage)
    config = ("--config", str(onlooker.settings()))
    why, status = ("actions", "why", *config, action["id"]), ("status", *config)
    rejected = ("rejected", "tail", *config, "--from", "earliest", "--no-follow")
    topics = stage.topics
    asking = {
        topics.input: (status, 0),
        topics.control: (status, 0),
        topics.beats: (status, 0),
        topics.dead_letter: (rejected, REFUSED),
    }
    for lacking in onlooker.one_less("Watching"):
        asked, code = next((asking[name] for name in asking if lacking.endswith(name)), (why, REFUSED))
        assert lacking in command(*asked, code=code).output
    assert "Other bundles of the brokers that fired" in command(*why).output
    assert "as configured, no control event" in command(*status).output
    assert command(*rejected).stdout == ""


def test_a_collector_names_the_permission_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access, moved: str
):
    plan = stage.directory / "reassignment.json"
    planned(plan, moved, {0: (1, 2)})
    collector = User("collector", "PLAIN", secure, stage, access)
    reader = User("reader", "SCRAM-SHA-256", secure, stage, access)
    config = collector.settings(more=reader.target(CLUSTER, f'planned_file = "{plan}"'))
    sweep = ("collect", "kafka", CLUSTER, "--config", str(config), "--once")

    def failures() -> dict[str, str]:
        """What failed in the newest sweep."""
        return dict(stage.data(stage.topics.input, "tick.v1")[-1]["failed"])

    access.allow("reader", documented(LOOKING))
    for lacking in collector.one_less("Collectors"):
        assert lacking in command(*sweep, code=REFUSED).output
    command(*sweep)
    assert failures() == {"2": "not registered in the cluster"}

    one_broker = ON_CLUSTER["DescribeConfigs"]
    asked = {
        ON_CLUSTER["Describe"]: "reassignments cannot be read: is DESCRIBE on the cluster allowed?",
        ON_TOPICS["Describe"]: f"topic {moved} cannot be described (one of 1): is DESCRIBE on it allowed?",
        ON_TOPICS["DescribeConfigs"]: f"the settings of topic {moved} cannot be read",
        one_broker: "the settings of broker 1 cannot be read",
    }
    assert set(asked) == set(documented(LOOKING))
    for entry, sentence in asked.items():
        access.take_back("reader", entry)
        message = command(*sweep, code=0 if entry == one_broker else REFUSED).output
        if entry == one_broker:  # a broker that cannot be read costs its own numbers only
            message = failures()["1"]
        assert sentence in message
        assert "allowed" in message
        access.allow("reader", [entry])


def test_an_executor_names_the_permission_that_is_missing(
    secure: SecureKafka, stage: Stage, access: Access, moved: str
):
    executor = User("executor", "SCRAM-SHA-512", secure, stage, access)
    hand = User("hand", "SCRAM-SHA-256", secure, stage, access)
    config = executor.settings(more=hand.target(CLUSTER))
    execute = ("execute", "kafka", CLUSTER, "--config", str(config), "--once")

    def throttled(number: int) -> None:
        """Each number has another rate and another entry to add."""
        rates, when = {"1": number * 1_000_000}, {"reassignments": "planned"}
        publish(stage, throttle(moved, f"0:{number}", rates, precondition=when))

    access.allow("hand", [*documented(LOOKING), *documented(PACING)])
    throttled(1)
    stage.send_raw(b"west-1", b"{}", to=stage.topics.executor_kafka)
    stage.flush()
    for lacking in executor.one_less("Executors"):
        assert lacking in command(*execute, code=REFUSED).output
    command(*execute)
    assert results(stage)[-1]["data"]["outcome"] == "succeeded"
    with KafkaAdminClient(bootstrap_servers=secure.bootstrap) as admin:
        found = KafkaCluster(admin).throttle(topics=[moved], brokers=[1]).throttle
    assert (found.lists.leader, set(found.rates_bytes_per_s.values())) == ({moved: "0:1"}, {1_000_000})

    asked = {
        ON_CLUSTER["AlterConfigs"]: "is ALTER_CONFIGS on the cluster allowed?",
        ON_TOPICS["AlterConfigs"]: f"is ALTER_CONFIGS on topic {moved} allowed?",
    }
    assert set(asked) == set(documented(PACING))
    for number, (entry, sentence) in enumerate(asked.items(), start=2):
        access.take_back("hand", entry)
        throttled(number)
        command(*execute)
        told = results(stage)[-1]["data"]
        assert told["outcome"] == "failed"
        assert sentence in told["reason"]
        access.allow("hand", [entry])


@pytest.mark.slow
def test_the_doctor_says_what_it_could_not_check(secure: SecureKafka, stage: Stage, access: Access):
    doctor = User("doctor", "SCRAM-SHA-512", secure, stage, access)
    asked = ("doctor", "--config", str(doctor.settings()))
    runs = [entry for entry in doctor.entries("The controller") if entry.kind == "topic"]
    access.allow("doctor", runs)
    for lacking in doctor.one_less("Doctor"):
        assert lacking in command(*asked, code=REFUSED).output
    findings = json.loads(command(*asked, "-o", "json", code=REFUSED).output)
    assert {(each["check"], each["outcome"]) for each in findings if each["outcome"] != "ok"} == {
        ("permissions", "not checked"),  # the transactional id
        ("leader", "problem"),
        ("lag", "problem"),
        ("clocks", "not checked"),
    }
    writes = next(entry for entry in runs if entry.operation == "Write")
    access.take_back("doctor", writes)
    assert doctor.lacks(writes) in command(*asked, code=REFUSED).output


@pytest.fixture
def default_stage(secure: SecureKafka, tmp_path: Path) -> Iterator[Stage]:
    """A stage with the names of the topics as they are by default; no topics yet."""
    made = Stage(secure.bootstrap, "trimtab", tmp_path)
    made.topics = TopicNames()
    yield made
    made.close()


def test_with_the_documented_permissions_it_runs_over_sasl_ssl(
    secure: SecureKafka, default_stage: Stage, access: Access, warm: Warm
):
    stage = default_stage
    administrator = User("admin", "PLAIN", secure, stage, access)
    controller = User("trimtab", "SCRAM-SHA-512", secure, stage, access)
    create = ("topics", "create", "--config", str(administrator.settings()))
    message = command(*create, code=REFUSED).output
    assert f"User:admin lacks the permission Create on topic {stage.topics.input}" in message
    access.allow("admin", documented("Creating the topics"))
    assert command(*create).output.count(": created") == 9

    config, missing = controller.settings(), Entry("topic", "trimtab.control", "Read")
    entries = documented("The controller")
    assert missing in entries
    access.allow("trimtab", [entry for entry in entries if entry != missing])
    said = warm.refused(config)
    assert controller.lacks(missing) in said
    assert "kafka-acls.sh" in said
    access.allow("trimtab", [missing])

    events = played(range(5))
    first, wanted = replayed(config, played(range(3))), replayed(config, events)
    access.allow("sender", documented("Collectors"))
    sender = User("sender", "PLAIN", secure, stage, access).settings()
    collect(sender, stage, played(range(3)))
    with warm.run(config) as run:
        stage.wait_for_outputs(first, running=[run])
    assert password_of("trimtab") not in run.output

    certified = stage.settings(
        base=QUICK + controller.by_certificate("input.security"),
        file="certified.toml",
        input__url=f"kafka://{secure.certified_bootstrap}",
    )
    with warm.run(certified) as run:
        collect(sender, stage, events[len(played(range(3))) :])
        stage.wait_for_outputs(wanted, running=[run])
    assert stage.published() == wanted

    access.take_back("trimtab", Entry("transactional-id", "trimtab", "Write"))
    link = output_link(load(file=config, flags={}, environ={}).settings)
    publisher = KafkaPublisher(link, name=stage.name, commits_topic=stage.topics.commits)
    with pytest.raises(
        PublishError, match=r"User:trimtab lacks the permission Write on transactional id trimtab"
    ):
        publisher.open(at())


def collect(config: Path, stage: Stage, events: list[bytes]) -> None:
    """Send reports as the user of these settings."""
    link = input_link(load(file=config, flags={}, environ={}).settings)
    with KafkaProducer(bootstrap_servers=link.bootstrap, acks="all", **link.client_options()) as producer:
        for value in events:
            producer.send(stage.topics.input, key=cluster_of(value).encode(), value=value)
        producer.flush()


def test_a_secured_cluster_is_paced_as_the_user_of_its_target(
    secure: SecureKafka, access: Access, tmp_path: Path
):
    with KafkaAdminClient(bootstrap_servers=secure.bootstrap) as admin:
        admin.create_topics({"mv": {"assignments": {0: [1]}}}, wait_for_metadata=True)
    config = tmp_path / "trimtab.toml"
    config.write_text(f"""
[targets."east-1".kafka]
bootstrap = "{secure.secure_bootstrap}"
[targets."east-1".kafka.security]
protocol = "sasl_ssl"
ca_file = "{secure.ca_file}"
username = "pacer"
password = "{password_of("pacer")}"
""")
    stays = json.dumps({"version": 1, "partitions": [{"topic": "mv", "partition": 0, "replicas": [1]}]})
    of_cluster = ("--config", str(config), "--cluster", "east-1")
    look = ("throttle", "plan", *of_cluster, "--interval", "5", "--input", "-")
    refused = command(*look, given=stays, code=REFUSED)
    assert password_of("pacer") not in refused.output

    access.allow("pacer", documented(LOOKING))
    answer = json.loads(command(*look, given=stays).stdout)
    assert answer["partitions_without_data_movement"] == ["mv-0"]
    swept = command("collect", "kafka", "east-1", "--config", str(config), "--once", "--stdout")
    subjects = [json.loads(line)["subject"] for line in swept.stdout.splitlines()]
    assert subjects == ["reassignments", "1", "tick"]

    target = load(file=config, flags={}, environ={}).settings.targets["east-1"].kafka
    lists, rate = ThrottledLists(leader={"mv": "0:1"}), {BrokerRole("leader", 1): 5_000_000}
    none = ThrottledLists(leader={"mv": ""})
    with cluster.cluster_of(target, cluster="east-1") as kafka:
        with pytest.raises(ClusterError, match="refused by Kafka"):
            kafka.apply(changes_of(Throttle(), lists, rate))
        access.allow("pacer", documented(PACING))
        kafka.apply(changes_of(Throttle(), lists, rate))
        there = kafka.throttle(topics=["mv"], brokers=[1]).throttle
        assert there == Throttle(lists=lists, rates_bytes_per_s=rate)
        kafka.apply(changes_of(there, none, dict.fromkeys(rate)))
