"""A running query: whether it works on a batch, how far it is, and its end.

Spark keeps its reports on batches in the JVM; a look takes a few calls and a few hundred bytes.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_BEHIND = "maxOffsetsBehindLatest"
"""Metric of Spark's Kafka source: the lag of the partition that is furthest behind, in records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """What Spark reports about the last batch."""

    state_rows: int
    state_memory_bytes: int
    input_behind_records: float | None
    """Lag of the partition that is furthest behind; None where the source does not report it."""


class Query:
    """A query that was started."""

    def __init__(self, query: StreamingQuery, spark: SparkSession) -> None:
        self._query = query
        self._spark = spark

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return bool(self._query.isActive)

    @property
    def is_in_batch(self) -> bool:
        """Whether a batch is under way."""
        return bool(self._query.status["isTriggerActive"])

    @property
    def finished_batch_id(self) -> int | None:
        """The newest batch that Spark has committed since the query was started; None before the first."""
        last = self._query.lastProgress
        return None if last is None else int(last.batchId)

    def has_ended_within(self, seconds: float) -> bool:
        """Wait at most so long for its end; raises the error that it ended with."""
        return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]  # it takes milliseconds

    def stop(self) -> None:
        """End it; a batch under way is cut off."""
        self._query.stop()

    def last_batch(self) -> LastBatch | None:
        """The last batch; None before the first."""
        last = self._query.lastProgress
        if last is None:
            return None
        behind = [float(source.metrics[_BEHIND]) for source in last.sources if _BEHIND in source.metrics]
        return LastBatch(
            state_rows=sum(operator.numRowsTotal for operator in last.stateOperators),
            state_memory_bytes=sum(operator.memoryUsedBytes for operator in last.stateOperators),
            input_behind_records=max(behind, default=None),
        )

    def batch_progress(self) -> Hashable:
        """Something that changes as long as the batch under way moves on; None where there is none.

        The stages' records and bytes change while a task runs, as often as executors report (10 s).
        """
        status = self._query.status
        if not status["isTriggerActive"]:
            return None
        stages = self._spark._jsc.sc().statusStore().activeStages()  # noqa: SLF001  the public tracker knows tasks only
        return (
            str(status["message"]),
            *(_stage_progress(stages.apply(place)) for place in range(stages.size())),
        )


def _stage_progress(stage: Any) -> Hashable:
    return (
        stage.stageId(),
        stage.numCompleteTasks(),
        stage.inputRecords(),
        stage.shuffleReadRecords(),
        stage.shuffleReadBytes(),
        stage.shuffleWriteRecords(),
        stage.executorCpuTime(),
    )
