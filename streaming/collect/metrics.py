"""Prometheus metrics of a collector of one cluster; every label value exists from the first scrape."""

from collections.abc import Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming.pulsar_admin import Failure

READ_RESULTS = ("ok", "foreign-report", "unfinished", *get_args(Failure))
EVENTS = ("load-report", "topic-stats", "tick", "cluster")
_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class CollectorMetrics:
    """All metrics, on a ``registry`` of their own. Thread-safe."""

    def __init__(
        self, cluster: str, *, results: Sequence[str] = READ_RESULTS, events: Sequence[str] = EVENTS
    ) -> None:
        registry = self.registry = CollectorRegistry()
        names = ("cluster", "result")
        self._sweeps = Counter(
            "trimtab_collector_sweeps_total",
            "Sweeps over all brokers: complete, without a broker list, or not written.",
            names,
            registry=registry,
        )
        self._reads = Counter(
            "trimtab_collector_reads_total", "Brokers asked, by what came of it.", names, registry=registry
        )
        self._events = Counter(
            "trimtab_collector_events_total",
            "Events handed to Kafka.",
            ("cluster", "type"),
            registry=registry,
        )
        self._brokers = Gauge(
            "trimtab_collector_brokers",
            "Brokers the cluster lists as alive.",
            ("cluster",),
            registry=registry,
        )
        self._balancers = Gauge(
            "trimtab_collector_pulsar_balances",
            "Brokers at which Pulsar's own shedding or splitting is on.",
            ("cluster", "kind"),
            registry=registry,
        )
        self._finished = Gauge(
            "trimtab_collector_last_sweep_timestamp_seconds",
            "End of the last complete sweep (Unix time); 0: none yet.",
            ("cluster",),
            registry=registry,
        )
        self._duration = Histogram(
            "trimtab_collector_sweep_duration_seconds",
            "Duration of complete sweeps.",
            ("cluster",),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._cluster = cluster
        for result in ("complete", "no-brokers", "not-written"):
            self._sweeps.labels(cluster, result)
        for result in results:
            self._reads.labels(cluster, result)
        for event in events:
            self._events.labels(cluster, event)
        self._finished.labels(cluster)

    def count_read(self, result: str) -> None:
        """A broker was asked; ``result`` is one of ``READ_RESULTS``."""
        self._reads.labels(self._cluster, result).inc()

    def count_event(self, kind: str) -> None:
        """An event was handed over; ``kind`` is one of ``EVENTS``."""
        self._events.labels(self._cluster, kind).inc()

    def observe_sweep(self, *, brokers_count: int, ended_s: float, duration_s: float) -> None:
        """A sweep is complete and written."""
        self._sweeps.labels(self._cluster, "complete").inc()
        self._brokers.labels(self._cluster).set(brokers_count)
        self._finished.labels(self._cluster).set(ended_s)
        self._duration.labels(self._cluster).observe(duration_s)

    def count_failed_sweep(self, result: str) -> None:
        """A sweep was ``no-brokers`` or ``not-written``."""
        self._sweeps.labels(self._cluster, result).inc()

    def show_balancers(self, *, shedding_count: int, splitting_count: int) -> None:
        """At how many brokers Pulsar balances by itself."""
        self._balancers.labels(self._cluster, "shedding").set(shedding_count)
        self._balancers.labels(self._cluster, "auto-split").set(splitting_count)
