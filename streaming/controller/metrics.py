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
from state.controller import Result
from state.events import ActionOutcome, RejectReason
from state.outputs import ApprovalSummary, Finding, RoundSummary
from state.pulsar.masks import MASK_REASONS, SPLIT_MASK_OUTCOMES
from streaming.contract import families
from streaming.contract.families import Family
from streaming.controller.gauges import ClusterGauges, strip_numbers
from streaming.controller.published import Published, Source
from streaming.process import serve
from streaming.transport.intake import EVENT_TYPES, EventObservation

UNKNOWN = "unknown"
"""The label of an event type that is not one of ours, so that unknown types cannot make series."""

SPLIT_POLICY = "bundle-split"
"""The label ``policy`` of candidates for a split."""

Part = Literal["log", "metrics", "follow-up", "progress"]
"""What is reported about a batch."""

_PROGRESS = (families.STATE_ROWS, families.STATE_MEMORY, families.INPUT_LAG)
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
        registry = self.registry = CollectorRegistry()
        self._known = known
        self._clusters: set[str] = set()
        self._of_clusters = ClusterGauges(
            finding_kinds=known.finding_kinds, calm_outcomes=known.calm_outcomes
        )
        registry.register(self._of_clusters)
        self._counters: dict[Family, Counter] = {}
        self._gauges: dict[Family, Gauge] = {}
        self._histograms: dict[Family, Histogram] = {}
        for family in families.CONTROLLER:
            if family.kind == "counter":
                self._counters[family] = serve.counter(registry, family)
            elif family.kind == "histogram":
                self._histograms[family] = serve.histogram(registry, family)
            elif "cluster" not in family.labels:
                self._gauges[family] = serve.gauge(registry, family)
        for family in (*_PROGRESS, families.START):
            self.show(family, value=math.nan)
        self.show(families.BUILD_INFO, version, pyspark_version, platform.python_version(), value=1)
        for part in get_args(Part):
            self.count(families.REPORTING_ERRORS, part, by=0)
        for reason in known.rejected_reasons:
            self.count(families.REJECTED, reason, by=0)
        self._introduce_events("")

    def count(self, family: Family, *labels: str, by: float = 1) -> None:
        """Count something; ``by=0`` only makes the series."""
        counter = self._counters[family]
        (counter.labels(*labels) if labels else counter).inc(by)

    def show(self, family: Family, *labels: str, value: float) -> None:
        """Set a gauge that is not about a cluster."""
        gauge = self._gauges[family]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def observe(self, family: Family, value: float) -> None:
        """Add a value to a histogram."""
        self._histograms[family].observe(value)

    def observe_round(self, event: Published, *, published_s: float) -> None:
        """Count the round of a summary that was published at `published_s` (Unix time)."""
        summary = event.data
        assert isinstance(summary, RoundSummary), "pass a round summary here, not an action"
        cluster, policy = summary.cluster, summary.policy
        self._introduce(cluster)
        if summary.system == "pulsar":
            self._introduce_outcomes(cluster, policy)
        self.count(families.ROUNDS, cluster, summary.outcome)
        for outcome, count in summary.examined.outcomes.items():
            self.count(families.EXAMINED, cluster, policy, strip_numbers(outcome), by=count)
        for outcome, count in summary.candidates.outcomes.items():
            self.count(families.CANDIDATES, cluster, policy, strip_numbers(outcome), by=count)
        for outcome, count in summary.splits.outcomes.items():
            self.count(families.CANDIDATES, cluster, SPLIT_POLICY, outcome, by=count)
        for kind, count in _actions(summary).items():
            self.count(families.ACTIONS, cluster, kind, _flag(dry_run=summary.mode == "dry-run"), by=count)
        if summary.promises is not None:
            for outcome, count in summary.promises.checked.outcomes.items():
                self.count(families.PROMISES, cluster, outcome, by=count)
        if summary.approval is not None:
            self._count_answers(cluster, summary.approval)
        self.observe(families.DECISION_LAG, max(0.0, published_s - event.time_s))
        self._of_clusters.show(summary, end_s=event.time_s)

    def _count_answers(self, cluster: str, approval: ApprovalSummary) -> None:
        """Answers to proposals that are not open any more are not counted."""
        self.count(families.APPROVALS, cluster, "expired", by=len(approval.expired))
        for row in approval.answers:
            if row.outcome not in {"unknown", "expired"}:
                outcome = row.outcome if row.outcome in _ANSWERS else "refused"
                self.count(families.APPROVALS, cluster, outcome)

    def _introduce_outcomes(self, cluster: str, policy: str) -> None:
        for outcome in self._known.examined_outcomes:
            self.count(families.EXAMINED, cluster, policy, outcome, by=0)
        for outcome in self._known.candidate_outcomes:
            self.count(families.CANDIDATES, cluster, policy, outcome, by=0)
        for outcome in self._known.split_outcomes:
            self.count(families.CANDIDATES, cluster, SPLIT_POLICY, outcome, by=0)

    def observe_events(self, observed: EventObservation) -> None:
        """Count a micro-batch's input events; those of a cluster not seen so far count under cluster=""."""
        if observed.forgotten:
            self.forget(observed.cluster)
        elif observed.cluster and is_used(observed):
            self._introduce(observed.cluster)
        cluster = observed.cluster if observed.cluster in self._clusters else ""
        for entry in observed.counts:
            name = entry.type if entry.type in self._known.event_types else UNKNOWN
            self.count(families.EVENTS, cluster, name, entry.result, by=entry.count)
        for reason, count in observed.rejected.items():
            self.count(families.REJECTED, reason, by=count)
        for outcome, count in observed.action_results.items():
            self.count(families.ACTION_RESULTS, cluster, outcome, by=count)

    def count_repeat(self, cluster: str, source: Source) -> None:
        """Count an unload of a bundle that was unloaded before, and where it was."""
        self._introduce(cluster)
        self.count(families.UNLOADS_REPEATED, cluster, source)

    def show_progress(
        self, *, state_rows: float, state_memory_bytes: float, input_lag_records: float | None
    ) -> None:
        """Show what Spark last reported about its state store and the input; None if it did not report it."""
        values = (state_rows, state_memory_bytes, input_lag_records)
        for family, value in zip(_PROGRESS, values, strict=True):
            self.show(family, value=math.nan if value is None else value)

    def forget(self, cluster: str) -> None:
        """Remove a cluster's series; they begin anew with its next round or event."""
        if cluster not in self._clusters:
            return
        self._clusters.remove(cluster)
        self.show(families.CLUSTERS, value=len(self._clusters))
        for family, counter in self._counters.items():
            if "cluster" in family.labels:
                counter.remove_by_labels({"cluster": cluster})
        self._of_clusters.forget(cluster)

    def forget_all(self) -> None:
        """Remove all clusters' series and blank those of Spark's progress: another process has the clusters now. Other counts stay."""
        for cluster in sorted(self._clusters):
            self.forget(cluster)
        for family in _PROGRESS:
            self.show(family, value=math.nan)

    def _introduce(self, cluster: str) -> None:
        """Make a cluster's series, once."""
        if cluster in self._clusters:
            return
        self._clusters.add(cluster)
        self.show(families.CLUSTERS, value=len(self._clusters))
        for outcome in get_args(Outcome):
            self.count(families.ROUNDS, cluster, outcome, by=0)
        for kind in self._known.action_kinds:
            for dry_run in (True, False):
                self.count(families.ACTIONS, cluster, kind, _flag(dry_run=dry_run), by=0)
        for outcome in self._known.result_outcomes:
            self.count(families.ACTION_RESULTS, cluster, outcome, by=0)
        for source in get_args(Source):
            self.count(families.UNLOADS_REPEATED, cluster, source, by=0)
        for outcome in ("kept", "failed"):
            self.count(families.PROMISES, cluster, outcome, by=0)
        for outcome in _ANSWERS:
            self.count(families.APPROVALS, cluster, outcome, by=0)
        self._of_clusters.introduce(cluster)
        self._introduce_events(cluster)

    def _introduce_events(self, cluster: str) -> None:
        for name in (*self._known.event_types, UNKNOWN):
            for result in get_args(Result):
                self.count(families.EVENTS, cluster, name, result, by=0)


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
