"""How loaded a broker is: one score from the usage and limit of each resource.

The percentage of a resource is computed in IEEE single precision, as Pulsar's ``ResourceUsage.percentUsage`` does:
thresholds compare differently in double precision (30 of 100 is 30.000002 %, so 70 against 30 is not 40 points
apart), and operators compare our decisions with Pulsar's. Weights, the maximum and everything after it are double
precision, as in ``LocalBrokerData.getMaxResourceUsageWithWeight``.

Heap memory is reported but, as in Pulsar's modular load manager, never part of the score.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le, Predicate

from policies.bounds import check_bounds
from policies.columns import Bools, Floats
from policies.wording import digits

RESOURCES = (
    "cpu",
    "bandwidth-in",
    "bandwidth-out",
    "direct-memory",
    "messages",
    "bytes",
    "topics",
    "sessions",
)
"""Column order of every per-resource array. The first four are measured by the broker; the others are what it carries
against the capacity that ``[pulsar.capacity]`` declares."""
_BANDWIDTH = [RESOURCES.index("bandwidth-in"), RESOURCES.index("bandwidth-out")]
_BYTES = RESOURCES.index("bytes")
REPORTED_COUNT = 4
"""How many of them the broker measures."""

NOT_MEASURED = -1.0
"""A limit or usage that the broker could not read; Pulsar's ``SystemResourceUsage`` starts with it."""


LARGEST_WEIGHT = 1e6
"""Largest factor accepted: percentages times it stay far from overflow."""
SMALLEST_CAPACITY = 1e-3
"""Smallest capacity above 0 accepted: traffic divided by it stays far from overflow in single precision."""

_Weight = Annotated[float, Ge(0), Le(LARGEST_WEIGHT)]
_Capacity = Annotated[
    float,
    Predicate(lambda value: value == 0 or value >= SMALLEST_CAPACITY),
    f"0 (not declared) or at least {digits(SMALLEST_CAPACITY)}",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSettings:
    """Weights that multiply each resource's percentage before the largest is taken; 0 leaves a resource out."""

    cpu_weight: _Weight = 1.0
    """Factor of CPU. Set it to 0 where brokers share a host: CPU is then the host's and cannot tell them apart.
    Pulsar: ``loadBalancerCPUResourceWeight``."""
    bandwidth_in_weight: _Weight = 1.0
    """Factor of inbound bandwidth. Pulsar: ``loadBalancerBandwidthInResourceWeight``."""
    bandwidth_out_weight: _Weight = 1.0
    """Factor of outbound bandwidth. Pulsar: ``loadBalancerBandwidthOutResourceWeight``."""
    direct_memory_weight: _Weight = 0.0
    """Factor of direct memory; off by default because it follows caches more than traffic.
    Pulsar: ``loadBalancerDirectMemoryResourceWeight``."""
    capacity_weight: _Weight = 1.0
    """Factor of messages, bytes, topics and sessions against declared capacity (``[pulsar.capacity]``); without a declaration
    it has no effect. Not in Pulsar."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def weights(self) -> Floats:
        """The factors in the order of ``RESOURCES``."""
        reported = (
            self.cpu_weight,
            self.bandwidth_in_weight,
            self.bandwidth_out_weight,
            self.direct_memory_weight,
        )
        return np.array([*reported, *[self.capacity_weight] * len(CAPACITIES)])


CAPACITIES = ("messages_per_s", "bytes_per_s", "topics_count", "sessions_count")
"""The settings of a capacity, in the order of the last of ``RESOURCES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCapacity:
    """What one broker can carry; unset falls back to the default of ``[pulsar.capacity]``."""

    messages_per_s: _Capacity | None = None
    """Messages per second, in and out together; unset = not declared."""
    bytes_per_s: _Capacity | None = None
    """Bytes per second, in and out together; unset = not declared."""
    topics_count: _Capacity | None = None
    """Topics; unset = not declared."""
    sessions_count: _Capacity | None = None
    """Producers and consumers together; unset = not declared."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """Declared capacity: makes what a broker carries resources of their own, each against what is declared.

    For fleets whose CPU and bandwidth cannot tell brokers apart: those with unlike hardware, and those whose load is topics
    and clients rather than traffic. Not in Pulsar.
    """

    messages_per_s: _Capacity | None = None
    """Messages per second a broker can carry, in and out together; unset = not declared."""
    bytes_per_s: _Capacity | None = None
    """Bytes per second a broker can carry, in and out together; unset = not declared."""
    topics_count: _Capacity | None = None
    """Topics that a broker can carry; unset = not declared. Declared, bundles without traffic are moved for their topics, too."""
    sessions_count: _Capacity | None = None
    """Producers and consumers that a broker can carry, together; unset = not declared."""
    brokers: Mapping[str, BrokerCapacity] = field(default_factory=dict)
    """The same for single brokers, by broker id, where the hardware differs."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def limits(self, brokers: tuple[str, ...]) -> Floats:
        """Declared capacity of each broker, (n, capacities); NOT_MEASURED where nothing is declared."""
        limits = np.array([_limit(getattr(self, name)) for name in CAPACITIES])[None, :].repeat(
            len(brokers), axis=0
        )
        for row, name in enumerate(brokers if self.brokers else ()):
            if name in self.brokers:
                declared = [getattr(self.brokers[name], capacity) for capacity in CAPACITIES]
                limits[row] = [
                    usual if value is None else value
                    for usual, value in zip(limits[row], declared, strict=True)
                ]
        return limits


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


def compared(measured: Bools, weights: Floats) -> Bools:
    """By which resources brokers can be compared, (n, resources), from what they measure with a weight above 0.

    A declared capacity of bytes stands for bandwidth, and bandwidth in and out together stand for it.
    """
    counted: Bools = measured & (weights > 0)
    known = counted.copy()
    known[:, _BANDWIDTH] |= counted[:, _BYTES, None]
    known[:, _BYTES] |= counted[:, _BANDWIDTH].all(axis=1)
    return known


def weighted_maximum_ratio(percents: Floats, weights: Floats) -> Floats:
    """Largest weighted percentage of each broker, as a ratio (1.0 = 100 %), shape (n,) from (n, resources).

    Source: Pulsar ``LocalBrokerData.getMaxResourceUsageWithWeight``.
    """
    if percents.shape[0] == 0:
        return np.zeros(0)
    largest: Floats = (percents * weights).max(axis=1)
    return largest / 100.0
