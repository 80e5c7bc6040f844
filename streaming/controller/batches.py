"""What happens with each micro-batch in the driver: collect, publish once, then count.

The whole frame is always consumed, also when the batch is skipped: Spark's state commit depends on it. The error of
a batch is kept, because Spark wraps it beyond recognition. An error in what is only reported about a published batch does
not fail the batch (``batch_reports``).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from streaming.controller.batch_reports import BatchReports, unlimited_silence_s
from streaming.controller.metrics import Metrics
from streaming.settings import TopicNames
from streaming.spark.batch import Batch
from streaming.spark.rows import ACTION, DRY_RUN_ACTION, OBSERVED, REJECTED, ROUND, OutputRow
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import BatchState, OutboundRecord

_LOG = logging.getLogger(__name__)


class BatchPublisher:
    """Takes the batches of the query; remembers its last error and whether the last publish succeeded."""

    def __init__(
        self,
        publisher: Publisher,
        metrics: Metrics,
        topics: TopicNames,
        forget_after_s: Callable[[str], float] = unlimited_silence_s,
    ) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self.reports = BatchReports(metrics, forget_after_s)
        self.publish_to(topics)
        self.error: Exception | None = None
        """Error of the last batch, for readiness; None when it went through."""
        self._raised: Exception | None = None
        self.newest_batch_id: int | None = None
        """The newest batch begun since the start; when it rises, Spark has committed the one before."""
        self.published_count = 0
        """Batches that went through since the start, those skipped as already published included."""

    def publish_to(self, topics: TopicNames) -> None:
        """Set the topics that outputs go to from the next batch on."""
        self._topic_of: Mapping[str, str] = {
            ACTION: topics.actions,
            DRY_RUN_ACTION: topics.actions_dry_run,
            ROUND: topics.audit,
            REJECTED: topics.dead_letter,
        }

    def take(self, batch: Batch) -> None:
        """Publish one batch; raises whatever the publisher raises."""
        started = time.monotonic()
        self.newest_batch_id = max(batch.id, self.newest_batch_id or 0)
        try:
            rows = batch.collect()
            self._publish(batch, rows)
        except Exception as error:
            self.error = self._raised = error
            raise
        self.error = None
        self.published_count += 1
        self._metrics.observe_batch(duration_s=time.monotonic() - started)

    def take_raised(self) -> Exception | None:
        """The error that a batch raised since the last call, which Spark wraps beyond recognition; None if there was none."""
        raised, self._raised = self._raised, None
        return raised

    def _publish(self, batch: Batch, rows: Sequence[OutputRow]) -> None:
        records = [self._record(row) for row in rows if row.kind != OBSERVED]
        started = time.monotonic()
        found = self._publisher.publish(batch.id, batch.query_id, records)
        if not found:
            _LOG.info("batch %d was published before the restart: skipped", batch.id)
            self._metrics.count_skipped_batch()
            if found is BatchState.OTHERWISE:
                self._name_differing(batch.id, rows)
            return
        self._metrics.observe_publish(duration_s=time.monotonic() - started)
        self.reports.report(rows)

    def _name_differing(self, batch_id: int, rows: Sequence[OutputRow]) -> None:
        rounds = sorted((row.key, row.round) for row in rows if row.kind == ROUND)
        named = ", ".join(f"{cluster} {number}" for cluster, number in rounds) or "none"
        _LOG.warning(
            "batch %d was published before and is not published again, though it has other contents now; for these "
            "rounds, by cluster, what was published may differ from the memory: %s",
            batch_id,
            named,
        )
        self._metrics.count_differing_rounds(len(rounds))

    def _record(self, row: OutputRow) -> OutboundRecord:
        return OutboundRecord(
            topic=self._topic_of[row.kind],
            key=row.key,
            value=row.value,
            round=row.round,
            place=row.place,
            coordinates=row.coordinates,
        )
