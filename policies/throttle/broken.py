"""Copies that cannot go on, and replicas that a move keeps, because a broker is not alive.

A copy is *broken* where its destination is not alive, or where nothing is left to copy from: the partition has no live leader,
and none of its in-sync sources, which alone may lead, is alive. A source that the move removes breaks nothing.
"""

from collections.abc import Collection

import numpy as np

from policies.columns import Bools
from policies.throttle.moves import Moves
from policies.throttle.replicas import ReplicaSet

PartitionsByBroker = dict[int, list[str]]
"""Names of partitions by the broker they wait for, both ascending."""


def broken_copies(moves: Moves, down: Collection[int]) -> PartitionsByBroker:
    """The partitions whose copies wait for a broker in ``down``."""
    if not down:
        return {}
    has_source = moves.is_led() & ~np.isin(moves.leader, list(down))
    in_sync = moves.sources - (moves.sources - moves.in_sync)
    without_in_sync = in_sync.counts(len(moves)) == 0  # not reported: any source may have all of it
    sources = in_sync | _of_rows(moves.sources, without_in_sync)
    has_source[sources.rows[~_is_down(sources, down)]] = True
    return _names(moves, moves.added | _of_rows(sources, ~has_source), down)


def kept_replicas_down(moves: Moves, down: Collection[int]) -> PartitionsByBroker:
    """The partitions with a replica on a broker in ``down`` that they keep."""
    return _names(moves, moves.sources - (moves.sources - moves.target), down) if down else {}


def _is_down(replicas: ReplicaSet, down: Collection[int]) -> Bools:
    found: Bools = np.isin(replicas.brokers, list(down))
    return found


def _of_rows(replicas: ReplicaSet, rows: Bools) -> ReplicaSet:
    return ReplicaSet(replicas.keys[rows[replicas.rows]])


def _names(moves: Moves, replicas: ReplicaSet, down: Collection[int]) -> PartitionsByBroker:
    found: PartitionsByBroker = {}
    is_down = _is_down(replicas, down)
    for row, broker in zip(replicas.rows[is_down].tolist(), replicas.brokers[is_down].tolist(), strict=True):
        found.setdefault(broker, []).append(moves.name(row))
    return dict(sorted(found.items()))
