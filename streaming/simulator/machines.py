"""The machines of a simulated fleet: what traffic costs on each of them, and what its broker measures of that.

Usage of a resource is proportional to traffic above an idle part, up to ``KNEE_POINTS``; above it saturates, and never exceeds
100 %. A broker receives the bytes of its bundles once, and sends what comes in to two bookies in addition to its consumers. What it
can hold of sessions (producers and consumers) is a resource as well.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.columns import Bools, Floats, Ints

KNEE_POINTS = 80.0
"""Usage above which more demand shows only in part."""
CPU, NETWORK_IN, NETWORK_OUT, SESSIONS = range(4)
"""Columns of usage; brokers report the first three."""
NETWORK_PER_BYTE: Final = ((1.0, 0.0), (2.0, 1.0))
"""Bytes on the network, in and out, for a byte that comes in and for one that goes out: two bookies get what comes in."""
SESSIONS_COUNT: Final = 100_000.0
"""Sessions that a broker of a made-up fleet can hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machines:
    """One row for each broker that is ever part of the fleet; n rows."""

    names: tuple[str, ...]
    """Broker ids, ascending."""
    cores: Floats
    """(n,)."""
    network_bytes_per_s: Floats
    """What the network carries each way, (n,)."""
    idle_points: Floats
    """CPU without traffic, (n,)."""
    cpu_s_per_message: Floats
    """Core seconds of a message in or out, (n,)."""
    cpu_s_per_byte: Floats
    """Core seconds of a byte in or out, (n,)."""
    network_per_byte: Floats
    """(n, 2, 2): see ``NETWORK_PER_BYTE``."""
    sessions_count: Floats
    """Sessions that each can hold, (n,)."""
    is_measured: Bools
    """Whether a broker knows its CPU and its network each way, (n, 3)."""

    def __len__(self) -> int:
        return len(self.names)

    def cost_points(self, rates: Floats, rows: Ints) -> Floats:
        """Usage that traffic would cost a broker, in points, (k, 4), for rates (k, 5) and a broker's row for each."""
        messages, volume = rates[:, 0] + rates[:, 1], rates[:, 2] + rates[:, 3]
        core_s = messages * self.cpu_s_per_message[rows] + volume * self.cpu_s_per_byte[rows]
        carried = (self.network_per_byte[rows] * rates[:, None, 2:4]).sum(axis=2)
        return np.column_stack(
            [
                100.0 * core_s / self.cores[rows],
                100.0 * carried / self.network_bytes_per_s[rows, None],
                100.0 * rates[:, 4] / self.sessions_count[rows],
            ]
        )

    def demand_points(self, rates: Floats, owner: Ints) -> Floats:
        """Demand on each broker, in points, (n, 4), not limited by its capacity."""
        totals = np.zeros((len(self), rates.shape[1]))
        for column in range(rates.shape[1]):
            totals[:, column] = np.bincount(owner, weights=rates[:, column], minlength=len(self))
        demand = self.cost_points(totals, np.arange(len(self)))
        demand[:, CPU] += self.idle_points
        return demand


def saturate(demand_points: Floats) -> Floats:
    """Usage from demand: the same up to the knee, then less and less, never above 100."""
    room = 100.0 - KNEE_POINTS
    above = np.maximum(demand_points - KNEE_POINTS, 0.0)
    return np.minimum(demand_points, KNEE_POINTS) + room * (1.0 - np.exp(-above / room))
