"""The Prometheus metrics of one running application, kept in the driver.

Counters move when a batch has been published, and not for a batch that is skipped as already published. Every
label value known beforehand exists from the first scrape, so that a rate over the first event is not lost; a
cluster's series exist from its first round, or its first event that was used, until it is forgotten. Bundles and topics are never
labels, brokers only in ``throttle_metrics``. Nothing here reads a clock; times are passed in.
"""

import math
import platform
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from policies.shedding.contract import Stand
from policies.shedding.registry import find_policy
from policies.usage import RESOURCES
from state.closing import Outcome
from state.outputs import RoundSummary
from streaming.contract import families
from streaming.contract.families import Family
from streaming.controller.approval_metrics import ApprovalMetrics
from streaming.controller.effect_metrics import EffectMetrics
from streaming.controller.followup import Repeat, Source
from streaming.controller.published import Published
from streaming.controller.throttle_metrics import ThrottleGauges
from streaming.controller.upkeep_metrics import UpkeepGauges
from streaming.process import instruments
from streaming.transport.intake import EventObservation, EventResult

UNKNOWN = "unknown"
"""The label of an event type that is not one of ours, so that unknown types cannot make series."""

SPLIT_POLICY = "bundle-split"
"""The label ``policy`` of candidates for a split."""

Declared = TypeVar("Declared", bound=MetricWrapperBase)

Part = Literal["log", "metrics", "follow-up", "progress"]
"""What is reported about a batch."""

_STATS = ("mean", "max", "stdev")
_BROKER_STATES = ("reporting", "missing", "excluded")
_FOREMOST = (families.DIFFERENCE, families.THRESHOLD, families.HIT_COUNT, families.NEEDED_HIT_COUNT)
_PROGRESS = (families.STATE_ROWS, families.STATE_MEMORY, families.INPUT_BEHIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLabels:
    """The label values that exist from the first scrape; an outcome is a plain reason: `hit-count`."""

    rejected_reasons: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    examined_outcomes: tuple[str, ...] = ()
    candidate_outcomes: tuple[str, ...] = ()
    calm_outcomes: tuple[str, ...] = ()
    """Those of `examined_outcomes` that say a pair or broker does not stand out."""
    split_outcomes: tuple[str, ...] = ()
    finding_kinds: tuple[str, ...] = ()
    action_kinds: tuple[str, ...] = ("unload", "split", "throttle")
    result_outcomes: tuple[str, ...] = ()


class Metrics:
    """All metrics on a `registry` of their own. Thread-safe, as prometheus_client is."""

    def __init__(self, known: KnownLabels, *, version: str, pyspark_version: str) -> None:
        self.registry = CollectorRegistry()
        self._known = known
        self._clusters: set[str] = set()
        self._by_cluster: list[MetricWrapperBase] = []
        """The metrics with a series for each cluster."""
        self._declare_clusters()
        self._declare_application()
        build = self._gauge(families.BUILD_INFO)
        build.labels(version, pyspark_version, platform.python_version()).set(1)
        for reason in known.rejected_reasons:
            self._rejected.labels(reason)
        self._introduce_events("")

    def _declare_clusters(self) -> None:
        self._rounds = self._counter(families.ROUNDS)
        self._examined = self._counter(families.EXAMINED)
        self._candidates = self._counter(families.CANDIDATES)
        self._findings = self._gauge(families.FINDINGS)
        self._actions = self._counter(families.ACTIONS)
        self._results = self._counter(families.ACTION_RESULTS)
        self._repeated = self._counter(families.REPEATED_UNLOADS)
        self._events = self._counter(families.EVENTS)
        self._usage = self._gauge(families.BROKER_USAGE)
        self._brokers = self._gauge(families.BROKERS)
        self._outliers = self._gauge(families.OUTLIERS)
        self._foremost = tuple(map(self._gauge, _FOREMOST))
        self._effects = EffectMetrics(self._counter, self._gauge)
        self._report_age = self._gauge(families.OLDEST_REPORT_AGE)
        self._dry_run = self._gauge(families.DRY_RUN)
        self._paused = self._gauge(families.PAUSED)
        self._failing = self._gauge(families.FAILING)
        self._upkeep = UpkeepGauges(self._gauge)
        self._approvals = ApprovalMetrics(self._counter, self._gauge)
        self._round_end = self._gauge(families.LAST_ROUND_END)
        self._round_length = self._gauge(families.ROUND_LENGTH)
        self._throttles = ThrottleGauges(self._gauge)

    def _declare_application(self) -> None:
        self._rejected = self._counter(families.REJECTED)
        self._restarts = self._counter(families.QUERY_RESTARTS)
        self._skipped = self._counter(families.BATCHES_SKIPPED)
        self._differing = self._counter(families.ROUNDS_DIFFERING)
        self._telling_errors = self._counter(families.TELLING_ERRORS)
        for part in get_args(Part):
            self._telling_errors.labels(part)
        self._lag = self._histogram(families.DECISION_LAG)
        self._batch = self._histogram(families.BATCH_DURATION)
        self._publish = self._histogram(families.PUBLISH_DURATION)
        self._progress = tuple(map(self._gauge, _PROGRESS))
        for gauge in self._progress:
            gauge.set(math.nan)
        self._known_clusters = self._gauge(families.CLUSTERS)
        self._leader = self._gauge(families.LEADER)
        self._start = self._gauge(families.START)
        self._start.set(math.nan)

    def _counter(self, family: Family) -> Counter:
        return self._declare(family, instruments.counter(self.registry, family))

    def _gauge(self, family: Family) -> Gauge:
        return self._declare(family, instruments.gauge(self.registry, family))

    def _declare(self, family: Family, metric: Declared) -> Declared:
        if "cluster" in family.labels:
            self._by_cluster.append(metric)
        return metric

    def _histogram(self, family: Family) -> Histogram:
        return instruments.histogram(self.registry, family)

    def observe_round(self, event: Published, *, published_s: float) -> None:
        """Count the round of a summary that was published at `published_s` (Unix time)."""
        observed = event.data
        assert isinstance(observed, RoundSummary), "pass a round summary here, not an action"
        cluster, policy = observed.cluster, observed.policy
        self._introduce(cluster)
        if observed.system == "pulsar":
            self._introduce_outcomes(cluster, policy)
        self._rounds.labels(cluster, observed.outcome).inc()
        for outcome, count in observed.examined.outcomes.items():
            self._examined.labels(cluster, policy, _strip_numbers(outcome)).inc(count)
        for outcome, count in observed.candidates.outcomes.items():
            self._candidates.labels(cluster, policy, _strip_numbers(outcome)).inc(count)
        for outcome, count in observed.splits.outcomes.items():
            self._candidates.labels(cluster, SPLIT_POLICY, outcome).inc(count)
        for kind, count in _actions(observed).items():
            self._actions.labels(cluster, kind, _flag(dry_run=observed.mode == "dry-run")).inc(count)
        self._lag.observe(max(0.0, published_s - event.time_s))
        self._show_state(observed, event.time_s)
        if observed.system == "pulsar":
            self._effects.show(observed)
        if observed.throttle is not None:
            self._throttles.show(cluster, observed.throttle)
        elif observed.outcome == "decided":
            self._show_balance(observed)

    def _introduce_outcomes(self, cluster: str, policy: str) -> None:
        for outcome in self._known.examined_outcomes:
            self._examined.labels(cluster, policy, outcome)
        for outcome in self._known.candidate_outcomes:
            self._candidates.labels(cluster, policy, outcome)
        for outcome in self._known.split_outcomes:
            self._candidates.labels(cluster, SPLIT_POLICY, outcome)

    def _show_state(self, observed: RoundSummary, end_s: float) -> None:
        cluster = observed.cluster
        counts = (
            observed.brokers_reporting_count,
            observed.brokers_missing_count,
            len(observed.brokers_excluded),
        )
        for state, count in zip(_BROKER_STATES, counts, strict=True):
            self._brokers.labels(cluster, state).set(count)
        for resource in ("overall", *RESOURCES):
            usage = observed.usage if resource == "overall" else observed.resources.get(resource)
            points = usage and (usage.mean_points, usage.max_points, usage.stdev_points)
            for stat, value in zip(_STATS, points or (math.nan,) * 3, strict=True):
                self._usage.labels(cluster, resource, stat).set(value)
        findings = observed.findings.outcomes
        for kind in {*self._known.finding_kinds, *findings}:
            self._findings.labels(cluster, kind).set(findings.get(kind, 0))
        self._report_age.labels(cluster).set(observed.oldest_report_age_s)
        self._dry_run.labels(cluster).set(observed.mode == "dry-run")
        self._paused.labels(cluster).set(observed.paused)
        self._failing.labels(cluster).set(
            (observed.failing_since or observed.splits_failing_since) is not None
        )
        if observed.system == "pulsar":
            self._upkeep.show(cluster, observed.upkeep)
            self._approvals.show(cluster, observed.approval)
        self._round_end.labels(cluster).set(end_s)
        # Rounds are numbered by their start divided by their length, so the end tells the length.
        self._round_length.labels(cluster).set(end_s / (observed.round + 1))

    def _show_balance(self, observed: RoundSummary) -> None:
        outliers = sum(
            count
            for outcome, count in observed.examined.outcomes.items()
            if _strip_numbers(outcome) not in self._known.calm_outcomes
        )
        self._outliers.labels(observed.cluster).set(outliers)
        found = _find_foremost_stand(observed)
        values = (
            (math.nan,) * len(_FOREMOST)
            if found is None
            else (found.difference_points, found.threshold_points, found.hit_count, found.needed_hit_count)
        )
        for gauge, value in zip(self._foremost, values, strict=True):
            gauge.labels(observed.cluster).set(math.nan if value is None else value)

    def observe_events(self, observed: EventObservation) -> None:
        """Count a micro-batch's input events; those of a cluster not seen so far count under cluster=""."""
        if observed.forgotten:
            self.forget(observed.cluster)
        elif observed.cluster and is_used(observed):
            self._introduce(observed.cluster)
        cluster = observed.cluster if observed.cluster in self._clusters else ""
        for entry in observed.counts:
            name = entry.type if entry.type in self._known.event_types else UNKNOWN
            self._events.labels(cluster, name, entry.result).inc(entry.count)
        for reason, count in observed.rejected.items():
            self._rejected.labels(reason).inc(count)
        for outcome, count in observed.action_results.items():
            self._results.labels(cluster, outcome).inc(count)

    def count_repeat(self, repeat: Repeat) -> None:
        """Count an unload of a bundle that was unloaded before."""
        self._introduce(repeat.cluster)
        self._repeated.labels(repeat.cluster, repeat.source).inc()

    def show_progress(
        self, *, state_rows: float, state_memory_bytes: float, input_behind_records: float | None
    ) -> None:
        """Show what Spark last reported about its state store and the input; None if it did not report it."""
        values = (state_rows, state_memory_bytes, input_behind_records)
        for gauge, value in zip(self._progress, values, strict=True):
            gauge.set(math.nan if value is None else value)

    def show_leader(self, controller: str, *, leads: bool) -> None:
        """Show whether this process leads the controller of this name."""
        self._leader.labels(controller).set(leads)

    def show_start(self, *, at_s: float) -> None:
        """Show when this process started (Unix time)."""
        self._start.set(at_s)

    def observe_batch(self, *, duration_s: float) -> None:
        """Record the duration of a whole micro-batch."""
        self._batch.observe(duration_s)

    def observe_publish(self, *, duration_s: float) -> None:
        """Record the duration of publishing a batch that was not skipped."""
        self._publish.observe(duration_s)

    def count_skipped_batch(self) -> None:
        """Count a re-run batch that was already published."""
        self._skipped.inc()

    def count_differing_rounds(self, count: int) -> None:
        """Count rounds that were published with other contents than are remembered."""
        self._differing.inc(count)

    def count_query_restart(self) -> None:
        """Count a restart of the streaming query within this process."""
        self._restarts.inc()

    def count_telling_error(self, part: Part) -> None:
        """Count an error in what is only reported about a published batch."""
        self._telling_errors.labels(part).inc()

    def forget(self, cluster: str) -> None:
        """Remove a cluster's series; they begin anew with its next round or event."""
        if cluster not in self._clusters:
            return
        self._clusters.remove(cluster)
        self._known_clusters.set(len(self._clusters))
        for metric in self._by_cluster:
            metric.remove_by_labels({"cluster": cluster})
        self._throttles.forget(cluster)

    def forget_all(self) -> None:
        """Remove all clusters' series and blank those of Spark's progress: another process has the clusters now. Other counts stay."""
        for cluster in sorted(self._clusters):
            self.forget(cluster)
        for gauge in self._progress:
            gauge.set(math.nan)

    def _introduce(self, cluster: str) -> None:
        """Make a cluster's series, once."""
        if cluster in self._clusters:
            return
        self._clusters.add(cluster)
        self._known_clusters.set(len(self._clusters))
        for outcome in get_args(Outcome):
            self._rounds.labels(cluster, outcome)
        for kind in self._known.action_kinds:
            for dry_run in (True, False):
                self._actions.labels(cluster, kind, _flag(dry_run=dry_run))
        for outcome in self._known.result_outcomes:
            self._results.labels(cluster, outcome)
        for source in get_args(Source):
            self._repeated.labels(cluster, source)
        self._effects.introduce(cluster)
        self._approvals.introduce(cluster)
        for gauge in (self._outliers, *self._foremost):
            gauge.labels(cluster).set(math.nan)
        self._introduce_events(cluster)

    def _introduce_events(self, cluster: str) -> None:
        for name in (*self._known.event_types, UNKNOWN):
            for result in get_args(EventResult):
                self._events.labels(cluster, name, result)


def is_used(observed: EventObservation) -> bool:
    """Whether any of the events was of use."""
    return any(entry.result == "used" and entry.count for entry in observed.counts)


def _actions(observed: RoundSummary) -> dict[str, int]:
    """How many actions of each kind a round decided."""
    if observed.system == "kafka":
        return {"throttle": observed.actions_count}
    approved = [] if observed.approval is None else observed.approval.answers
    splits_count = observed.splits.outcomes.get("acted", 0)
    splits_count += sum(row.kind == "split" and row.outcome == "acted" for row in approved)
    return {"unload": observed.actions_count - splits_count, "split": splits_count}


def _find_foremost_stand(observed: RoundSummary) -> Stand | None:
    """The stand of the row that stands out most, among the rows shown; None for a policy without such a number."""
    policy = find_policy(observed.policy)
    if policy is None or policy.headline.stand_of is None or not observed.examined.heaviest:
        return None
    stands = map(policy.headline.stand_of, (row.evidence for row in observed.examined.heaviest))
    return max(stands, key=lambda each: each.difference_points)


def _strip_numbers(outcome: str) -> str:
    """The reason without its numbers: `hit-count 3/8` would be a series of its own for each count."""
    return outcome.partition(" ")[0]


def _flag(*, dry_run: bool) -> str:
    return "true" if dry_run else "false"
