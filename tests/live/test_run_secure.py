"""A real Kafka with SASL_SSL and access control: the documented permissions are enough, and one less is named."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaProducer

from deploy.local.secure_kafka import SecureKafka
from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.cli import main
from streaming.kafka import cluster
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import Throttle, changes_of
from streaming.kafka.link import input_link, output_link
from streaming.kafka.publisher import KafkaPublisher
from streaming.process.exits import REFUSED
from streaming.settings import TopicNames, load
from streaming.transport.errors import PublishError
from tests.live.access import Access, Entry, by_certificate, documented, password_of, settings_of
from tests.live.checkpoints import at
from tests.live.driving import Warm
from tests.live.loads import played
from tests.live.stage import QUICK, Stage, cluster_of, replayed

pytestmark = pytest.mark.live

ADMINISTRATOR, CONTROLLER, OPERATOR = "admin", "trimtab", "maria"
COLLECTOR, WATCHER, PACER = "sender", "watcher", "pacer"


@pytest.fixture
def stage(secure: SecureKafka, tmp_path: Path) -> Iterator[Stage]:
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
    secure: SecureKafka, stage: Stage, access: Access, warm: Warm
) -> None:
    administrator = settings_of(secure, stage, ADMINISTRATOR, "PLAIN")
    controller = settings_of(secure, stage, CONTROLLER, "SCRAM-SHA-512")
    operator = settings_of(secure, stage, OPERATOR, "SCRAM-SHA-256")

    message = output_of(warm, "topics", "create", "--config", str(administrator), code=REFUSED)
    assert f"User:admin lacks the permission Create on topic {stage.topics.input}" in message
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
    sender = settings_of(secure, stage, COLLECTOR, "PLAIN")
    collect(sender, stage, played(range(3)))
    with warm.start("run", "--config", str(controller), "--from", "earliest") as run:
        stage.wait_for_outputs(first, running=[run])
        assert run.terminate() == 0
        assert password_of(CONTROLLER) not in run.output

    certified = stage.settings(
        base=QUICK + by_certificate(secure, CONTROLLER, section="input.security"),
        file="certified.toml",
        input__url=f"kafka://{secure.certified_bootstrap}",
    )
    with warm.start("run", "--config", str(certified)) as run:
        collect(sender, stage, events[len(played(range(3))) :])
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert stage.published() == wanted, "the rounds are long before the pause"

    access.allow(WATCHER, documented("Watching"))
    watcher = settings_of(secure, stage, WATCHER, "SCRAM-SHA-512")
    action = json.loads(stage.values(stage.topics.actions)[0])
    tail = ("actions", "tail", "--config", str(watcher), "--from", "earliest", "--no-follow")
    assert action["id"] in output_of(warm, *tail)
    why = output_of(warm, "actions", "why", "--config", str(watcher), action["id"])
    assert "Bundles of the brokers that fired" in why

    access.take_back(CONTROLLER, Entry("transactional-id", "trimtab", "Write"))
    link = output_link(load(file=controller, flags={}, environ={}).settings)
    publisher = KafkaPublisher(
        link,
        name=stage.name,
        commits_topic=stage.topics.commits,
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
    with cluster.cluster_of(target, cluster="east-1") as kafka:
        with pytest.raises(ClusterError, match="refused by Kafka"):
            kafka.apply(changes_of(Throttle(), lists, rate))
        access.allow(PACER, documented("A Kafka cluster whose moves are paced"))
        kafka.apply(changes_of(Throttle(), lists, rate))
        there = kafka.throttle(topics=["mv"], brokers=[1]).throttle
        assert there == Throttle(lists=lists, rates_bytes_per_s=rate)
        kafka.apply(changes_of(there, none, dict.fromkeys(rate)))
