"""A round of a Pulsar cluster as all of its steps see it, and what its policy sees of it.

``RoundContext`` is built once, when the fleet has taken the round's reports in; each step is given it. ``PolicyView`` has the columns of
the policy: of what was measured, or of that with the shadow of a dry-run.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policies.columns import Bools, Floats, Ints, sum_runs
from policies.costs import Costs, is_much, learn
from policies.shedding.view import (
    NOT_OWNED,
    BrokerTable,
    BundleTable,
    PublishedLoads,
    RoundView,
    Side,
    Traffic,
    UnloadInFlight,
)
from policies.usage import NOT_MEASURED, REPORTED_COUNT, compared, percent, weighted_maximum_ratio
from state.closing import Closing
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, BrokerReport, LoadReport
from state.facts import Facts
from state.guard_settings import GuardSettings
from state.ledger import Decision, Ledger
from state.memory import Header
from state.outputs import ShadowSummary, UsageSummary
from state.pulsar.fleet import Advanced
from state.pulsar.groups import Groups
from state.pulsar.listings import match, pick
from state.pulsar.memory import Fleet
from state.pulsar.shadow import Shadow, counted_owners, shadow_of_round
from state.settings import MS_PER_S, PulsarSettings


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

        A declared capacity of bytes stands for bandwidth. Raises ``ValueError`` for a broker that did not report.
        """
        row = self._row_of(broker)
        is_used = self.measured[row] & (self.percents[row] > 0) & (self.usage_weights > 0)
        lacks: Bools = np.any(is_used & ~compared(measured), axis=1)
        return lacks

    def usage_summary(self) -> UsageSummary | None:
        """Usage of the brokers that take part in balancing."""
        return usage_summary(100.0 * self.usage_ratio[self.included])

    def _row_of(self, broker: str) -> int:
        row = bisect_left(self.names, broker)
        if self.names[row : row + 1] != (broker,):
            raise ValueError(f"{broker} did not report")
        return row


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundContext:
    """A round whose reports the fleet has taken in. Its steps change ``header`` and the fleet's next value, and nothing else."""

    closing: Closing
    header: Header
    before: Fleet
    """The fleet before the round."""
    advanced: Advanced
    reports: dict[str, LoadReport]
    loads: Loads
    """As they were measured."""
    rates: Floats
    """What each broker of ``loads`` carries, (n, 4): see ``broker_rates``."""
    costs: Costs
    """What traffic costs the brokers that reported."""

    @property
    def pulsar(self) -> PulsarSettings:
        """The settings in force."""
        return self.closing.settings.pulsar

    @property
    def guards(self) -> GuardSettings:
        """Those of the guards."""
        return self.pulsar.guards

    @property
    def ledger(self) -> Ledger:
        """Earlier decisions."""
        return self.header.ledger

    @property
    def facts(self) -> Facts | None:
        """The newest facts of the cluster."""
        return self.header.facts

    @property
    def groups(self) -> Groups:
        """Its isolation groups."""
        return Groups.from_facts(self.header.facts)

    @property
    def fleet(self) -> Fleet:
        """The fleet after the round."""
        return self.advanced.fleet

    @property
    def number(self) -> int:
        """Number of the round."""
        return self.closing.number

    @property
    def end_ms(self) -> int:
        """End of the round."""
        return self.closing.end_ms

    @property
    def max_report_age_ms(self) -> int:
        """For how long a broker that is silent is still known."""
        return self.pulsar.rounds.max_report_age_ms

    @cached_property
    def live(self) -> list[str]:
        """Brokers heard of lately, less silent ones under maintenance or drained: these do not count as missing."""
        is_fresh = self.end_ms - self.fleet.broker_last_ms <= self.max_report_age_ms
        apart = self.closing.overlay.apart
        return [
            name
            for name, is_live in zip(self.fleet.brokers, is_fresh.tolist(), strict=True)
            if is_live and (name not in apart or name in self.reports)
        ]


def round_context(
    closing: Closing, header: Header, before: Fleet, advanced: Advanced, reports: dict[str, LoadReport]
) -> RoundContext:
    """The round with its loads, after what traffic costs was learned from them."""
    loads = measure(closing, advanced, reports)
    rates = broker_rates(advanced, loads)
    return RoundContext(
        closing=closing,
        header=header,
        before=before,
        advanced=advanced,
        reports=reports,
        loads=loads,
        rates=rates,
        costs=learn_costs(advanced, loads, rates, header.ledger.unsettled_brokers(end_ms=closing.end_ms)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyView:
    """What the policy sees of a round, and what stands beside it: brokers that take part in balancing, and the bundles they own."""

    view: RoundView
    loads: Loads
    """Of all brokers that reported, as they count: as measured, or with the shadow."""
    shadow: ShadowSummary | None = None
    """What the shadow moved; None where nothing counts elsewhere."""
    mask_codes: NDArray[np.int8]
    """Code of ``state.pulsar.masks.MASK_REASONS`` for each bundle row of the view."""
    fleet_rows: Ints
    """Row of the fleet of each bundle row of the view."""
    broker_groups: Ints
    """Group of each broker row of the view."""

    def broker_of(self, row: int) -> str:
        """Owner of a bundle row."""
        return self.view.brokers.names[int(self.view.bundles.owners_of(np.array([row]))[0])]


_BROKER_COLUMNS = [
    column.name for column in fields(BrokerTable) if column.name not in ("names", "may_receive")
]
"""Columns that ``Loads`` has under the same name."""


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
    fleet = advanced.fleet
    edges = np.searchsorted(fleet.owner[: advanced.owned_count], np.arange(len(fleet.brokers) + 1))
    rates = sum_runs(edges, advanced.present_rates(np.arange(advanced.owned_count)))
    rates = rates[match(fleet.brokers, measured.names)]
    for first, reported in ((0, measured.messages_per_s), (2, measured.bytes_per_s)):
        total = rates[:, first] + rates[:, first + 1]
        share = np.divide(reported, total, out=np.ones_like(total), where=total > 0)
        rates[:, first : first + 2] *= share[:, None]
    return rates


def learn_costs(advanced: Advanced, measured: Loads, rates: Floats, moving: Collection[str]) -> Costs:
    """Learn in ``advanced.fleet`` what traffic costs, and give the costs of the brokers that reported.

    Brokers with a bundle on its way, or just arrived (``moving``), teach nothing, nor do those that got or lost much otherwise: their
    usage shows the past, or clients that reconnect.
    """
    fleet, names = advanced.fleet, measured.names
    moved = advanced.moved[match(fleet.brokers, names)]
    counts = np.array([name not in moving for name in names], dtype=np.bool_) & ~is_much(moved, rates)
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


def shadowed_view(
    context: RoundContext, mask_codes: NDArray[np.int8], unsettled: Collection[str]
) -> PolicyView | None:
    """What the policy sees with the shadow; None where no bundle counts at another broker, or none takes part in balancing."""
    shadow = shadow_of_round(context.fleet.shadow, context.advanced, context.costs)
    if shadow is None:
        return None
    loads = measure(context.closing, context.advanced, context.reports, shadow)
    usage = loads.usage_summary()
    if usage is None:
        return None
    return replace(
        policy_view(context, mask_codes, unsettled, loads, shadow), shadow=shadow.section(usage=usage)
    )


def policy_view(
    context: RoundContext,
    mask_codes: NDArray[np.int8],
    unsettled: Collection[str],
    loads: Loads | None = None,
    shadow: Shadow | None = None,
) -> PolicyView:
    """The policy's view: included brokers and the bundles they own; with a shadow, and the loads with it, those that count as theirs.

    ``mask_codes`` has a code for each of the fleet's leading rows, those that the round's brokers own; ``unsettled`` brokers receive
    nothing.
    """
    loads, advanced, ledger, end_ms = loads or context.loads, context.advanced, context.ledger, context.end_ms
    fleet, owner, order = advanced.fleet, advanced.fleet.owner[: len(mask_codes)], None
    if shadow is not None:
        owner, order = counted_owners(fleet, len(mask_codes), shadow)
    at = match(fleet.brokers, loads.names)
    starts, ends = np.searchsorted(owner, at, side="left"), np.searchsorted(owner, at, side="right")
    kept = np.flatnonzero(loads.included)
    is_whole = bool(loads.included.all())
    counts = (ends - starts)[kept]
    if order is None and is_whole:
        taken = np.arange(len(mask_codes))
        names = fleet.bundles[: len(mask_codes)]
    else:
        spans = [np.arange(starts[row], ends[row]) for row in kept]
        taken = np.concatenate(spans or [np.zeros(0, dtype=np.int64)])
        taken = taken if order is None else order[taken]
        names = pick(fleet.bundles, taken)
    average, bundle_counts = fleet.averages[taken], advanced.counts[taken]
    is_uncounted = advanced.is_uncounted(taken)
    average[is_uncounted], bundle_counts[is_uncounted] = 0.0, 0
    broker_names = tuple(loads.names[row] for row in kept.tolist())
    brokers = BrokerTable(
        names=broker_names,
        may_receive=np.array([name not in unsettled for name in broker_names], dtype=np.bool_),
        **{name: getattr(loads, name)[kept] for name in _BROKER_COLUMNS},
    )
    bundles = BundleTable(
        names=names,
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        rates=average,
        sampled=fleet.samples[taken] > 0,
        messages_per_s=average[:, RATE_IN] + average[:, RATE_OUT],
        bytes_per_s=average[:, THROUGHPUT_IN] + average[:, THROUGHPUT_OUT],
        counts=bundle_counts,
        movable=mask_codes[taken] == 0,
    )
    return PolicyView(
        view=RoundView(
            brokers=brokers,
            bundles=bundles,
            usage_weights=loads.usage_weights,
            costs=context.costs if is_whole else context.costs.part(kept),
            present_rates=lambda rows: advanced.present_rates(taken[rows]),
            in_flight=lambda: _in_flight(ledger, arrived=() if shadow is None else shadow.bundles),
            moved_rates=advanced.moved[at[kept]],
            promises=lambda: ledger.last_promises(end_ms=end_ms),
            published=published_loads(context, brokers, bundles, shadow),
            absent=advanced.is_absent[taken] if advanced.is_absent.any() else None,
            missing=_missing(context),
            unloaded_ages_s=lambda: {
                broker: (end_ms - decided_ms) / MS_PER_S
                for broker, decided_ms in ledger.unloaded_ms(end_ms=end_ms).items()
            },
        ),
        loads=loads,
        mask_codes=mask_codes[taken],
        fleet_rows=taken,
        broker_groups=context.groups.of_brokers(brokers.names),
    )


def _missing(context: RoundContext) -> list[str]:
    """Brokers that take part in balancing, were asked and did not report."""
    tick, apart = context.closing.open_round.tick, context.closing.overlay.apart
    asked = () if tick is None else tick.asked
    return sorted({*asked} - {*context.reports, *context.guards.excluded_brokers, *apart})


def _in_flight(ledger: Ledger, *, arrived: Collection[str]) -> list[UnloadInFlight]:
    """Unloads that do not show yet, but for bundles that count at their destination all the same."""
    return [
        UnloadInFlight(unload.bundle, unload.source, unload.destination, unload.traffic)
        for unload in sorted(ledger.unloads_on_their_way(), key=lambda unload: unload.bundle)
        if unload.bundle not in arrived
    ]


def brokers_of(decision: Decision) -> dict[Side, str]:
    """The brokers of an unload, so far as they are known."""
    sides: tuple[Side, ...] = ("source", "destination") if decision.kind == "unload" else ()
    return {side: broker for side in sides if (broker := decision.broker_of(side))}


def published_loads(
    context: RoundContext, brokers: BrokerTable, bundles: BundleTable, shadow: Shadow | None = None
) -> PublishedLoads | None:
    """What brokers of a view publish; None unless each of them published something.

    With a shadow, usage and traffic change by as much as those that they report, and what arrives is among the heaviest bundles.
    """
    names = brokers.names
    published = [load for name in names if (load := context.reports[name].report.published) is not None]
    if not names or len(published) < len(names):
        return None
    usage_ratio = np.array([load.usage_ratio for load in published])
    bytes_per_s = np.array([load.bytes_per_s for load in published])
    tops = [
        [
            (NOT_OWNED if row is None else row, volume)
            for row, volume in zip(
                [bundles.row_of(broker, name) for name in load.top_bundles],
                load.top_bytes_per_s.tolist(),
                strict=True,
            )
        ]
        for broker, load in enumerate(published)
    ]
    if shadow is not None:
        measured = match(context.loads.names, names)
        usage_ratio += brokers.usage_ratio - context.loads.usage_ratio[measured]
        bytes_per_s += brokers.bytes_per_s - context.loads.bytes_per_s[measured]
        for broker, bundle in zip(match(names, shadow.destinations).tolist(), shadow.bundles, strict=True):
            row = None if broker < 0 else bundles.row_of(broker, bundle)
            if row is not None:
                tops[broker].append((row, float(bundles.bytes_per_s[row])))
                tops[broker].sort(key=lambda entry: entry[1])
    rows, volumes = zip(*(entry for top in tops for entry in top), strict=True) if any(tops) else ((), ())
    return PublishedLoads(
        usage_ratio=np.maximum(usage_ratio, 0.0),
        bytes_per_s=np.maximum(bytes_per_s, 0.0),
        age_s=np.array([(context.end_ms - load.updated_ms) / MS_PER_S for load in published]),
        top_starts=np.cumsum([0, *map(len, tops)]).astype(np.int64),
        top_rows=np.array(rows, dtype=np.int64),
        top_bytes_per_s=np.array(volumes, dtype=np.float64),
    )
