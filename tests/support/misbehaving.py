"""`trimtab` that misbehaves where a test wants it to: `python -m tests.support.misbehaving HOW FLAG POINTS COMMAND…`.

- `dies`, `freezes`: kills itself, or stops whole with its JVM and workers like a suspended machine, at each of the POINTS
  (`point:batch,…`) once; a file in the folder FLAG says that it already did. Points of `trimtab run`: `operator` (in Spark's
  worker, after the first row of the batch is out), `before-publish`, `after-publish` (the brokers have the batch, Spark has not
  committed), `between` (both have; the next one has not begun). On Kafka `before-commit`: all is sent, the transaction open. On
  Pulsar `begun` (its marker is written, no message yet), `first-message`, `before-finish` (all is out, the marker not yet).
- `hangs`: the operator hangs before its first row while the file FLAG is there; its patience is short.
- `garbles`: the memory of the cluster FLAG is stored damaged.
- `pauses`: `trimtab execute` stops itself once, at `before-gate` (the cluster was looked at, the next thing is the last gate before
  the call) or `before-commit` (results are written, the position is not). Its consumers' sessions are as short as a broker allows.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from pyspark import TaskContext
from pyspark.sql import Row

from state.layouts import VERSION
from streaming.cli import main as trimtab
from streaming.controller import application
from streaming.controller.batches import BatchPublisher
from streaming.controller.health import Health
from streaming.executor import kafka as kafka_executor
from streaming.kafka.executor import KafkaActions
from streaming.kafka.publisher import KafkaPublisher
from streaming.pulsar.commits import Producers, decode_commit
from streaming.pulsar.publisher import PulsarPublisher
from streaming.spark import query
from streaming.spark.operator import ClusterProcessor, SparkStore
from tests.support.processes import members

_BOTH = ("operator", "before-publish", "after-publish", "between")
POINTS = (*_BOTH, "before-commit")
PULSAR_POINTS = (*_BOTH, "begun", "first-message", "before-finish")
IMPATIENT_S = 15.0
"""More than a turn or a batch takes on a busy machine, once the first one is through."""
CUT_OFF = bytes([VERSION]) + b"\x9f"
"""The beginning of a header, as a disk may leave it."""
SESSION_MS = 6_000
"""`group.min.session.timeout.ms` of a broker that is not told otherwise."""


class Trouble:
    """What is done around each cluster's records of a batch; travels into Spark's workers."""

    def before(self, cluster: str) -> None:
        """Before its first row."""

    def after_row(self) -> None:
        """After a row is out."""

    def after(self, cluster: str, store: SparkStore) -> None:
        """After its last row."""


class TroubledProcessor(ClusterProcessor):
    """The operator, with trouble around its work."""

    trouble: Trouble

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803  Spark passes it by keyword
    ) -> Iterator[Row]:
        self.trouble.before(str(key[0]))
        for row in super().handleInputRows(key, rows, timerValues):
            yield row
            self.trouble.after_row()
        self.trouble.after(str(key[0]), self._store)


def _trouble(trouble: Trouble) -> Callable[[], None]:
    """Let the query use the operator with trouble; returns a function that takes it back."""

    def made(**options: Any) -> TroubledProcessor:
        processor = TroubledProcessor(**options)
        processor.trouble = trouble
        return processor

    plain, query.ClusterProcessor = query.ClusterProcessor, made  # type: ignore[assignment,misc]
    return lambda: setattr(query, "ClusterProcessor", plain)


class Deaths(Trouble):
    """Which points are still ahead."""

    def __init__(self, flags: Path, points: str) -> None:
        self._flags = flags
        self._points = set(filter(None, points.split(",")))
        assert {each.partition(":")[0] for each in self._points} <= {*POINTS, *PULSAR_POINTS}, points
        self._driver = os.getpid()
        self.under_way = -1
        """The batch that is being published; -1 if none is."""

    def after_row(self) -> None:
        context = TaskContext.get()
        assert context is not None, "the operator runs in a task"
        self.at("operator", int(context.getLocalProperty("streaming.sql.batchId") or -1))

    def at(self, point: str, batch: int) -> None:
        """End the driver if this is a point not passed before."""
        flag = self._flags / f"{point}-{batch}"
        if f"{point}:{batch}" in self._points and not flag.exists():
            flag.touch()
            self.strike()

    def strike(self) -> None:
        os.kill(self._driver, signal.SIGKILL)
        os._exit(1)


class Freezes(Deaths):
    """Stops where a ``Deaths`` would kill."""

    def strike(self) -> None:
        """Stop every process of this session, this one last."""
        own = os.getpid()
        for process in members(os.getsid(0)):
            if process.pid != own:
                os.kill(process.pid, signal.SIGSTOP)
        os.kill(own, signal.SIGSTOP)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _around(
    owner: Any, name: str, *, before: Callable[..., None] = _nothing, after: Callable[..., None] = _nothing
) -> None:
    """Do something before and after each call of a function; it gets the arguments."""
    plain = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        before(*arguments, **named)
        result = plain(*arguments, **named)
        after(*arguments, **named)
        return result

    setattr(owner, name, call)


def _arm(deaths: Deaths) -> None:
    """Put in the points of a controller, whichever system its outputs go to."""

    def begin(_: object, batch: int, *__: object, **___: object) -> None:
        deaths.at("before-publish", batch)
        deaths.under_way = batch

    def end(_: object, batch: int, *__: object, **___: object) -> None:
        deaths.under_way = -1
        deaths.at("after-publish", batch)

    def sent(*_: object, **named: Any) -> None:
        named["sent"].wait(timeout_s=20.0)
        deaths.at("first-message", deaths.under_way)

    def marker(point: str, *, is_whole: bool) -> Callable[..., None]:
        def call(_: object, __: str, value: bytes) -> None:
            if decode_commit(value, topic="").is_whole == is_whole:
                deaths.at(point, deaths.under_way)

        return call

    _trouble(deaths)
    _around(BatchPublisher, "take", before=lambda _, batch: deaths.at("between", batch.id - 1))
    for publisher in (KafkaPublisher, PulsarPublisher):
        _around(publisher, "publish", before=begin, after=end)
    _around(
        KafkaProducer, "commit_transaction", before=lambda _: deaths.at("before-commit", deaths.under_way)
    )
    _around(Producers, "send", after=sent)
    _around(
        Producers,
        "commit",
        before=marker("before-finish", is_whole=True),
        after=marker("begun", is_whole=False),
    )


class Hangs(Trouble):
    """Hangs for as long as there is a file."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def before(self, cluster: str) -> None:
        del cluster
        while self._flag.exists():
            time.sleep(0.1)


class Garbles(Trouble):
    """Damages the memory of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def after(self, cluster: str, store: SparkStore) -> None:
        if cluster == self._cluster:
            store.put_header(CUT_OFF)


def _pause_at(point: str) -> None:
    """Stop before the first call of what comes after the point."""
    todo = [signal.SIGSTOP]

    def pause(*_: object, **__: object) -> None:
        if todo:
            os.kill(os.getpid(), todo.pop())

    places = {"before-gate": (kafka_executor, "changes_of"), "before-commit": (KafkaActions, "commit")}
    _around(*places[point], before=pause)
    KafkaConsumer.DEFAULT_CONFIG["session_timeout_ms"] = SESSION_MS
    KafkaConsumer.DEFAULT_CONFIG["heartbeat_interval_ms"] = SESSION_MS // 4


def main(arguments: Sequence[str]) -> None:
    """Run the command; what the operator got is taken back in the end, for the next command of a warm process."""
    how, flag, points, *command = arguments
    restore: Callable[[], None] = lambda: None  # noqa: E731
    if how in {"dies", "freezes"}:
        _arm((Deaths if how == "dies" else Freezes)(Path(flag), points))
    elif how == "hangs":
        _trouble(Hangs(Path(flag)))
        application.Health = partial(Health, batch_s=IMPATIENT_S, turn_s=IMPATIENT_S)  # type: ignore[assignment,misc]
    elif how == "garbles":
        restore = _trouble(Garbles(flag))
    else:
        assert how == "pauses", how
        _pause_at(points)
    try:
        trimtab.main(args=command, prog_name="trimtab", standalone_mode=__name__ == "__main__")
    finally:
        restore()


if __name__ == "__main__":
    main(sys.argv[1:])
