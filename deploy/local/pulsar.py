"""A real Pulsar on loopback, from the published jars: standalone, or a small cluster, for the demo and the tests.

    with LocalPulsar(Path("/tmp/p"), brokers=3) as pulsar:
        client = pulsar_client.Client(pulsar.service_url)

The cluster is ZooKeeper, one bookie and the brokers, each a process with its log (`broker1.log`, …) in the directory
given; the modular load manager reports, and Pulsar's own shedding and splitting are off. Standalone is one process.

Invariants: ports are chosen once, at the first `start`; a `start` returns when every broker is healthy and all of them
are listed, or raises with the end of the log of what failed; on Linux no process outlives the one that started it.

WARNING: one replica of everything and no flush to disk. A killed broker is listed, and keeps the leadership, until its
ZooKeeper session ends after 10 s.
"""

import argparse
import signal
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import httpx

from deploy.local import pulsar_settings as settings
from deploy.local.processes import (
    LOCKS,
    LOOPBACK,
    JavaCluster,
    Machine,
    Process,
    free_ports,
    run_until_stopped,
)
from deploy.local.pulsar_settings import LoadManager

PULSAR_LOCK = LOCKS / "pulsar.lock"
OLDEST_PULSAR_LOCK, NEWEST_PULSAR_LOCK = LOCKS / "pulsar-3.0.lock", LOCKS / "pulsar-4.2.lock"
"""The oldest and the newest release that the live tests run on."""


class _PulsarCluster(JavaCluster):
    system = "Pulsar"
    options = settings.JVM
    ready_timeout_s = 120.0
    """Three brokers need 15 s on two idle cores."""

    def jvm(self, name: str, *arguments: str, heap_mb: int, direct_mb: int) -> Process:
        """A JVM with bounded memory that is not started yet; `arguments` begin with the main class."""
        memory = (f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={direct_mb}m")
        return self.process(name, *arguments, options=memory)


class LocalPulsar(_PulsarCluster):
    """A cluster in `directory` with `brokers` brokers; a context manager that starts and stops it.

    `extra` overrides keys of `broker.conf`, and `extra_of` those of one broker. Brokers are numbered from 1. ZooKeeper and the bookie
    listen at `host`; a broker runs on its machine of `machines`, or beside them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        cluster: str = "lab",
        load_manager: LoadManager = "modular",
        extra: Mapping[str, object] = MappingProxyType({}),
        extra_of: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
        lock: Path = PULSAR_LOCK,
        host: str = LOOPBACK,
        machines: Mapping[int, Machine] = MappingProxyType({}),
    ) -> None:
        super().__init__(directory, lock=lock)
        self._extra, self._extra_of = extra, extra_of
        self._host, self._machines = host, machines
        self.cluster = cluster
        self._numbers = range(1, brokers + 1)
        self._load_manager = load_manager
        self._zookeeper_port = 0
        self._ports: dict[int, tuple[int, int]] = {}

    @property
    def _zookeeper_address(self) -> str:
        return f"{self._host}:{self._zookeeper_port}"

    @property
    def service_url(self) -> str:
        """`pulsar://…` of all brokers, for clients."""
        return "pulsar://" + ",".join(
            f"{self._address(number)}:{port}" for number, (port, _) in self._ports.items()
        )

    @property
    def admin_url(self) -> str:
        """`http://…` of all brokers, comma-separated."""
        return "http://" + ",".join(self.broker_ids)

    @property
    def broker_ids(self) -> list[str]:
        """The ids of the brokers, in their order; each is also the address of the broker's web service."""
        return [self.broker_id(number) for number in self._numbers]

    def broker_id(self, number: int) -> str:
        """The id of one broker."""
        return f"{self._address(number)}:{self._ports[number][1]}"

    def stop_broker(self, number: int) -> None:
        """Stop one broker in order; it hands its bundles over."""
        self._broker(number).end(signal.SIGTERM)

    def kill_broker(self, number: int) -> None:
        """End one broker by SIGKILL; the others learn of it after 10 s."""
        self._broker(number).end(signal.SIGKILL)

    def start_broker(self, number: int) -> None:
        """Start again a broker that was stopped or killed, on its ports, and wait until it is healthy and listed."""
        self._broker(number).launch()
        self._wait_until_ready()

    def use_load_manager(self, load_manager: LoadManager) -> None:
        """Brokers that are started from now on run another load manager."""
        self._load_manager = load_manager
        for number in self._numbers:
            self._write_broker(number)

    def _machine(self, number: int) -> Machine:
        return self._machines.get(number, Machine(self._host))

    def _address(self, number: int) -> str:
        return self._machine(number).address

    def _broker(self, number: int) -> Process:
        return self.processes[f"broker{number}"]

    def configure(self) -> None:
        self._zookeeper_port, bookie_port, *ports = free_ports(2 + 2 * len(self._numbers))
        self._ports = {
            number: (ports[2 * index], ports[2 * index + 1]) for index, number in enumerate(self._numbers)
        }
        self.processes = {
            process.name: process
            for process in (
                self._zookeeper(),
                self._bookie(bookie_port),
                *(self._broker_process(number) for number in self._numbers),
            )
        }

    def _zookeeper(self) -> Process:
        store = self.directory / "zookeeper"
        store.mkdir(exist_ok=True)
        file = self.write(
            "zoo.cfg", settings.zookeeper(host=self._host, port=self._zookeeper_port, store=store)
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return self.jvm("zookeeper", main, file, heap_mb=64, direct_mb=32)

    def _bookie(self, port: int) -> Process:
        values = settings.bookie(
            host=self._host, port=port, zookeeper=self._zookeeper_address, store=self.directory / "bookie"
        )
        main = "org.apache.bookkeeper.server.Main"
        return self.jvm(
            "bookie", main, "--conf", self.write("bookie.conf", values), heap_mb=128, direct_mb=192
        )

    def _broker_process(self, number: int) -> Process:
        file, main = self._write_broker(number), "org.apache.pulsar.PulsarBrokerStarter"
        broker = self.jvm(f"broker{number}", main, "--broker-conf", file, heap_mb=256, direct_mb=256)
        broker.command = (*self._machine(number).prefix, *broker.command)
        return broker

    def _write_broker(self, number: int) -> str:
        port, web_port = self._ports[number]
        values = settings.broker(
            cluster=self.cluster,
            host=self._address(number),
            port=port,
            web_port=web_port,
            zookeeper=self._zookeeper_address,
            load_manager=self._load_manager,
            extra={**self._extra, **self._extra_of.get(number, {})},
        )
        return self.write(f"broker{number}.conf", values)

    def groups(self) -> Iterable[list[Process]]:
        processes = list(self.processes.values())
        return filter(None, ([*processes[:1]], [*processes[1:2]], processes[2:]))

    def start_all(self) -> None:
        zookeeper, bookie, *brokers = self.processes.values()
        zookeeper.launch()
        self.wait_for("ZooKeeper", lambda: _is_zookeeper_healthy(self._host, self._zookeeper_port))
        if not (self.directory / "initialized").exists():
            self._initialize()
        for process in (bookie, *brokers):
            process.launch()
        self._wait_until_ready()

    def _initialize(self) -> None:
        """Write the cluster's metadata, once; the process that does so ends by itself."""
        metadata = f"zk:{self._zookeeper_address}"
        arguments = ["--cluster", self.cluster, "--metadata-store", metadata]
        arguments += ["--configuration-metadata-store", metadata]
        arguments += ["--web-service-url", f"http://{self.broker_id(1)}"]
        arguments += ["--broker-service-url", f"pulsar://{self._address(1)}:{self._ports[1][0]}"]
        main = "org.apache.pulsar.PulsarClusterMetadataSetup"
        once = self.jvm("initialize", main, *arguments, heap_mb=128, direct_mb=64)
        once.launch()
        assert once.process is not None
        if once.process.wait(self.ready_timeout_s) != 0:
            once.check()
        (self.directory / "initialized").touch()

    def _wait_until_ready(self) -> None:
        running = [number for number in self._numbers if self._broker(number).running()]
        ids = {self.broker_id(number) for number in running}
        self.wait_for("Pulsar", lambda: all(_is_healthy(broker, self.cluster, ids) for broker in ids))


class StandalonePulsar(_PulsarCluster):
    """Pulsar in one process, with RocksDB for its metadata; `extra` overrides keys of `standalone.conf`."""

    def __init__(
        self,
        directory: Path,
        *,
        load_manager: LoadManager = "none",
        extra: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(directory, lock=PULSAR_LOCK)
        self.cluster = "standalone"
        self._load_manager = load_manager
        self._extra = extra
        self._port = 0
        self._web_port = 0

    @property
    def service_url(self) -> str:
        """`pulsar://127.0.0.1:port`, for clients."""
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def admin_url(self) -> str:
        """`http://127.0.0.1:port`."""
        return f"http://127.0.0.1:{self._web_port}"

    @property
    def broker_ids(self) -> list[str]:
        """The id of the broker, alone in a list."""
        return [f"127.0.0.1:{self._web_port}"]

    def configure(self) -> None:
        self._port, self._web_port = free_ports(2)
        values = settings.standalone(
            port=self._port, web_port=self._web_port, load_manager=self._load_manager, extra=self._extra
        )
        stores = [
            text
            for kind in ("metadata", "bookkeeper", "zookeeper")
            for text in (f"--{kind}-dir", str(self.directory / kind))
        ]
        self.processes = {
            "standalone": self.jvm(
                "standalone",
                "org.apache.pulsar.PulsarStandaloneStarter",
                *("--config", self.write("standalone.conf", values), "-nfw", "-nss", "-a", "127.0.0.1"),
                *stores,
                heap_mb=384,
                direct_mb=384,
            )
        }

    def groups(self) -> Iterable[list[Process]]:
        return [list(self.processes.values())] if self.processes else []

    def start_all(self) -> None:
        self.processes["standalone"].launch()
        broker = f"127.0.0.1:{self._web_port}"
        self.wait_for(
            "Pulsar", lambda: _is_healthy(broker, self.cluster, set()) and _has_default_namespace(broker)
        )


def _get(address: str, path: str) -> httpx.Response | None:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://{address}/admin/v2/{path}", timeout=5, trust_env=False)
    return None


def _is_healthy(broker: str, cluster: str, brokers: set[str]) -> bool:
    """Whether a broker can produce and consume, and lists at least `brokers` as alive."""
    listed = _get(broker, f"brokers/{cluster}")
    if listed is None or listed.status_code != httpx.codes.OK or not brokers <= set(listed.json()):
        return False
    health = _get(broker, "brokers/health")
    return health is not None and health.status_code == httpx.codes.OK


def _has_default_namespace(broker: str) -> bool:
    answer = _get(broker, "namespaces/public")
    return answer is not None and answer.status_code == httpx.codes.OK and "public/default" in answer.json()


def _is_zookeeper_healthy(host: str, port: int) -> bool:
    """Whether ZooKeeper says that it is healthy, by its own command `ruok`."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(b"ruok")
        return connection.recv(16) == b"imok"
    return False


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.pulsar", description="Run a Pulsar until Ctrl-C."
    )
    parser.add_argument("--brokers", type=int, default=3, help="0 is standalone (default: 3)")
    parser.add_argument("--load-manager", choices=list(settings.LOAD_MANAGERS), default="modular")
    parser.add_argument(
        "--directory", type=Path, help="keep settings, logs and data here (default: a temporary one)"
    )
    args = parser.parse_args()

    def server_in(directory: Path) -> LocalPulsar | StandalonePulsar:
        if args.brokers:
            return LocalPulsar(directory, brokers=args.brokers, load_manager=args.load_manager)
        return StandalonePulsar(directory, load_manager=args.load_manager)

    run_until_stopped(args.directory, server_in, lambda pulsar: f"{pulsar.service_url} {pulsar.admin_url}")


if __name__ == "__main__":
    _main()
