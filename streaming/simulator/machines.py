"""The machines of a simulated fleet: what traffic costs on each of them, and what its broker measures of that.

Usage of a resource is proportional to traffic above an idle part, up to ``KNEE_POINTS``; above it saturates, and never exceeds
100 %. A broker receives the bytes of its bundles once, and sends what comes in to two bookies in addition to its consumers.
"""

from dataclasses import dataclass

import numpy as np

from policies.columns import Floats, Ints

KNEE_POINTS = 80.0
"""Usage above which more demand shows only in part."""
CPU, NETWORK_IN, NETWORK_OUT = range(3)
"""Columns of usage."""
COPIES = 2.0
"""How many bookies the incoming bytes are written to."""


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

    def __len__(self) -> int:
        return len(self.names)

    def cost_points(self, rates: Floats, rows: Ints) -> Floats:
        """Usage that traffic would cost a broker, in points, (k, 3), for rates (k, 4) and a broker's row for each."""
        messages, volume = rates[:, 0] + rates[:, 1], rates[:, 2] + rates[:, 3]
        core_s = messages * self.cpu_s_per_message[rows] + volume * self.cpu_s_per_byte[rows]
        network = self.network_bytes_per_s[rows]
        return np.column_stack(
            [
                100.0 * core_s / self.cores[rows],
                100.0 * rates[:, 2] / network,
                100.0 * (rates[:, 3] + COPIES * rates[:, 2]) / network,
            ]
        )

    def demand_points(self, rates: Floats, owner: Ints) -> Floats:
        """Demand on each broker, in points, (n, 3), not limited by its capacity."""
        totals = np.zeros((len(self), 4))
        for column in range(4):
            totals[:, column] = np.bincount(owner, weights=rates[:, column], minlength=len(self))
        demand = self.cost_points(totals, np.arange(len(self)))
        demand[:, CPU] += self.idle_points
        return demand


def saturate(demand_points: Floats) -> Floats:
    """Usage from demand: the same up to the knee, then less and less, never above 100."""
    room = 100.0 - KNEE_POINTS
    above = np.maximum(demand_points - KNEE_POINTS, 0.0)
    shown: Floats = np.minimum(demand_points, KNEE_POINTS) + room * (1.0 - np.exp(-above / room))
    return shown
