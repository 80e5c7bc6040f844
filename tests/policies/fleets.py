"""Readable fleets: a dict of brokers becomes the snapshot a policy sees, and a plan becomes names again.

The tests of the policies state their cases with these, so that none of them has to know about columns. Brokers and
bundles may be given in any order; ``snapshot_of`` sorts them, as ``policies.snapshot`` requires.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from policies.shedding.plan import BUNDLE_OUTCOMES, NOBODY, SheddingPlan
from policies.snapshot import BrokerTable, BundleTable, Snapshot
from policies.usage import (
    NOT_MEASURED,
    RESOURCES,
    CapacitySettings,
    Floats,
    UsageSettings,
    capacity_percent,
    percent,
    weighted_maximum_ratio,
)

MemoryT = TypeVar("MemoryT")
SettingsT = TypeVar("SettingsT")

Unload = tuple[str, str, str | None]
"""Bundle, the broker it leaves, the broker it goes to (None: Pulsar chooses)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Average traffic of one bundle, in + out."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    movable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker as it reports itself; a resource it does not name is not measured."""

    usage: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Usage and limit by the names in ``policies.usage.RESOURCES``, ``capacity`` excepted."""
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    listed_count: int | None = None
    """Bundles it lists, heartbeats included; None: exactly those of ``bundles``."""
    may_receive: bool = True


Fleet = Mapping[str, Broker]


def at(
    cpu_points: float,
    *,
    messages_per_s: float = 0.0,
    bytes_per_s: float = 0.0,
    bundles: Mapping[str, Bundle] | None = None,
    listed_count: int | None = None,
    may_receive: bool = True,
) -> Broker:
    """A broker whose CPU, of a limit of 100, is all that is measured."""
    return Broker(
        usage={"cpu": (cpu_points, 100.0)},
        messages_per_s=messages_per_s,
        bytes_per_s=bytes_per_s,
        bundles=bundles or {},
        listed_count=listed_count,
        may_receive=may_receive,
    )


def by_rate(*, masked: str = "", **messages_per_s: float) -> dict[str, Bundle]:
    """Bundles with a message rate each; those named in ``masked`` (space-separated) are not movable."""
    return {
        name: Bundle(messages_per_s=rate, movable=name not in masked.split())
        for name, rate in messages_per_s.items()
    }


def by_volume(*, masked: str = "", **bytes_per_s: float) -> dict[str, Bundle]:
    """Bundles with a throughput each; those named in ``masked`` (space-separated) are not movable."""
    return {
        name: Bundle(bytes_per_s=volume, movable=name not in masked.split())
        for name, volume in bytes_per_s.items()
    }


def snapshot_of(
    fleet: Fleet, *, usage: UsageSettings | None = None, capacity: CapacitySettings | None = None
) -> Snapshot:
    """The columns of a fleet, whatever order its dicts are in."""
    names = tuple(sorted(fleet))
    brokers = [fleet[name] for name in names]
    messages = np.array([broker.messages_per_s for broker in brokers], dtype=np.float64)
    volume = np.array([broker.bytes_per_s for broker in brokers], dtype=np.float64)
    limits = (capacity or CapacitySettings()).limits(names)
    percents = np.column_stack([_measured(brokers), capacity_percent(messages, volume, limits)])
    table = BrokerTable(
        names=names,
        usage_ratio=weighted_maximum_ratio(percents, (usage or UsageSettings()).weights()),
        messages_per_s=messages,
        bytes_per_s=volume,
        listed_bundle_counts=np.array([_listed(broker) for broker in brokers], dtype=np.int64),
        may_receive=np.array([broker.may_receive for broker in brokers], dtype=np.bool_),
    )
    return Snapshot(brokers=table, bundles=_bundles_of(brokers))


def _listed(broker: Broker) -> int:
    return len(broker.bundles) if broker.listed_count is None else broker.listed_count


def _measured(brokers: list[Broker]) -> Floats:
    unread = (NOT_MEASURED, NOT_MEASURED)
    pairs = np.array(
        [[broker.usage.get(resource, unread) for resource in RESOURCES[:-1]] for broker in brokers]
    ).reshape(len(brokers), len(RESOURCES) - 1, 2)
    return percent(pairs[:, :, 0], pairs[:, :, 1])


def _bundles_of(brokers: list[Broker]) -> BundleTable:
    rows = [item for broker in brokers for item in sorted(broker.bundles.items())]
    return BundleTable(
        names=[name for name, _ in rows],
        starts=np.cumsum([0, *(len(broker.bundles) for broker in brokers)]).astype(np.int64),
        messages_per_s=np.array([bundle.messages_per_s for _, bundle in rows], dtype=np.float64),
        bytes_per_s=np.array([bundle.bytes_per_s for _, bundle in rows], dtype=np.float64),
        movable=np.array([bundle.movable for _, bundle in rows], dtype=np.bool_),
    )


def unloads_of(snapshot: Snapshot, plan: SheddingPlan) -> list[Unload]:
    """The unloads of a plan by name, in the policy's order."""
    names = snapshot.brokers.names
    owners = np.searchsorted(snapshot.bundles.starts, plan.unload_rows, side="right") - 1
    return [
        (snapshot.bundles.names[row], names[owner], None if to == NOBODY else names[to])
        for row, owner, to in zip(
            plan.unload_rows.tolist(), owners.tolist(), plan.unload_destinations.tolist(), strict=True
        )
    ]


def tried_of(snapshot: Snapshot, plan: SheddingPlan) -> dict[str, str]:
    """Outcome of every bundle that was tried, in the order tried; fails if one was tried twice."""
    rows = plan.tried_rows.tolist()
    assert len(set(rows)) == len(rows), f"bundles tried twice: {rows}"
    return {
        snapshot.bundles.names[row]: BUNDLE_OUTCOMES[code]
        for row, code in zip(rows, plan.tried_outcomes.tolist(), strict=True)
    }


def examined_of(snapshot: Snapshot, plan: SheddingPlan) -> dict[str, str]:
    """Outcome of everything examined, in order: ``{"busy>idle": outcome}``, or ``{"busy": outcome}`` without pairs."""
    names, examined = snapshot.brokers.names, plan.examined
    pairs = zip(examined.high.tolist(), examined.low.tolist(), strict=True)
    return {
        names[high] if low == NOBODY else f"{names[high]}>{names[low]}": examined.outcome_of(row)
        for row, (high, low) in enumerate(pairs)
    }


def play(
    shed: Callable[[Snapshot, MemoryT, SettingsT], tuple[SheddingPlan, MemoryT]],
    memory: MemoryT,
    settings: SettingsT,
    *rounds: Fleet,
) -> tuple[list[list[Unload]], MemoryT]:
    """Several rounds with memory carried along: the unloads of each, and the memory after the last."""
    unloads = []
    for fleet in rounds:
        snapshot = snapshot_of(fleet)
        plan, memory = shed(snapshot, memory, settings)
        unloads.append(unloads_of(snapshot, plan))
    return unloads, memory
