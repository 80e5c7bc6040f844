"""What the fleet planner remembers, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from struct import iter_unpack
from typing import NamedTuple

import numpy as np

from policies.columns import Floats
from policies.usage import RESOURCES

_R = len(RESOURCES)


class Residual(NamedTuple):
    """Where one of the two differences between reports and levels is remembered, by resource: columns of a broker, then values of the group."""

    offset: slice
    """What the level has of it."""
    last: slice
    """What the last report showed."""
    variance: slice
    run: slice
    """For how many rounds it has been beyond noise on one side."""
    noise: slice
    """Variance of the group."""
    steps: slice
    """Half the variance of what differs from one round to the next: what of the noise does not last."""
    rounds: int
    """Rounds that this was learned from."""


def _residual(column: int, value: int) -> Residual:
    offset, last, variance, run = (slice(column + at * _R, column + (at + 1) * _R) for at in range(4))
    noise, steps = (slice(value + at * _R, value + (at + 1) * _R) for at in range(2))
    return Residual(offset, last, variance, run, noise, steps, value + 2 * _R)


ROUNDS, SETTLING, EVIDENCE = range(3)
"""Columns of a broker: rounds it was seen, rounds until its reports show the present again, and the evidence that it is above the coldest
by more than is acceptable."""
TRAFFIC = _residual(3, 0)
"""What the present traffic costs beyond its running averages, in points."""
COST = _residual(3 + 4 * _R, 1 + 2 * _R)
"""What usage shows beyond the cost of the present traffic, in points."""
BROKER_COLUMNS = 3 + 8 * _R
UNFINISHED = 2 + 4 * _R
"""Value of the group: 1 while the last plan was cut short."""
FLEET_VALUES = UNFINISHED + 1
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


def note_unfinished(memory: FleetPlannerMemory) -> FleetPlannerMemory:
    """The memory of a plan that goes on in the next round."""
    fleet = fleet_values(memory)
    fleet[UNFINISHED] = True
    return replace(memory, fleet=fleet.tolist())
