"""The contract of a placement: it chooses the destinations of the unloads whose policy names none.

Among equal brokers Pulsar draws one at random; here the first by name is taken. So Pulsar could have chosen every destination
too, except where a placement says that it differs.

Invariants: the least loaded candidate is taken; every unload counts at its destination, and no longer at its source,
for the unloads decided after it in the same round; a bundle whose own broker is below every other candidate stays
(``no-destination``), as Pulsar drops an unload to the bundle's own broker. A broker that may not receive gets nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Floats, Ints
from policies.shedding.contract import ACTED, NO_DESTINATION, Evidence, SheddingPlan
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
            own, cost[source] = cost[source], np.inf
            best = int(cost.argmin())
            if np.isfinite(cost[best]) and cost[best] <= own:
                destinations[place], least[place] = best, cost[best]
                cost[best] += moved
                own = max(0.0, own - moved)
            cost[source] = own
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
        outcomes[np.flatnonzero(outcomes == ACTED)[~placed]] = NO_DESTINATION
        return replace(
            plan,
            unload_rows=plan.unload_rows[placed],
            unload_destinations=destinations[placed],
            unload_examined=plan.unload_examined[placed],
            unload_for=plan.unload_for[placed],
            unload_evidence={self.evidence: least[placed] * self.evidence_factor},
            tried_outcomes=outcomes,
        )
