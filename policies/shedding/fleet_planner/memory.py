"""What the fleet planner remembers, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats
from policies.usage import RESOURCES

ROUNDS, SETTLING, LAST_SEEN = range(3)
"""Columns of a broker: rounds it was seen, rounds until its reports show the present again, and the group's round it was last seen in."""
LAST, VARIANCE, EVIDENCE, RUN, SHIFT, LAG = range(6)
"""Columns of each of a broker's two residuals: the last one, its variance, the evidence that the level is elsewhere, for how many
rounds there has been some, by how much (a fading sum), and a running average of the last few."""
TRAFFIC, COST = 3 + np.arange(6), 9 + np.arange(6)
"""Columns of the residual of traffic (the report's against the running averages) and of cost (its usage against its traffic)."""
_PER_RESOURCE = 15 + np.arange(len(RESOURCES))
PRODUCT, SQUARE = _PER_RESOURCE, _PER_RESOURCE + len(RESOURCES)
"""Columns of a broker: fading sums by resource of what the fleet's rule explains, times the usage and times itself, in points."""
BROKER_COLUMNS = 15 + 2 * len(RESOURCES)

FLEET_ROUNDS, TRAFFIC_NOISE, TRAFFIC_TOGETHER, COST_NOISE, COST_TOGETHER, CALM, FINISHING = range(7)
"""Values of a group: rounds; variance of each residual, and its covariance with that of the round before;
rounds until a plan may be made; rounds in which the last plan may be finished."""
COST_SUMS = 7
"""Where the sums begin that costs are learned from: five for each resource."""
FLEET_VALUES = COST_SUMS + 5 * len(RESOURCES)
_DIGITS = 9
"""Decimal places that are kept: what differs beyond them between processors is not remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlannerMemory:
    """What was learned of each broker, and of the group."""

    learned: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By broker, ``BROKER_COLUMNS`` values."""
    fleet: Sequence[float] = ()
    """``FLEET_VALUES`` values; empty at the beginning."""


def broker_columns(memory: FleetPlannerMemory, names: Sequence[str]) -> Floats:
    """A row for each broker, (n, columns); zeros for one that is new or was remembered in another layout."""
    nothing = (0.0,) * BROKER_COLUMNS
    rows = [memory.learned.get(name, nothing) for name in names]
    return np.array([row if len(row) == BROKER_COLUMNS else nothing for row in rows]).reshape(
        -1, BROKER_COLUMNS
    )


def fleet_values(memory: FleetPlannerMemory) -> Floats:
    """The group's values, (values,)."""
    if len(memory.fleet) != FLEET_VALUES:
        return np.zeros(FLEET_VALUES)
    return np.array(memory.fleet, dtype=np.float64)


def remember(
    memory: FleetPlannerMemory, names: Sequence[str], columns: Floats, fleet: Floats
) -> FleetPlannerMemory:
    """The next memory; brokers that did not report keep what was learned of them."""
    rows = np.round(columns, _DIGITS).tolist()
    learned = {**memory.learned, **dict(zip(names, rows, strict=True))}
    return FleetPlannerMemory(learned=learned, fleet=np.round(fleet, _DIGITS).tolist())
