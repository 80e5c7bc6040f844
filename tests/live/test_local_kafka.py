"""The local Kafka: starts, keeps what it was given, and leaves nothing behind."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from deploy.local import kafka as local_kafka
from deploy.local.kafka import LocalKafka
from deploy.local.processes import LocalError

pytestmark = pytest.mark.live

MIB = 1024 * 1024
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="reads /proc; parent-death signals are Linux's"
)


def brokers_of(pid: int) -> list[int]:
    """The pids of the brokers that the process `pid` started and that are still there."""
    pids = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [child for child in pids if b"kafka.Kafka" in Path(f"/proc/{child}/cmdline").read_bytes()]


def create(kafka: LocalKafka, topic: str, **configs: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.create_topics([NewTopic(topic, 1, len(kafka.bootstrap.split(",")), topic_configs=configs)])
    admin.close()


def produce(kafka: LocalKafka, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all", max_request_size=40 * MIB)
    for value in values:
        producer.send(topic, value).get(timeout=30)
    producer.close()


def read(kafka: LocalKafka, topic: str) -> list[bytes]:
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, max_partition_fetch_bytes=40 * MIB)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    values: list[bytes] = []
    while consumer.position(partition) < end:
        values += [record.value for record in consumer.poll(timeout_ms=1000).get(partition, [])]
    consumer.close()
    return values


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.mark.slow
@linux_only
def test_what_was_produced_survives_a_restart_at_the_same_address_and_a_kill(tmp_path: Path) -> None:
    before = brokers_of(os.getpid())
    with LocalKafka(tmp_path) as kafka:
        address = kafka.bootstrap
        create(kafka, "t")
        produce(kafka, "t", b"1")
        kafka.restart()
        assert kafka.bootstrap == address
        produce(kafka, "t", b"2")
        assert len(brokers_of(os.getpid())) == len(before) + 1
        kafka.kill()
        assert brokers_of(os.getpid()) == before
    with LocalKafka(tmp_path) as reopened:
        assert read(reopened, "t") == [b"1", b"2"]
    assert brokers_of(os.getpid()) == before


@pytest.mark.slow
def test_a_topic_that_allows_it_takes_a_record_of_32_mib(kafka: LocalKafka) -> None:
    create(kafka, "large", **{"max.message.bytes": str(33 * MIB)})
    produce(kafka, "large", bytes(32 * MIB))
    assert [len(value) for value in read(kafka, "large")] == [32 * MIB]


def test_starting_twice_is_refused(kafka: LocalKafka) -> None:
    with pytest.raises(LocalError, match="already running"):
        kafka.start()


def test_a_broker_that_does_not_come_up_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    store = tmp_path / "node1"
    store.mkdir()
    (store / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=9\n")
    with pytest.raises(LocalError, match=r"(?s)node1 ended with 1; .*node1\.log:.*node.id"):
        LocalKafka(tmp_path).start()


@pytest.mark.slow
def test_a_port_lost_between_choosing_and_binding_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        choose = local_kafka.free_ports
        answers = iter([[choose(1)[0], port], choose(2)])
        monkeypatch.setattr(local_kafka, "free_ports", lambda _count: next(answers))
        with LocalKafka(tmp_path) as kafka:
            assert kafka.bootstrap != f"127.0.0.1:{port}"


@linux_only
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_broker_ends_with_the_command_that_runs_it(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "deploy.local.kafka", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        (broker,) = brokers_of(process.pid)
        ended = os.pidfd_open(broker)
        process.send_signal(number)
        assert select.select([ended], [], [], 20)[0], "the broker is still there"
        os.close(ended)
        assert process.wait(20) == code


@pytest.mark.slow
def test_three_nodes_lose_one_and_take_it_back(tmp_path: Path) -> None:
    with LocalKafka(tmp_path, nodes=3) as kafka:
        create(kafka, "t")
        produce(kafka, "t", b"1")
        kafka.stop_node(3)
        produce(kafka, "t", b"2")
        kafka.start_node(3)
        assert read(kafka, "t") == [b"1", b"2"]
