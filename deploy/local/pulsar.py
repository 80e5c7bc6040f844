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
import atexit
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import httpx

from deploy.local import pulsar_settings as settings
from deploy.local.processes import LOGGING, end_of, free_ports, spawn
from deploy.local.pulsar_settings import LoadManager
from streaming.jars import ensure, find_java

__all__ = ["PULSAR_LOCK", "LocalPulsar", "LocalPulsarError", "StandalonePulsar"]

PULSAR_LOCK = Path(__file__).with_name("locks") / "pulsar.lock"
READY_TIMEOUT_S = 120.0
"""Three brokers need 15 s on two idle cores."""
STOP_TIMEOUT_S = 30.0
"""Standalone stops in 6 s; what has not ended after this long is killed."""
POLL_S = 0.1
ATTEMPTS_MAX = 3
"""Ports are found free and bound later; losing that race three times in a row is not chance."""


class LocalPulsarError(RuntimeError):
    """A process did not start, or is not in the state that was asked for."""


@dataclass(slots=True)
class _Process:
    """One JVM: what it is called, how it is started, where it logs and, while it runs, its process."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        if self.running():
            raise LocalPulsarError(f"{self.name} (log {self.log}) is already running")
        self.process = spawn(self.command, self.log)

    def check(self) -> None:
        if self.process is not None and not self.running():
            raise LocalPulsarError(
                f"{self.name} ended with {self.process.returncode}; the end of {self.log}:\n{end_of(self.log)}"
            )

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait; SIGKILL after 30 s. Returns at once if it does not run."""
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


class _Local:
    """Processes in one directory that start one after the other and end in the opposite order."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._processes: dict[str, _Process] = {}

    def start(self) -> None:
        """Start everything and wait for it. Raises LocalPulsarError with the end of a log if something does not come up."""
        if any(process.running() for process in self._processes.values()):
            raise LocalPulsarError(f"the Pulsar in {self._directory} is already running: stop it first")
        atexit.register(self.kill)
        if self._processes:
            self._start_or_kill()
            return
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._directory.mkdir(parents=True, exist_ok=True)
            (self._directory / "log4j2.xml").write_text(LOGGING, encoding="utf-8")
            self._configure()
            try:
                self._start_or_kill()
            except LocalPulsarError:
                if attempt == ATTEMPTS_MAX or not self._lost_a_port():
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop everything in order: brokers, bookie, ZooKeeper. Returns at once if nothing runs."""
        for group in reversed(list(self._groups())):
            with ThreadPoolExecutor(max_workers=len(group)) as pool:
                list(pool.map(lambda process: process.end(signal.SIGTERM), group))
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """End everything at once, as a power cut would: SIGKILL."""
        for process in self._processes.values():
            if process.process is not None:
                process.process.kill()
        for process in self._processes.values():
            process.end(signal.SIGKILL)
        atexit.unregister(self.kill)

    def restart(self) -> None:
        """Stop and start on the same ports with the same data."""
        self.stop()
        self.start()

    def check(self) -> None:
        """Raise LocalPulsarError with the end of its log if a process that was started has ended by itself."""
        for process in self._processes.values():
            process.check()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _configure(self) -> None:
        """Choose ports, write the settings and fill `_processes`."""
        raise NotImplementedError

    def _start_all(self) -> None:
        raise NotImplementedError

    def _groups(self) -> Iterable[list[_Process]]:
        """The processes in the order of starting; those of a group end together."""
        raise NotImplementedError

    def _start_or_kill(self) -> None:
        try:
            self._start_all()
        except BaseException:
            self.kill()
            raise

    def _process(self, name: str, main: str, *arguments: str, heap_mb: int, direct_mb: int) -> _Process:
        memory = settings.heap(heap_mb=heap_mb, direct_mb=direct_mb)
        return _Process(name, [*self._java, *memory, main, *arguments], self._directory / f"{name}.log")

    def _write(self, name: str, values: Mapping[str, object]) -> str:
        file = self._directory / name
        file.write_text(settings.properties(values), encoding="utf-8")
        return str(file)

    @cached_property
    def _java(self) -> list[str]:
        jars = os.pathsep.join(str(jar) for jar in ensure(PULSAR_LOCK))
        logging = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.xml'}"
        return [str(find_java()), *settings.JVM, logging, "-cp", jars]

    def _wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not condition():
            self.check()
            if time.monotonic() > deadline_s:
                logs = "\n".join(f"{each.log}:\n{end_of(each.log)}" for each in self._processes.values())
                raise LocalPulsarError(f"{what} is not ready after {READY_TIMEOUT_S:.0f} s:\n{logs}")
            time.sleep(POLL_S)

    def _lost_a_port(self) -> bool:
        return any("Address already in use" in end_of(each.log) for each in self._processes.values())


class LocalPulsar(_Local):
    """A cluster in `directory` with `brokers` brokers; a context manager that starts and stops it.

    Brokers are numbered from 1. Not for several threads at once.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        cluster: str = "lab",
        load_manager: LoadManager = "modular",
    ) -> None:
        super().__init__(directory)
        self.cluster = cluster
        self._numbers = range(1, brokers + 1)
        self._load_manager = load_manager
        self._zookeeper_port = 0
        self._ports: dict[int, tuple[int, int]] = {}

    @property
    def service_url(self) -> str:
        """`pulsar://…` of all brokers, for clients."""
        return "pulsar://" + ",".join(f"127.0.0.1:{port}" for port, _ in self._ports.values())

    @property
    def admin_url(self) -> str:
        """`http://…` of all brokers, comma-separated."""
        return "http://" + ",".join(f"127.0.0.1:{web}" for _, web in self._ports.values())

    @property
    def broker_ids(self) -> list[str]:
        """What the brokers are called, in their order; each is the address of a web service, too."""
        return [f"127.0.0.1:{web}" for _, web in self._ports.values()]

    def stop_broker(self, number: int) -> None:
        """Stop one broker in order; it hands its bundles over."""
        self._broker(number).end(signal.SIGTERM)

    def kill_broker(self, number: int) -> None:
        """End one broker by SIGKILL; the others learn of it after 10 s."""
        self._broker(number).end(signal.SIGKILL)

    def start_broker(self, number: int) -> None:
        """Start one that was stopped or killed again, on its ports, and wait until it is healthy and listed."""
        self._broker(number).launch()
        self._wait_until_ready()

    def _broker(self, number: int) -> _Process:
        return self._processes[f"broker{number}"]

    def _configure(self) -> None:
        self._zookeeper_port, bookie_port, *ports = free_ports(2 + 2 * len(self._numbers))
        self._ports = {
            number: (ports[2 * index], ports[2 * index + 1]) for index, number in enumerate(self._numbers)
        }
        self._processes = {
            each.name: each
            for each in (
                self._zookeeper(),
                self._bookie(bookie_port),
                *(self._broker_process(number) for number in self._numbers),
            )
        }

    def _zookeeper(self) -> _Process:
        store = self._directory / "zookeeper"
        store.mkdir(exist_ok=True)
        file = self._write("zoo.cfg", settings.zookeeper(port=self._zookeeper_port, store=store))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return self._process("zookeeper", main, file, heap_mb=64, direct_mb=32)

    def _bookie(self, port: int) -> _Process:
        values = settings.bookie(
            port=port, zookeeper_port=self._zookeeper_port, store=self._directory / "bookie"
        )
        main = "org.apache.bookkeeper.server.Main"
        return self._process(
            "bookie", main, "--conf", self._write("bookie.conf", values), heap_mb=128, direct_mb=192
        )

    def _broker_process(self, number: int) -> _Process:
        port, web_port = self._ports[number]
        values = settings.broker(
            cluster=self.cluster,
            port=port,
            web_port=web_port,
            zookeeper_port=self._zookeeper_port,
            load_manager=self._load_manager,
        )
        file = self._write(f"broker{number}.conf", values)
        main = "org.apache.pulsar.PulsarBrokerStarter"
        return self._process(f"broker{number}", main, "--broker-conf", file, heap_mb=256, direct_mb=256)

    def _groups(self) -> Iterable[list[_Process]]:
        each = list(self._processes.values())
        return filter(None, ([*each[:1]], [*each[1:2]], each[2:]))

    def _start_all(self) -> None:
        zookeeper, bookie, *brokers = self._processes.values()
        zookeeper.launch()
        self._wait_for("ZooKeeper", lambda: _ruok(self._zookeeper_port))
        if not (self._directory / "initialized").exists():
            self._initialize()
        for process in (bookie, *brokers):
            process.launch()
        self._wait_until_ready()

    def _initialize(self) -> None:
        """Write the cluster's metadata, once; it ends by itself."""
        metadata = f"zk:127.0.0.1:{self._zookeeper_port}"
        port, web_port = self._ports[1]
        arguments = ["--cluster", self.cluster, "--metadata-store", metadata]
        arguments += ["--configuration-metadata-store", metadata]
        arguments += ["--web-service-url", f"http://127.0.0.1:{web_port}"]
        arguments += ["--broker-service-url", f"pulsar://127.0.0.1:{port}"]
        main = "org.apache.pulsar.PulsarClusterMetadataSetup"
        once = self._process("initialize", main, *arguments, heap_mb=128, direct_mb=64)
        once.launch()
        assert once.process is not None
        if once.process.wait(READY_TIMEOUT_S) != 0:
            once.check()
        (self._directory / "initialized").touch()

    def _wait_until_ready(self) -> None:
        running = [number for number in self._numbers if self._broker(number).running()]
        ids = {f"127.0.0.1:{self._ports[number][1]}" for number in running}
        self._wait_for("Pulsar", lambda: all(_healthy(each, self.cluster, ids) for each in ids))


class StandalonePulsar(_Local):
    """Pulsar in one process, with RocksDB for its metadata; `extra` goes over `standalone.conf`."""

    def __init__(
        self,
        directory: Path,
        *,
        load_manager: LoadManager = "none",
        extra: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(directory)
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

    def _configure(self) -> None:
        self._port, self._web_port = free_ports(2)
        values = settings.standalone(
            port=self._port, web_port=self._web_port, load_manager=self._load_manager, extra=self._extra
        )
        stores = [
            text
            for kind in ("metadata", "bookkeeper", "zookeeper")
            for text in (f"--{kind}-dir", str(self._directory / kind))
        ]
        self._processes = {
            "standalone": self._process(
                "standalone",
                "org.apache.pulsar.PulsarStandaloneStarter",
                *("--config", self._write("standalone.conf", values), "-nfw", "-nss", "-a", "127.0.0.1"),
                *stores,
                heap_mb=384,
                direct_mb=384,
            )
        }

    def _groups(self) -> Iterable[list[_Process]]:
        return [list(self._processes.values())] if self._processes else []

    def _start_all(self) -> None:
        self._processes["standalone"].launch()
        broker = f"127.0.0.1:{self._web_port}"
        self._wait_for(
            "Pulsar", lambda: _healthy(broker, self.cluster, set()) and _has_default_namespace(broker)
        )


def _get(address: str, path: str) -> httpx.Response | None:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://{address}/admin/v2/{path}", timeout=5, trust_env=False)
    return None


def _healthy(broker: str, cluster: str, others: set[str]) -> bool:
    """Whether a broker can produce and consume, and lists at least `others` as alive."""
    listed = _get(broker, f"brokers/{cluster}")
    if listed is None or listed.status_code != httpx.codes.OK or not others <= set(listed.json()):
        return False
    health = _get(broker, "brokers/health")
    return health is not None and health.status_code == httpx.codes.OK


def _has_default_namespace(broker: str) -> bool:
    found = _get(broker, "namespaces/public")
    return found is not None and found.status_code == httpx.codes.OK and "public/default" in found.json()


def _ruok(port: int) -> bool:
    """ZooKeeper's own question after its health."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
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
    asked = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    place = (
        nullcontext(asked.directory)
        if asked.directory
        else tempfile.TemporaryDirectory(prefix="trimtab-pulsar-")
    )
    with place as directory:
        pulsar: LocalPulsar | StandalonePulsar = (
            LocalPulsar(Path(directory), brokers=asked.brokers, load_manager=asked.load_manager)
            if asked.brokers
            else StandalonePulsar(Path(directory), load_manager=asked.load_manager)
        )
        with pulsar:
            print(pulsar.service_url, pulsar.admin_url, flush=True)
            while not stop.wait(timeout=1):
                pulsar.check()


if __name__ == "__main__":
    _main()
