"""Brokers that stay warm from schedule to schedule, what can be done to them, and the network to them, which is a proxy.

A controller may reach the brokers through proxies; the harness itself, collectors, executors and consumers reach them directly. On
Pulsar each schedule has a namespace for trimtab's topics and one with traffic, which leans now to one half of the bundles, now to the
other, so that there is always something to decide for the real collector and executor of that cluster. On Kafka each has a topic with
traffic, so that a broker that was stopped has something to catch up with.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import pulsar as pulsar_client
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from deploy.local.kafka import LocalKafka, Node
from deploy.local.processes import free_ports
from deploy.local.pulsar import LocalPulsar
from streaming.kafka.client import ClusterError, close_producer
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.throttles import Throttle
from streaming.process.closeable import Closeable
from streaming.pulsar.clients import close
from streaming.pulsar.http import AdminError
from tests.faults.schedule import System
from tests.support.processes import meanwhile
from tests.support.pulsar import CLUSTER, Lab, PulsarStage, connected
from tests.support.stage import Stage, staged

Mode = Literal["open", "cut", "hold", "slow"]

DELAY_S = 0.5
_CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.05


class Proxy(Closeable):
    """From ``port`` to ``target_port``, both on loopback."""

    def __init__(self, port: int, target_port: int) -> None:
        self._port, self._target_port = port, target_port
        self._mode: Mode = "open"
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", port))

    def set(self, mode: Mode) -> None:
        """Set the mode from now on."""
        self._mode = mode
        if mode == "cut":
            self._loop.call_soon_threadsafe(self._reset)

    def close(self) -> None:
        """End all connections."""
        self._mode = "cut"
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            writer.transport.abort()
            return
        try:
            its_reader, its_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, its_writer}
        await asyncio.gather(self._copy(reader, its_writer), self._copy(its_reader, writer))
        self._writers -= {writer, its_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                while self._mode == "hold":  # noqa: ASYNC110  modes are set from other threads
                    await asyncio.sleep(_LOOK_S)
                if self._mode == "slow":
                    await asyncio.sleep(DELAY_S)
                writer.write(data)
                await writer.drain()
        writer.close()


_PREFERRED = 0
_SEND_S = 5
"""How long the load waits for brokers that are out; what is not written then is given up, as a collector gives up a sweep."""


class _KafkaSender:
    """Writes the load; raises whatever the client raises, and gives up in the end what is not written."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            linger_ms=5,
            max_block_ms=1000 * _SEND_S,
            request_timeout_ms=1000 * _SEND_S,
            delivery_timeout_ms=2000 * _SEND_S,
        )
        self._sent: list[object] = []

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._sent.append(self._producer.send(topic, key=key, value=value))

    def flush(self) -> None:
        sent, self._sent = self._sent, []
        for future in sent:
            future.get(timeout=2 * _SEND_S)  # type: ignore[attr-defined]

    def close(self) -> None:
        with suppress(KafkaTimeoutError):
            self._producer.close(timeout=2 * _SEND_S)


class _ProxiedKafka(LocalKafka):
    """Each broker has a second listener, which is reached through a proxy."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=3)
        self.proxies: dict[int, Proxy] = {}
        self.proxied: dict[int, int] = {}

    @property
    def proxied_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.proxied.values())

    def _more_properties(self, node: Node) -> str:
        outside, inside = free_ports(2)
        if node.number in self.proxies:
            self.proxies[node.number].close()
        self.proxies[node.number] = Proxy(outside, inside)
        self.proxied[node.number] = outside
        controller = f",CONTROLLER://127.0.0.1:{node.controller_port}" if node.number == 1 else ""
        plain = f"PLAINTEXT://127.0.0.1:{node.port}"
        return (
            f"listeners={plain},PROXIED://127.0.0.1:{inside}{controller}\n"
            f"advertised.listeners={plain},PROXIED://127.0.0.1:{outside}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        )


class KafkaWorld:
    """Three brokers; topics have three replicas, and need two in sync."""

    brokers = 3

    def __init__(self, directory: Path) -> None:
        self._kafka = _ProxiedKafka(directory)
        self._staged: list[Stage] = []

    def __enter__(self) -> Self:
        self._kafka.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._kafka.proxies.values():
            proxy.close()
        self._kafka.stop()

    def stage(self, directory: Path) -> Stage:
        """A stage whose topics stay when it is closed: the whole cluster is deleted in the end."""
        with staged(self._kafka.bootstrap, directory) as made:
            return made

    def settings(self, stage: Stage, *, base: str, **overrides: object) -> Path:
        """The settings file of a controller, which reaches the brokers the way that can be cut."""
        return stage.settings(base=base, input__url=f"kafka://{self._kafka.proxied_bootstrap}", **overrides)

    def reconnect(self, stage: Stage) -> None:
        """Make a stage's clients forget what they know of the brokers."""
        stage.close()

    def sender(self, stage: Stage) -> "Sender":
        return _KafkaSender(stage.bootstrap)

    def stop_broker(self, number: int, *, kill: bool) -> None:
        if kill:
            self.signal_broker(number, signal.SIGKILL)
        self._kafka.stop_node(number)

    def start_broker(self, number: int) -> None:
        self._kafka.start_node(number)

    def signal_broker(self, number: int, signal_: signal.Signals) -> None:
        process = self._kafka.processes[f"node{number}"].process
        assert process is not None, f"broker {number} does not run"
        process.send_signal(signal_)

    @contextmanager
    def companions(self, stage: Stage, config: Path) -> Iterator[Mapping[str, Sequence[str]]]:
        """What runs beside the controller for the length of the block, as arguments of `trimtab`."""
        topic = _copied(stage)
        with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
            replicas = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
            admin.create_topics({topic: {"assignments": replicas}}, wait_for_metadata=True)
        direct = config.read_text().replace(self._kafka.proxied_bootstrap, stage.bootstrap)
        theirs = config.with_name("companions.toml")
        theirs.write_text(f'{direct}\n[targets."{CLUSTER}".kafka]\nbootstrap = "{stage.bootstrap}"\n')
        with meanwhile(partial(_write, stage.bootstrap, topic)):
            yield _commands("kafka", theirs)

    def leftovers(self, stage: Stage) -> list[str]:
        """What is not as it was before anything was copied: a sentence each."""
        topic = _copied(stage)
        try:
            with KafkaAdminClient(bootstrap_servers=stage.bootstrap, request_timeout_ms=10_000) as admin:
                kafka = KafkaCluster(admin)
                found = kafka.throttle(topics=[topic], brokers=kafka.brokers()).throttle
                behind = [
                    where[1]
                    for where, state in kafka.partitions([topic]).items()
                    if len(state.in_sync) < len(state.replicas)
                ]
        # Kafka lists a broker for some seconds after it was killed
        except (KafkaError, ClusterError) as error:
            return [f"the brokers do not tell: {error!r}"]
        return [
            *([] if found == Throttle() else [f"a throttle is set: {found}"]),
            *([f"partitions {behind} are not in sync"] if behind else []),
        ]

    def do(self, deed: str, stage: Stage, choice: str) -> None:
        """Do a deed that only this system has; called again with choice ``over`` at the end of one that lasts."""
        if deed == "move-leaders":
            self._move_leaders(stage)
            return
        modes: dict[str, Mode] = {"over": "open", "cut": "cut", "hold": "hold", "": "slow"}
        for proxy in self._kafka.proxies.values():
            proxy.set(modes[choice])

    def _move_leaders(self, stage: Stage) -> None:
        """Each partition's next replica becomes its leader."""
        with KafkaAdminClient(bootstrap_servers=stage.bootstrap, request_timeout_ms=10_000) as admin:
            names = [name for name in admin.list_topics() if name.endswith(stage.name)]
            described = admin.describe_topics(names)
            turned = {
                TopicPartition(topic["name"], each["partition_index"]): [
                    *each["replica_nodes"][1:],
                    each["replica_nodes"][0],
                ]
                for topic in described
                for each in topic["partitions"]
            }
            admin.alter_partition_reassignments(turned)
            partitions: dict[str, list[int]] = {}
            for at in turned:
                partitions.setdefault(at.topic, []).append(at.partition)
            admin.elect_leaders(_PREFERRED, partitions, raise_errors=False)


def _copied(stage: Stage) -> str:
    return f"copied.{stage.name}"


def _write(bootstrap: str, topic: str, stop: threading.Event) -> None:
    """Records at a steady rate; lost ones do not matter."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=1, max_block_ms=1_000)
    while not stop.wait(_RECORD_S):
        with suppress(KafkaError):
            for partition in range(3):
                producer.send(topic, b"x" * _RECORD_BYTES, partition=partition)
    close_producer(producer, wait_s=1)


def _commands(system: System, config: Path) -> dict[str, tuple[str, ...]]:
    return {
        program: (word, system, CLUSTER, "--config", str(config))
        for program, word in (("collector", "collect"), ("executor", "execute"))
    }


_RECORD_S, _RECORD_BYTES = 0.05, 8_000
_SEND_MS = 10_000
_READY_S = 60.0
_BUNDLES = 8
_LEAN_S = 12.0
_PAUSE_S = 0.02
_TARGET = """
[targets."{cluster}".pulsar]
admin_url = "{admin_url}"

[pulsar.usage]
cpu_weight = 0
bandwidth_in_weight = 0
bandwidth_out_weight = 0

[pulsar.capacity]
messages_per_s = 40000

[clusters."{cluster}".pulsar.capacity]
messages_per_s = 1000
"""
"""The brokers' own CPU says nothing on a shared machine; the fleet's capacity is that of the demo."""


class _PulsarSender:
    def __init__(self, pulsar: LocalPulsar, stage: PulsarStage) -> None:
        self._client = connected(pulsar)
        self._stage = stage
        self._producers: dict[str, pulsar_client.Producer] = {}
        self._failed: list[pulsar_client.Result] = []

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        if topic not in self._producers:
            self._producers[topic] = self._client.create_producer(
                self._stage.full_name(topic), send_timeout_millis=_SEND_MS, block_if_queue_full=True
            )
        self._producers[topic].send_async(value, self._sent, partition_key=key.decode())

    def flush(self) -> None:
        for producer in self._producers.values():
            producer.flush()
        failed, self._failed = self._failed, []
        if failed:
            raise TimeoutError(f"{len(failed)} messages were not written: {failed[0]}")

    def close(self) -> None:
        close(self._client)

    def _sent(self, result: pulsar_client.Result, _id: object) -> None:
        if result != pulsar_client.Result.Ok:
            self._failed.append(result)


class PulsarWorld:
    """Input and output are both on Pulsar."""

    brokers = 2

    def __init__(self, directory: Path) -> None:
        self._pulsar = LocalPulsar(directory, brokers=self.brokers)

    def __enter__(self) -> Self:
        self._pulsar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pulsar.stop()

    def stage(self, directory: Path) -> Stage:
        return PulsarStage.of(Lab(self._pulsar), directory)

    def settings(self, stage: Stage, *, base: str, **overrides: object) -> Path:
        target = _TARGET.format(cluster=CLUSTER, admin_url=self._pulsar.admin_url)
        return stage.settings(base=f"{base}\n{target}", **overrides)

    @contextmanager
    def companions(self, stage: Stage, config: Path) -> Iterator[Mapping[str, Sequence[str]]]:
        del stage
        lab = Lab(self._pulsar, bundles_count=_BUNDLES)
        with _leaning_traffic(self._pulsar, [lab.topic_in(each) for each in lab.bundles()]):
            yield _commands("pulsar", config)

    def leftovers(self, _stage: Stage) -> list[str]:
        return []

    def reconnect(self, stage: Stage) -> None:
        """Do nothing: Pulsar's client finds out by itself."""

    def sender(self, stage: Stage) -> "Sender":
        assert isinstance(stage, PulsarStage)
        return _PulsarSender(self._pulsar, stage)

    def stop_broker(self, number: int, *, kill: bool) -> None:
        if kill:
            self._pulsar.kill_broker(number)
        else:
            self._pulsar.stop_broker(number)

    def start_broker(self, number: int) -> None:
        self._pulsar.start_broker(number)

    def signal_broker(self, number: int, signal_: signal.Signals) -> None:
        self._signal(f"broker{number}", signal_)

    def do(self, deed: str, stage: Stage, choice: str) -> None:
        if deed == "unload-topics":
            self._unload(stage)
        elif choice == "over":
            self._pulsar.processes["bookie"].launch()
        else:
            self._pulsar.processes["bookie"].end(signal.SIGTERM)

    def _unload(self, stage: Stage) -> None:
        """Unload all bundles of the namespace; a broker that is on its way back may refuse for a while."""
        assert isinstance(stage, PulsarStage)
        retrying = Retrying(
            retry=retry_if_exception_type(AdminError),
            stop=stop_after_delay(_READY_S),
            wait=wait_fixed(1),
            reraise=True,
        )
        retrying(stage.lab.put, f"namespaces/{stage.lab.namespace}/unload", None)

    def _signal(self, name: str, signal_: signal.Signals) -> None:
        process = self._pulsar.processes[name].process
        assert process is not None, f"{name} does not run"
        process.send_signal(signal_)


@contextmanager
def _leaning_traffic(pulsar: LocalPulsar, topics: Sequence[str]) -> Iterator[None]:
    """Send messages to one half of the topics, then to the other, in turn; lost messages do not matter."""
    client = connected(pulsar)

    def send(stop: threading.Event) -> None:
        producers: dict[str, pulsar_client.Producer] = {}
        while not stop.wait(_PAUSE_S):
            half = int(time.monotonic() / _LEAN_S) % 2
            for number, topic in enumerate(topics):
                with suppress(pulsar_client.PulsarException):
                    if topic not in producers:
                        producers[topic] = client.create_producer(topic, send_timeout_millis=2_000)
                    if number % 2 == half:
                        producers[topic].send_async(b"x" * 100, None)
                        producers[topic].send_async(b"x" * 100, None)

    try:
        with meanwhile(send):
            yield
    finally:
        close(client)


World = KafkaWorld | PulsarWorld
"""The brokers of one system."""
Sender = _KafkaSender | _PulsarSender
"""A sender for the load alone."""
