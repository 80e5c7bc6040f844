"""What traffic costs the brokers of a recording, learned from their reports as the controller learns it (``policies.costs``)."""

from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats
from policies.costs import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    IDLE_CPU_POINTS,
    KBIT_PER_BYTE,
    CostMemory,
    Costs,
    learn,
)
from policies.usage import CAPACITIES, NOT_MEASURED, percent
from state.events import BrokerReport, LoadReport
from streaming.simulator.machines import Machines

_ROUND_MS = 60_000


@dataclass(slots=True)
class RecordedCosts:
    """Learns round after round, so that a recording of any length needs little memory."""

    reports_count: int = 0
    _newest: dict[str, BrokerReport] = field(default_factory=dict)
    """The last report of every broker."""
    _waiting: set[str] = field(default_factory=set)
    """Brokers that have reported in the open round."""
    _round: int = 0
    _memory: CostMemory = field(default_factory=CostMemory)

    def add(self, event: LoadReport) -> None:
        """Take a report into account."""
        if event.time_ms // _ROUND_MS > self._round:
            self._end_round()
            self._round = event.time_ms // _ROUND_MS
        self.reports_count += 1
        self._newest[event.broker] = event.report
        self._waiting.add(event.broker)

    def costs(self) -> tuple[tuple[str, ...], Costs]:
        """All brokers, ascending, and their costs as they are known at the end of the recording; there is a report."""
        self._end_round()
        names = tuple(sorted(self._newest))
        return names, self._learn(names, teaches=False)

    def _end_round(self) -> None:
        if self._waiting:
            self._learn(tuple(sorted(self._waiting)), teaches=True)
        self._waiting = set()

    def _learn(self, names: tuple[str, ...], *, teaches: bool) -> Costs:
        resources = np.array([self._newest[name].resources for name in names])
        blank = np.full((len(names), len(CAPACITIES)), NOT_MEASURED)
        limits = np.column_stack([resources[:, :, 1], blank])
        self._memory, costs = learn(
            self._memory,
            names,
            percents=percent(np.column_stack([resources[:, :, 0], blank]), limits),
            limits=limits,
            rates=np.array([_rates(self._newest[name]) for name in names]),
            counts=np.full(len(names), teaches),
            kept=sorted(self._newest),
        )
        return costs


def _rates(report: BrokerReport) -> Floats:
    """Traffic of a broker, (4,): what it reports, in and out as in the bundles it lists."""
    rates: Floats = report.traffic.sum(axis=0)
    for columns, total in ((slice(2), report.messages_per_s), (slice(2, 4), report.bytes_per_s)):
        listed = rates[columns].sum()
        rates[columns] *= total / listed if listed > 0 else 1.0
    return rates


def machines_of(names: tuple[str, ...], costs: Costs) -> Machines:
    """The machines of brokers by what their traffic costs."""
    own = costs.factor[:, :, None] * costs.rule
    limits = costs.limits[:, : BANDWIDTH_OUT + 1]
    measured = limits > 0
    network = np.where(measured, limits, 0.0)[:, BANDWIDTH_IN:].max(axis=1) * 1000 / 8
    return Machines(
        names=names,
        cores=np.where(measured[:, CPU], limits[:, CPU] / 100.0, 1.0),
        network_bytes_per_s=np.where(network > 0, network, np.inf),
        idle_points=np.where(measured[:, CPU], IDLE_CPU_POINTS, 0.0),
        cpu_s_per_message=own[:, CPU, 0] / 100.0,
        cpu_s_per_byte=own[:, CPU, 1] / 100.0,
        network_per_byte=np.stack([own[:, BANDWIDTH_IN], own[:, BANDWIDTH_OUT, ::-1]], axis=1)
        / KBIT_PER_BYTE,
        sessions_count=np.full(len(names), np.inf),
        is_measured=measured,
    )
