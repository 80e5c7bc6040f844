"""The Prometheus metrics of one running application, kept in the driver.

Counters move when a batch has been published, and not for a batch that is skipped as already published. Every
label value known beforehand exists from the first scrape, so that a rate over the first event is not lost; a
cluster's series exist from its first round, or its first event that was used. Bundles, topics and brokers are
never labels. Nothing here reads a clock except through what it is told.
"""

import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming.observation import EventObservation, EventResult, Resource, RoundObservation, RoundOutcome

__all__ = ["KnownLabels", "Metrics"]

UNKNOWN = "unknown"
"""The label of an event type that is not one of ours, so that strangers cannot make series."""

SPLIT_POLICY = "bundle-split"
"""The label ``policy`` of candidates for a split."""

_LATENCY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAG_BUCKETS_S = (1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_STATS = ("mean", "max", "stdev")
_BROKER_STATES = ("reporting", "missing", "excluded")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLabels:
    """The label values that exist from the first scrape; an outcome is a plain reason: `hit-count`."""

    rejected_reasons: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    examined_outcomes: tuple[str, ...] = ()
    candidate_outcomes: tuple[str, ...] = ()
    split_outcomes: tuple[str, ...] = ()
    finding_kinds: tuple[str, ...] = ()
    action_kinds: tuple[str, ...] = ("unload", "split")


class Metrics:
    """All metrics on a `registry` of their own. Thread-safe, as prometheus_client is."""

    def __init__(self, known: KnownLabels, *, version: str, pyspark_version: str) -> None:
        self.registry = CollectorRegistry()
        self._known = known
        self._clusters: set[str] = set()
        self._declare_clusters()
        self._declare_application()
        build = _gauge(
            self.registry, "build_info", "Versions in use; always 1.", "version", "pyspark", "python"
        )
        build.labels(version, pyspark_version, platform.python_version()).set(1)
        for reason in known.rejected_reasons:
            self._rejected.labels(reason)
        self._introduce_events("")

    def _declare_clusters(self) -> None:
        new, registry = _counter, self.registry
        self._rounds = new(registry, "rounds", "Closed rounds.", "cluster", "outcome")
        self._examined = new(
            registry, "examined", "Pairs or brokers the policy looked at.", "cluster", "policy", "outcome"
        )
        self._candidates = new(
            registry, "candidates", "Bundles considered for an action.", "cluster", "policy", "outcome"
        )
        self._findings = _gauge(
            registry, "findings", "What no action can help, in the last round.", "cluster", "kind"
        )
        self._actions = new(registry, "actions_published", "Actions published.", "cluster", "kind", "dry_run")
        self._events = new(registry, "events", "Input events.", "cluster", "type", "result")
        gauge = _gauge
        self._usage = gauge(
            registry,
            "broker_usage_points",
            "Usage over the brokers of the last round, in percentage points; NaN: not measured.",
            "cluster",
            "resource",
            "stat",
        )
        self._brokers = gauge(registry, "brokers", "Brokers in the last round.", "cluster", "state")
        self._report_age = gauge(
            registry,
            "oldest_report_age_seconds",
            "Age of the oldest report at the last round's end.",
            "cluster",
        )
        self._dry_run = gauge(registry, "dry_run", "1 while decisions go to the dry-run topic.", "cluster")
        self._paused = gauge(registry, "paused", "1 while a control event holds all actions.", "cluster")
        self._round_end = gauge(
            registry,
            "last_round_end_timestamp_seconds",
            "End of the last closed round (Unix time).",
            "cluster",
        )

    def _declare_application(self) -> None:
        registry = self.registry
        self._rejected = _counter(registry, "rejected", "Records sent to the dead letter.", "reason")
        self._restarts = _counter(registry, "query_restarts", "Restarts of the streaming query.")
        self._skipped = _counter(registry, "batches_skipped", "Re-run batches that were already published.")
        self._lag = _histogram(
            registry, "decision_lag_seconds", "From a round's end to its publishing.", _LAG_BUCKETS_S
        )
        self._batch = _histogram(
            registry, "batch_duration_seconds", "Duration of a micro-batch.", _LATENCY_BUCKETS_S
        )
        self._publish = _histogram(
            registry, "publish_duration_seconds", "Duration of publishing a batch.", _LATENCY_BUCKETS_S
        )

    def observe_round(self, seen: RoundObservation, *, published_ms: int) -> None:
        """Count a round that has been published at `published_ms` (Unix milliseconds)."""
        cluster, policy = seen.cluster, seen.policy
        self._introduce(cluster)
        for outcome in self._known.examined_outcomes:
            self._examined.labels(cluster, policy, outcome)
        for outcome in self._known.candidate_outcomes:
            self._candidates.labels(cluster, policy, outcome)
        for outcome in self._known.split_outcomes:
            self._candidates.labels(cluster, SPLIT_POLICY, outcome)
        self._rounds.labels(cluster, seen.outcome).inc()
        for outcome, count in seen.examined.items():
            self._examined.labels(cluster, policy, _plain(outcome)).inc(count)
        for outcome, count in seen.candidates.items():
            self._candidates.labels(cluster, policy, _plain(outcome)).inc(count)
        for outcome, count in seen.splits.items():
            self._candidates.labels(cluster, SPLIT_POLICY, outcome).inc(count)
        for kind, count in seen.actions.items():
            self._actions.labels(cluster, kind, _flag(dry_run=seen.mode == "dry-run")).inc(count)
        self._lag.observe(max(0, published_ms - seen.end_ms) / 1000)
        self._show_state(seen)

    def _show_state(self, seen: RoundObservation) -> None:
        cluster = seen.cluster
        counts = (seen.brokers_reporting_count, seen.brokers_missing_count, seen.brokers_excluded_count)
        for state, count in zip(_BROKER_STATES, counts, strict=True):
            self._brokers.labels(cluster, state).set(count)
        for resource in get_args(Resource):
            usage = seen.usage.get(resource)
            points = usage and (usage.mean_points, usage.max_points, usage.stdev_points)
            for stat, value in zip(_STATS, points or (math.nan,) * 3, strict=True):
                self._usage.labels(cluster, resource, stat).set(value)
        for kind in {*self._known.finding_kinds, *seen.findings}:
            self._findings.labels(cluster, kind).set(seen.findings.get(kind, 0))
        self._report_age.labels(cluster).set(seen.oldest_report_age_s)
        self._dry_run.labels(cluster).set(seen.mode == "dry-run")
        self._paused.labels(cluster).set(seen.paused)
        self._round_end.labels(cluster).set(seen.end_ms / 1000)

    def observe_events(self, seen: EventObservation) -> None:
        """Count a micro-batch's input events; those of a cluster not seen so far count under cluster=""."""
        if seen.cluster and any(entry.result == "used" and entry.count for entry in seen.counts):
            self._introduce(seen.cluster)
        cluster = seen.cluster if seen.cluster in self._clusters else ""
        for entry in seen.counts:
            name = entry.type if entry.type in self._known.event_types else UNKNOWN
            self._events.labels(cluster, name, entry.result).inc(entry.count)
        for reason, count in seen.rejected.items():
            self._rejected.labels(reason).inc(count)

    def observe_batch(self, *, duration_s: float) -> None:
        """Record the duration of a whole micro-batch."""
        self._batch.observe(duration_s)

    def observe_publish(self, *, duration_s: float) -> None:
        """Record the duration of publishing a batch that was not skipped."""
        self._publish.observe(duration_s)

    def count_skipped_batch(self) -> None:
        """Count a re-run batch that was already published."""
        self._skipped.inc()

    def count_query_restart(self) -> None:
        """Count a restart of the streaming query within this process."""
        self._restarts.inc()

    def _introduce(self, cluster: str) -> None:
        """Make a cluster's series, once."""
        if cluster in self._clusters:
            return
        self._clusters.add(cluster)
        for outcome in get_args(RoundOutcome):
            self._rounds.labels(cluster, outcome)
        for kind in self._known.action_kinds:
            for dry_run in (True, False):
                self._actions.labels(cluster, kind, _flag(dry_run=dry_run))
        self._introduce_events(cluster)

    def _introduce_events(self, cluster: str) -> None:
        for name in (*self._known.event_types, UNKNOWN):
            for result in get_args(EventResult):
                self._events.labels(cluster, name, result)


def _plain(outcome: str) -> str:
    """The reason without its numbers: `hit-count 3/8` would be a series of its own for each count."""
    return outcome.partition(" ")[0]


def _flag(*, dry_run: bool) -> str:
    return "true" if dry_run else "false"


def _counter(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Counter:
    return Counter(f"trimtab_{name}_total", text, labels, registry=registry)


def _gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"trimtab_{name}", text, labels, registry=registry)


def _histogram(registry: CollectorRegistry, name: str, text: str, buckets: Iterable[float]) -> Histogram:
    return Histogram(f"trimtab_{name}", text, registry=registry, buckets=tuple(buckets))
