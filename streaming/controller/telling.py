"""What is only told of a batch that is out: log lines, metrics, the follow-up of earlier actions.

Invariant: nothing here fails the batch. It is published, and a re-run would be skipped and tell nothing, so an error is
logged with its traceback, counted, and the next thing told.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock

from streaming.controller.followup import FollowUp
from streaming.controller.metrics import Metrics, Part, is_used
from streaming.controller.said import log_output
from streaming.intake.observation import EventObservation, decode
from streaming.spark.rows import ACTION, OBSERVED, ROUND, OutputRow

_LOG = logging.getLogger(__name__)


def never(_cluster: str) -> float:
    """No silence is too long."""
    return math.inf


class Telling:
    """Tells the log and the metrics."""

    def __init__(self, metrics: Metrics, forget_after_s: Callable[[str], float] = never) -> None:
        """``forget_after_s`` of a cluster says after how much silence nothing is told of it any more."""
        self._metrics = metrics
        self._forget_after_s = forget_after_s
        self._followup = FollowUp()
        self._heard_s: dict[str, float] = {}
        """When each cluster was last heard of, by this process's own clock."""
        self._lock = Lock()

    def tell(self, rows: Sequence[OutputRow]) -> None:
        """Tell of a batch that has just been published; never raises."""
        with self._lock:
            self._tell(rows)

    def forget_silent(self, now_s: float) -> None:
        """Drop the series and the follow-up of clusters that are gone; ``now_s`` is monotonic. Never raises."""
        with self._lock:
            for cluster, heard_s in list(self._heard_s.items()):
                if now_s - heard_s > self._forget_after_s(cluster):
                    self.attempt("metrics", partial(self._forget, cluster))

    def _forget(self, cluster: str) -> None:
        self._heard_s.pop(cluster, None)
        self._followup.forget(cluster)
        self._metrics.forget(cluster)

    def _tell(self, rows: Sequence[OutputRow]) -> None:
        for row in rows:
            self.attempt("log", partial(log_output, row.kind, bytes(row.value)))
        published_ms = round(time.time() * 1000)
        for row in rows:
            if row.kind == OBSERVED:
                self.attempt("metrics", partial(self._observe, bytes(row.value), published_ms))
        self._follow_up([row for row in rows if row.kind in {ACTION, ROUND}])

    def attempt(self, part: Part, tell: Callable[[], None]) -> None:
        """Tell one thing; an error is logged and counted."""
        try:
            tell()
        except Exception:  # noqa: BLE001  whatever it is, what was to be told is out already
            _LOG.exception(
                "%s: something of a published batch could not be told; the batch itself is out", part
            )
            self._metrics.count_telling_error(part)

    def _observe(self, value: bytes, published_ms: int) -> None:
        seen = decode(value)
        if isinstance(seen, EventObservation):
            if seen.forgotten:
                self._forget(seen.cluster)
            elif seen.cluster and is_used(seen):
                self._heard_s[seen.cluster] = time.monotonic()
            self._metrics.observe_events(seen)
        else:
            self._heard_s[seen.cluster] = time.monotonic()
            self._metrics.observe_round(seen, published_ms=published_ms)

    def _follow_up(self, rows: Sequence[OutputRow]) -> None:
        for row in sorted(rows, key=lambda row: (row.key, row.round, row.place)):
            self.attempt("follow-up", partial(self._see, bytes(row.value)))

    def _see(self, value: bytes) -> None:
        for seen in self._followup.see([value]):
            self._metrics.observe_followup(seen)
