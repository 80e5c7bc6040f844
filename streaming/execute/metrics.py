"""Prometheus metrics of an executor of one cluster; every label value exists from the first scrape."""

from collections.abc import Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming.execute.orders import SkipReason

KINDS = ("unload", "split")
OUTCOMES = ("succeeded", "failed", "skipped")
_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ExecutorMetrics:
    """All metrics, on a ``registry`` of their own. Thread-safe."""

    def __init__(self, cluster: str, *, kinds: Sequence[str] = KINDS) -> None:
        registry = self.registry = CollectorRegistry()
        self._cluster = cluster
        self._actions = Counter(
            "trimtab_executor_actions_total",
            "Actions, by what became of them.",
            ("cluster", "kind", "outcome"),
            registry=registry,
        )
        self._skips = Counter(
            "trimtab_executor_skips_total",
            "Actions that were not carried out, by reason.",
            ("cluster", "reason"),
            registry=registry,
        )
        self._elsewhere = Counter(
            "trimtab_executor_landed_elsewhere_total",
            "Unloads whose bundle left its broker, but not for the destination.",
            ("cluster",),
            registry=registry,
        )
        self._unreadable = Counter(
            "trimtab_executor_unreadable_total",
            "Records on the actions topic that are no actions.",
            ("cluster",),
            registry=registry,
        )
        self._dropped = Counter(
            "trimtab_executor_dropped_batches_total",
            "Times the topics failed, so that what was not committed is taken up again.",
            ("cluster",),
            registry=registry,
        )
        self._duration = Histogram(
            "trimtab_executor_action_duration_seconds",
            "From taking an action up to having seen what became of it.",
            ("cluster", "kind"),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._polled = Gauge(
            "trimtab_executor_last_poll_timestamp_seconds",
            "When actions were last asked for (Unix time).",
            ("cluster",),
            registry=registry,
        )
        self._introduce(kinds)

    def _introduce(self, kinds: Sequence[str]) -> None:
        cluster = self._cluster
        for kind in kinds:
            self._duration.labels(cluster, kind)
            for outcome in OUTCOMES:
                self._actions.labels(cluster, kind, outcome)
        for reason in get_args(SkipReason):
            self._skips.labels(cluster, reason)
        self._elsewhere.labels(cluster)
        self._unreadable.labels(cluster)
        self._dropped.labels(cluster)

    def observe_tried(self, kind: str, outcome: str, *, took_s: float, landed_elsewhere: bool) -> None:
        """An action was tried."""
        self._actions.labels(self._cluster, kind, outcome).inc()
        self._duration.labels(self._cluster, kind).observe(took_s)
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
        """The topics failed."""
        self._dropped.labels(self._cluster).inc()

    def polled(self, at_s: float) -> None:
        """Actions were asked for."""
        self._polled.labels(self._cluster).set(at_s)
