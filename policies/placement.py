"""Where a bundle goes when its policy names no destination: the placements that choose one.

Among equal brokers Pulsar draws one at random; here the first by name is taken. So Pulsar could have chosen every destination
too, except where a placement says that it differs.

Invariants: the least loaded candidate is taken; every unload counts at its destination, and no longer at its source,
for the unloads decided after it in the same round; a bundle whose own broker is below every other candidate stays
(``no-destination``), as Pulsar drops an unload to the bundle's own broker. A broker that may not receive gets nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.columns import Floats, Ints
from policies.shedding.contract import BundleOutcome, Evidence, SheddingPlan
from policies.shedding.view import NOBODY, RoundView


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loads:
    """Load of each broker in the placement's measure, as the round's unloads change it."""

    cost: Floats
    """Load of each broker, infinite for one that is no candidate, (n,)."""
    moved: Floats
    """Load that each unload takes along, (u,)."""

    def take(self, sources: Ints) -> tuple[Ints, Floats]:
        """Destination of each unload in turn, NOBODY where it stays, and the load found there, (u,) each."""
        destinations, least = np.full(len(sources), NOBODY, dtype=np.int64), np.zeros(len(sources))
        cost = self.cost.copy()
        for place, (source, moved) in enumerate(zip(sources.tolist(), self.moved.tolist(), strict=True)):
            own_cost, cost[source] = cost[source], np.inf
            best = int(cost.argmin())
            if np.isfinite(cost[best]) and cost[best] <= own_cost:
                destinations[place], least[place] = best, cost[best]
                cost[best] += moved
                own_cost = max(0.0, own_cost - moved)
            cost[source] = own_cost
        return destinations, least


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Everything that defines one placement."""

    name: str
    loads: Callable[[RoundView, Ints, Ints, float], Loads]
    """Makes the loads from the view, the bundle rows to unload, their brokers, and the usage above which a broker is overloaded."""
    evidence: str
    """Name of the load found at a destination, in an action's evidence; its unit last."""
    evidence_factor: float = 1.0
    """Factor from the placement's measure to that unit."""
    sentence: Callable[[str, Evidence], str]
    """Makes the end of the action's reason, why the bundle goes there, from the destination and the evidence."""

    def place(self, view: RoundView, plan: SheddingPlan, overloaded_ratio: float) -> SheddingPlan:
        """The plan with a destination for each unload; an unload is taken back if its bundle is better off where it is. Pure.

        A plan that names its destinations is returned as it is.
        """
        if not (plan.unload_destinations == NOBODY).any():
            return plan
        sources = view.bundles.owners_of(plan.unload_rows)
        destinations, least = self.loads(view, plan.unload_rows, sources, overloaded_ratio).take(sources)
        placed = destinations != NOBODY
        outcomes = plan.tried_outcomes.copy()
        outcomes[np.flatnonzero(outcomes == BundleOutcome.ACTED)[~placed]] = BundleOutcome.NO_DESTINATION
        return replace(
            plan,
            unload_rows=plan.unload_rows[placed],
            unload_destinations=destinations[placed],
            unload_examined=plan.unload_examined[placed],
            unload_swap_group=plan.unload_swap_group[placed],
            unload_evidence={self.evidence: least[placed] * self.evidence_factor},
            tried_outcomes=outcomes,
        )


UNKNOWN_MESSAGES_PER_S = 100.0
"""Message rate of a bundle that has no sample yet: 50 in and 50 out, Pulsar's default for a bundle never seen."""


def _loads_by_message_rate(view: RoundView, rows: Ints, sources: Ints, overloaded_ratio: float) -> Loads:  # noqa: ARG001
    """The brokers by the message rate of their bundles; one above ``overloaded_ratio`` receives nothing while another is below.

    From Pulsar 4.2.4: class ``LeastLongTermMessageRate``. The message rate is the running average of ``bundle_average_samples``, not
    Pulsar's of 1,000 samples. It is known to do badly where messages differ in size, or brokers in what a message costs them.
    """
    brokers, bundles = view.brokers, view.bundles
    traffic = np.where(bundles.sampled, bundles.messages_per_s, UNKNOWN_MESSAGES_PER_S)
    owner = np.repeat(np.arange(len(brokers)), np.diff(bundles.starts))
    load = np.bincount(owner, weights=traffic, minlength=len(brokers))
    spared = brokers.may_receive & (brokers.usage_ratio <= overloaded_ratio)
    return Loads(
        cost=np.where(spared if spared.any() else brokers.may_receive, load, np.inf), moved=traffic[rows]
    )


def _describe_message_rate(destination: str, evidence: Evidence) -> str:
    return f" to {destination}, the least busy at {evidence['destination_messages_per_s']:.0f} messages/s"


LEAST_MESSAGE_RATE: Final = Placement(
    name="least-long-term-message-rate",
    loads=_loads_by_message_rate,
    evidence="destination_messages_per_s",
    sentence=_describe_message_rate,
)


def _loads_by_usage(view: RoundView, rows: Ints, sources: Ints, overloaded_ratio: float) -> Loads:  # noqa: ARG001
    """The brokers by weighted maximum usage; one that measures no resource is no candidate, because it does not count as idle.

    From Pulsar 4.2.4: class ``LeastResourceUsageWithWeight``. Usage is that of the round, without Pulsar's history, which changes
    with every lookup and cannot be followed from outside. The least used broker is taken; Pulsar takes one of those 10 points
    below the mean. A bundle that leaves lowers its broker's usage at once, where Pulsar waits for the next report: a bundle with
    a fifth of its broker's throughput takes a fifth of its usage along, as ThresholdShedder and OverloadShedder also assume. It
    is known to do badly where usage is not in proportion to throughput.
    """
    brokers = view.brokers
    all_of_it = brokers.bytes_per_s[sources]
    flowing = all_of_it > 0
    with np.errstate(over="ignore"):
        share = view.bundles.bytes_per_s[rows] / np.where(flowing, all_of_it, 1.0)
    return Loads(
        cost=np.where(brokers.may_receive & brokers.is_measured, brokers.usage_ratio, np.inf),
        moved=np.where(flowing, np.minimum(share, 1.0), 0.0) * brokers.usage_ratio[sources],
    )


def _describe_usage(destination: str, evidence: Evidence) -> str:
    return f" to {destination}, the least used at {evidence['destination_usage_points']:.1f} %"


LEAST_RESOURCE_USAGE: Final = Placement(
    name="least-resource-usage",
    loads=_loads_by_usage,
    evidence="destination_usage_points",
    evidence_factor=100.0,
    sentence=_describe_usage,
)


LEFT_TO_PULSAR = "broker"
"""The value of the setting that leaves the choice to Pulsar."""

PLACEMENTS: tuple[Placement, ...] = (LEAST_MESSAGE_RATE, LEAST_RESOURCE_USAGE)


def find_placement(name: str) -> Placement | None:
    """The placement of that name; None where the choice is left to Pulsar."""
    return next((placement for placement in PLACEMENTS if placement.name == name), None)
