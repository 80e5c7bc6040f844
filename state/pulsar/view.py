"""A round of a Pulsar cluster as all of its steps see it, and what its policy sees of it.

``RoundContext`` is built once, when the fleet has taken the round's reports in; each step is given it. ``PolicyView`` has the columns of
the policy: of what was measured, or of that with the shadow of a dry-run.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policies.columns import Floats, Ints
from policies.costs import Costs
from policies.shedding.view import (
    NOT_OWNED,
    BrokerTable,
    BundleTable,
    PublishedLoads,
    RoundView,
    Side,
    UnloadInFlight,
)
from state.closing import Closing
from state.events import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, LoadReport, Published
from state.facts import Facts
from state.guard_settings import GuardSettings
from state.ledger import Decision, Ledger
from state.memory import Header
from state.outputs import ShadowSummary
from state.pulsar.fleet import Advanced
from state.pulsar.groups import Groups
from state.pulsar.listings import match, pick
from state.pulsar.loads import Loads, broker_rates, learn_costs, measure
from state.pulsar.memory import Fleet
from state.pulsar.shadow import Shadow, counted_owners, republish, shadow_of_round
from state.settings import MS_PER_S, PulsarSettings


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


def shadowed_view(
    context: RoundContext, mask_codes: NDArray[np.int8], closed: Collection[str]
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
        policy_view(context, mask_codes, closed, loads, shadow), shadow=shadow.section(usage=usage)
    )


def policy_view(
    context: RoundContext,
    mask_codes: NDArray[np.int8],
    closed: Collection[str],
    loads: Loads | None = None,
    shadow: Shadow | None = None,
) -> PolicyView:
    """The policy's view: included brokers and the bundles they own; with a shadow, and the loads with it, those that count as theirs.

    ``mask_codes`` has a code for each of the fleet's leading rows, those that the round's brokers own; ``closed`` brokers receive
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
        may_receive=np.array([name not in closed for name in broker_names], dtype=np.bool_),
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
    """What brokers of a view publish; None unless each of them published something."""
    names = brokers.names
    published = [load for name in names if (load := context.reports[name].report.published) is not None]
    if not names or len(published) < len(names):
        return None
    if shadow is not None:
        published = _with_shadow(context, brokers, bundles, published, shadow)
    rows = [
        [bundles.row_of(broker, name) for name in load.top_bundles] for broker, load in enumerate(published)
    ]
    return PublishedLoads(
        usage_ratio=np.array([load.usage_ratio for load in published]),
        bytes_per_s=np.array([load.bytes_per_s for load in published]),
        age_s=np.array([(context.end_ms - load.updated_ms) / MS_PER_S for load in published]),
        top_starts=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        top_rows=np.array(
            [NOT_OWNED if row is None else row for broker_rows in rows for row in broker_rows], dtype=np.int64
        ),
        top_bytes_per_s=np.concatenate([load.top_bytes_per_s for load in published]),
    )


def _with_shadow(
    context: RoundContext,
    brokers: BrokerTable,
    bundles: BundleTable,
    published: Sequence[Published],
    shadow: Shadow,
) -> list[Published]:
    """The same as if the moves of the shadow had happened: usage and traffic change by as much as those that brokers report."""
    at = match(context.loads.names, brokers.names)
    change_ratio = (brokers.usage_ratio - context.loads.usage_ratio[at]).tolist()
    change_bytes_per_s = (brokers.bytes_per_s - context.loads.bytes_per_s[at]).tolist()
    arriving: list[dict[str, float]] = [{} for _ in published]
    for broker, bundle in zip(
        match(brokers.names, shadow.destinations).tolist(), shadow.bundles, strict=True
    ):
        row = None if broker < 0 else bundles.row_of(broker, bundle)
        if row is not None:
            arriving[broker][bundle] = float(bundles.bytes_per_s[row])
    gone = {*shadow.bundles}
    return [
        republish(load, gone, *changes)
        for load, *changes in zip(published, arriving, change_ratio, change_bytes_per_s, strict=True)
    ]
