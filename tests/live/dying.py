"""`trimtab run` that kills itself with SIGKILL: `python -m tests.live.dying FLAGS POINT:BATCH,… run …`.

Each point takes effect once: a file in the folder FLAGS says that it already did. Points: `operator` (in Spark's
worker, after the first row of the batch is out), `before-publish`, `before-commit` (all records sent, the transaction
open), `after-publish` (Kafka has committed, Spark has not) and `between` (both have; the next batch has not begun).
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pyspark import TaskContext
from pyspark.sql import Row

from streaming.cli import main
from streaming.controller.batches import BatchPublisher
from streaming.kafka.publisher import KafkaPublisher
from streaming.spark import frames
from streaming.spark.batch import Batch
from streaming.spark.operator import ClusterProcessor
from streaming.transport.publishing import BatchState, OutboundRecord

POINTS = ("operator", "before-publish", "before-commit", "after-publish", "between")


class Deaths:
    """Which points are still ahead; travels into Spark's workers."""

    def __init__(self, flags: Path, points: dict[str, set[int]]) -> None:
        self._flags = flags
        self._points = points
        self._driver = os.getpid()

    def die_at(self, point: str, batch: int) -> None:
        """Kill the driver if this is a point not passed before."""
        flag = self._flags / f"{point}-{batch}"
        if batch in self._points.get(point, ()) and not flag.exists():
            flag.touch()
            self.strike()

    def strike(self) -> None:
        """End the driver."""
        os.kill(self._driver, signal.SIGKILL)
        os._exit(1)


class DyingProcessor(ClusterProcessor):
    """The operator; its driver dies when it has put out its first row."""

    deaths: Deaths

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803  Spark passes it by keyword
    ) -> Iterator[Row]:
        """Do the usual work; the driver may die after the first row."""
        context = TaskContext.get()
        assert context is not None, "the operator runs in a task"
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        for row in super().handleInputRows(key, rows, timerValues):
            yield row
            self.deaths.die_at("operator", batch)


def processor_of(deaths: Deaths) -> type[ClusterProcessor]:
    """The class for the application to use."""

    def made(**arguments: Any) -> DyingProcessor:
        processor = DyingProcessor(**arguments)
        processor.deaths = deaths
        return processor

    return made  # type: ignore[return-value]


def arm_driver(deaths: Deaths) -> None:
    """Put in the points that do not depend on where outputs go."""
    frames.ClusterProcessor = processor_of(deaths)  # type: ignore[misc]
    plain_take = BatchPublisher.take

    def take(self: BatchPublisher, batch: Batch) -> None:
        deaths.die_at("between", batch.id - 1)
        plain_take(self, batch)

    BatchPublisher.take = take  # type: ignore[method-assign]


def arm_publishing(publisher: type[Any], deaths: Deaths) -> Callable[[], int]:
    """Put in the points around the publishing of a batch; returns a function for the batch under way, -1 if there is none."""
    current = -1
    plain = publisher.publish

    def publish(
        self: Any, batch_id: int, query_id: str, records: Sequence[OutboundRecord], **noted: Any
    ) -> BatchState:
        nonlocal current
        deaths.die_at("before-publish", batch_id)
        current = batch_id
        published: BatchState = plain(self, batch_id, query_id, records, **noted)
        current = -1
        deaths.die_at("after-publish", batch_id)
        return published

    publisher.publish = publish
    return lambda: current


def arm(deaths: Deaths) -> None:
    """Put the points in."""
    arm_driver(deaths)
    current = arm_publishing(KafkaPublisher, deaths)
    plain_commit = KafkaProducer.commit_transaction

    def commit(self: KafkaProducer) -> None:
        deaths.die_at("before-commit", current())
        plain_commit(self)

    KafkaProducer.commit_transaction = commit


def points_of(text: str, known: Sequence[str] = POINTS) -> dict[str, set[int]]:
    """Read `POINT:BATCH,…`."""
    points: dict[str, set[int]] = {}
    for entry in filter(None, text.split(",")):
        name, batch = entry.split(":")
        assert name in known, f"{name!r} is none of {known}"
        points.setdefault(name, set()).add(int(batch))
    return points


if __name__ == "__main__":
    arm(Deaths(Path(sys.argv[1]), points_of(sys.argv[2])))
    main(args=sys.argv[3:], prog_name="trimtab")
