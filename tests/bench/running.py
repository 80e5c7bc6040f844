"""Controllers as a user runs them, and the clients that measure them from outside."""

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer

from deploy.local.kafka import LocalKafka
from streaming.contract.envelope import EPOCH_HEADER
from streaming.process.deadline import Deadline
from tests.bench.loads import CLUSTER
from tests.support.processes import TRIMTAB, Child, members
from tests.support.stage import Stage, is_leader

_PATIENCE_S = 180.0
_POLL_MS = 20
SETTINGS = """
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


@dataclass(frozen=True, slots=True)
class Controller:
    """A running query: its process, and the topics it reads and writes."""

    stage: Stage
    child: Child

    def cpu_s(self) -> dict[int, float]:
        """CPU seconds so far of the process and each of its living descendants, by pid."""
        return {each.pid: each.cpu_s for each in members(self.child.process.pid)}

    def used_s(self, before_s: dict[int, float]) -> float:
        """CPU seconds since then; Spark ends workers that idle, and what they used before must not count as negative."""
        return sum(now_s - before_s.get(pid, 0.0) for pid, now_s in self.cpu_s().items())

    def idle_percent(self, span_s: float) -> float:
        """What it uses of one core in such a span from now on."""
        begun, before_s = time.perf_counter(), self.cpu_s()
        time.sleep(span_s)
        return 100 * self.used_s(before_s) / (time.perf_counter() - begun)

    def resident_bytes(self) -> int:
        """Resident memory of the process and its descendants; pages that several share count in each."""
        return sum(each.resident_bytes for each in members(self.child.process.pid))


@contextmanager
def bench() -> Iterator[tuple[ExitStack, LocalKafka, Path]]:
    """A stack for all that runs, one broker, and a directory."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        yield stack, stack.enter_context(LocalKafka(directory / "kafka")), directory


def on_kafka(kafka: LocalKafka, directory: Path, name: str) -> Stage:
    """Topics and a directory of a controller's own."""
    (directory / name).mkdir()
    made = Stage(kafka.bootstrap, name, directory / name)
    made.create_topics()
    return made


def run(
    stack: ExitStack,
    stage: Stage,
    *,
    trigger_interval_s: float,
    command: Sequence[str] = TRIMTAB,
    log: str = "run.log",
    ready: str = "has epoch",
    **settings: object,
) -> Controller:
    """``trimtab run``, or another program with the same arguments; returns when its log says that it is ready."""
    config = stage.settings(
        base=SETTINGS, spark__master="local[*]", spark__trigger_interval_s=trigger_interval_s, **settings
    )
    arguments = (*command, "run", "--config", str(config), "--from", "earliest")
    child = stack.enter_context(Child(arguments, stage.directory / log, is_short=False))
    stack.callback(_stop, child)
    _wait_for(lambda: ready in child.output, child)
    return Controller(stage, child)


def _stop(child: Child) -> None:
    with suppress(AssertionError):
        child.terminate()


class System(ABC):
    """A client of one controller: it sends events and reads what comes of them, on Kafka or on Pulsar."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    @abstractmethod
    def send(self, values: Sequence[bytes], *, cluster: str = CLUSTER) -> None:
        """Send events of the cluster, and wait until the log has them."""

    @abstractmethod
    def drain(self) -> None:
        """Forget the outputs readable now."""

    @abstractmethod
    def answers(self) -> list[bytes]:
        """Outputs that have become readable; waits a moment for one."""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until it is true; fails when the controller has ended or nothing happens."""
        _wait_for(condition, self.controller.child)

    def answered_s(self, closing: bytes) -> float:
        """Seconds from sending an event to reading the first output that follows it."""
        begun = time.perf_counter()
        self.send([closing])
        self.wait_for(lambda: bool(self.answers()))
        return time.perf_counter() - begun


class Clients(System):
    """One producer, and one committed reader of a controller's decisions, or of its summaries."""

    def __init__(self, stack: ExitStack, controller: Controller, *, summaries: bool = False) -> None:
        super().__init__(controller)
        self.epoch = 0
        """The highest epoch that an output was read with."""
        topics, servers = controller.stage.topics, controller.stage.bootstrap
        self._input = topics.input
        self._producer = KafkaProducer(bootstrap_servers=servers, batch_size=2**20)
        stack.callback(self._producer.close)
        self._consumer = KafkaConsumer(
            topics.audit if summaries else topics.actions,
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_POLL_MS,
        )
        stack.callback(self._consumer.close)

    def send(self, values: Sequence[bytes], *, cluster: str = CLUSTER) -> None:
        for value in values:
            self._producer.send(self._input, key=cluster.encode(), value=value)
        self._producer.flush()

    def drain(self) -> None:
        while self._consumer.poll(timeout_ms=10 * _POLL_MS):
            pass

    def answers(self) -> list[bytes]:
        polled = self._consumer.poll(timeout_ms=_POLL_MS).values()
        found = [record for records in polled for record in records if not is_leader(record.value)]
        self.epoch = max([self.epoch, *(int(dict(record.headers)[EPOCH_HEADER]) for record in found)])
        return [record.value for record in found]


def _wait_for(condition: Callable[[], bool], child: Child) -> None:
    deadline = Deadline(_PATIENCE_S)
    while not condition():
        child.check()
        assert not deadline.is_over, f"nothing happened for {_PATIENCE_S:g} s; the log is {child.log}"
