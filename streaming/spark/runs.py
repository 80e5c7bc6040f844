"""What the query runs with: the settings of this start, but for a batch that is already published those it was published with.

A batch that is published and not yet committed by Spark runs once more after a restart. With other settings its outputs
would differ from what was published, so it runs alone, with its own settings; the query after it has those of this start.
A batch that is planned and not published runs with the settings of this start: a restart into a dry-run stops its actions.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streaming.contract.skipped import SkippedRange
from streaming.settings import Settings, TopicNames
from streaming.settings.kept import NotReadable, restore
from streaming.spark import source
from streaming.spark.batch import Batch
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.frames import Frames, decide_rows
from streaming.spark.query import Query
from streaming.spark.session import Session
from streaming.transport.publisher import Publisher
from streaming.transport.side import Begin, is_past

_LOG = logging.getLogger(__name__)


class Batches(Protocol):
    """Takes the batches of a query, one after another, each again after a failure."""

    def publish_to(self, topics: TopicNames) -> None:
        """Set the topics that outputs go to from the next batch on."""

    def take(self, batch: Batch) -> None:
        """Publish one batch."""


class Runs:
    """The runs of the query in one process, one after another."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        begin: Begin,
        *,
        checkpoint: CheckpointDirectory,
        publisher: Publisher,
        batches: Batches,
        frames: Frames,
    ) -> None:
        """``frames`` have the same session and settings. A new query begins at ``begin``."""
        self.session = session
        self._settings = settings
        self._begin = begin
        self._checkpoint = checkpoint
        self._publisher = publisher
        self._batches = batches
        self._frames = frames
        self._gaps: Sequence[SkippedRange] = ()

    def skip(self, gaps: Sequence[SkippedRange]) -> None:
        """Let the next queries skip what the input has lost, until they are past these gaps."""
        self._gaps = gaps

    @property
    def is_past_gaps(self) -> bool:
        """Whether there were gaps to skip and they are passed: this query has to end, so that a normal one can follow."""
        return bool(self._gaps) and is_past(self._gaps, self._checkpoint.places())

    def start_next(self, name: str) -> Query:
        """Start the next query under this name; one for a single batch ends by itself."""
        return Query(self._next().queryName(name).start(), self.session.spark)

    def _next(self) -> DataStreamWriter:
        if self.is_past_gaps:
            self._gaps = ()
        before = self._settings_of_unfinished()
        settings = before or self._settings
        self._batches.publish_to(settings.topics)
        writer = self._frame(settings).writeStream.outputMode("update").foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._checkpoint.in_use)
        if before is not None:
            return writer.trigger(once=True)
        interval_ms = round(self._settings.spark.trigger_interval_s * 1000)
        return writer.trigger(processingTime=f"{interval_ms} milliseconds")

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        self._batches.take(Batch(frame, batch_id))

    def _settings_of_unfinished(self) -> Settings | None:
        marker = self._publisher.marker
        tree = self._checkpoint.settings_of_unfinished(marker)
        if tree is None:
            return None
        try:
            settings = restore(self._settings, tree)
        except NotReadable as error:
            _LOG.warning(
                "the settings that batch %s ran with cannot be read any more: %s", marker.batch_id, error
            )
            return None
        _LOG.info("batch %s was published before: it runs once more with its old settings", marker.batch_id)
        return settings

    def _frame(self, settings: Settings) -> DataFrame:
        is_usual = settings is self._settings and not self._gaps
        if is_usual and self._checkpoint.places():
            return self._frames.prepare_frame()
        starting = source.starting_offsets(settings, self._begin)
        rows = source.records(self.session.spark, settings, starting, skips_lost=bool(self._gaps))
        return decide_rows(rows, settings)
