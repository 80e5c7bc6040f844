"""A real KRaft Kafka, from the published jars: one broker, or three, for the demo and the tests.

    with LocalKafka(Path("/tmp/k")) as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)

Everything lives in the directory given: settings, logs (`node1.log`) and data of each node. A directory that already
holds a cluster of as many nodes is started again with its data. Node 1 is broker and controller, the others brokers.

Invariants: ports are chosen once, at the first `start`, and kept by every later one; a `start` returns when all
brokers are registered, or raises with the end of the log; on Linux no broker outlives the process that started it,
even one that is killed.

WARNING: internal topics have one replica and nothing is flushed to disk: it survives `kill -9` of any process, but
not the loss of the machine. One controller: while node 1 is down, the others cannot elect leaders.
"""

import argparse
import base64
import secrets
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from deploy.local.processes import (
    LOCKS,
    JavaCluster,
    LocalError,
    Machine,
    Process,
    answers,
    free_ports,
    run_until_stopped,
)

KAFKA_LOCK = LOCKS / "kafka.lock"
OLDEST_KAFKA_LOCK = LOCKS / "kafka-3.9.lock"
"""The oldest release that the live tests run on."""

_SETTINGS = """\
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=2097152
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
socket.request.max.bytes=104857600
replica.fetch.max.bytes=41943040
replica.fetch.response.max.bytes=41943040
"""
"""Settings for a small, quick broker that is soon back after `kill -9` (a controller waits out the dead broker's session
before it admits the new one: 9 s by default), with room for a record of 32 MiB on topics whose `max.message.bytes` allows
it. The broker-wide `message.max.bytes` stays Kafka's, so that a topic made without its own limit fails here as it would
elsewhere."""


@dataclass(frozen=True, slots=True)
class Node:
    """One broker's place in the cluster."""

    number: int
    address: str
    port: int
    controller_port: int
    store: Path

    @property
    def name(self) -> str:
        """Name of its process and of its files."""
        return f"node{self.number}"


class LocalKafka(JavaCluster):
    """A cluster of 1 or 3 brokers in `directory`; a context manager that starts and stops it.

    A broker runs on its machine of `machines`, by its number from 1, or on loopback.
    """

    system = "Kafka"
    options = (
        "-Xms64m",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
    )
    ready_timeout_s = 60.0
    """One node needs 3 s and three need 13 s on two idle cores."""

    def __init__(
        self,
        directory: Path,
        nodes: Literal[1, 3] = 1,
        machines: Mapping[int, Machine] = MappingProxyType({}),
        lock: Path = KAFKA_LOCK,
    ) -> None:
        super().__init__(directory, lock=lock)
        self._count = nodes
        self._machines = machines
        self._nodes: list[Node] = []

    @property
    def bootstrap(self) -> str:
        """`address:port` of every broker, comma-separated; the same from the first `start` on."""
        return ",".join(f"{node.address}:{node.port}" for node in self._nodes)

    def stop_node(self, number: int) -> None:
        """Stop one broker (1-based) as `stop` does."""
        self.processes[f"node{number}"].end()

    def start_node(self, number: int) -> None:
        """Start one stopped broker again and wait until all that run are registered."""
        self.processes[f"node{number}"].launch()
        self._wait_until_ready()

    def configure(self) -> None:
        """Choose ports, write each node's settings, and format the stores that are new."""
        controller_port, *ports = free_ports(self._count + 1)
        self._nodes = [
            Node(
                number, self._machine(number).address, port, controller_port, self.directory / f"node{number}"
            )
            for number, port in enumerate(ports, start=1)
        ]
        for node in self._nodes:
            self._settings(node).write_text(
                _properties(node, self._nodes) + self._more_properties(node), encoding="utf-8"
            )
        self.processes = {
            node.name: self.process(node.name, "kafka.Kafka", str(self._settings(node)))
            for node in self._nodes
        }
        for node in self._nodes:
            process = self.processes[node.name]
            process.command = (*self._machine(node.number).prefix, *process.command)
        new = [node for node in self._nodes if not (node.store / "meta.properties").exists()]
        cluster = _cluster_id(self.directory / "cluster.id")
        with ThreadPoolExecutor(max_workers=self._count) as pool:
            list(pool.map(lambda node: self._format(node, cluster), new))

    def _machine(self, number: int) -> Machine:
        return self._machines.get(number, Machine())

    def _settings(self, node: Node) -> Path:
        return self.directory / f"{node.name}.properties"

    def _format(self, node: Node, cluster: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings(node))]
        done = subprocess.run(
            [*self.java, *tool, *self._format_options()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=self.ready_timeout_s,
        )
        if done.returncode != 0:
            raise LocalError(f"formatting {node.store} ended with {done.returncode}:\n{done.stdout}")

    def _more_properties(self, _node: Node) -> str:
        """What a kind of cluster adds to a node's settings; a later line overrides an earlier one."""
        return ""

    def _format_options(self) -> list[str]:
        """What a kind of cluster writes into the metadata before its first start."""
        return []

    def groups(self) -> Iterable[list[Process]]:
        return [[process] for process in self.processes.values()]

    def start_all(self) -> None:
        for process in self.processes.values():
            process.launch()
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        self.wait_for(f"Kafka on {self.bootstrap}", self._is_ready)

    def _is_ready(self) -> bool:
        """Whether all brokers that run answer and are registered with the controller."""
        running = [node for node in self._nodes if self.processes[node.name].running()]
        if not running or not all(answers(node.port, node.address) for node in running):
            return False
        try:
            with KafkaAdminClient(
                bootstrap_servers=[f"{node.address}:{node.port}" for node in running],
                bootstrap_timeout_ms=2000,
                request_timeout_ms=5000,
            ) as admin:
                brokers = admin.describe_cluster()["brokers"]
        except KafkaError:
            return False
        return {broker["broker_id"] for broker in brokers} >= {node.number for node in running}


def _cluster_id(file: Path) -> str:
    """Return the cluster id kept in `file`, made at the first call: 16 random bytes in url-safe base64."""
    if not file.exists():
        # A leading "-" would be read as an option by the storage tool.
        raw = bytes([secrets.randbelow(0xF0)]) + secrets.token_bytes(15)
        file.write_text(base64.urlsafe_b64encode(raw).decode().rstrip("="), encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _properties(node: Node, nodes: Sequence[Node]) -> str:
    """The settings file of one of the nodes; the keys are those of Kafka's broker configuration."""
    leads, first = node.number == 1, nodes[0]
    controller = f",CONTROLLER://{first.address}:{first.controller_port}" if leads else ""
    listener = f"PLAINTEXT://{node.address}:{node.port}"
    properties = {
        "process.roles": "broker,controller" if leads else "broker",
        "node.id": node.number,
        "controller.quorum.voters": f"1@{first.address}:{first.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener}{controller}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": node.store,
        # two, where there are several nodes: groups and transactions have a coordinator while one of them is down
        "offsets.topic.replication.factor": min(2, len(nodes)),
        "transaction.state.log.replication.factor": min(2, len(nodes)),
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items()) + _SETTINGS


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.kafka", description="Run a Kafka until Ctrl-C."
    )
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--directory", type=Path, help="keep settings, logs and data here (default: a temporary one)"
    )
    args = parser.parse_args()
    run_until_stopped(
        args.directory, lambda directory: LocalKafka(directory, args.nodes), lambda kafka: kafka.bootstrap
    )


if __name__ == "__main__":
    _main()
