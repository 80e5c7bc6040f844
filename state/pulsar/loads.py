"""What the brokers of a round carry, in columns: as they report it, mended by what reports leave out or list twice, or with a shadow."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from policies.columns import Bools, Floats, Ints, sum_runs
from policies.costs import Costs, is_much, learn
from policies.shedding.view import Traffic
from policies.usage import NOT_MEASURED, REPORTED_COUNT, compared, percent, weighted_maximum_ratio
from state.closing import Closing
from state.events import BrokerReport, LoadReport
from state.outputs import UsageSummary
from state.pulsar.fleet import Advanced
from state.pulsar.listings import match
from state.pulsar.shadow import Shadow
from state.settings import MS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loads:
    """Every broker that reported in the round, ascending by name; n rows."""

    names: tuple[str, ...]
    percents: Floats
    """(n, resources): percentage of each of ``policies.usage.RESOURCES``."""
    limits: Floats
    """(n, resources): limit of each resource, as reported or declared; 0 or less where it was not measured."""
    measured: Bools
    """(n, resources): whether there was a limit above 0 to measure against."""
    usage_ratio: Floats
    usage_weights: Floats
    """Factor of each resource in the usage, (resources,)."""
    messages_per_s: Floats
    bytes_per_s: Floats
    listed_bundle_counts: Ints
    is_measured: Bools
    """Whether a resource with a weight above 0 was measured, (n,)."""
    report_age_s: Floats
    """From the report to the end of the round, (n,)."""
    included: Bools
    """False for brokers that are excluded, under maintenance or drained: neither paired nor averaged."""

    def traffic_of(self, broker: str) -> Traffic:
        """Load of a broker that reported. Raises ``ValueError`` for another."""
        row = self._row_of(broker)
        return Traffic(float(self.messages_per_s[row]), float(self.bytes_per_s[row]))

    def points_of(self, broker: str, *, changed: Floats | None = None) -> float:
        """Usage of a broker that reported, in percent, also with its resources ``changed`` by so many points, (resources,).

        Raises ``ValueError`` for a broker that did not report.
        """
        row = self._row_of(broker)
        if changed is None:
            return 100.0 * float(self.usage_ratio[row])
        percents = np.where(self.measured[row], np.maximum(self.percents[row] + changed, 0.0), 0.0)
        return 100.0 * float(weighted_maximum_ratio(percents[None, :], self.usage_weights)[0])

    def lack_what_is_used(self, broker: str, measured: Bools) -> Bools:
        """Whether others lack a resource with a weight that a broker uses, (k,), by what they measure, (k, resources).

        A declared capacity of bytes and bandwidth stand for each other. Raises ``ValueError`` for a broker that did not report.
        """
        row = self._row_of(broker)
        is_used = self.measured[row] & (self.percents[row] > 0) & (self.usage_weights > 0)
        lacks: Bools = np.any(is_used & ~compared(measured, self.usage_weights), axis=1)
        return lacks

    def usage_summary(self) -> UsageSummary | None:
        """Usage of the brokers that take part in balancing."""
        return usage_summary(100.0 * self.usage_ratio[self.included])

    def _row_of(self, broker: str) -> int:
        row = bisect_left(self.names, broker)
        if self.names[row : row + 1] != (broker,):
            raise ValueError(f"{broker} did not report")
        return row


def measure(
    closing: Closing, advanced: Advanced, reports: dict[str, LoadReport], shadow: Shadow | None = None
) -> Loads:
    """Load of each broker of the round; with a shadow, as if its moves had happened.

    What brokers carry besides what they report is added; traffic that a broker reports and none of the bundles it lists explains is
    part of it. What they report of bundles that finer ones stand for is taken off. What a broker publishes about itself (the extensible
    load manager) is no sum over what it lists, so that its traffic stays as it is.
    """
    settings = closing.settings.pulsar
    names = tuple(sorted(reports))
    ordered = [reports[name].report for name in names]
    times_ms = np.array([reports[name].time_ms for name in names], dtype=np.int64)
    resources = np.array([report.resources for report in ordered])
    messages = np.array([report.messages_per_s for report in ordered])
    volume = np.array([report.bytes_per_s for report in ordered])
    declared = settings.capacity.limits(names)
    counts = _counts(ordered) if (declared[:, 2:] > 0).any() else np.full((len(names), 2), NOT_MEASURED)
    for broker, carried in advanced.twice.items():
        row = names.index(broker)
        counts[row] -= np.where(counts[row] >= 0, (carried.topics_count, carried.sessions_count), 0.0)
        if ordered[row].published is None:
            messages[row] = max(0.0, messages[row] - carried.messages_per_s)
            volume[row] = max(0.0, volume[row] - carried.bytes_per_s)
    for broker, carried in advanced.unreported.items():
        row = names.index(broker)
        counts[row] += np.where(counts[row] >= 0, (carried.topics_count, carried.sessions_count), 0.0)
        if ordered[row].published is not None:
            continue
        listed = [math.fsum(column) for column in ordered[row].traffic.T.tolist()]
        messages[row] += max(0.0, carried.messages_per_s - max(0.0, messages[row] - sum(listed[:2])))
        volume[row] += max(0.0, carried.bytes_per_s - max(0.0, volume[row] - sum(listed[2:])))
    used = np.column_stack([resources[:, :, 0], messages, volume, counts])
    limits = np.column_stack([resources[:, :, 1], declared])
    listed_counts = Counter({name: report.listed_count for name, report in zip(names, ordered, strict=True)})
    if shadow is not None:
        shadow.shift(names, used, limits)
        listed_counts.update(shadow.destinations)
        listed_counts.subtract(shadow.owners)
    messages, volume = used[:, REPORTED_COUNT], used[:, REPORTED_COUNT + 1]
    percents, weights = percent(used, limits), settings.usage.weights()
    measured = limits > 0
    measured[:, -2:] &= counts >= 0
    excluded = {*settings.guards.excluded_brokers, *closing.overlay.apart}
    return Loads(
        names=names,
        percents=percents,
        limits=limits,
        measured=measured,
        usage_ratio=weighted_maximum_ratio(percents, weights),
        usage_weights=weights,
        messages_per_s=messages,
        bytes_per_s=volume,
        listed_bundle_counts=np.array([listed_counts[name] for name in names], dtype=np.int64),
        is_measured=np.any(measured & (weights > 0), axis=1),
        report_age_s=(closing.end_ms - times_ms) / MS_PER_S,
        included=np.array([name not in excluded for name in names], dtype=np.bool_),
    )


_PUBLISHED_BUNDLES = 10
"""Where a broker of the extensible load manager publishes so many of its bundles, it may have left others out: Pulsar's default of
``loadBalancerMaxNumberOfBundlesInBundleLoadReport``."""


def _counts(reports: list[BrokerReport]) -> Floats:
    """Topics and sessions of each broker, (n, 2); NOT_MEASURED for one whose report has statistics of a part of its bundles, or of none.

    With the modular load manager a bundle without statistics has no topic; with the extensible one it may not be among the heaviest.
    """
    counts = np.array([report.counts.sum(axis=0) for report in reports], dtype=np.float64)
    counts[[_is_part(report) for report in reports]] = NOT_MEASURED
    return counts


def _is_part(report: BrokerReport) -> bool:
    if report.has_traffic.all():
        return False
    is_cut = report.published is not None and len(report.published.top_bundles) >= _PUBLISHED_BUNDLES
    return is_cut or not report.has_traffic.any()


def broker_rates(advanced: Advanced, measured: Loads) -> Floats:
    """Messages/s in and out and bytes/s in and out of each broker that reported, (n, 4).

    Their sums are what the broker reports; how much of it goes in and out is as its bundles say. All 0 where none of them has traffic.
    """
    rates = sum_runs(_edges(advanced), advanced.present_rates(np.arange(advanced.owned_count)))
    rates = rates[match(advanced.fleet.brokers, measured.names)]
    for first, reported in ((0, measured.messages_per_s), (2, measured.bytes_per_s)):
        total = rates[:, first] + rates[:, first + 1]
        share = np.divide(reported, total, out=np.ones_like(total), where=total > 0)
        rates[:, first : first + 2] *= share[:, None]
    return rates


def _edges(advanced: Advanced) -> Ints:
    """Where the leading rows of each broker of the fleet begin, and where the last ones end, (b + 1,)."""
    fleet = advanced.fleet
    return np.searchsorted(fleet.owner[: advanced.owned_count], np.arange(len(fleet.brokers) + 1))


def learn_costs(advanced: Advanced, measured: Loads, rates: Floats, moving: Collection[str]) -> Costs:
    """Learn in ``advanced.fleet`` what traffic costs, and give the costs of the brokers that reported.

    Brokers with a bundle on its way, or just arrived (``moving``), teach nothing, nor do those that got or lost much otherwise: their
    usage shows the past, or clients that reconnect. Nor do those of whose traffic much is left out of the averages.
    """
    fleet, names = advanced.fleet, measured.names
    left_out = np.where(advanced.is_sampled[:, None], 0.0, advanced.reported)
    uncertain = (advanced.moved + sum_runs(_edges(advanced), left_out))[match(fleet.brokers, names)]
    counts = np.array([name not in moving for name in names], dtype=np.bool_) & ~is_much(uncertain, rates)
    fleet.costs, costs = learn(
        fleet.costs,
        names,
        percents=measured.percents,
        limits=measured.limits,
        rates=rates,
        counts=counts,
        kept=fleet.brokers,
    )
    return costs


def mean_points(points: Floats) -> float:
    """Mean from an exactly rounded sum, so that it depends on no order and no processor; ``points`` is not empty."""
    return math.fsum(points.tolist()) / len(points)


def usage_summary(points: Floats) -> UsageSummary | None:
    """Mean, maximum and population standard deviation, independent of the order of brokers."""
    if len(points) == 0:
        return None
    mean = mean_points(points)
    variance = mean_points((points - mean) ** 2)
    return UsageSummary(mean_points=mean, max_points=float(points.max()), stdev_points=math.sqrt(variance))
