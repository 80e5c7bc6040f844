"""Readable fleets: a dict of brokers becomes the snapshot a policy sees, and a plan becomes names again.

The tests of the policies state their cases with these, so that none of them has to know about columns. Brokers and
bundles may be given in any order; ``snapshot_of`` sorts them, as ``policies.snapshot`` requires.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from policies.columns import Floats
from policies.shedding.contract import ADMITTED, BUNDLE_OUTCOMES, SheddingPlan, SheddingPolicy
from policies.shedding.view import NOBODY, BrokerTable, BundleTable, RoundView
from policies.usage import (
    NOT_MEASURED,
    REPORTED_COUNT,
    RESOURCES,
    CapacitySettings,
    UsageSettings,
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
    topics_count: int = 0
    sessions_count: int = 0
    movable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker as it reports itself; a resource it does not name is not measured."""

    usage: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Usage and limit by the names in ``policies.usage.RESOURCES``, those of declared capacity excepted."""
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
    """A broker that measures only its CPU, with a limit of 100."""
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
) -> RoundView:
    """The columns of a fleet, whatever order its dicts are in."""
    names = tuple(sorted(fleet))
    brokers = [fleet[name] for name in names]
    messages = np.array([broker.messages_per_s for broker in brokers], dtype=np.float64)
    volume = np.array([broker.bytes_per_s for broker in brokers], dtype=np.float64)
    resources = _resources(brokers)
    bundles = _bundles_of(brokers)
    counts = np.array([bundles.counts[bundles.rows_of(row)].sum(axis=0) for row in range(len(names))])
    limits = np.column_stack([resources[:, :, 1], (capacity or CapacitySettings()).limits(names)])
    percents = percent(
        np.column_stack([resources[:, :, 0], messages, volume, counts.reshape(-1, 2)]).astype(np.float64),
        limits,
    )
    measured = limits > 0
    weights = (usage or UsageSettings()).weights()
    table = BrokerTable(
        names=names,
        usage_ratio=weighted_maximum_ratio(percents, weights),
        percents=percents,
        limits=limits,
        measured=measured,
        is_measured=np.any(measured & (weights > 0), axis=1),
        report_age_s=np.zeros(len(names)),
        messages_per_s=messages,
        bytes_per_s=volume,
        listed_bundle_counts=np.array([_listed(broker) for broker in brokers], dtype=np.int64),
        may_receive=np.array([broker.may_receive for broker in brokers], dtype=np.bool_),
    )
    return RoundView(brokers=table, bundles=bundles)


def partly_known(
    view: RoundView, *, unsampled: Iterable[str] = (), unmeasured: Iterable[str] = ()
) -> RoundView:
    """The view with bundles that have no sample yet and brokers that measure nothing."""
    sampled = np.array([name not in unsampled for name in view.bundles.names], dtype=np.bool_)
    is_measured = np.array([name not in unmeasured for name in view.brokers.names], dtype=np.bool_)
    return replace(
        view,
        brokers=replace(view.brokers, is_measured=is_measured),
        bundles=replace(view.bundles, sampled=sampled),
    )


def _listed(broker: Broker) -> int:
    return len(broker.bundles) if broker.listed_count is None else broker.listed_count


def _resources(brokers: list[Broker]) -> Floats:
    unread = (NOT_MEASURED, NOT_MEASURED)
    return np.array(
        [
            [broker.usage.get(resource, unread) for resource in RESOURCES[:REPORTED_COUNT]]
            for broker in brokers
        ]
    ).reshape(len(brokers), REPORTED_COUNT, 2)


def _bundles_of(brokers: list[Broker]) -> BundleTable:
    rows = [item for broker in brokers for item in sorted(broker.bundles.items())]
    rates = np.array([[each.messages_per_s, 0.0, each.bytes_per_s, 0.0] for _, each in rows])
    return BundleTable(
        names=[name for name, _ in rows],
        rates=rates.reshape(-1, 4),
        sampled=np.ones(len(rows), dtype=np.bool_),
        starts=np.cumsum([0, *(len(broker.bundles) for broker in brokers)]).astype(np.int64),
        messages_per_s=np.array([bundle.messages_per_s for _, bundle in rows], dtype=np.float64),
        bytes_per_s=np.array([bundle.bytes_per_s for _, bundle in rows], dtype=np.float64),
        counts=np.array(
            [[bundle.topics_count, bundle.sessions_count] for _, bundle in rows], dtype=np.int64
        ).reshape(-1, 2),
        movable=np.array([bundle.movable for _, bundle in rows], dtype=np.bool_),
    )


def unloads_of(snapshot: RoundView, plan: SheddingPlan) -> list[Unload]:
    """The unloads of a plan by name, in the policy's order."""
    names = snapshot.brokers.names
    owners = np.searchsorted(snapshot.bundles.starts, plan.unload_rows, side="right") - 1
    return [
        (snapshot.bundles.names[row], names[owner], None if to == NOBODY else names[to])
        for row, owner, to in zip(
            plan.unload_rows.tolist(), owners.tolist(), plan.unload_destinations.tolist(), strict=True
        )
    ]


def tried_of(snapshot: RoundView, plan: SheddingPlan) -> dict[str, str]:
    """Outcome of every bundle that was tried, in the order tried; fails if one was tried twice."""
    rows = plan.tried_rows.tolist()
    assert len(set(rows)) == len(rows), f"bundles tried twice: {rows}"
    return {
        snapshot.bundles.names[row]: BUNDLE_OUTCOMES[code]
        for row, code in zip(rows, plan.tried_outcomes.tolist(), strict=True)
    }


def examined_of(snapshot: RoundView, plan: SheddingPlan) -> dict[str, str]:
    """Outcome of everything examined, in order: ``{"busy>idle": outcome}``, or ``{"busy": outcome}`` without pairs."""
    names, examined = snapshot.brokers.names, plan.examined
    pairs = zip(examined.high.tolist(), examined.low.tolist(), strict=True)
    return {
        names[high] if low == NOBODY else f"{names[high]}>{names[low]}": examined.outcome_of(row)
        for row, (high, low) in enumerate(pairs)
    }


def decide(
    policy: SheddingPolicy[SettingsT, MemoryT, Any], view: RoundView, memory: MemoryT, settings: SettingsT
) -> tuple[SheddingPlan, MemoryT]:
    """The plan of one round, and the memory after it if all unloads that it wants happen."""
    proposal = policy.plan(view, memory, settings)
    fates = np.full(len(proposal.plan.unload_rows), ADMITTED, dtype=np.int8)
    return proposal.plan, policy.settle(proposal, fates)


def play(
    policy: SheddingPolicy[SettingsT, MemoryT, Any],
    memory: MemoryT,
    settings: SettingsT,
    *rounds: Fleet,
) -> tuple[list[list[Unload]], MemoryT]:
    """Several rounds with memory carried along: the unloads of each, and the memory after the last."""
    unloads = []
    for fleet in rounds:
        snapshot = snapshot_of(fleet)
        plan, memory = decide(policy, snapshot, memory, settings)
        unloads.append(unloads_of(snapshot, plan))
    return unloads, memory


def evidence_names(policy: SheddingPolicy[Any, Any, Any]) -> tuple[str, ...]:
    """The numbers that a policy gives with each row that it examines."""
    snapshot = snapshot_of({"b1": at(80), "b2": at(20)})
    return tuple(policy.plan(snapshot, policy.memory(), policy.settings()).plan.examined.evidence)
