"""Keeps a Spark without a query warm, so that the first batch of a standby that leads takes a second instead of ten.

The first batches of a query load classes, modules and RocksDB, compile code and start Python's workers; Spark then ends each
worker that idles for a minute and has no setting for it (SPARK-24405). So a query like the real one runs for some batches, and
later every worker gets a job of a few milliseconds before its minute is over. The query reads a few records of the input and
made-up ones, keeps its state in a directory that is deleted, publishes nothing, and moves no subscription.
"""

import dataclasses
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.streaming.readwriter import DataStreamWriter

from state.closing import UNBOUNDED
from streaming.process.deadline import Deadline
from streaming.settings import Settings
from streaming.spark import source
from streaming.spark.failures import SparkError, SparkGone, spark_errors
from streaming.spark.query import Batch, decide_rows
from streaming.spark.rows import INPUT_SCHEMA
from streaming.spark.session import Session

_LOG = logging.getLogger(__name__)

KEEP_EVERY_S = 45.0
"""Spark ends a worker that idles for 60 s; more often would cost a standby more than 2 % of a core."""
_RUNS = (6, 1, 1)
"""Batches of each run. The later runs begin as a leader's query does, where another query ended."""
_WITHIN_S = 60.0
"""Limit of one run; on a busy machine the first batch alone may take half of it."""
_LOOK_S, _END_S = 0.2, 10.0
_RECORDS_COUNT = 10
"""Records of the input in each batch."""
_OVERLAP_S = 0.05
"""How long a task holds its worker, so that each task of the job gets one of its own."""


def warm_up(session: Session, settings: Settings, is_stopping: Callable[[], bool]) -> None:
    """Run a query for some batches, several times; takes some ten seconds. Raises ``SparkGone``; other failures leave Spark less warm."""
    began_s = time.monotonic()
    try:
        with spark_errors():
            # Spark maintains the state for minutes after the query, and deletes this directory when it ends.
            directory = tempfile.mkdtemp(dir=session.spark.sparkContext._temp_dir)  # noqa: SLF001
            writer = _frame(session, settings).writeStream.option("checkpointLocation", directory)
            for batches_count in _RUNS:
                if not is_stopping():
                    _run(writer, batches_count, is_stopping)
    except SparkGone:
        raise
    except SparkError as error:
        _LOG.warning("Spark could not be warmed up, so a take-over would take longer: %s", error)
    else:
        _LOG.info("warmed up in %.1f s", time.monotonic() - began_s)


def keep_warm(session: Session) -> None:
    """Give every Python worker a task of a few milliseconds. Raises ``SparkError``."""
    context = session.spark.sparkContext
    tasks_count = context.defaultParallelism
    with spark_errors():
        context.parallelize(range(tasks_count), tasks_count).mapPartitions(_hold).collect()


def _hold(tasks: Iterable[int]) -> Iterable[int]:
    time.sleep(_OVERLAP_S)
    return tasks


def _run(writer: DataStreamWriter, batches_count: int, is_stopping: Callable[[], bool]) -> None:
    """Run a query, and stop it while its last batch waits in the driver, because tasks that are cut off write long errors to the log."""
    is_over, may_end = threading.Event(), threading.Event()
    taken_count = 0

    def take(frame: DataFrame, batch_id: int) -> None:
        nonlocal taken_count
        Batch(frame, batch_id).collect()
        taken_count += 1
        if taken_count == batches_count:
            is_over.set()
            may_end.wait(_END_S)

    query = writer.outputMode("update").foreachBatch(take).trigger(processingTime="0 seconds").start()
    stop = threading.Thread(target=query.stop, name="warm-stop", daemon=True)
    deadline = Deadline(_WITHIN_S)
    while not is_over.wait(_LOOK_S) and query.isActive and not deadline.is_over and not is_stopping():
        pass
    stop.start()
    stop.join(_LOOK_S)
    may_end.set()
    stop.join(_END_S)
    if (failure := query.exception()) is not None and not is_over.is_set():
        raise failure


def _frame(session: Session, settings: Settings) -> DataFrame:
    few = dataclasses.replace(settings.spark, max_records_per_trigger_count=_RECORDS_COUNT)
    settings_of_few = dataclasses.replace(settings, spark=few)
    rows = source.records(session.spark, settings_of_few, "earliest", skips_lost=True, only_looks=True)
    return decide_rows(rows.union(_make_warm_records(session, settings)), settings, UNBOUNDED)


def _make_warm_records(session: Session, settings: Settings) -> DataFrame:
    """Records for each task of the operator in every batch, because the input may have none; they are refused."""
    values = {
        "cluster": F.concat(F.lit("warm-"), F.col("value").cast("string")),
        "key": F.lit("warm"),
        "chunk": F.lit(0),
        "value": F.lit(b"{}"),
        "topic": F.lit(settings.topics.input),
        "partition": F.lit(0),
        "offset": F.col("value"),
        "appended_ms": F.unix_millis("timestamp"),
        "is_control": F.lit(False),
    }
    rows = session.spark.readStream.format("rate-micro-batch").option(
        "rowsPerBatch", 2 * settings.spark.shuffle_partitions
    )
    return rows.load().select(
        *(
            values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in INPUT_SCHEMA
        )
    )
