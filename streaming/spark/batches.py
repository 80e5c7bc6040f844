"""What happens with each micro-batch in the driver: collect, publish once, then count.

The whole frame is always consumed, also when the batch is skipped: Spark's state commit depends on it. An error is
kept, because Spark wraps what a batch function raises beyond recognition.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row

from streaming.followup import FollowUp
from streaming.metrics import Metrics
from streaming.observation import EventObservation, decode
from streaming.settings import TopicNames
from streaming.sinks.outbox import OutboundRecord
from streaming.sinks.publisher import Publisher
from streaming.spark.rows import ACTION, DRY_RUN_ACTION, OBSERVED, REJECTED, ROUND
from streaming.spark.said import log_output

_LOG = logging.getLogger(__name__)


class BatchPublisher:
    """The batch function of ``foreachBatch``; remembers its last error and whether the last publish succeeded."""

    def __init__(self, publisher: Publisher, metrics: Metrics, topics: TopicNames) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._followup = FollowUp()
        self._topic_of: Mapping[str, str] = {
            ACTION: topics.actions,
            DRY_RUN_ACTION: topics.actions_dry_run,
            ROUND: topics.audit,
            REJECTED: topics.dead_letter,
        }
        self.error: Exception | None = None
        self.published_count = 0
        """Batches that went through since the start, those skipped as already published included."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Publish one batch; raises whatever the publisher raises."""
        started = time.monotonic()
        try:
            rows = frame.collect()
            query_id = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            self._publish(batch_id, query_id, rows)
        except Exception as error:
            self.error = error
            raise
        self.error = None
        self.published_count += 1
        self._metrics.observe_batch(duration_s=time.monotonic() - started)

    def _publish(self, batch_id: int, query_id: str, rows: Sequence[Row]) -> None:
        records = [self._record(row) for row in rows if row.kind != OBSERVED]
        started = time.monotonic()
        if not self._publisher.publish(batch_id, query_id, records):
            _LOG.info("batch %d was published before the restart: skipped", batch_id)
            self._metrics.count_skipped_batch()
            return
        self._metrics.observe_publish(duration_s=time.monotonic() - started)
        for row in rows:
            log_output(row.kind, bytes(row.value))
        self._observe([bytes(row.value) for row in rows if row.kind == OBSERVED])
        self._follow_up([row for row in rows if row.kind in {ACTION, ROUND}])

    def _record(self, row: Row) -> OutboundRecord:
        coordinates = None if row.topic is None else (row.topic, row.partition, row.offset)
        return OutboundRecord(
            topic=self._topic_of[row.kind],
            key=row.key,
            value=bytes(row.value),
            round=row.round,
            place=row.place,
            coordinates=coordinates,
        )

    def _follow_up(self, rows: Sequence[Row]) -> None:
        ordered = sorted(rows, key=lambda row: (row.key, row.round, row.place))
        for seen in self._followup.see(bytes(row.value) for row in ordered):
            self._metrics.observe_followup(seen)

    def _observe(self, observations: Sequence[bytes]) -> None:
        published_ms = round(time.time() * 1000)
        for value in observations:
            seen = decode(value)
            if isinstance(seen, EventObservation):
                self._metrics.observe_events(seen)
            else:
                self._metrics.observe_round(seen, published_ms=published_ms)
