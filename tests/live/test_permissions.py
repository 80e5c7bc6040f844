"""A real Kafka with SASL_SSL and access control: the documented permissions are enough, and any one less is named."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from deploy.local.secure_kafka import SecureKafka
from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.cli import main
from streaming.kafka import admin as kafka_admin
from streaming.kafka.connection import ClusterError
from streaming.kafka.link import input_link, output_link
from streaming.kafka.publisher import KafkaPublisher
from streaming.kafka.throttles import Throttle, changes_of, read_throttle
from streaming.ports.publishing import PublishError
from streaming.process.exits import REFUSED
from streaming.settings import TopicNames, load
from tests.support.loads import played
from tests.support.moving import planned
from tests.support.permissions import (
    CLUSTER,
    Access,
    Entry,
    by_certificate,
    by_password,
    decided,
    documented,
    events_for_the_controller,
    password_of,
    publish,
    results,
    settings_of,
    throttle_of,
)
from tests.support.processes import Warm, command
from tests.support.stage import QUICK, Stage, at, cluster_of, replayed, staged

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
        found = read_throttle(admin, topics=[moved], brokers=[1]).throttle
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


ADMINISTRATOR, CONTROLLER, OPERATOR = "admin", "trimtab", "maria"
COLLECTOR, WATCHER, PACER = "sender", "watcher", "pacer"


@pytest.fixture
def default_stage(secure: SecureKafka, tmp_path: Path) -> Iterator[Stage]:
    """A stage whose own clients are the superuser of the plaintext listener; no topics yet."""
    made = Stage(secure.bootstrap, CONTROLLER, tmp_path)
    made.topics = TopicNames()
    yield made
    made.close()


def collect(config: Path, stage: Stage, events: list[bytes]) -> None:
    """Send reports as the user of these settings."""
    link = input_link(load(file=config, flags={}, environ={}).settings)
    with KafkaProducer(bootstrap_servers=link.bootstrap, acks="all", **link.client_options()) as producer:
        for value in events:
            producer.send(stage.topics.input, key=cluster_of(value).encode(), value=value)
        producer.flush()


def output_of(warm: Warm, *arguments: str, code: int = 0) -> str:
    with warm.start(*arguments) as run:
        assert run.wait() == code, run.output
        assert "Traceback" not in run.output
        return run.output


def test_with_the_documented_permissions_it_runs_over_sasl_ssl_and_with_one_less_it_names_the_missing_one(
    secure: SecureKafka, default_stage: Stage, access: Access, warm: Warm
) -> None:
    administrator = settings_of(secure, default_stage, ADMINISTRATOR, "PLAIN")
    controller = settings_of(secure, default_stage, CONTROLLER, "SCRAM-SHA-512")
    operator = settings_of(secure, default_stage, OPERATOR, "SCRAM-SHA-256")

    message = output_of(warm, "topics", "create", "--config", str(administrator), code=REFUSED)
    assert f"User:admin lacks the permission Create on topic {default_stage.topics.input}" in message
    access.allow(ADMINISTRATOR, documented("Creating the topics"))
    message = output_of(warm, "topics", "create", "--config", str(administrator))
    assert message.count(": created") == 9

    entries = documented("The controller")
    missing = Entry("topic", "trimtab.control", "Read")
    assert missing in entries
    access.allow(CONTROLLER, [entry for entry in entries if entry != missing])
    message = output_of(warm, "run", "--config", str(controller), code=REFUSED)
    assert f"User:trimtab {missing.lacking}" in message
    assert "kafka-acls.sh" in message
    access.allow(CONTROLLER, [missing])

    access.allow(OPERATOR, documented("Operators' commands"))
    pause = ("pause", "--config", str(operator), "--cluster", "east-1", "--force", "--why", "the sale")
    message = output_of(warm, *pause)
    assert "paused: no -> yes" in message

    events = played(range(5))
    first, wanted = replayed(controller, played(range(3))), replayed(controller, events)
    access.allow(COLLECTOR, documented("Collectors"))
    sender = settings_of(secure, default_stage, COLLECTOR, "PLAIN")
    collect(sender, default_stage, played(range(3)))
    with warm.start("run", "--config", str(controller), "--from", "earliest") as run:
        default_stage.wait_for_outputs(first, running=[run])
        assert run.terminate() == 0
        assert password_of(CONTROLLER) not in run.output

    certified = default_stage.settings(
        base=QUICK + by_certificate(secure, CONTROLLER, section="input.security"),
        file="certified.toml",
        input__url=f"kafka://{secure.certified_bootstrap}",
    )
    with warm.run(certified) as run:
        collect(sender, default_stage, events[len(played(range(3))) :])
        default_stage.wait_for_outputs(wanted, running=[run])
    assert default_stage.published() == wanted, "the rounds are long before the pause"

    access.allow(WATCHER, documented("Watching"))
    watcher = settings_of(secure, default_stage, WATCHER, "SCRAM-SHA-512")
    action = json.loads(default_stage.values(default_stage.topics.actions)[0])
    tail = ("actions", "tail", "--config", str(watcher), "--from", "earliest", "--no-follow")
    assert action["id"] in output_of(warm, *tail)
    why = output_of(warm, "actions", "why", "--config", str(watcher), action["id"])
    assert "Bundles of the brokers that fired" in why

    access.take_back(CONTROLLER, Entry("transactional-id", "trimtab", "Write"))
    link = output_link(load(file=controller, flags={}, environ={}).settings)
    publisher = KafkaPublisher(
        link.bootstrap,
        name=default_stage.name,
        commits_topic=default_stage.topics.commits,
        client_options=link.client_options(),
        principal=link.principal,
    )
    with pytest.raises(
        PublishError, match="User:trimtab lacks the permission Write on transactional id trimtab"
    ):
        publisher.open(at())


def test_a_secured_cluster_is_looked_at_and_paced_as_the_user_of_its_target(
    secure: SecureKafka, access: Access, tmp_path: Path
) -> None:
    with KafkaAdminClient(bootstrap_servers=secure.bootstrap) as admin:
        admin.create_topics({"mv": {"assignments": {0: [1]}}}, wait_for_metadata=True)
    config = tmp_path / "trimtab.toml"
    config.write_text(f"""
[targets."east-1".kafka]
bootstrap = "{secure.secure_bootstrap}"
[targets."east-1".kafka.security]
protocol = "sasl_ssl"
ca_file = "{secure.ca_file}"
username = "{PACER}"
password = "{password_of(PACER)}"
""")
    stays = {"version": 1, "partitions": [{"topic": "mv", "partition": 0, "replicas": [1]}]}
    look = (
        "throttle",
        "plan",
        "--cluster",
        "east-1",
        "--config",
        str(config),
        "--interval",
        "5",
        "--input",
        "-",
    )
    refused = CliRunner().invoke(main, look, input=json.dumps(stays))
    assert refused.exit_code != 0, refused.output
    assert password_of(PACER) not in refused.output

    access.allow(PACER, documented("A Kafka cluster whose moves are looked at"))
    planned = CliRunner().invoke(main, look, input=json.dumps(stays))
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["partitions_without_data_movement"] == ["mv-0"]
    swept = CliRunner().invoke(
        main, ["collect", "kafka", "east-1", "--config", str(config), "--once", "--stdout"]
    )
    assert swept.exit_code == 0, swept.output
    assert [json.loads(line)["subject"] for line in swept.stdout.splitlines()] == [
        "reassignments",
        "1",
        "tick",
    ]

    target = load(file=config, flags={}, environ={}).settings.targets["east-1"].kafka
    lists, rate = ThrottledLists(leader={"mv": "0:1"}), {BrokerRole("leader", 1): 5_000_000}
    none = ThrottledLists(leader={"mv": ""})
    with kafka_admin.cluster_of(target, cluster="east-1") as kafka:
        with pytest.raises(ClusterError, match="refused by Kafka"):
            kafka.apply(changes_of(Throttle(), lists, rate))
        access.allow(PACER, documented("A Kafka cluster whose moves are paced"))
        kafka.apply(changes_of(Throttle(), lists, rate))
        there = kafka.throttle(topics=["mv"], brokers=[1]).throttle
        assert there == Throttle(lists=lists, rates_bytes_per_s=rate)
        kafka.apply(changes_of(there, none, dict.fromkeys(rate)))
