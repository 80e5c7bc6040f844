"""What a policy sees of a round: columns from the reports and the fleet, as they were measured, or with the shadow of a dry-run."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.columns import Bools, Floats, Ints, sum_runs
from policies.costs import Costs, learn
from policies.shedding.published import NOT_OWNED, PublishedLoads
from policies.shedding.view import (
    BrokerTable,
    BundleTable,
    JudgedAction,
    Promise,
    RoundView,
    Side,
    Traffic,
    UnloadInFlight,
)
from policies.usage import NOT_MEASURED, REPORTED_COUNT, percent, weighted_maximum_ratio
from state.closing import Closing
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, BrokerReport, Published
from state.ledger import HOUR_MS, Decision, Ledger, Verdict
from state.memory import Header
from state.outputs import (
    ShadowSummary,
    UsageSummary,
)
from state.pulsar import fleet, masks
from state.pulsar.fleet import Advanced
from state.pulsar.groups import Groups
from state.pulsar.listings import match, members_of, pick
from state.pulsar.memory import WaitingReport
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
    listed_counts: Ints
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

    def _row_of(self, broker: str) -> int:
        row = bisect_left(self.names, broker)
        if self.names[row : row + 1] != (broker,):
            raise ValueError(f"{broker} did not report")
        return row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eligible:
    """The view of a round, with the mask code of each of its bundles."""

    view: RoundView
    mask_codes: NDArray[np.int8]
    """Code of ``state.pulsar.masks.MASK_REASONS`` for each bundle row of the view."""
    owned_counts: Ints
    """Bundles each broker row of the view owns, system bundles not counted."""
    bundle_counts: dict[str, int]
    """The same by broker name, also for excluded brokers."""
    fleet_rows: Ints
    """Row of the fleet of each bundle row of the view."""
    overlapping: Collection[str]
    """Bundles whose ranges overlap others of their namespace: nothing is done to them."""
    groups: Groups
    broker_groups: Ints
    """Group of each broker row of the view."""

    def broker_of(self, row: int) -> str:
        """Owner of a bundle row."""
        return self.view.brokers.names[int(self.view.bundles.owners_of(np.array([row]))[0])]

    def group_of(self, broker: int) -> str | None:
        """Isolation policy of a broker row; None for the default group."""
        return self.groups.name_of(int(self.broker_groups[broker]))


def loads(
    reports: dict[str, WaitingReport],
    settings: PulsarSettings,
    advanced: Advanced,
    *,
    end_ms: int,
    shadow: Shadow | None = None,
    apart: Collection[str] = (),
) -> Loads:
    """Load of each broker of the round; with a shadow, as if its moves had happened. ``apart`` take no part in balancing.

    What brokers carry besides what they report is added; traffic that a broker reports and none of the bundles it lists explains is
    part of it. What they report of bundles that finer ones stand for is taken off. What a broker publishes about itself (the extensible
    load manager) is no sum over what it lists, so that its traffic stays as it is.
    """
    names = tuple(sorted(reports))
    found = [reports[name].report for name in names]
    times_ms = np.array([reports[name].time_ms for name in names], dtype=np.int64)
    resources = np.array([report.resources for report in found])
    messages = np.array([report.messages_per_s for report in found])
    volume = np.array([report.bytes_per_s for report in found])
    declared = settings.capacity.limits(names)
    counts = _counts(found) if (declared[:, 2:] > 0).any() else np.full((len(names), 2), NOT_MEASURED)
    for broker, carried in advanced.twice.items():
        row = names.index(broker)
        counts[row] -= np.where(counts[row] >= 0, (carried.topics_count, carried.sessions_count), 0.0)
        if found[row].published is None:
            messages[row] = max(0.0, messages[row] - carried.messages_per_s)
            volume[row] = max(0.0, volume[row] - carried.bytes_per_s)
    for broker, carried in advanced.unreported.items():
        row = names.index(broker)
        counts[row] += np.where(counts[row] >= 0, (carried.topics_count, carried.sessions_count), 0.0)
        if found[row].published is not None:
            continue
        listed = [math.fsum(column) for column in found[row].traffic.T.tolist()]
        messages[row] += max(0.0, carried.messages_per_s - max(0.0, messages[row] - sum(listed[:2])))
        volume[row] += max(0.0, carried.bytes_per_s - max(0.0, volume[row] - sum(listed[2:])))
    used, limits = (
        np.column_stack([resources[:, :, 0], messages, volume, counts]),
        np.column_stack([resources[:, :, 1], declared]),
    )
    if shadow is not None:
        shadow.shift(names, used, limits)
    messages, volume = used[:, REPORTED_COUNT], used[:, REPORTED_COUNT + 1]
    percents, weights = percent(used, limits), settings.usage.weights()
    measured = limits > 0
    measured[:, -2:] &= counts >= 0
    excluded = {*settings.guards.excluded_brokers, *apart}
    return Loads(
        names=names,
        percents=percents,
        limits=limits,
        measured=measured,
        usage_ratio=weighted_maximum_ratio(percents, weights),
        usage_weights=weights,
        messages_per_s=messages,
        bytes_per_s=volume,
        listed_counts=_listed(found, names, shadow),
        is_measured=np.any(measured & (weights > 0), axis=1),
        report_age_s=(end_ms - times_ms) / MS_PER_S,
        included=np.array([name not in excluded for name in names], dtype=np.bool_),
    )


def _counts(reports: list[BrokerReport]) -> Floats:
    """Topics and sessions of each broker, (n, 2); NOT_MEASURED for one whose report has statistics of none of its bundles."""
    counts = np.array([report.counts.sum(axis=0) for report in reports], dtype=np.float64)
    counts[[bool(report.bundles) and not report.has_traffic.any() for report in reports]] = NOT_MEASURED
    return counts


def _listed(found: list[BrokerReport], names: tuple[str, ...], shadow: Shadow | None) -> Ints:
    counts = Counter() if shadow is None else Counter(shadow.destinations)
    counts.subtract(() if shadow is None else shadow.owners)
    listed = [report.listed_count + counts[name] for name, report in zip(names, found, strict=True)]
    return np.array(listed, dtype=np.int64)


def learn_costs(advanced: Advanced, measured: Loads, ledger: Ledger, *, end_ms: int) -> Costs:
    """Learn in ``advanced.fleet`` what traffic costs, and give the costs of the brokers that reported.

    Brokers with a bundle on its way, or just arrived, teach nothing: their reports show the past, or clients that reconnect.
    """
    fleet, names = advanced.fleet, measured.names
    edges = np.searchsorted(fleet.owner[: advanced.owned_count], np.arange(len(fleet.brokers) + 1))
    rates = sum_runs(edges, advanced.present_rates(np.arange(advanced.owned_count)))
    rates = rates[match(fleet.brokers, names)]
    for first, reported in ((0, measured.messages_per_s), (2, measured.bytes_per_s)):
        total = rates[:, first] + rates[:, first + 1]
        rates[:, first : first + 2] *= np.divide(reported, total, out=np.ones_like(total), where=total > 0)[
            :, None
        ]
    moving = ledger.unsettled_brokers(end_ms=end_ms)
    fleet.costs, costs = learn(
        fleet.costs,
        names,
        percents=measured.percents,
        limits=measured.limits,
        rates=rates,
        counts=np.array([name not in moving for name in names], dtype=np.bool_),
        kept=fleet.brokers,
    )
    return costs


def mean_points(points: Floats) -> float:
    """Mean from an exactly rounded sum, so that it depends on no order and no processor; ``points`` is not empty."""
    return math.fsum(points.tolist()) / len(points)


def eligible(
    loads_: Loads,
    advanced: Advanced,
    mask_codes: NDArray[np.int8],
    groups: Groups,
    ledger: Ledger,
    *,
    end_ms: int,
    reports: Mapping[str, WaitingReport],
    costs: Costs,
    missing: Sequence[str] = (),
    unsettled: Collection[str] = (),
    shadow: Shadow | None = None,
) -> Eligible:
    """The policy's view: included brokers and the bundles they own; with a shadow, those that count as theirs.

    ``mask_codes`` has a code for each of the fleet's leading rows, those that the round's brokers own; ``unsettled``
    brokers receive nothing, ``missing`` ones were asked and did not report.
    """
    fleet = advanced.fleet
    at = match(fleet.brokers, loads_.names)
    owner, order = fleet.owner[: len(mask_codes)], None
    if shadow is not None:
        owner, order = counted_owners(fleet, len(mask_codes), shadow)
    starts, ends = np.searchsorted(owner, at, side="left"), np.searchsorted(owner, at, side="right")
    kept = np.flatnonzero(loads_.included)
    counts = (ends - starts)[kept]
    if order is None and bool(loads_.included.all()):
        taken = np.arange(len(mask_codes))
        names = fleet.bundles[: len(mask_codes)]
    else:
        taken = np.concatenate(
            [np.arange(starts[row], ends[row]) for row in kept] or [np.zeros(0, dtype=np.int64)]
        )
        taken = taken if order is None else order[taken]
        names = pick(fleet.bundles, taken)
    brokers = _broker_table(loads_, kept, unsettled)
    starts_of_kept = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    movable = mask_codes[taken] == 0
    bundles = _bundle_table(advanced, taken, names, starts=starts_of_kept, movable=movable)
    return Eligible(
        view=RoundView(
            brokers=brokers,
            bundles=bundles,
            usage_weights=loads_.usage_weights,
            costs=costs if bool(loads_.included.all()) else costs.part(kept),
            present_rates=lambda rows: advanced.present_rates(taken[rows]),
            in_flight=lambda: _in_flight(ledger, arrived=() if shadow is None else shadow.bundles),
            judged=lambda: _judged_actions(ledger, end_ms),
            published=published_loads(reports, brokers.names, bundles, end_ms=end_ms),
            missing=missing,
            unloaded_ages_s=lambda: _unloaded_ages_s(ledger, end_ms),
        ),
        mask_codes=mask_codes[taken],
        owned_counts=counts,
        bundle_counts=dict(zip(loads_.names, (ends - starts).tolist(), strict=True)),
        fleet_rows=taken,
        overlapping=members_of(advanced.overlaps),
        groups=groups,
        broker_groups=groups.of_brokers(brokers.names),
    )


def _broker_table(loads_: Loads, kept: Ints, unsettled: Collection[str]) -> BrokerTable:
    names = tuple(loads_.names[row] for row in kept.tolist())
    return BrokerTable(
        names=names,
        usage_ratio=loads_.usage_ratio[kept],
        percents=loads_.percents[kept],
        limits=loads_.limits[kept],
        measured=loads_.measured[kept],
        is_measured=loads_.is_measured[kept],
        report_age_s=loads_.report_age_s[kept],
        messages_per_s=loads_.messages_per_s[kept],
        bytes_per_s=loads_.bytes_per_s[kept],
        listed_bundle_counts=loads_.listed_counts[kept],
        may_receive=np.array([name not in unsettled for name in names], dtype=np.bool_),
    )


def _bundle_table(
    advanced: Advanced,
    taken: Ints,
    names: Sequence[str],
    *,
    starts: Ints,
    movable: Bools,
) -> BundleTable:
    fleet, average, counts = advanced.fleet, advanced.fleet.averages[taken], advanced.counts[taken]
    is_uncounted = advanced.is_uncounted(taken)
    average[is_uncounted], counts[is_uncounted] = 0.0, 0
    return BundleTable(
        names=names,
        starts=starts,
        rates=average,
        sampled=fleet.samples[taken] > 0,
        messages_per_s=average[:, RATE_IN] + average[:, RATE_OUT],
        bytes_per_s=average[:, THROUGHPUT_IN] + average[:, THROUGHPUT_OUT],
        counts=counts,
        movable=movable,
    )


def _unloaded_ages_s(ledger: Ledger, end_ms: int) -> dict[str, float]:
    return {
        broker: (end_ms - decided_ms) / MS_PER_S
        for broker, decided_ms in ledger.unloaded_ms(end_ms=end_ms).items()
    }


def _in_flight(ledger: Ledger, *, arrived: Collection[str]) -> list[UnloadInFlight]:
    """Unloads that do not show yet, but for bundles that count at their destination all the same."""
    return [
        UnloadInFlight(each.bundle, each.source, each.destination, each.traffic)
        for each in sorted(ledger.unloads_on_their_way(), key=lambda each: each.bundle)
        if each.bundle not in arrived
    ]


def _judged_actions(ledger: Ledger, end_ms: int) -> list[JudgedAction]:
    return [_judged_action(each, each.verdict, end_ms) for each in ledger.judged() if each.verdict]


def _promise_of(decision: Decision, end_ms: int) -> Promise | None:
    checked = decision.promise
    return checked.promise if checked and checked.checked_ms > end_ms - HOUR_MS else None


def _judged_action(decision: Decision, verdict: Verdict, end_ms: int) -> JudgedAction:
    return JudgedAction(
        kind=decision.kind,
        outcome=verdict.outcome,
        age_s=(end_ms - verdict.judged_ms) / MS_PER_S,
        brokers=brokers_of(decision),
        before=decision.before,
        expected=verdict.expected,
        seen=verdict.seen,
        promise=_promise_of(decision, end_ms),
    )


def brokers_of(decision: Decision) -> dict[Side, str]:
    """The brokers of an unload, so far as they are known."""
    sides: tuple[Side, ...] = ("source", "destination") if decision.kind == "unload" else ()
    return {side: broker for side in sides if (broker := decision.broker_of(side))}


def published_loads(
    reports: Mapping[str, WaitingReport], names: Sequence[str], bundles: BundleTable, *, end_ms: int
) -> PublishedLoads | None:
    """What the brokers ``names``, with their ``bundles``, publish; None unless each of them published something."""
    found = [each for name in names if (each := reports[name].report.published) is not None]
    if not names or len(found) < len(names):
        return None
    rows = [_rows(each, bundles, broker) for broker, each in enumerate(found)]
    return PublishedLoads(
        usage_ratio=np.array([each.usage_ratio for each in found]),
        bytes_per_s=np.array([each.bytes_per_s for each in found]),
        age_s=np.array([(end_ms - each.updated_ms) / MS_PER_S for each in found]),
        top_starts=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        top_rows=np.concatenate(rows),
        top_bytes_per_s=np.concatenate([each.top_bytes_per_s for each in found]),
    )


def _rows(published: Published, bundles: BundleTable, broker: int) -> Ints:
    """Bundle row of each of a broker's heaviest bundles, ``NOT_OWNED`` for one that it does not own any more."""
    rows = (bundles.row_of(broker, name) for name in published.top_bundles)
    return np.array([NOT_OWNED if row is None else row for row in rows], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Counted:
    """What the policy sees: what was measured, or that with the shadow of a dry-run."""

    loads: Loads
    table: Eligible
    shadow: ShadowSummary | None


def view_of(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    round_loads: Loads,
    reports: Mapping[str, WaitingReport],
    costs: Costs,
    moved: Shadow | None = None,
) -> Eligible:
    pulsar = closing.settings.pulsar
    tick = closing.open_round.tick
    asked = () if tick is None else tick.asked
    not_missed = {*reports, *pulsar.guards.excluded_brokers, *closing.upkeep.apart}
    unsettled = masks.unsettled_brokers(header, pulsar, end_ms=closing.end_ms)
    return eligible(
        round_loads,
        advanced,
        masks.unload_mask(
            advanced, header, pulsar, unsettled, end_ms=closing.end_ms, resting=closing.upkeep.namespaces
        ),
        Groups.of(header.facts),
        header.ledger,
        end_ms=closing.end_ms,
        reports=reports,
        costs=costs,
        missing=sorted({*asked} - not_missed),
        unsettled=unsettled,
        shadow=moved,
    )


def with_shadow(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    reports: dict[str, WaitingReport],
    costs: Costs,
) -> Counted | None:
    """What the policy sees with the shadow; None where no bundle counts at another broker."""
    moved = shadow_of_round(advanced.fleet.shadow, advanced, costs)
    if moved is None:
        return None
    pulsar, apart = closing.settings.pulsar, closing.upkeep.apart
    counted = loads(reports, pulsar, advanced, end_ms=closing.end_ms, shadow=moved, apart=apart)
    usage = usage_summary(100.0 * counted.usage_ratio[counted.included])
    if usage is None:  # every broker is excluded, and nothing is decided
        return None
    return Counted(
        counted,
        view_of(closing, header, advanced, counted, reports, costs, moved),
        moved.section(usage=usage),
    )


def usage_summary(points: Floats) -> UsageSummary | None:
    """Mean, maximum and population standard deviation, independent of the order of brokers."""
    if len(points) == 0:
        return None
    mean = mean_points(points)
    variance = mean_points((points - mean) ** 2)
    return UsageSummary(mean_points=mean, max_points=float(points.max()), stdev_points=math.sqrt(variance))
