"""What Spark says of its micro-batches: of the last one for the metrics, of the one under way for the watchdog.

Spark keeps it in the JVM; a look is a few calls and a few hundred bytes.
"""

from collections.abc import Hashable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.controller.metrics import Metrics

_BEHIND = "maxOffsetsBehindLatest"
"""Key of Spark's Kafka source, by partition the largest."""


def show_progress(query: StreamingQuery, metrics: Metrics) -> None:
    """Show the last progress, if there was one."""
    last = query.lastProgress
    if last is None:
        return
    behind = [float(source.metrics[_BEHIND]) for source in last.sources if _BEHIND in source.metrics]
    metrics.show_progress(
        state_rows=sum(operator.numRowsTotal for operator in last.stateOperators),
        state_memory_bytes=sum(operator.memoryUsedBytes for operator in last.stateOperators),
        input_behind_records=max(behind, default=None),
    )


def batch_progress(spark: SparkSession, query: StreamingQuery) -> Hashable:
    """Something that changes as long as the batch under way moves on; None where there is none.

    The stages' records and bytes change while a task runs, as often as executors report (10 s).
    """
    status = query.status
    if not status["isTriggerActive"]:
        return None
    stages = spark._jsc.sc().statusStore().activeStages()  # noqa: SLF001  the public tracker knows tasks only
    return (str(status["message"]), *(_stage_progress(stages.apply(place)) for place in range(stages.size())))


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
