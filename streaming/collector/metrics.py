"""Prometheus metrics of a collector of one cluster; every label value exists from the first scrape."""

from collections.abc import Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry

from streaming.contract import families
from streaming.process.serve import counter, gauge, histogram
from streaming.pulsar.http import Failure

READ_RESULTS = ("ok", "foreign-report", "no-load-data", "unfinished", *get_args(Failure))
EVENTS = ("load-report", "broker-load", "topic-stats", "tick", "cluster")


class CollectorMetrics:
    """All metrics, on a ``registry`` of their own. Thread-safe."""

    def __init__(
        self, cluster: str, *, results: Sequence[str] = READ_RESULTS, events: Sequence[str] = EVENTS
    ) -> None:
        registry = self.registry = CollectorRegistry()
        self._sweeps = counter(registry, families.COLLECTOR_SWEEPS)
        self._reads = counter(registry, families.COLLECTOR_READS)
        self._events = counter(registry, families.COLLECTOR_EVENTS)
        self._brokers = gauge(registry, families.COLLECTOR_BROKERS)
        self._balancers = gauge(registry, families.COLLECTOR_BALANCERS)
        self._managers = gauge(registry, families.COLLECTOR_LOAD_MANAGERS)
        self._finished = gauge(registry, families.COLLECTOR_LAST_SWEEP)
        self._duration = histogram(registry, families.COLLECTOR_SWEEP_DURATION)
        self._cluster = cluster
        self._managers_seen: set[str] = set()
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

    def show_load_managers(self, counts: Mapping[str, int]) -> None:
        """How many brokers run each load manager, by its class; one that no broker runs any more is 0."""
        self._managers_seen |= counts.keys()
        for manager in self._managers_seen:
            self._managers.labels(self._cluster, manager).set(counts.get(manager, 0))

    def show_balancers(self, *, shedding_count: int, splitting_count: int) -> None:
        """How many brokers have Pulsar's own shedding and bundle splitting switched on."""
        self._balancers.labels(self._cluster, "shedding").set(shedding_count)
        self._balancers.labels(self._cluster, "auto-split").set(splitting_count)
