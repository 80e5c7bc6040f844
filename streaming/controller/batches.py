"""What happens with each micro-batch in the driver: collect, publish once, then report.

The whole frame is always consumed, also when the batch is skipped: Spark's state commit depends on it. The error of
a batch is kept, because Spark wraps it beyond recognition.

Invariant: no report fails the batch. It is published, and a re-run would be skipped and report nothing, so an error in the log lines,
metrics or follow-up is logged with its traceback and counted, and the next thing is reported.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock

from state.outputs import RoundSummary
from streaming.contract import families
from streaming.controller.metrics import Metrics, Part, is_used
from streaming.controller.published import FollowUp, OutputLog, Published, RefusalLog
from streaming.controller.published import decode as decode_published
from streaming.settings import TopicNames
from streaming.spark.query import Batch
from streaming.spark.rows import ACTION, DRY_RUN_ACTION, OBSERVED, REJECTED, ROUND, OutputRow
from streaming.transport.intake import decode_observation
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import BatchState, OutboundRecord

_LOG = logging.getLogger(__name__)


class BatchReports:
    """Reports published batches to the log and the metrics."""

    def __init__(self, metrics: Metrics, forget_after_s: Callable[[str], float]) -> None:
        """``forget_after_s`` returns the seconds of silence after which a cluster is forgotten."""
        self._metrics = metrics
        self._forget_after_s = forget_after_s
        self._followup = FollowUp()
        self._log = OutputLog()
        self._refusals = RefusalLog()
        self._heard_s: dict[str, float] = {}
        """When each cluster was last heard of, by this process's own clock."""
        self._lock = Lock()

    def report(self, rows: Sequence[OutputRow]) -> None:
        """Report a batch that has just been published; never raises."""
        published_s = time.time()
        outputs = [row for row in rows if row.kind in {ACTION, DRY_RUN_ACTION, ROUND}]
        refused = [row.value for row in rows if row.kind == REJECTED]
        with self._lock:
            for row in sorted(outputs, key=lambda row: (row.key, row.round, row.place)):
                self.attempt("metrics", partial(self._report_one, row.value, published_s))
            if refused:
                self.attempt("log", partial(self._refusals.log, refused, time.monotonic()))
            for row in rows:
                if row.kind == OBSERVED:
                    self.attempt("metrics", partial(self._observe_events, row.value))

    def forget_silent(self, now_s: float) -> None:
        """Drop the series and the follow-up of clusters that are gone; ``now_s`` is monotonic. Never raises."""
        with self._lock:
            for cluster, heard_s in list(self._heard_s.items()):
                if now_s - heard_s > self._forget_after_s(cluster):
                    self.attempt("metrics", partial(self._forget, cluster))

    def _forget(self, cluster: str) -> None:
        self._heard_s.pop(cluster, None)
        self._followup.forget(cluster)
        self._log.forget(cluster)
        self._metrics.forget(cluster)

    def _report_one(self, value: bytes, published_s: float) -> None:
        event = decode_published(value)
        self.attempt("log", partial(self._log.log, event, published_s))
        if isinstance(event.data, RoundSummary):
            self._heard_s[event.data.cluster] = time.monotonic()
            self.attempt("metrics", partial(self._metrics.observe_round, event, published_s=published_s))
        self.attempt("follow-up", partial(self._follow_up, event))

    def attempt(self, part: Part, tell: Callable[[], None]) -> None:
        """Report one thing; an error is logged and counted."""
        try:
            tell()
        except Exception:  # noqa: BLE001  whatever it is, the batch is published already
            _LOG.exception(
                "%s: a published batch could not be reported completely; the batch itself is published", part
            )
            self._metrics.count(families.REPORTING_ERRORS, part)

    def _observe_events(self, value: bytes) -> None:
        observed = decode_observation(value)
        if observed.forgotten:
            self._forget(observed.cluster)
        elif observed.cluster and is_used(observed):
            self._heard_s[observed.cluster] = time.monotonic()
        self._metrics.observe_events(observed)

    def _follow_up(self, event: Published) -> None:
        source = self._followup.observe(event)
        if source is not None:
            self._metrics.count_repeat(event.data.cluster, source)


class BatchPublisher:
    """Takes the batches of the query; remembers its last error and whether the last publish succeeded."""

    def __init__(
        self,
        publisher: Publisher,
        metrics: Metrics,
        topics: TopicNames,
        forget_after_s: Callable[[str], float],
    ) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self.reports = BatchReports(metrics, forget_after_s)
        self.publish_to(topics)
        self.error: Exception | None = None
        """Error of the last batch, for readiness; None when it went through."""
        self._raised: Exception | None = None
        self._tried: int | None = None
        """The batch whose publish failed in this process, and which may be out all the same."""
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
        self._metrics.observe(families.BATCH_DURATION, time.monotonic() - started)

    def take_raised(self) -> Exception | None:
        """The error that a batch raised since the last call, which Spark wraps beyond recognition; None if there was none."""
        raised, self._raised = self._raised, None
        return raised

    def _publish(self, batch: Batch, rows: Sequence[OutputRow]) -> None:
        records = [self._record(row) for row in rows if row.kind != OBSERVED]
        started = time.monotonic()
        tried, self._tried = self._tried, batch.id
        found = self._publisher.publish(batch.id, batch.query_id, records)
        self._tried = None
        if found is BatchState.OUT and tried == batch.id:
            _LOG.info("batch %d was published, though the answer was lost", batch.id)
        elif not found:
            _LOG.info("batch %d was published before the restart: skipped", batch.id)
            self._metrics.count(families.BATCHES_SKIPPED)
            if found is BatchState.OTHERWISE:
                self._name_differing(batch.id, rows)
            return
        self._metrics.observe(families.PUBLISH_DURATION, time.monotonic() - started)
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
        self._metrics.count(families.ROUNDS_DIFFERING, by=len(rounds))

    def _record(self, row: OutputRow) -> OutboundRecord:
        return OutboundRecord(
            topic=self._topic_of[row.kind],
            key=row.key,
            value=row.value,
            round=row.round,
            place=row.place,
            coordinates=row.coordinates,
        )
