"""Brokers that stay warm from schedule to schedule, and what can be done to them.

A controller may reach the brokers through proxies; the harness itself, and consumers, reach them directly.
"""

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from deploy.local.kafka import LocalKafka, Node
from deploy.local.ports import free_ports
from tests.faults.proxy import Mode, Proxy
from tests.faults.schedule import System
from tests.support.stage import Stage, staged

_PREFERRED = 0
_SEND_S = 5
"""How long the load waits for brokers that are out; what is not written then is given up, as a collector gives up a sweep."""


class Sender(ABC):
    """Writes the load; raises whatever the client raises."""

    @abstractmethod
    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Begin to write a record."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until all of them are written."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is not written."""


class World(ABC):
    """The brokers of one system."""

    system: System
    brokers: int

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def stage(self, directory: Path) -> Stage:
        """A controller's surroundings with fresh topics."""

    @abstractmethod
    def settings(self, stage: Stage, *, base: str, **overrides: object) -> Path:
        """The settings file of a controller, which reaches the brokers the way that can be cut."""

    @abstractmethod
    def reconnect(self, stage: Stage) -> None:
        """Make a stage's clients forget what they know of the brokers, if they do not find out themselves that it has changed."""

    @abstractmethod
    def sender(self, stage: Stage) -> Sender:
        """A sender for the load alone."""

    @contextmanager
    def companions(self, stage: Stage, config: Path) -> Iterator[Mapping[str, Sequence[str]]]:
        """What runs beside the controller for the length of the block, as arguments of `trimtab`."""
        del stage, config
        yield {}

    @abstractmethod
    def stop_broker(self, number: int, *, kill: bool) -> None:
        """End one broker."""

    @abstractmethod
    def start_broker(self, number: int) -> None:
        """Start it again; returns when it is there."""

    @abstractmethod
    def signal_broker(self, number: int, signal_: signal.Signals) -> None:
        """Freeze one broker, or let it go on."""

    def do(self, deed: str, stage: Stage, choice: str) -> None:
        """Do a deed that only this system has; called again with choice ``over`` at the end of one that lasts."""
        raise NotImplementedError(deed, stage, choice)


class _KafkaSender(Sender):
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


class KafkaWorld(World):
    """Three brokers; topics have three replicas, and need two in sync."""

    system = "kafka"
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
        return stage.settings(base=base, input__url=f"kafka://{self._kafka.proxied_bootstrap}", **overrides)

    def reconnect(self, stage: Stage) -> None:
        stage.close()

    def sender(self, stage: Stage) -> Sender:
        return _KafkaSender(stage.bootstrap)

    def stop_broker(self, number: int, *, kill: bool) -> None:
        if kill:
            self.signal_broker(number, signal.SIGKILL)
        self._kafka.stop_node(number)

    def start_broker(self, number: int) -> None:
        self._kafka.start_node(number)

    def signal_broker(self, number: int, signal_: signal.Signals) -> None:
        process = self._kafka._nodes[number].process
        assert process is not None, f"broker {number} does not run"
        process.send_signal(signal_)

    def do(self, deed: str, stage: Stage, choice: str) -> None:
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
