"""Partitions of which nothing more arrives while others do at the same broker: a disk of it failed, or its fetcher gave them up.

They wait for a person as a copy does whose broker is down, so they are left out of deadline and ETA in the same way. A broker fetches
its partitions in turn, and a single one may stand for a while under a throttle. It stands still when all that its broker fetches had ten
turns meanwhile. A turn is one fetch, 1 MiB (Kafka: ``replica.fetch.max.bytes``).
"""

from collections.abc import Collection

import numpy as np

from policies.throttle.copies import UNKNOWN, Copies, PartitionsByBroker
from policies.throttle.needs import bytes_left
from state.events import MISSING, PartitionTable
from state.kafka.memory import PROGRESS, KafkaMemory

LEAST_MS = 60_000
TURNS = 10
FETCH_BYTES = 1048576


def observe_standstill(
    memory: KafkaMemory, copies: Copies, *, at_ms: int, waiting: Collection[str] = ()
) -> PartitionsByBroker:
    """The partitions that stand still, by the broker that lacks most. Remembers in ``memory`` when each was last seen to shrink.

    ``waiting`` are those of which nothing can arrive now, because a broker is down.
    """
    between = copies.is_between_brokers()
    rows, brokers = copies.destinations.rows[between], copies.destinations.brokers[between]
    left_of_each = bytes_left(copies, counts_whole_logs=False)[between]
    most_last = np.lexsort((left_of_each, rows))
    left, broker = np.zeros((2, len(copies)), dtype=np.int64)
    left[rows[most_last]], broker[rows[most_last]] = left_of_each[most_last], brokers[most_last]
    is_told = np.ones(len(copies), dtype=np.bool_)
    is_told[rows[left_of_each == UNKNOWN]] = False

    places = memory.progress.places_of(copies)
    before = np.zeros((len(copies), len(PROGRESS)), dtype=np.int64)
    before[places != MISSING] = memory.progress.columns[places[places != MISSING], 2:]
    is_same = (places != MISSING) & (before[:, 0] == broker)
    is_waiting = ~copies.is_led()
    if waiting:
        is_waiting |= np.isin(copies.names(), list(waiting))
    shrank = np.where(is_same & is_told, np.maximum(before[:, 1] - left, 0), 0)
    names, at = np.unique(broker, return_inverse=True)
    arrived = np.array([memory.arrived_bytes.get(name, 0) for name in names.tolist()], dtype=np.int64)
    np.add.at(arrived, at, shrank)
    memory.arrived_bytes = dict(zip(names.tolist(), arrived.tolist(), strict=True))

    moves = ~is_same | is_waiting | (shrank > 0) | (is_told & (left == 0))
    since_ms = np.where(moves, at_ms, before[:, 2])
    since_bytes = np.where(moves, arrived[at], before[:, 3])
    left = np.where(is_told | ~is_same, left, before[:, 1])
    memory.progress = PartitionTable.from_copies(
        copies, np.column_stack([broker, left, since_ms, since_bytes]), is_told | is_same
    )
    turns = TURNS * FETCH_BYTES * np.bincount(at, weights=left > 0, minlength=len(names))
    stands = is_told & (at_ms - since_ms >= LEAST_MS) & (arrived[at] - since_bytes >= turns[at])
    found: PartitionsByBroker = {}
    for row in np.flatnonzero(stands & ~moves).tolist():
        found.setdefault(int(broker[row]), []).append(copies.name(row))
    return dict(sorted(found.items()))
