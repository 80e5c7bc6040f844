"""A real KRaft Kafka on loopback, from the published jars: one broker, or three, for the demo and the tests.

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
import atexit
import base64
import os
import secrets
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from deploy.local.processes import LOCKS, LOGGING, answers, end_of, free_ports, spawn
from streaming.process.deadline import poll
from streaming.process.stopping import stopped_by_signals
from streaming.spark.jars import ensure, find_java

KAFKA_LOCK = LOCKS / "kafka.lock"
READY_TIMEOUT_S = 60.0
"""One node needs 3 s and three need 13 s on two idle cores."""
STOP_TIMEOUT_S = 20.0
"""A broker stops in 0.3 s; one that is still moving leaders after this long is killed."""
POLL_S = 0.05
ATTEMPTS_MAX = 3
"""Ports are found free and bound later, so another process may be faster; three times in a row is not chance."""

_JVM = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
)

_SETTINGS = """\
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
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


class LocalKafkaError(RuntimeError):
    """A broker did not start, or is not in the state that was asked for."""


@dataclass(slots=True)
class Node:
    """One broker: its place in the cluster's directory and, while it runs, its process."""

    number: int
    directory: Path
    port: int = 0
    controller_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Path:
        return self.directory / f"node{self.number}.properties"

    @property
    def log(self) -> Path:
        """What the broker prints, its logging included."""
        return self.directory / f"node{self.number}.log"

    @property
    def store(self) -> Path:
        return self.directory / f"node{self.number}"

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_end(self) -> str:
        return end_of(self.log)


class LocalKafka:
    """A cluster of 1 or 3 brokers in `directory`; a context manager that starts and stops it.

    Not for several threads at once.
    """

    def __init__(self, directory: Path, nodes: Literal[1, 3] = 1) -> None:
        self._directory = directory.absolute()
        self._nodes = {number: Node(number, self._directory) for number in range(1, nodes + 1)}

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:port` of every broker, comma-separated; the same from the first `start` on."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self._nodes.values())

    def start(self) -> None:
        """Start all brokers and wait for them. Raises LocalKafkaError with the end of the log if one does not come up."""
        if any(node.running() for node in self._nodes.values()):
            raise LocalKafkaError(f"the Kafka in {self._directory} is already running: stop it first")
        if all(node.port for node in self._nodes.values()):
            self._start_all()
            return
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._configure()
            try:
                self._start_all()
            except LocalKafkaError:
                if attempt == ATTEMPTS_MAX or not self._has_lost_port():
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop all brokers in order: SIGTERM, and SIGKILL after 20 s. Returns at once if none runs."""
        for number in sorted(self._nodes, reverse=True):
            self.stop_node(number)
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """End all brokers at once, as a power cut would: SIGKILL."""
        for node in self._nodes.values():
            if node.process is not None:
                node.process.kill()
        for node in self._nodes.values():
            _reap(node)
        atexit.unregister(self.kill)

    def restart(self) -> None:
        """Stop and start on the same ports with the same data."""
        self.stop()
        self.start()

    def stop_node(self, number: int) -> None:
        """Stop one broker (1-based) as `stop` does."""
        node = self._nodes[number]
        if node.process is None:
            return
        node.process.terminate()
        try:
            node.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            node.process.kill()
        _reap(node)

    def start_node(self, number: int) -> None:
        """Start one stopped broker again and wait until all that run are registered."""
        node = self._nodes[number]
        if node.running():
            raise LocalKafkaError(f"node {number} of the Kafka in {self._directory} is already running")
        self._launch(node)
        self._wait_until_ready()

    def check(self) -> None:
        """Raise LocalKafkaError with the end of its log if a broker that was started has ended by itself."""
        for node in self._nodes.values():
            if node.process is not None and not node.running():
                raise LocalKafkaError(
                    f"node {node.number} (port {node.port}) ended with {node.process.returncode}; "
                    f"the end of {node.log}:\n{node.log_end()}"
                )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _configure(self) -> None:
        """Choose ports, write each node's settings, and format the stores that are new."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "log4j2.xml").write_text(LOGGING, encoding="utf-8")
        ports = free_ports(len(self._nodes) + 1)
        for node in self._nodes.values():
            node.port, node.controller_port = ports[node.number], ports[0]
            node.settings.write_text(_properties(node) + self._more_properties(node), encoding="utf-8")
        new = [node for node in self._nodes.values() if not (node.store / "meta.properties").exists()]
        cluster = _cluster_id(self._directory / "cluster.id")
        with ThreadPoolExecutor(max_workers=len(self._nodes)) as pool:
            list(pool.map(lambda node: self._format(node, cluster), new))

    def _format(self, node: Node, cluster: str) -> None:
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(node.settings)]
        command += self._format_options()
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=READY_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise LocalKafkaError(f"formatting {node.store} ended with {done.returncode}:\n{done.stdout}")

    def _more_properties(self, _node: Node) -> str:
        """What a kind of cluster adds to a node's settings; a later line overrides an earlier one."""
        return ""

    def _format_options(self) -> list[str]:
        """What a kind of cluster writes into the metadata before its first start."""
        return []

    @cached_property
    def _java(self) -> list[str]:
        """The command up to the main class."""
        logging = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.xml'}"
        jars = os.pathsep.join(str(jar) for jar in ensure(KAFKA_LOCK))
        return [str(find_java()), *_JVM, logging, "-cp", jars]

    def _start_all(self) -> None:
        try:
            for node in self._nodes.values():
                self._launch(node)
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _launch(self, node: Node) -> None:
        atexit.unregister(self.kill)
        atexit.register(self.kill)
        node.process = spawn([*self._java, "kafka.Kafka", str(node.settings)], node.log)

    def _wait_until_ready(self) -> None:
        if not poll(self._is_ready, timeout_s=READY_TIMEOUT_S, pause_s=POLL_S):
            logs = "\n".join(f"{node.log}:\n{node.log_end()}" for node in self._nodes.values())
            raise LocalKafkaError(
                f"Kafka on {self.bootstrap} is not ready after {READY_TIMEOUT_S:.0f} s:\n{logs}"
            )

    def _is_ready(self) -> bool:
        """Whether all brokers that run answer and are registered with the controller. Raises where one has ended."""
        self.check()
        running = [node for node in self._nodes.values() if node.running()]
        if not running or not all(answers(node.port) for node in running):
            return False
        address = [f"127.0.0.1:{node.port}" for node in running]
        try:
            with KafkaAdminClient(
                bootstrap_servers=address, bootstrap_timeout_ms=2000, request_timeout_ms=5000
            ) as admin:
                brokers = admin.describe_cluster()["brokers"]
        except KafkaError:
            return False
        return {broker["broker_id"] for broker in brokers} >= {node.number for node in running}

    def _has_lost_port(self) -> bool:
        return any("Address already in use" in node.log_end() for node in self._nodes.values())


def _reap(node: Node) -> None:
    if node.process is not None:
        node.process.wait(STOP_TIMEOUT_S)
        node.process = None


def _cluster_id(file: Path) -> str:
    """Return the cluster id kept in `file`, made at the first call: 16 random bytes in url-safe base64."""
    if not file.exists():
        # A leading "-" would be read as an option by the storage tool.
        raw = bytes([secrets.randbelow(0xF0)]) + secrets.token_bytes(15)
        file.write_text(base64.urlsafe_b64encode(raw).decode().rstrip("="), encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _properties(node: Node) -> str:
    """The settings file of one node; the keys are those of Kafka's broker configuration."""
    leads = node.number == 1
    controller = f",CONTROLLER://127.0.0.1:{node.controller_port}" if leads else ""
    own = {
        "process.roles": "broker,controller" if leads else "broker",
        "node.id": node.number,
        "controller.quorum.voters": f"1@127.0.0.1:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port}{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": node.store,
    }
    return "".join(f"{key}={value}\n" for key, value in own.items()) + _SETTINGS


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.kafka", description="Run a Kafka until Ctrl-C."
    )
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--directory", type=Path, help="keep settings, logs and data here (default: a temporary one)"
    )
    args = parser.parse_args()
    stop = threading.Event()
    place = (
        nullcontext(args.directory)
        if args.directory
        else tempfile.TemporaryDirectory(prefix="trimtab-kafka-")
    )
    with (
        stopped_by_signals(lambda _: stop.set()),
        place as directory,
        LocalKafka(Path(directory), args.nodes) as kafka,
    ):
        print(kafka.bootstrap, flush=True)
        while not stop.wait(timeout=1):
            kafka.check()


if __name__ == "__main__":
    _main()
