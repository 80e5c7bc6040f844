"""What traffic costs the brokers of a recording, estimated from their reports: half of the CPU above idle goes to messages, half to bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats
from state.events import LoadReport
from streaming.simulator.machines import CPU, Machines

_IDLE_POINTS = 3.0
"""The most CPU that a broker is assumed to need without traffic."""
_NETWORK_BYTES_PER_S = 1.25e9
"""Network capacity that is assumed for a broker that reports none."""


def cpu_points(report: LoadReport) -> float:
    """CPU of a broker in percent of its limit; 0 where it was not measured."""
    usage, limit = report.report.resources[CPU].tolist()
    return 100.0 * usage / limit if limit > 0 else 0.0


@dataclass(slots=True)
class BrokerCosts:
    """Sums over the reports of a broker, so that a recording of any length needs little memory."""

    count: int = 0
    """Reports added."""
    _points: float = 0.0
    _least_points: float = 100.0
    _messages_per_s: float = 0.0
    _bytes_per_s: float = 0.0
    _limits: Floats = field(default_factory=lambda: np.zeros(4))

    def add(self, event: LoadReport) -> None:
        """Take a report into account."""
        points = cpu_points(event)
        self.count += 1
        self._points += points
        self._least_points = min(self._least_points, points)
        self._messages_per_s += event.report.messages_per_s
        self._bytes_per_s += event.report.bytes_per_s
        self._limits = event.report.resources[:, 1]

    def machine(self) -> tuple[float, float, float, float, float]:
        """Cores, network in bytes/s, idle usage in points, core seconds of a message and of a byte."""
        cores = max(1.0, float(self._limits[CPU]) / 100.0)
        kbit_per_s = float(self._limits[1])
        idle = min(_IDLE_POINTS, self._least_points)
        core_s = cores * max(0.0, self._points / self.count - idle) / 100.0
        messages, volume = self._messages_per_s / self.count, self._bytes_per_s / self.count
        return (
            cores,
            kbit_per_s * 1000 / 8 if kbit_per_s > 0 else _NETWORK_BYTES_PER_S,
            idle,
            core_s / 2 / messages if messages > 0 else 0.0,
            core_s / 2 / volume if volume > 0 else 0.0,
        )


def machines_of(costs: Mapping[str, BrokerCosts]) -> Machines:
    """The machines of brokers by name, ascending; each has at least one report."""
    names = tuple(sorted(costs))
    rows = [costs[name].machine() for name in names]
    cores, network, idle, message, byte = (np.array(column) for column in zip(*rows, strict=True))
    return Machines(
        names=names,
        cores=cores,
        network_bytes_per_s=network,
        idle_points=idle,
        cpu_s_per_message=message,
        cpu_s_per_byte=byte,
    )
