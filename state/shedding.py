"""The shedding policy of a round, run for each group of brokers by itself, and its plans put together.

Invariants: with one group the policy sees the whole snapshot and its plan is the round's. With several each sees its own
brokers only, with the memory of its own brokers, whether they reported or not; nothing crosses a group, because nothing
outside it is there to be compared with or moved to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from policies.placement import Known, place
from policies.shedding import avg_shedder, overload_shedder, threshold_shedder, uniform_load_shedder
from policies.shedding.avg_shedder import AvgShedderMemory
from policies.shedding.plan import NOBODY, Examined, SheddingPlan
from policies.shedding.threshold_shedder import ThresholdShedderMemory
from policies.snapshot import BrokerTable, BundleTable, Ints, Snapshot
from policies.splitting.plan import Proposals
from policies.splitting.relief import relief
from state.groups import Groups
from state.memory import Fleet
from state.settings import PulsarSettings
from state.tables import Eligible

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, eq=False)
class Shed:
    """What the policy wants, in rows of the whole snapshot."""

    plan: SheddingPlan
    parts: tuple["Part", ...]
    plans: tuple[SheddingPlan, ...]
    """Plan of each part, in rows of its own."""

    def proposals(self) -> Proposals:
        """Bundles that alone overload their broker within their group."""
        found = [relief(part.snapshot, plan) for part, plan in zip(self.parts, self.plans, strict=True)]
        if len(found) == 1:
            return found[0]
        rows = np.concatenate([part.bundles[each.rows] for part, each in zip(self.parts, found, strict=True)])
        order = np.argsort(rows, kind="stable")
        return Proposals(
            rows=rows[order],
            triggers=np.concatenate([each.triggers for each in found])[order],
            boundaries_counts=np.concatenate([each.boundaries_counts for each in found])[order],
            means_per_s=np.concatenate([each.means_per_s for each in found])[order],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One group of a round: its brokers and the bundles they own."""

    group: int
    brokers: Ints
    """Broker rows of the whole snapshot."""
    bundles: Ints
    """Bundle rows of it."""
    snapshot: Snapshot
    known: Known


def shed(table: Eligible, fleet: Fleet, pulsar: PulsarSettings, groups: Groups) -> Shed:
    """Decide for each group; what the policy remembers goes to ``fleet``."""
    parts = _parts(table)
    memories = _memories(fleet, groups, parts)
    plans = tuple(_decide(part, memory, pulsar) for part, memory in zip(parts, memories, strict=True))
    _keep(fleet, groups, parts, memories)
    plan = plans[0] if len(parts) == 1 else _merged(parts, plans)
    return Shed(plan, parts, plans)


def _parts(table: Eligible) -> tuple[Part, ...]:
    """The groups that have a broker in the snapshot, the default one first; never none."""
    found = np.unique(table.broker_groups)
    if len(found) <= 1:
        count = len(table.snapshot.brokers), len(table.snapshot.bundles)
        group = int(found[0]) if len(found) else 0
        brokers, bundles = np.arange(count[0]), np.arange(count[1])
        return (Part(group, brokers, bundles, table.snapshot, table.known),)
    return tuple(_part(table, group) for group in found.tolist())


def _part(table: Eligible, group: int) -> Part:
    brokers, bundles = table.snapshot.brokers, table.snapshot.bundles
    rows = np.flatnonzero(table.broker_groups == group)
    counts = bundles.starts[rows + 1] - bundles.starts[rows]
    taken = np.concatenate([np.arange(bundles.starts[row], bundles.starts[row + 1]) for row in rows.tolist()])
    snapshot = Snapshot(
        brokers=BrokerTable(
            names=tuple(brokers.names[row] for row in rows.tolist()),
            usage_ratio=brokers.usage_ratio[rows],
            messages_per_s=brokers.messages_per_s[rows],
            bytes_per_s=brokers.bytes_per_s[rows],
            listed_bundle_counts=brokers.listed_bundle_counts[rows],
            may_receive=brokers.may_receive[rows],
        ),
        bundles=BundleTable(
            names=[bundles.names[row] for row in taken.tolist()],
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            messages_per_s=bundles.messages_per_s[taken],
            bytes_per_s=bundles.bytes_per_s[taken],
            movable=bundles.movable[taken],
        ),
    )
    known = Known(sampled=table.known.sampled[taken], measured=table.known.measured[rows])
    return Part(group, rows, taken, snapshot, known)


@dataclass(slots=True)
class _Memory:
    """What the policies remember of one group's brokers."""

    avg_shedder: AvgShedderMemory
    threshold_shedder: ThresholdShedderMemory


def _memories(fleet: Fleet, groups: Groups, parts: Sequence[Part]) -> list[_Memory]:
    if groups.is_one:
        return [_Memory(fleet.avg_shedder, fleet.threshold_shedder)]
    low = groups.split_by_broker(fleet.avg_shedder.low_hits)
    high = groups.split_by_broker(fleet.avg_shedder.high_hits)
    history = groups.split_by_broker(fleet.threshold_shedder.history_ratio)
    return [
        _Memory(
            AvgShedderMemory(low_hits=low.get(part.group, {}), high_hits=high.get(part.group, {})),
            ThresholdShedderMemory(history_ratio=history.get(part.group, {})),
        )
        for part in parts
    ]


def _keep(fleet: Fleet, groups: Groups, parts: Sequence[Part], memories: Sequence[_Memory]) -> None:
    """Put the memories together; a group without a broker in the snapshot keeps its own."""
    if groups.is_one:
        fleet.avg_shedder, fleet.threshold_shedder = memories[0].avg_shedder, memories[0].threshold_shedder
        return
    ran = {part.group for part in parts}

    def together(before: Mapping[str, ValueT], after: Sequence[Mapping[str, ValueT]]) -> dict[str, ValueT]:
        kept = [each for group, each in groups.split_by_broker(before).items() if group not in ran]
        return dict(sorted(chain.from_iterable(each.items() for each in (*kept, *after))))

    hits, history = fleet.avg_shedder, fleet.threshold_shedder
    fleet.avg_shedder = AvgShedderMemory(
        low_hits=together(hits.low_hits, [each.avg_shedder.low_hits for each in memories]),
        high_hits=together(hits.high_hits, [each.avg_shedder.high_hits for each in memories]),
    )
    fleet.threshold_shedder = ThresholdShedderMemory(
        history_ratio=together(
            history.history_ratio, [each.threshold_shedder.history_ratio for each in memories]
        )
    )


def _decide(part: Part, memory: _Memory, pulsar: PulsarSettings) -> SheddingPlan:
    return place(
        part.snapshot,
        _run_policy(part.snapshot, memory, pulsar),
        part.known,
        strategy=pulsar.placement,
        overloaded_ratio=pulsar.overload_shedder.threshold_ratio,
    )


def _run_policy(snapshot: Snapshot, memory: _Memory, pulsar: PulsarSettings) -> SheddingPlan:
    """Run the chosen policy and keep its next memory in ``memory``."""
    match pulsar.shedding_policy:
        case avg_shedder.NAME:
            plan, memory.avg_shedder = avg_shedder.shed(snapshot, memory.avg_shedder, pulsar.avg_shedder)
            return plan
        case threshold_shedder.NAME:
            plan, memory.threshold_shedder = threshold_shedder.shed(
                snapshot, memory.threshold_shedder, pulsar.threshold_shedder
            )
            return plan
        case uniform_load_shedder.NAME:
            return uniform_load_shedder.shed(snapshot, pulsar.uniform_load_shedder)
        case overload_shedder.NAME:
            return overload_shedder.shed(snapshot, pulsar.overload_shedder)
    assert_never(pulsar.shedding_policy)


def _merged(parts: Sequence[Part], plans: Sequence[SheddingPlan]) -> SheddingPlan:
    """The plans one after the other, in rows of the whole snapshot. One policy made them all, so their words agree."""
    starts = np.cumsum([0, *(len(plan.examined) for plan in plans)])[:-1].tolist()
    placed = [plan for plan in plans if len(plan.unload_rows)]
    pairs = list(zip(parts, plans, strict=True))
    return SheddingPlan(
        examined=_merged_examined(pairs),
        unload_rows=np.concatenate([part.bundles[plan.unload_rows] for part, plan in pairs]),
        unload_destinations=np.concatenate(
            [_brokers(part, plan.unload_destinations) for part, plan in pairs]
        ),
        unload_examined=np.concatenate(
            [plan.unload_examined + start for plan, start in zip(plans, starts, strict=True)]
        ),
        unload_evidence={
            name: np.concatenate([plan.unload_evidence[name] for plan in placed])
            for name in (placed[0].unload_evidence if placed else ())
        },
        tried_rows=np.concatenate([part.bundles[plan.tried_rows] for part, plan in pairs]),
        tried_outcomes=np.concatenate([plan.tried_outcomes for plan in plans]),
        tried_examined=np.concatenate(
            [plan.tried_examined + start for plan, start in zip(plans, starts, strict=True)]
        ),
    )


def _merged_examined(pairs: Sequence[tuple[Part, SheddingPlan]]) -> Examined:
    all_examined = [plan.examined for _, plan in pairs]
    first = all_examined[0]
    return Examined(
        high=np.concatenate([part.brokers[plan.examined.high] for part, plan in pairs]),
        low=np.concatenate([_brokers(part, plan.examined.low) for part, plan in pairs]),
        outcome=np.concatenate([each.outcome for each in all_examined]),
        outcomes=first.outcomes,
        trigger=np.concatenate([each.trigger for each in all_examined]),
        triggers=first.triggers,
        evidence={
            name: np.concatenate([each.evidence[name] for each in all_examined]) for name in first.evidence
        },
    )


def _brokers(part: Part, rows: Ints) -> NDArray[np.int64]:
    """Broker rows of the whole snapshot; NOBODY stays nobody."""
    return np.where(rows == NOBODY, NOBODY, part.brokers[rows])
