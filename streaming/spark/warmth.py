"""Keeps a Spark without a query warm, so that the first batch of a standby that leads takes a second instead of ten.

The first use of the operator loads classes, modules and RocksDB and starts Python's workers; Spark then ends each worker
that idles for a minute and has no setting for it (SPARK-24405). So the operator runs once over made-up records, as a batch
job that reads and writes no topic, and later a job of a few milliseconds comes to every worker before that.
"""

import time
from collections.abc import Iterable

from pyspark.sql import DataFrame

from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import identity_of
from streaming.spark.errors import spark_errors
from streaming.spark.operator import ClusterProcessor
from streaming.spark.rows import INPUT_SCHEMA, OUTPUT_SCHEMA
from streaming.spark.session import Session

__all__ = ["KEEP_EVERY_S", "keep_warm", "warm_up"]

KEEP_EVERY_S = 45.0
"""Spark ends a worker that idles for 60 s; more often would cost a standby more than 2 % of a core."""
_RUNS_COUNT = 2
"""The second run takes a tenth of the first, the third no less than the second."""
_OVERLAP_S = 0.05
"""How long a task holds its worker, so that each task of the job gets one of its own."""


def warm_up(session: Session, settings: Settings) -> None:
    """Run the operator over made-up records; some ten seconds. Raises ``SparkError``."""
    with spark_errors():
        _ = session.spark.streams.active  # Spark starts the coordinator of state stores with it
        for _run in range(_RUNS_COUNT):
            _decide(session, settings).collect()


def keep_warm(session: Session) -> None:
    """Give every Python worker a task of a few milliseconds. Raises ``SparkError``."""
    context = session.spark.sparkContext
    tasks_count = context.defaultParallelism
    with spark_errors():
        context.parallelize(range(tasks_count), tasks_count).mapPartitions(_hold).collect()


def _hold(tasks: Iterable[int]) -> Iterable[int]:
    time.sleep(_OVERLAP_S)
    return tasks


def _decide(session: Session, settings: Settings) -> DataFrame:
    """One record that is refused, for each task of the operator."""
    names = [f"warm-{number}" for number in range(2 * settings.spark.shuffle_partitions)]
    rows = [
        (name, name, 0, b"{}", None, None, settings.topics.input, 0, place, 0, False)
        for place, name in enumerate(names)
    ]
    processor = ClusterProcessor(
        name=settings.controller.name,
        identity=identity_of(settings),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
    )
    frame = session.spark.createDataFrame(rows, INPUT_SCHEMA)
    return frame.groupBy("cluster").transformWithState(
        statefulProcessor=processor, outputStructType=OUTPUT_SCHEMA, outputMode="Update", timeMode="None"
    )
