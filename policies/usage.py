"""How loaded a broker is: one score from the usage and limit of each resource.

The percentage of a resource is computed in IEEE single precision, as Pulsar's ``ResourceUsage.percentUsage`` does:
thresholds compare differently in double precision (30 of 100 is 30.000002 %, so 70 against 30 is not 40 points
apart), and operators compare our decisions with Pulsar's. Weights, the maximum and everything after it are double
precision, as in ``LocalBrokerData.getMaxResourceUsageWithWeight``.

Heap memory is reported but, as in Pulsar's modular load manager, never part of the score.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats

RESOURCES = ("cpu", "bandwidth-in", "bandwidth-out", "direct-memory", "capacity")
"""Column order of every per-resource array; ``capacity`` is traffic against the declared capacity."""

NOT_MEASURED = -1.0
"""A limit or usage that the broker could not read; Pulsar's ``SystemResourceUsage`` starts with it."""


LARGEST_WEIGHT = 1e6
"""Largest factor accepted: percentages times it stay far from overflow."""
SMALLEST_CAPACITY = 1e-3
"""Smallest capacity above 0 accepted: traffic divided by it stays far from overflow in single precision."""


def _require_weights(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not 0 <= value <= LARGEST_WEIGHT:
            raise ValueError(f"{name} is {value}; it must be from 0 to {LARGEST_WEIGHT:g}")


def _require_capacities(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None and value != 0 and value < SMALLEST_CAPACITY:
            raise ValueError(
                f"{name} is {value}; it must be 0 (not declared) or at least {SMALLEST_CAPACITY:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSettings:
    """Weights that multiply each resource's percentage before the largest is taken; 0 leaves a resource out."""

    cpu_weight: float = 1.0
    """Factor of CPU. Set it to 0 where brokers share a host: CPU is then the host's and cannot tell them apart.
    Pulsar: ``loadBalancerCPUResourceWeight``."""
    bandwidth_in_weight: float = 1.0
    """Factor of inbound bandwidth. Pulsar: ``loadBalancerBandwidthInResourceWeight``."""
    bandwidth_out_weight: float = 1.0
    """Factor of outbound bandwidth. Pulsar: ``loadBalancerBandwidthOutResourceWeight``."""
    direct_memory_weight: float = 0.0
    """Factor of direct memory; off by default because it follows caches more than traffic.
    Pulsar: ``loadBalancerDirectMemoryResourceWeight``."""
    capacity_weight: float = 1.0
    """Factor of traffic against declared capacity (``[pulsar.capacity]``); without a declaration it has no effect.
    Not in Pulsar."""

    def __post_init__(self) -> None:
        _require_weights(
            self,
            "cpu_weight",
            "bandwidth_in_weight",
            "bandwidth_out_weight",
            "direct_memory_weight",
            "capacity_weight",
        )

    def weights(self) -> Floats:
        """The factors in the order of ``RESOURCES``."""
        return np.array(
            [
                self.cpu_weight,
                self.bandwidth_in_weight,
                self.bandwidth_out_weight,
                self.direct_memory_weight,
                self.capacity_weight,
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCapacity:
    """What one broker can carry; unset falls back to the default of ``[pulsar.capacity]``."""

    messages_per_s: float | None = None
    """Messages per second, in and out together; unset = not declared."""
    bytes_per_s: float | None = None
    """Bytes per second, in and out together; unset = not declared."""

    def __post_init__(self) -> None:
        _require_capacities(self, "messages_per_s", "bytes_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """Declared capacity: makes traffic one more resource, for fleets whose CPU and bandwidth cannot tell brokers apart.

    It is also how unequal hardware is declared. Not in Pulsar.
    """

    messages_per_s: float | None = None
    """Messages per second a broker can carry, in and out together; unset = not declared."""
    bytes_per_s: float | None = None
    """Bytes per second a broker can carry, in and out together; unset = not declared."""
    brokers: Mapping[str, BrokerCapacity] = field(default_factory=dict)
    """The same two for single brokers, by broker id, where the hardware differs."""

    def __post_init__(self) -> None:
        _require_capacities(self, "messages_per_s", "bytes_per_s")

    def limits(self, brokers: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Messages/s and bytes/s of each broker, shape (n,) each; NOT_MEASURED where nothing is declared."""
        messages = np.full(len(brokers), _limit(self.messages_per_s))
        volume = np.full(len(brokers), _limit(self.bytes_per_s))
        if self.brokers:
            for row, name in enumerate(brokers):
                own = self.brokers.get(name)
                if own is not None:
                    messages[row] = messages[row] if own.messages_per_s is None else own.messages_per_s
                    volume[row] = volume[row] if own.bytes_per_s is None else own.bytes_per_s
        return messages, volume


def _limit(declared: float | None) -> float:
    return NOT_MEASURED if declared is None else declared


def percent(usage: Floats, limit: Floats) -> Floats:
    """Percentage of the limit in use, single precision throughout, widened to double at the end.

    Both shapes are equal; any shape will do. A limit of 0 or less (``-1`` of an unread resource) gives 0. Not clamped:
    140 of 100 gives 140. Source: Pulsar ``ResourceUsage.percentUsage``.
    """
    measured = limit > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        used, most = usage.astype(np.float32), limit.astype(np.float32)
        share = np.where(measured, used / np.where(measured, most, np.float32(1)), np.float32(0))
        in_percent: Floats = (share * np.float32(100)).astype(np.float64)
    return in_percent


def capacity_percent(messages_per_s: Floats, bytes_per_s: Floats, limits: tuple[Floats, Floats]) -> Floats:
    """Traffic against declared capacity: the larger of the two percentages, shape (n,); 0 where none is declared."""
    return np.maximum(percent(messages_per_s, limits[0]), percent(bytes_per_s, limits[1]))


def weighted_maximum_ratio(percents: Floats, weights: Floats) -> Floats:
    """Largest weighted percentage of each broker, as a ratio (1.0 = 100 %), shape (n,) from (n, resources).

    Source: Pulsar ``LocalBrokerData.getMaxResourceUsageWithWeight``.
    """
    if percents.shape[0] == 0:
        return np.zeros(0)
    largest: Floats = (percents * weights).max(axis=1)
    return largest / 100.0
