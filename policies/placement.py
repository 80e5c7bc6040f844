"""Placement: the destination of the unloads whose policy names none, where it is not left to Pulsar.

From Pulsar 4.2.4: classes ``LeastLongTermMessageRate`` and ``LeastResourceUsageWithWeight``. Pulsar draws among equals;
here the first by name is taken, so every destination is one that Pulsar could have drawn, save what is said below.

Invariants: the least loaded candidate is taken; every unload counts at its destination, and no longer at its source,
for those decided after it in the same round; a bundle whose own broker is below every other candidate stays
(``no-destination``), as Pulsar drops an unload whose placement is where it already is. Nobody receives who may not.

Where ours differs: the message rate is the running average of ``bundle_average_samples``, not Pulsar's of 1,000
samples; resource usage is that of the round, without Pulsar's history, which moves on every lookup and cannot be
followed from outside, and the least used broker is taken rather than one of those 10 points below the mean; a broker
that measures no resource is not called idle; and a bundle that leaves lightens its broker at once, where Pulsar
waits for the next report. A moved bundle takes with it the share of its broker's usage that it
has of its throughput: the proportion that ThresholdShedder and OverloadShedder reckon with.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from policies.columns import Floats, Ints
from policies.shedding.contract import ACTED, NO_DESTINATION, NOBODY, RoundView, SheddingPlan

Strategy = Literal["broker", "least-long-term-message-rate", "least-resource-usage"]

UNKNOWN_MESSAGES_PER_S = 100.0
"""Message rate of a bundle that has no sample yet: 50 in and 50 out, Pulsar's default for a bundle never seen."""


def place(
    view: RoundView, plan: SheddingPlan, *, strategy: Strategy, overloaded_ratio: float
) -> SheddingPlan:
    """The plan with a destination for each unload, those that would better stay taken back.

    ``overloaded_ratio``: a broker above it receives nothing by message rate while another is below. A plan that
    names its destinations is returned as it is, and so is any with the strategy "broker". Pure.
    """
    if strategy == "broker" or not (plan.unload_destinations == NOBODY).any():
        return plan
    rows, sources = plan.unload_rows, view.bundles.owners_of(plan.unload_rows)
    if strategy == "least-long-term-message-rate":
        loads = _by_message_rate(view, rows, overloaded_ratio)
    else:
        loads = _by_usage(view, rows, sources)
    destinations, least = loads.take(sources)
    placed = destinations != NOBODY
    outcomes = plan.tried_outcomes.copy()
    outcomes[np.flatnonzero(outcomes == ACTED)[~placed]] = NO_DESTINATION
    return replace(
        plan,
        unload_rows=plan.unload_rows[placed],
        unload_destinations=destinations[placed],
        unload_examined=plan.unload_examined[placed],
        unload_evidence={loads.name: least[placed] * loads.shown_factor},
        tried_outcomes=outcomes,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Loads:
    """Load of each broker in the strategy's measure, as the round's unloads change it."""

    name: str
    """Of the load of a destination, as evidence."""
    shown_factor: float
    """From the measure to the unit in ``name``."""
    cost: Floats
    """Load of each broker, infinite for one that is no candidate, (n,)."""
    moved: Floats
    """Load that each unload takes along, (u,)."""

    def take(self, sources: Ints) -> tuple[Ints, Floats]:
        """Destination of each unload in turn, NOBODY where it stays, and the load found there, (u,) each."""
        destinations, least = np.full(len(sources), NOBODY, dtype=np.int64), np.zeros(len(sources))
        cost = self.cost.copy()
        for place, (source, moved) in enumerate(zip(sources.tolist(), self.moved.tolist(), strict=True)):
            own, cost[source] = cost[source], np.inf
            best = int(cost.argmin())
            if np.isfinite(cost[best]) and cost[best] <= own:
                destinations[place], least[place] = best, cost[best]
                cost[best] += moved
                own = max(0.0, own - moved)
            cost[source] = own
        return destinations, least


def _by_message_rate(view: RoundView, rows: Ints, overloaded_ratio: float) -> _Loads:
    brokers, bundles = view.brokers, view.bundles
    traffic = np.where(bundles.sampled, bundles.messages_per_s, UNKNOWN_MESSAGES_PER_S)
    owner = np.repeat(np.arange(len(brokers)), np.diff(bundles.starts))
    load = np.bincount(owner, weights=traffic, minlength=len(brokers))
    spared = brokers.may_receive & (brokers.usage_ratio <= overloaded_ratio)
    return _Loads(
        name="destination_messages_per_s",
        shown_factor=1.0,
        cost=np.where(spared if spared.any() else brokers.may_receive, load, np.inf),
        moved=traffic[rows],
    )


def _by_usage(view: RoundView, rows: Ints, sources: Ints) -> _Loads:
    brokers = view.brokers
    all_of_it = brokers.bytes_per_s[sources]
    flowing = all_of_it > 0
    with np.errstate(over="ignore"):
        share = view.bundles.bytes_per_s[rows] / np.where(flowing, all_of_it, 1.0)
    return _Loads(
        name="destination_usage_points",
        shown_factor=100.0,
        cost=np.where(brokers.may_receive & brokers.is_measured, brokers.usage_ratio, np.inf),
        moved=np.where(flowing, np.minimum(share, 1.0), 0.0) * brokers.usage_ratio[sources],
    )
