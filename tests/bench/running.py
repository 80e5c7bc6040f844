"""A controller and its Kafka as a user runs them, and the clients that measure them from outside."""

import os
import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Self

from kafka import KafkaConsumer, KafkaProducer

from deploy.local.kafka import LocalKafka
from deploy.local.pulsar import StandalonePulsar
from streaming.contract.envelope import EPOCH_HEADER
from streaming.process.deadline import Deadline
from tests.bench.loads import CLUSTER

ROOT = Path(__file__).parents[2]
TRIMTAB = (sys.executable, "-c", "from streaming.cli import main; main(prog_name='trimtab')")
_PATIENCE_S = 180.0
_STOP_S = 40.0
_POLL_MS = 20
_LOG_LINES_SHOWN = 30

_SETTINGS = """\
[controller]
name = "{name}"
mode = "act"
{controller}
{input}
[topics]
input = "{name}.input"
control = "{name}.control"
actions = "{name}.actions"
actions_dry_run = "{name}.actions.dry-run"
audit = "{name}.audit"
dead_letter = "{name}.dead-letter"
commits = "{name}.commits"
[spark]
checkpoint = "{directory}/checkpoint"
trigger_interval_s = {trigger_interval_s}
[metrics]
port = 0
[pulsar.rounds]
warmup_rounds = 0
[pulsar.avg_shedder]
low_hit_count = 1
high_hit_count = 1
[pulsar.guards]
bundle_cooldown_s = 0
max_unloads_per_hour_count = 0
"""
"""A round decides at once, and the next one decides the same again: nothing carries these decisions out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A running query: its process, and the topics it reads and writes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def input(self) -> str:
        """Topic of load reports."""
        return f"{self.name}.input"

    @property
    def actions(self) -> str:
        """Topic of decisions."""
        return f"{self.name}.actions"

    def check(self) -> None:
        """Raise RuntimeError with the end of its log if it has ended."""
        code = self.process.poll()
        if code is not None:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
            raise RuntimeError(f"{self.name} ended with {code}; the end of its log:\n" + "\n".join(lines))

    def cpu_s(self) -> dict[int, float]:
        """CPU seconds so far of the process and each of its living descendants, by pid (Linux)."""
        return {process: _cpu_s(process) for process in _tree(self.process.pid)}

    def resident_bytes(self) -> int:
        """Resident memory of the process and its descendants (Linux); pages that several share count in each."""
        return sum(map(_resident_bytes, _tree(self.process.pid)))


@contextmanager
def running(
    broker: LocalKafka | StandalonePulsar,
    directory: Path,
    *,
    name: str,
    trigger_interval_s: float,
    command: Sequence[str] = TRIMTAB,
) -> Iterator[Controller]:
    """``trimtab run`` with topics of its own, ready; ``command`` may be another program with the same arguments."""
    settings = prepared(broker, directory, name=name, trigger_interval_s=trigger_interval_s)
    with started(settings, directory / "run.log", name=name, command=command) as controller:
        yield controller


def prepared(
    broker: LocalKafka | StandalonePulsar,
    directory: Path,
    *,
    name: str,
    trigger_interval_s: float,
    controller: str = "",
) -> Path:
    """A settings file in a directory of its own, with its topics made; ``controller`` is more of that section."""
    directory.mkdir(parents=True)
    settings = directory / "trimtab.toml"
    settings.write_text(
        _SETTINGS.format(
            name=name,
            controller=controller,
            input=_input(broker),
            directory=directory,
            trigger_interval_s=trigger_interval_s,
        )
    )
    create = [*TRIMTAB, "topics", "create", "--config", str(settings)]
    subprocess.run(create, cwd=directory, env=_environment(directory), check=True, stdout=subprocess.DEVNULL)
    return settings


@contextmanager
def started(
    settings: Path, log: Path, *, name: str, ready: str = "has epoch", command: Sequence[str] = TRIMTAB
) -> Iterator[Controller]:
    """A process with these settings; waits until its log says that it is ready."""
    directory = settings.parent
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command, "run", "--config", str(settings), "--from", "earliest"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=_environment(directory),
            process_group=0,
        )
    controller = Controller(name=name, process=process, log=log)
    try:
        wait_for(lambda: ready in log.read_text(errors="replace"), controller)
        yield controller
    finally:
        _stop(process)


def _input(broker: LocalKafka | StandalonePulsar) -> str:
    """Section of the settings; decisions go to the same place."""
    if isinstance(broker, LocalKafka):
        return f'[input]\nurl = "kafka://{broker.bootstrap}"'
    return f'[input]\nurl = "{broker.service_url}"\n[input.pulsar]\nadmin_url = "{broker.admin_url}"'


@contextmanager
def local_kafka(directory: Path) -> Iterator[LocalKafka]:
    """One broker."""
    with LocalKafka(directory / "kafka") as kafka:
        yield kafka


class System(ABC):
    """Clients of controllers: what sends them events and reads their decisions, on Kafka or on Pulsar."""

    @abstractmethod
    def send(self, controller: Controller, values: Sequence[bytes]) -> None:
        """Send events of the cluster, and wait until the log has them."""

    @abstractmethod
    def drain(self) -> None:
        """Forget the decisions readable now."""

    @abstractmethod
    def answers(self, controller: Controller) -> list[bytes]:
        """Decisions that have become readable; waits a moment for one."""

    def answered_s(self, controller: Controller, closing: bytes) -> float:
        """Seconds from sending an event to reading the first decision that follows it."""
        begun = time.perf_counter()
        self.send(controller, [closing])
        wait_for(lambda: bool(self.answers(controller)), controller)
        return time.perf_counter() - begun


class Clients(System):
    """One producer, and one committed reader of the decisions of every controller given."""

    def __init__(self, kafka: LocalKafka, *controllers: Controller) -> None:
        self._controllers = controllers
        self.epoch = 0
        """The highest epoch that a decision was read with."""
        with ExitStack() as stack:
            self._producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, batch_size=2**20)
            stack.callback(self._producer.close)
            self._consumer = KafkaConsumer(
                *(controller.actions for controller in controllers),
                bootstrap_servers=kafka.bootstrap,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                fetch_max_wait_ms=_POLL_MS,
            )
            stack.callback(self._consumer.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, controller: Controller, values: Sequence[bytes]) -> None:
        """Send events of the cluster, and wait until the log has them."""
        for value in values:
            self._producer.send(controller.input, key=CLUSTER.encode(), value=value)
        self._producer.flush()

    def drain(self) -> None:
        """Forget the decisions readable now."""
        while self._consumer.poll(timeout_ms=10 * _POLL_MS):
            pass

    def answers(self, controller: Controller) -> list[bytes]:
        """Decisions that have become readable; waits a moment for one."""
        polled = self._consumer.poll(timeout_ms=_POLL_MS)
        found = [
            record
            for at, records in polled.items()
            if at.topic == controller.actions
            for record in records
            if not is_leader(record.value)
        ]
        self.epoch = max([self.epoch, *(int(dict(record.headers)[EPOCH_HEADER]) for record in found)])
        return [record.value for record in found]


def is_leader(value: bytes) -> bool:
    """Whether it only announces a new leader, which is no decision."""
    return b'"trimtab.leader.v1"' in value


def wait_for(condition: Callable[[], bool], controller: Controller) -> None:
    """Wait until it is true; raises TimeoutError, or RuntimeError when the controller has ended."""
    deadline = Deadline(_PATIENCE_S)
    while not condition():
        controller.check()
        if deadline.is_over:
            raise TimeoutError(
                f"{controller.name} did nothing for {_PATIENCE_S:g} s; its log is {controller.log}"
            )


def _environment(directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return kept | {"PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(directory)}


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, SIGKILL)
    process.wait()


def _tree(root: int) -> set[int]:
    """A process and its descendants that live."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(file.parent.name)] = int(_fields(file)[1])
    found, new = set(), {root}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in found} - found
    return found


def _cpu_s(process: int) -> float:
    """User and system time of a process itself."""
    with suppress(OSError):
        return sum(map(int, _fields(Path(f"/proc/{process}/stat"))[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _resident_bytes(process: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _fields(stat: Path) -> list[str]:
    """What follows the name, which is in brackets and may hold anything."""
    return re.sub(r"^.*\) ", "", stat.read_text(), flags=re.DOTALL).split()
