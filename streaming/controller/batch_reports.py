"""What is only reported about a published batch: log lines, metrics, the follow-up of earlier actions.

Invariant: nothing here fails the batch. It is published, and a re-run would be skipped and report nothing, so an error is
logged with its traceback and counted, and the next thing is reported.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock

from state.outputs import RoundSummary
from streaming.controller.followup import FollowUp
from streaming.controller.metrics import Metrics, Part, is_used
from streaming.controller.output_log import OutputLog
from streaming.controller.published import Published
from streaming.controller.published import decode as decode_published
from streaming.controller.refusal_log import RefusalLog
from streaming.spark.rows import ACTION, DRY_RUN_ACTION, OBSERVED, REJECTED, ROUND, OutputRow
from streaming.transport.intake import decode_observation

_LOG = logging.getLogger(__name__)


def unlimited_silence_s(_cluster: str) -> float:
    """For clusters that are never forgotten: no silence is too long."""
    return math.inf


class BatchReports:
    """Reports published batches to the log and the metrics."""

    def __init__(
        self, metrics: Metrics, forget_after_s: Callable[[str], float] = unlimited_silence_s
    ) -> None:
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
        with self._lock:
            self._report(rows)

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

    def _report(self, rows: Sequence[OutputRow]) -> None:
        published_s = time.time()
        outputs = [row for row in rows if row.kind in {ACTION, DRY_RUN_ACTION, ROUND}]
        for row in sorted(outputs, key=lambda row: (row.key, row.round, row.place)):
            self.attempt("metrics", partial(self._report_one, row.value, published_s))
        refused = [row.value for row in rows if row.kind == REJECTED]
        if refused:
            self.attempt("log", partial(self._refusals.log, refused, time.monotonic()))
        for row in rows:
            if row.kind == OBSERVED:
                self.attempt("metrics", partial(self._observe_events, row.value))

    def _report_one(self, value: bytes, published_s: float) -> None:
        event = decode_published(value)
        self.attempt("log", partial(self._log.log, event))
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
            self._metrics.count_telling_error(part)

    def _observe_events(self, value: bytes) -> None:
        observed = decode_observation(value)
        if observed.forgotten:
            self._forget(observed.cluster)
        elif observed.cluster and is_used(observed):
            self._heard_s[observed.cluster] = time.monotonic()
        self._metrics.observe_events(observed)

    def _follow_up(self, event: Published) -> None:
        repeat = self._followup.observe(event)
        if repeat is not None:
            self._metrics.count_repeat(repeat)
