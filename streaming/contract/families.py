"""The catalogue of metric families: name, kind, labels and meaning of everything on `/metrics`.

These are pure declarations, so that dashboards, alert rules and documentation can name metrics without loading the code
that serves them. Invariants: names are those that Prometheus scrapes; bundles and topics are never labels; brokers are
labels only for the usage of at most 100 of a cluster, and while a reassignment moves their replicas.
"""

from dataclasses import dataclass
from typing import Literal

from policies.shedding import registry

PREFIX = "trimtab_"

_LATENCY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SWEEP_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ACTION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAG_BUCKETS_S = (1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series."""

    kind: Literal["counter", "gauge", "histogram"]
    stem: str
    """Its name without the prefix and without the `_total` of a counter."""
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""

    @property
    def name(self) -> str:
        """The name as it is scraped; a histogram's samples add `_bucket`, `_sum` and `_count`."""
        return f"{PREFIX}{self.stem}_total" if self.kind == "counter" else f"{PREFIX}{self.stem}"

    @property
    def samples(self) -> dict[str, tuple[str, ...]]:
        """Every sample's name, with its labels."""
        if self.kind != "histogram":
            return {self.name: self.labels}
        plain = {f"{self.name}_{part}": self.labels for part in ("sum", "count")}
        return {f"{self.name}_bucket": (*self.labels, "le"), **plain}


def _headlines() -> str:
    """Which number each shedding policy shows, in one sentence."""
    shown = [
        f"{policy.headline.meaning} ({policy.name})"
        for policy in registry.POLICIES
        if policy.headline.stand_of is not None
    ]
    without = [
        f"; NaN for {policy.name}, {policy.headline.meaning}"
        for policy in registry.POLICIES
        if policy.headline.stand_of is None
    ]
    return f"{', '.join(shown[:-1])}, or {shown[-1]}{''.join(without)}"


def _counter(stem: str, text: str, *labels: str) -> Family:
    return Family("counter", stem, text, labels)


def _gauge(stem: str, text: str, *labels: str) -> Family:
    return Family("gauge", stem, text, labels)


def _histogram(stem: str, text: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family("histogram", stem, text, labels, buckets)


ROUNDS = _counter("rounds", "Closed rounds.", "cluster", "outcome")
EXAMINED = _counter("examined", "Pairs or brokers the policy looked at.", "cluster", "policy", "outcome")
CANDIDATES = _counter("candidates", "Bundles considered for an action.", "cluster", "policy", "outcome")
FINDINGS = _gauge("findings", "Problems in the last round that no action can solve.", "cluster", "kind")
ACTIONS = _counter("actions_published", "Actions published.", "cluster", "kind", "dry_run")
ACTION_RESULTS = _counter(
    "action_results", "Results of actions, as executors reported them.", "cluster", "outcome"
)
UNLOADS_REPEATED = _counter(
    "unloads_repeated",
    "Unloads of a bundle that was already unloaded within the 6 hours before. Source `same`: from the same broker as "
    "before (the first unload had no effect, or the bundle came back); `other`: from another broker (the bundle is "
    "passed on).",
    "cluster",
    "source",
)
EVENTS = _counter(
    "events",
    "Input events, each under the cluster that its record's key names, even if the record is rejected because it names another or none; "
    "empty: no cluster of that name has series. Type `unknown`: the record's type is missing, or none of trimtab's.",
    "cluster",
    "type",
    "outcome",
)

USAGE = _gauge(
    "usage_points",
    "Usage over the brokers of the last round, in percentage points; NaN: not measured.",
    "cluster",
    "resource",
    "stat",
)
BROKER_USAGE = _gauge(
    "broker_usage_points",
    "Usage of each broker in the last round, in percentage points; of a cluster with more than 100 brokers, of the 100 heaviest: on Pulsar "
    "those with the highest usage, on Kafka those with the most network traffic, where [kafka.capacity] is declared. No series where it "
    "is not measured.",
    "cluster",
    "broker",
)
BROKERS = _gauge("brokers", "Brokers in the last round.", "cluster", "state")
OUTLIERS = _gauge(
    "outliers",
    "Pairs or brokers that stood out in the last decided round, whether or not they fired; 0: balanced.",
    "cluster",
)
DIFFERENCE = _gauge(
    "difference_points",
    f"What stood out most in the last decided round: {_headlines()}.",
    "cluster",
)
THRESHOLD = _gauge(
    "threshold_points", "The threshold for trimtab_difference_points; NaN for the same policies.", "cluster"
)
HIT_COUNT = _gauge(
    "hits",
    "Rounds in which the pair or broker of trimtab_difference_points stood out so far; NaN for a policy without such "
    "a count.",
    "cluster",
)
NEEDED_HIT_COUNT = _gauge(
    "hits_needed",
    "Rounds after which that pair or broker fires; NaN for a policy without such a count.",
    "cluster",
)
UNLOADED_MESSAGES = _gauge(
    "unloaded_messages_per_second",
    "Traffic that the last judged unloads should have taken from their brokers (`expected`), and what those brokers "
    "had lost by then (`achieved`); NaN: none so far.",
    "cluster",
    "effect",
)
UNLOADED_BYTES = _gauge(
    "unloaded_bytes_per_second",
    "The same as trimtab_unloaded_messages_per_second, in bytes.",
    "cluster",
    "effect",
)
PROMISES = _counter(
    "promises",
    "Unloads whose move has settled; `kept`: their two brokers came closer by at least half of what was expected.",
    "cluster",
    "outcome",
)
PROMISED_GAIN = _gauge(
    "unload_gain_points",
    "By how much the usage of an unload's more used broker should have fallen (`expected`) and fell (`achieved`): the "
    "mean of the last unloads that settled within the hour; NaN: none.",
    "cluster",
    "effect",
)
PROMISE_ERROR = _gauge(
    "unload_error_points",
    "Mean distance of the brokers of the unloads in trimtab_unload_gain_points from their expected usage; NaN: none.",
    "cluster",
)
OLDEST_REPORT_AGE = _gauge(
    "oldest_report_age_seconds", "Age of the oldest report at the last round's end.", "cluster"
)
DRY_RUN = _gauge("dry_run", "1 while decisions go to the dry-run topic.", "cluster")
PAUSED = _gauge("paused", "1 while a control event holds all actions.", "cluster")
PROPOSALS = _gauge("proposals_open", "Proposals that wait for approval after the last round.", "cluster")
APPROVALS = _counter(
    "approvals",
    "Answers to proposals, by what became of them: `acted`, `rejected`, or `refused` where an approved action did not go out; "
    "`expired` are proposals that nobody answered in time.",
    "cluster",
    "outcome",
)
MAINTENANCE = _gauge(
    "maintenance",
    "Brokers and namespaces under maintenance, and brokers that are drained, in the last round.",
    "cluster",
    "kind",
)
DRAIN_BUNDLES_LEFT = _gauge(
    "drain_bundles_left",
    "Bundles at drained brokers in the last round, by outcome: `acted`: they leave; any other: the reason why they "
    "stay.",
    "cluster",
    "outcome",
)
FAILING = _gauge(
    "failing",
    "1 while all unloads, or all splits, are held because too many of the last ones failed or had no effect.",
    "cluster",
)
LAST_ROUND_END = _gauge(
    "last_round_end_timestamp_seconds", "End of the last closed round (Unix time).", "cluster"
)
ROUND_LENGTH = _gauge("round_length_seconds", "Length of a round.", "cluster")

COPIES = _gauge(
    "copies",
    "What a Kafka cluster copies, or will: replicas that a reassignment adds, that recover, and that move between disks; NaN: no report "
    "says what is copied.",
    "cluster",
    "kind",
)
COPIES_LEFT = _gauge("copies_left_bytes", "Bytes that are still to be copied; NaN: unknown.", "cluster")
COPIES_ETA = _gauge(
    "copies_eta_seconds",
    "Time until all is copied; NaN: unknown, or never at the present rate.",
    "cluster",
)
COPIES_LATE = _gauge("copies_late", "1 while copies will miss their deadline, or do not catch up.", "cluster")
COPIES_BROKEN = _gauge(
    "copies_broken",
    "Partitions whose copy cannot go on before a broker is back; NaN: no report says what is copied.",
    "cluster",
)
COPIES_BOTTLENECK = _gauge(
    "copies_bottleneck",
    "1 for the broker and role that finish last, while something is copied and this is known.",
    "cluster",
    "broker",
    "role",
)
THROTTLE_FEASIBLE = _gauge(
    "throttle_feasible",
    "1 where copies end at the rates of the last round, 0 where they never do; NaN: unknown, or nothing is copied.",
    "cluster",
)
THROTTLE_CHANGED = _gauge(
    "throttle_changed",
    "Throttle lists and rates set by trimtab that somebody changed or removed while they are needed, in the last "
    "round.",
    "cluster",
)
THROTTLE_FAILURES = _gauge(
    "throttle_failures",
    "Throttle decisions in a row that were not carried out: failed, or expired without effect; 0 after one that was.",
    "cluster",
)
THROTTLE_RATE = _gauge(
    "throttle_rate_bytes_per_second",
    "Throttle of the last round, while something is copied; in dry-run, what it would be.",
    "cluster",
    "broker",
    "role",
)
THROTTLE_MINIMUM = _gauge(
    "throttle_minimum_bytes_per_second",
    "With a throttle at or below this rate copies never end; only while something is copied; NaN: unknown.",
    "cluster",
    "broker",
    "role",
)

CLUSTERS = _gauge(
    "clusters",
    "Clusters of which this process has used load reports since its start, without those that were silent for "
    "forget_cluster_s.",
)
REJECTED = _counter("rejected", "Records sent to the dead letter.", "reason")
QUERY_RESTARTS = _counter("query_restarts", "Restarts of the streaming query.")
BATCHES_SKIPPED = _counter("batches_skipped", "Re-run batches that were already published.")
ROUNDS_DIFFERING = _counter(
    "rounds_differing",
    "Rounds whose publication may differ from the memory, because another version published their batch, or it was "
    "published before `--adopt`.",
)
REPORTING_ERRORS = _counter(
    "reporting_errors",
    "Errors in reporting on a published batch (log, metrics, follow-up); the batch itself is published.",
    "part",
)
DECISION_LAG = _histogram(
    "decision_lag_seconds", "Time from a round's end to its publishing.", _LAG_BUCKETS_S
)
BATCH_DURATION = _histogram("batch_duration_seconds", "Duration of a micro-batch.", _LATENCY_BUCKETS_S)
PUBLISH_DURATION = _histogram(
    "publish_duration_seconds", "Duration of publishing a batch.", _LATENCY_BUCKETS_S
)
STATE_ROWS = _gauge("state_rows", "Rows in the state store, as Spark last reported; NaN: not yet.")
STATE_MEMORY = _gauge(
    "state_memory_bytes", "Memory of the state store, as Spark last reported; NaN: not yet."
)
INPUT_LAG = _gauge(
    "input_lag_records",
    "Records of the input and control topics that the last micro-batch left for the next, in the partition that was "
    "furthest behind; NaN: no batch yet.",
)
LEADER = _gauge(
    "leader",
    "Whether this process leads the controller of its name: 1, or 0 while it starts or stands by.",
    "controller",
)
START = _gauge("start_timestamp_seconds", "Start of this process (Unix time).")
BUILD_INFO = _gauge("build_info", "Versions in use; always 1.", "version", "pyspark", "python")

COLLECTOR_SWEEPS = _counter(
    "collector_sweeps",
    "Sweeps over all brokers: complete, without a broker list, or not written.",
    "cluster",
    "outcome",
)
COLLECTOR_READS = _counter("collector_reads", "Reads of brokers, by outcome.", "cluster", "outcome")
COLLECTOR_EVENTS = _counter("collector_events", "Events sent.", "cluster", "type")
COLLECTOR_BROKERS = _gauge("collector_brokers", "Brokers the cluster lists as alive.", "cluster")
COLLECTOR_BALANCERS = _gauge(
    "collector_pulsar_balancers",
    "Brokers at which Pulsar's own shedding or splitting is on.",
    "cluster",
    "kind",
)
COLLECTOR_LOAD_MANAGERS = _gauge(
    "collector_load_managers",
    "Brokers that run each of Pulsar's load managers, by its class.",
    "cluster",
    "manager",
)
COLLECTOR_LAST_SWEEP = _gauge(
    "collector_last_sweep_timestamp_seconds",
    "End of the last complete sweep (Unix time); 0: none yet.",
    "cluster",
)
COLLECTOR_SWEEP_DURATION = _histogram(
    "collector_sweep_duration_seconds", "Duration of complete sweeps.", _SWEEP_BUCKETS_S, "cluster"
)

EXECUTOR_ACTIONS = _counter(
    "executor_actions", "Actions, by what became of them.", "cluster", "kind", "outcome"
)
EXECUTOR_SKIPS = _counter(
    "executor_skips", "Actions that were not carried out, by reason.", "cluster", "reason"
)
EXECUTOR_ELSEWHERE = _counter(
    "executor_unloads_landed_elsewhere",
    "Unloads whose bundle left its broker, but not for the destination.",
    "cluster",
)
EXECUTOR_UNREADABLE = _counter(
    "executor_records_unreadable", "Records on the actions topic that are no actions.", "cluster"
)
EXECUTOR_DROPPED = _counter(
    "executor_batches_dropped",
    "Batches that the executor dropped, because topics failed or its consumer group went on without it; their actions "
    "are read again.",
    "cluster",
)
EXECUTOR_DURATION = _histogram(
    "executor_action_duration_seconds",
    "Time from starting an action to seeing its result.",
    _ACTION_BUCKETS_S,
    "cluster",
    "kind",
)
EXECUTOR_LAST_POLL = _gauge(
    "executor_last_poll_timestamp_seconds",
    "When brokers last answered a read of the actions (Unix time).",
    "cluster",
)

FAMILIES: tuple[Family, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""All families, in the order of their declaration."""
CONTROLLER = tuple(family for family in FAMILIES if not family.stem.startswith(("collector_", "executor_")))
"""Those of the controller."""
