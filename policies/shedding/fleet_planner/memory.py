"""What the fleet planner remembers, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import iter_unpack

import numpy as np

from policies.columns import Floats
from policies.usage import RESOURCES

ROUNDS, SETTLING, LAST_SEEN = range(3)
"""Columns of a broker: rounds it was seen, rounds until its reports show the present again, and the group's round it was last seen in."""
LAST, VARIANCE, EVIDENCE, RUN, SHIFT, LAG = range(6)
"""Columns of each of a broker's two residuals: the last one, its variance, the evidence that the level has changed, for how many
rounds there has been evidence, the size of the change (a fading sum), and a running average of the last few."""
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
_VALUE = np.dtype("<f8")
_ROW_BYTES = BROKER_COLUMNS * _VALUE.itemsize
_DIGITS = 9
"""Decimal places that are kept: what differs beyond them between processors is not remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlannerMemory:
    """What was learned about each broker, and about the group."""

    learned: Mapping[str, bytes] = field(default_factory=dict)
    """By broker, ``BROKER_COLUMNS`` values of eight bytes each, little-endian: lists of floats would take longer than a calm round."""
    fleet: Sequence[float] = ()
    """``FLEET_VALUES`` values; empty at the beginning."""


def broker_columns(memory: FleetPlannerMemory, names: Sequence[str]) -> Floats:
    """A row for each broker, (n, columns); zeros for one that is new or was remembered in another layout."""
    nothing = bytes(_ROW_BYTES)
    rows = [memory.learned.get(name, nothing) for name in names]
    if set(map(len, rows)) != {_ROW_BYTES}:
        rows = [row if len(row) == _ROW_BYTES else nothing for row in rows]
    return np.frombuffer(b"".join(rows), dtype=_VALUE).reshape(-1, BROKER_COLUMNS).astype(np.float64)


def fleet_values(memory: FleetPlannerMemory) -> Floats:
    """The group's values, (values,)."""
    if len(memory.fleet) != FLEET_VALUES:
        return np.zeros(FLEET_VALUES)
    return np.array(memory.fleet, dtype=np.float64)


def remember(
    memory: FleetPlannerMemory, names: Sequence[str], columns: Floats, fleet: Floats
) -> FleetPlannerMemory:
    """The next memory; brokers that did not report keep what was learned about them."""
    values = np.round(columns, _DIGITS).astype(_VALUE).tobytes()
    rows = chain.from_iterable(iter_unpack(f"{_ROW_BYTES}s", values))
    learned = {**memory.learned, **dict(zip(names, rows, strict=True))}
    return FleetPlannerMemory(learned=learned, fleet=np.round(fleet, _DIGITS).tolist())
