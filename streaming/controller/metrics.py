"""The Prometheus metrics of one running application, kept in the driver.

Counters move when a batch has been published, and not for a batch that is skipped as already published: a batch may close many rounds.
Every label value known beforehand exists from the first scrape, so that a rate over the first event is not lost; a
cluster's series exist from its first round, or its first event that was used, until it is forgotten. What the newest round of a cluster
says is in ``gauges``. Nothing here reads a clock; times are passed in.
"""

import math
import platform
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from policies.shedding import registry
from policies.shedding.contract import BUNDLE_OUTCOMES
from policies.splitting.plan import OUTCOMES
from state.closing import GeneralReason, Outcome, SplitReason, UnloadReason
from state.events import ActionOutcome, RejectReason
from state.outputs import ApprovalSummary, Finding, RoundSummary
from state.pulsar.masks import MASK_REASONS, SPLIT_MASK_OUTCOMES
from streaming.contract import families
from streaming.contract.families import Family
from streaming.controller.gauges import ClusterGauges, strip_numbers
from streaming.controller.published import Published, Repeat, Source
from streaming.intake.observation import EventObservation, EventResult
from streaming.intake.records import EVENT_TYPES
from streaming.process import serve

UNKNOWN = "unknown"
"""The label of an event type that is not one of ours, so that unknown types cannot make series."""

SPLIT_POLICY = "bundle-split"
"""The label ``policy`` of candidates for a split."""

Part = Literal["log", "metrics", "follow-up", "progress"]
"""What is reported about a batch."""

_PROGRESS = (families.STATE_ROWS, families.STATE_MEMORY, families.INPUT_BEHIND)
_ANSWERS = ("acted", "rejected", "refused", "expired")
"""What becomes of proposals."""


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


KNOWN_LABELS = KnownLabels(
    rejected_reasons=get_args(RejectReason),
    event_types=EVENT_TYPES,
    examined_outcomes=tuple(sorted({outcome for policy in registry.POLICIES for outcome in policy.outcomes})),
    candidate_outcomes=tuple(
        sorted(
            {*BUNDLE_OUTCOMES, *MASK_REASONS, *get_args(GeneralReason), *get_args(UnloadReason)}
            - {"", "masked"}
        )
    ),
    calm_outcomes=tuple(
        sorted({outcome for policy in registry.POLICIES for outcome in policy.calm_outcomes})
    ),
    result_outcomes=get_args(ActionOutcome),
    split_outcomes=tuple(
        sorted(
            {*OUTCOMES, *SPLIT_MASK_OUTCOMES, *get_args(GeneralReason), *get_args(SplitReason)} - {"masked"}
        )
    ),
    finding_kinds=get_args(get_type_hints(Finding)["kind"]),
)


class Metrics:
    """All metrics on a `registry` of their own. Thread-safe, as prometheus_client is."""

    def __init__(self, known: KnownLabels, *, version: str, pyspark_version: str) -> None:
        self.registry = CollectorRegistry()
        self._known = known
        self._clusters: set[str] = set()
        self._by_cluster: list[Counter] = []
        """The counters with series for each cluster."""
        self._gauges = ClusterGauges(finding_kinds=known.finding_kinds, calm_outcomes=known.calm_outcomes)
        self.registry.register(self._gauges)
        self._rounds = self._counter(families.ROUNDS)
        self._examined = self._counter(families.EXAMINED)
        self._candidates = self._counter(families.CANDIDATES)
        self._actions = self._counter(families.ACTIONS)
        self._results = self._counter(families.ACTION_RESULTS)
        self._repeated = self._counter(families.REPEATED_UNLOADS)
        self._events = self._counter(families.EVENTS)
        self._promises = self._counter(families.PROMISES)
        self._answers = self._counter(families.APPROVALS)
        self._rejected = self._counter(families.REJECTED)
        self._restarts = self._counter(families.QUERY_RESTARTS)
        self._skipped = self._counter(families.BATCHES_SKIPPED)
        self._differing = self._counter(families.ROUNDS_DIFFERING)
        self._telling_errors = self._counter(families.TELLING_ERRORS)
        self._lag = self._histogram(families.DECISION_LAG)
        self._batch = self._histogram(families.BATCH_DURATION)
        self._publish = self._histogram(families.PUBLISH_DURATION)
        self._progress = tuple(map(self._gauge, _PROGRESS))
        self._known_clusters = self._gauge(families.CLUSTERS)
        self._leader = self._gauge(families.LEADER)
        self._start = self._gauge(families.START)
        for gauge in (*self._progress, self._start):
            gauge.set(math.nan)
        for part in get_args(Part):
            self._telling_errors.labels(part)
        for reason in known.rejected_reasons:
            self._rejected.labels(reason)
        self._introduce_events("")
        build = self._gauge(families.BUILD_INFO)
        build.labels(version, pyspark_version, platform.python_version()).set(1)

    def _counter(self, family: Family) -> Counter:
        counter = serve.counter(self.registry, family)
        if "cluster" in family.labels:
            self._by_cluster.append(counter)
        return counter

    def _gauge(self, family: Family) -> Gauge:
        return serve.gauge(self.registry, family)

    def _histogram(self, family: Family) -> Histogram:
        return serve.histogram(self.registry, family)

    def observe_round(self, event: Published, *, published_s: float) -> None:
        """Count the round of a summary that was published at `published_s` (Unix time)."""
        summary = event.data
        assert isinstance(summary, RoundSummary), "pass a round summary here, not an action"
        cluster, policy = summary.cluster, summary.policy
        self._introduce(cluster)
        if summary.system == "pulsar":
            self._introduce_outcomes(cluster, policy)
        self._rounds.labels(cluster, summary.outcome).inc()
        for outcome, count in summary.examined.outcomes.items():
            self._examined.labels(cluster, policy, strip_numbers(outcome)).inc(count)
        for outcome, count in summary.candidates.outcomes.items():
            self._candidates.labels(cluster, policy, strip_numbers(outcome)).inc(count)
        for outcome, count in summary.splits.outcomes.items():
            self._candidates.labels(cluster, SPLIT_POLICY, outcome).inc(count)
        for kind, count in _actions(summary).items():
            self._actions.labels(cluster, kind, _flag(dry_run=summary.mode == "dry-run")).inc(count)
        if summary.promises is not None:
            for outcome, count in summary.promises.checked.outcomes.items():
                self._promises.labels(cluster, outcome).inc(count)
        if summary.approval is not None:
            self._count_answers(cluster, summary.approval)
        self._lag.observe(max(0.0, published_s - event.time_s))
        self._gauges.show(summary, end_s=event.time_s)

    def _count_answers(self, cluster: str, approval: ApprovalSummary) -> None:
        """Answers to proposals that are not open any more are not counted."""
        self._answers.labels(cluster, "expired").inc(len(approval.expired))
        for row in approval.answers:
            if row.outcome not in {"unknown", "expired"}:
                outcome = row.outcome if row.outcome in _ANSWERS else "refused"
                self._answers.labels(cluster, outcome).inc()

    def _introduce_outcomes(self, cluster: str, policy: str) -> None:
        for outcome in self._known.examined_outcomes:
            self._examined.labels(cluster, policy, outcome)
        for outcome in self._known.candidate_outcomes:
            self._candidates.labels(cluster, policy, outcome)
        for outcome in self._known.split_outcomes:
            self._candidates.labels(cluster, SPLIT_POLICY, outcome)

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
        self._gauges.forget(cluster)

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
        for outcome in ("kept", "failed"):
            self._promises.labels(cluster, outcome)
        for outcome in _ANSWERS:
            self._answers.labels(cluster, outcome)
        self._gauges.introduce(cluster)
        self._introduce_events(cluster)

    def _introduce_events(self, cluster: str) -> None:
        for name in (*self._known.event_types, UNKNOWN):
            for result in get_args(EventResult):
                self._events.labels(cluster, name, result)


def is_used(observed: EventObservation) -> bool:
    """Whether any of the events was of use."""
    return any(entry.result == "used" and entry.count for entry in observed.counts)


def _actions(summary: RoundSummary) -> dict[str, int]:
    """How many actions of each kind a round decided."""
    if summary.system == "kafka":
        return {"throttle": summary.actions_count}
    approved = [] if summary.approval is None else summary.approval.answers
    splits_count = summary.splits.outcomes.get("acted", 0)
    splits_count += sum(row.kind == "split" and row.outcome == "acted" for row in approved)
    return {"unload": summary.actions_count - splits_count, "split": splits_count}


def _flag(*, dry_run: bool) -> str:
    return "true" if dry_run else "false"
