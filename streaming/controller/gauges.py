"""The gauges of all clusters: one collector of Prometheus' client over what each cluster's newest summaries say.

A round's values are worked out when it is published, so that a summary that cannot be shown never spoils a scrape. What is unknown is NaN.
Bundles and topics are never labels, and brokers only those of the last round's summary, at most 100 of a cluster: they come and go with it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from policies.shedding.contract import Stand
from policies.shedding.registry import find_policy
from policies.throttle.copies import KINDS
from policies.usage import RESOURCES
from state.outputs import JudgedRow, PromisesSummary, RoundSummary, ThrottleSummary
from state.pulsar.drains import OUTCOMES as DRAIN_OUTCOMES
from streaming.contract import families
from streaming.contract.families import Family

Sample = tuple[Family, tuple[str, ...], float | None]
"""A value with its labels, without that of the cluster."""

_UNKNOWN_AT_FIRST: Mapping[str, Sequence[Sample]] = {
    "balance": [
        (family, (), None)
        for family in (
            families.OUTLIERS,
            families.DIFFERENCE,
            families.THRESHOLD,
            families.HIT_COUNT,
            families.NEEDED_HIT_COUNT,
        )
    ],
    "judged": [
        (family, (effect,), None)
        for family in (families.UNLOADED_MESSAGES, families.UNLOADED_BYTES)
        for effect in ("expected", "achieved")
    ],
    "promises": [
        (families.PROMISED_GAIN, ("expected",), None),
        (families.PROMISED_GAIN, ("achieved",), None),
        (families.PROMISE_ERROR, (), None),
    ],
}
"""The samples that a cluster has before a round says more, by the part of the summaries that they are from."""
_SHOWN = tuple(
    family for family in families.CONTROLLER if family.kind == "gauge" and "cluster" in family.labels
)


class ClusterGauges(Collector):
    """Written by the driver, read by the threads of the HTTP server."""

    def __init__(self, *, finding_kinds: Sequence[str], calm_outcomes: Sequence[str]) -> None:
        """The kinds of findings that are shown as 0, and the outcomes of a pair or broker that does not stand out."""
        self._finding_kinds, self._calm_outcomes = finding_kinds, calm_outcomes
        self._samples: dict[str, Mapping[str, Sequence[Sample]]] = {}
        """By cluster and part."""

    def introduce(self, cluster: str) -> None:
        """Make the series of a cluster whose rounds have said nothing yet."""
        self._samples[cluster] = _UNKNOWN_AT_FIRST

    def forget(self, cluster: str) -> None:
        """Remove the series of a cluster."""
        self._samples.pop(cluster, None)

    def show(self, summary: RoundSummary, *, end_s: float) -> None:
        """Show a round. Parts that it says nothing about stay: the balance of the last decided round, and the unloads judged last."""
        found: dict[str, Sequence[Sample]] = {"round": [*self._round(summary, end_s)]}
        if summary.system == "pulsar":
            found["promises"] = [*_promises(summary.promises)]
            if summary.judged is not None and (judged := [*_judged(summary.judged.heaviest)]):
                found["judged"] = judged
        if summary.throttle is not None:
            found["throttle"] = [*_throttle(summary.throttle)]
        elif summary.outcome == "decided":
            found["balance"] = [*self._balance(summary)]
        self._samples[summary.cluster] = {**self._samples[summary.cluster], **found}

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without samples, as Prometheus' client asks for."""
        return [GaugeMetricFamily(family.name, family.text, labels=family.labels) for family in _SHOWN]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families with the samples of all clusters."""
        made = {family.name: family for family in self.describe()}
        for cluster, parts in list(self._samples.items()):
            for samples in parts.values():
                for family, labels, value in samples:
                    made[family.name].add_metric([cluster, *labels], math.nan if value is None else value)
        return made.values()

    def _round(self, summary: RoundSummary, end_s: float) -> Iterator[Sample]:
        yield families.BROKERS, ("reporting",), summary.brokers_reporting_count
        yield families.BROKERS, ("missing",), summary.brokers_missing_count
        yield families.BROKERS, ("excluded",), len(summary.brokers_excluded)
        for resource in ("overall", *RESOURCES):
            usage = summary.usage if resource == "overall" else summary.resources.get(resource)
            for stat in ("mean", "max", "stdev"):
                points = None if usage is None else getattr(usage, f"{stat}_points")
                yield families.USAGE, (resource, stat), points
        yield from _broker_usage(summary)
        findings = summary.findings.outcomes
        for kind in {*self._finding_kinds, *findings}:
            yield families.FINDINGS, (kind,), findings.get(kind, 0)
        yield families.OLDEST_REPORT_AGE, (), summary.oldest_report_age_s
        yield families.DRY_RUN, (), summary.mode == "dry-run"
        yield families.PAUSED, (), summary.paused
        yield families.FAILING, (), (summary.failing_since or summary.splits_failing_since) is not None
        yield families.LAST_ROUND_END, (), end_s
        # Rounds are numbered by their start divided by their length, so the end tells the length.
        yield families.ROUND_LENGTH, (), end_s / (summary.round + 1)
        if summary.system == "pulsar":
            yield families.PROPOSALS, (), summary.approval.open_count if summary.approval else 0
            yield from _maintenance(summary)

    def _balance(self, summary: RoundSummary) -> Iterator[Sample]:
        outliers_count = sum(
            count
            for outcome, count in summary.examined.outcomes.items()
            if strip_numbers(outcome) not in self._calm_outcomes
        )
        yield families.OUTLIERS, (), outliers_count
        stand = _find_foremost_stand(summary)
        yield families.DIFFERENCE, (), stand.difference_points if stand else None
        yield families.THRESHOLD, (), stand.threshold_points if stand else None
        yield families.HIT_COUNT, (), stand.hit_count if stand else None
        yield families.NEEDED_HIT_COUNT, (), stand.needed_hit_count if stand else None


def _broker_usage(summary: RoundSummary) -> Iterator[Sample]:
    """What is known of the brokers that the summary shows; a broker that measures nothing has no usage of 0."""
    for row in summary.brokers:
        if any(value != "not-measured" for value in row.resources.values()):
            yield families.BROKER_USAGE, (row.broker,), row.usage_points
    for broker in summary.kafka_brokers:
        if broker.usage_points is not None:
            yield families.BROKER_USAGE, (broker.broker,), broker.usage_points


def strip_numbers(outcome: str) -> str:
    """The reason without its numbers: `hit-count 3/8` would be a series of its own for each count."""
    return outcome.partition(" ")[0]


def _find_foremost_stand(summary: RoundSummary) -> Stand | None:
    """The stand of the row that stands out most, among the rows shown; None for a policy without such a number."""
    policy = find_policy(summary.policy)
    if policy is None or policy.headline.stand_of is None or not summary.examined.heaviest:
        return None
    stands = map(policy.headline.stand_of, (row.evidence for row in summary.examined.heaviest))
    return max(stands, key=lambda each: each.difference_points)


def _maintenance(summary: RoundSummary) -> Iterator[Sample]:
    """What is under maintenance and drained; a table of a summary has at most a hundred rows, and more are not counted."""
    maintenance = summary.maintenance
    yield families.MAINTENANCE, ("broker",), len(maintenance.brokers) if maintenance else 0
    yield families.MAINTENANCE, ("namespace",), len(maintenance.namespaces) if maintenance else 0
    yield families.MAINTENANCE, ("drained",), len(maintenance.drains) if maintenance else 0
    left = maintenance.bundles_left.outcomes if maintenance else {}
    for outcome in DRAIN_OUTCOMES:
        yield families.DRAIN_BUNDLES_LEFT, (outcome,), left.get(outcome, 0)


def _promises(promises: PromisesSummary | None) -> Iterator[Sample]:
    yield families.PROMISED_GAIN, ("expected",), promises.expected_gain_points if promises else None
    yield families.PROMISED_GAIN, ("achieved",), promises.gain_points if promises else None
    yield families.PROMISE_ERROR, (), promises.error_points if promises else None


def _judged(rows: Iterable[JudgedRow]) -> Iterator[Sample]:
    """What the sources of the judged unloads lost; the oldest decision of a broker covers the later ones as well."""
    sources: dict[str, JudgedRow] = {}
    for row in rows:
        if "source" in row.seen:
            sources.setdefault(row.brokers["source"], row)
    if not sources:
        return
    for family, field in (
        (families.UNLOADED_MESSAGES, "messages_per_s"),
        (families.UNLOADED_BYTES, "bytes_per_s"),
    ):
        for effect, attribute in (("expected", "expected"), ("achieved", "seen")):
            lost = (
                getattr(row.before["source"], field) - getattr(getattr(row, attribute)["source"], field)
                for row in sources.values()
            )
            yield family, (effect,), sum(lost)


def _throttle(throttle: ThrottleSummary) -> Iterator[Sample]:
    """What is left of what a Kafka cluster copies, until when, at which rates, and the bottleneck."""
    is_known = throttle.partitions_moving_count is not None
    for kind in KINDS:
        yield families.COPIES, (kind,), throttle.copies.get(kind, 0) if is_known else None
    yield families.COPIES_LEFT, (), throttle.bytes_left
    yield families.COPIES_ETA, (), 0.0 if throttle.outcome == "nothing-moves" else throttle.eta_s
    yield families.THROTTLE_FEASIBLE, (), throttle.feasible
    yield families.COPIES_LATE, (), throttle.late
    yield families.COPIES_BROKEN, (), throttle.broken_count
    changed_count = (
        len(throttle.changed_rates_bytes_per_s)
        + len(throttle.lost_leader_throttled_replicas)
        + len(throttle.lost_follower_throttled_replicas)
    )
    yield families.THROTTLE_CHANGED, (), changed_count
    yield families.THROTTLE_FAILURES, (), throttle.failures_count
    tables: tuple[tuple[Family, Mapping[str, int | None]], ...] = (
        (families.THROTTLE_RATE, throttle.rates_bytes_per_s),
        (families.THROTTLE_MINIMUM, throttle.min_bytes_per_s),
        (families.COPIES_BOTTLENECK, {throttle.bottleneck: 1} if throttle.bottleneck else {}),
    )
    for family, values in tables:
        for name, value in values.items():
            role, _, broker = name.partition(":")
            yield family, (broker, role), value
