"""Prometheus metrics of an executor of one cluster; every label value exists from the first scrape."""

from collections.abc import Sequence
from typing import get_args

from prometheus_client import CollectorRegistry

from streaming.contract import families
from streaming.executor.orders import SkipReason
from streaming.process.serve import counter, gauge, histogram

KINDS = ("unload", "split")
THROTTLE_KIND = "throttle"
OUTCOMES = ("succeeded", "failed", "skipped")


class ExecutorMetrics:
    """All metrics, on a ``registry`` of their own. Thread-safe."""

    def __init__(self, cluster: str, *, kinds: Sequence[str] = KINDS) -> None:
        """``kinds`` are those of the actions that it carries out."""
        registry = self.registry = CollectorRegistry()
        self._cluster = cluster
        self._actions = counter(registry, families.EXECUTOR_ACTIONS)
        self._skips = counter(registry, families.EXECUTOR_SKIPS)
        self._elsewhere = counter(registry, families.EXECUTOR_ELSEWHERE)
        self._unreadable = counter(registry, families.EXECUTOR_UNREADABLE)
        self._dropped = counter(registry, families.EXECUTOR_DROPPED)
        self._duration = histogram(registry, families.EXECUTOR_DURATION)
        self._polled = gauge(registry, families.EXECUTOR_LAST_POLL)
        for kind in kinds:
            self._duration.labels(cluster, kind)
            for outcome in OUTCOMES:
                self._actions.labels(cluster, kind, outcome)
        for reason in get_args(SkipReason):
            self._skips.labels(cluster, reason)
        self._elsewhere.labels(cluster)
        self._unreadable.labels(cluster)
        self._dropped.labels(cluster)

    def observe_attempt(self, kind: str, outcome: str, *, duration_s: float, landed_elsewhere: bool) -> None:
        """An action was tried."""
        self._actions.labels(self._cluster, kind, outcome).inc()
        self._duration.labels(self._cluster, kind).observe(duration_s)
        if landed_elsewhere:
            self._elsewhere.labels(self._cluster).inc()

    def count_skipped(self, kind: str, reason: SkipReason) -> None:
        """An action was not carried out."""
        self._actions.labels(self._cluster, kind, "skipped").inc()
        self._skips.labels(self._cluster, reason).inc()

    def count_unreadable(self) -> None:
        """A record was no action."""
        self._unreadable.labels(self._cluster).inc()

    def count_dropped(self) -> None:
        """Work was dropped because the topics failed."""
        self._dropped.labels(self._cluster).inc()

    def show_poll(self, at_s: float) -> None:
        """The topic was polled for actions at ``at_s``, Unix seconds."""
        self._polled.labels(self._cluster).set(at_s)
