"""The query: its frame, the settings it runs with, its batches, and how far a running one is.

A batch that is published and not yet committed by Spark runs once more after a restart. With other settings its outputs
would differ from what was published, so it runs alone, with its own settings; the query after it has those of this start.
A batch that is planned and not published runs with the settings of this start: a restart into a dry-run stops its actions.

To make a frame takes hundreds of calls into the JVM, a quarter of a second, so a standby makes it before its turn. Spark keeps its
reports on batches in the JVM; a look at a running query takes a few calls and a few hundred bytes.
"""

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from state.closing import UNBOUNDED, MemoryStart
from streaming.contract.encode import SkippedRange
from streaming.kafka.link import input_link
from streaming.process.exits import WrongUse
from streaming.settings import ClusterSettingsSource, Settings, TopicNames
from streaming.settings.identity import AcceptedClusters, NotReadable, identity_of, restore
from streaming.spark import source
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.operator import ClusterProcessor
from streaming.spark.rows import OUTPUT_SCHEMA, OutputRow
from streaming.transport.publisher import Publisher
from streaming.transport.side import Begin, is_past

_LOG = logging.getLogger(__name__)

_CHECKPOINT_SAYS = "earliest"
"""Spark reads this only until the query has committed a batch; from then on the checkpoint counts."""
_BEHIND = "maxOffsetsBehindLatest"
"""Metric of Spark's Kafka source: the lag of the partition that is furthest behind, in records."""


class Batch:
    """A batch whose rows are not collected yet; ``id`` is Spark's batch number."""

    def __init__(self, frame: DataFrame, batch_id: int) -> None:
        self.id = batch_id
        self._frame = frame

    def collect(self) -> Sequence[OutputRow]:
        """All rows of the batch, in no fixed order. They are consumed whole, because Spark's state commit depends on it.

        Arrow hands bytes over as they are; Spark's rows are pickled, and the JVM pickles bytes one by one.
        """
        columns = [column.to_pylist() for column in self._frame.toArrow().columns]
        return [OutputRow(*values) for values in zip(*columns, strict=True)]

    @property
    def query_id(self) -> str:
        """Spark's id of the query that runs this batch; known while the batch runs."""
        context = self._frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """What Spark reports about the last batch."""

    state_rows: int
    state_memory_bytes: int
    input_lag_records: float | None
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
            input_lag_records=max(behind, default=None),
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


def decide_rows(rows: DataFrame, settings: Settings, memory_start: MemoryStart) -> DataFrame:
    """The decisions on input rows."""
    controller = settings.controller
    processor = ClusterProcessor(
        name=controller.name,
        identity=identity_of(settings, memory_start),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=controller.max_record_bytes,
        accepted=AcceptedClusters(controller.accepted_clusters),
    )
    return rows.groupBy("cluster").transformWithState(
        statefulProcessor=processor,
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Update",
        timeMode="None",
    )


@dataclass(slots=True)
class Frames:
    """Keeps the frame of a query that goes on from its checkpoint, which is the same at each start."""

    spark: SparkSession
    settings: Settings
    _kept: DataFrame | None = field(init=False, default=None)
    _memory_start: MemoryStart | None = field(init=False, default=None)
    _access: Mapping[str, str] = field(init=False, default_factory=dict)
    """The certificates and passwords that the kept frame was made with: their files may have been renewed since."""

    def prepare_frame(self, memory_start: MemoryStart) -> DataFrame:
        """The frame of a query that has committed a batch; made at the first call, and when the access to Kafka or the memory is another.

        Raises ``WrongUse`` for a file that cannot be read at the first call; later the last access is kept: a new file may be coming.
        """
        try:
            access = {} if self.settings.input.is_pulsar else input_link(self.settings).spark_options()
        except WrongUse:
            if self._kept is None:
                raise
            access = dict(self._access)
        if self._kept is None or (access, memory_start) != (self._access, self._memory_start):
            rows = source.records(self.spark, self.settings, _CHECKPOINT_SAYS)
            self._kept = decide_rows(rows, self.settings, memory_start)
            self._access, self._memory_start = access, memory_start
        return self._kept


class Batches(Protocol):
    """Takes the batches of a query, one after another, each again after a failure."""

    def publish_to(self, topics: TopicNames) -> None:
        """Set the topics that outputs go to from the next batch on."""

    def take(self, batch: Batch) -> None:
        """Publish one batch."""


@dataclass(slots=True, kw_only=True)
class Runs:
    """The runs of the query in one process, one after another. A new query begins at ``begin``."""

    frames: Frames
    begin: Begin
    checkpoint: CheckpointDirectory
    publisher: Publisher
    batches: Batches
    _gaps: Sequence[SkippedRange] = field(init=False, default=())

    def skip(self, gaps: Sequence[SkippedRange]) -> None:
        """Let the next queries skip what the input has lost, until they are past these gaps."""
        self._gaps = gaps

    @property
    def is_past_gaps(self) -> bool:
        """Whether there were gaps to skip and they are passed: this query has to end, so that a normal one can follow."""
        return bool(self._gaps) and is_past(self._gaps, self.checkpoint.places())

    def start_next(self, name: str) -> Query:
        """Start the next query under this name; one for a single batch ends by itself."""
        return Query(self._next().queryName(name).start(), self.frames.spark)

    def _next(self) -> DataStreamWriter:
        if self.is_past_gaps:
            self._gaps = ()
        before = self._settings_of_unfinished()
        settings = before or self.frames.settings
        self.batches.publish_to(settings.topics)

        def take(frame: DataFrame, batch_id: int) -> None:
            self.batches.take(Batch(frame, batch_id))

        writer = self._frame(settings).writeStream.outputMode("update").foreachBatch(take)
        writer = writer.option("checkpointLocation", self.checkpoint.in_use)
        if before is not None:
            return writer.trigger(once=True)
        interval_ms = round(self.frames.settings.spark.trigger_interval_s * 1000)
        return writer.trigger(processingTime=f"{interval_ms} milliseconds")

    def _settings_of_unfinished(self) -> Settings | None:
        marker = self.publisher.marker
        tree = self.checkpoint.settings_of_unfinished(marker)
        if tree is None:
            return None
        try:
            settings = restore(self.frames.settings, tree)
        except NotReadable as error:
            _LOG.warning(
                "the settings that batch %s ran with cannot be read any more: %s", marker.batch_id, error
            )
            return None
        _LOG.info("batch %s was published before: it runs once more with its old settings", marker.batch_id)
        return settings

    def _frame(self, settings: Settings) -> DataFrame:
        memory_start = self.checkpoint.memory_start() or UNBOUNDED
        is_usual = settings is self.frames.settings and not self._gaps
        if is_usual and self.checkpoint.places():
            return self.frames.prepare_frame(memory_start)
        starting = source.starting_offsets(settings, self.begin)
        rows = source.records(self.frames.spark, settings, starting, skips_lost=bool(self._gaps))
        return decide_rows(rows, settings, memory_start)
