"""What Kafka's brokers and controller report about the partitions that move; checked at the edge, stored as it is.

Rows are columns of little-endian int64 in bytes, because a cluster may move 100,000 partitions at once. Sizes, offsets and
rates are Kafka's int64; an unknown one is None or ``UNKNOWN``, never 0. Only partitions that move, or are planned to move, are in it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from policies.columns import Ints
from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import UNKNOWN, MoveColumns, Moves, ReplicaSet, read_moves

_INT64 = "<i8"


class ReplicaTable(msgspec.Struct, frozen=True, array_like=True):
    """Replicas of one broker; n rows in any order."""

    topics: tuple[str, ...] = ()
    """Names, each once."""
    columns: bytes = b""
    """Place in ``topics``, partition, log size in bytes, end offset or ``UNKNOWN``: (4, n)."""

    @classmethod
    def of(
        cls,
        topics: Sequence[str],
        partitions: Sequence[int],
        log_size_bytes: Sequence[int],
        end_offsets: Sequence[int | None],
    ) -> "ReplicaTable":
        """A table from the given columns, n values each; an end offset is None where it is unknown."""
        places = {topic: place for place, topic in enumerate(dict.fromkeys(topics))}
        offsets = [UNKNOWN if each is None else each for each in end_offsets]
        columns = [[places[topic] for topic in topics], partitions, log_size_bytes, offsets]
        return cls(tuple(places), _bytes_of(np.array(columns, dtype=_INT64)))

    def read(self) -> Ints:
        """The columns, (4, n)."""
        found: Ints = _ints_of(self.columns).reshape(4, -1)
        return found

    def __len__(self) -> int:
        return len(self.columns) // 32


class BrokerLogs(msgspec.Struct, frozen=True, array_like=True):
    """One broker: its replicas of moving partitions, the throttle set on it, the traffic of its network."""

    broker: int
    replicas: ReplicaTable
    leader_rate_bytes_per_s: int | None = None
    """Dynamic setting of the broker itself; None: not set, or not known."""
    follower_rate_bytes_per_s: int | None = None
    in_bytes_per_s: int | None = None
    """None: not measured."""
    out_bytes_per_s: int | None = None
    leader_default_bytes_per_s: int | None = None
    """Dynamic setting for all brokers that have none of their own."""
    follower_default_bytes_per_s: int | None = None


class MoveRow(NamedTuple):
    """One partition of a reassignment; KIP-455."""

    topic: str
    partition: int
    replicas: Sequence[int]
    """Replicas now; while the move runs, the old and the new ones."""
    adding: Sequence[int]
    """Replicas that the move adds; not among ``replicas`` as long as the move is only planned."""
    removing: Sequence[int]
    leader: int
    isr: Sequence[int]


class MoveTable(msgspec.Struct, frozen=True, array_like=True):
    """Partitions that gain a replica; n rows ascending by topic and partition, as ``policies.throttle.moves.Moves`` has them."""

    topics: tuple[str, ...] = ()
    rows: bytes = b""
    """Place in ``topics``, partition, leader or ``NO_LEADER``: (3, n)."""
    sources: bytes = b""
    """Keys of a ``ReplicaSet``, as are the next three."""
    added: bytes = b""
    target: bytes = b""
    in_sync: bytes = b""
    is_running: bool = False
    """Whether Kafka already carries out any of these moves; they may also be only planned."""

    @classmethod
    def of(cls, moves: Moves, *, is_running: bool) -> "MoveTable":
        """A table from checked moves, without their rates and sizes, which come from elsewhere."""
        return cls(
            topics=moves.topics,
            rows=_bytes_of(np.stack([moves.topic, moves.partition, moves.leader])),
            sources=_bytes_of(moves.sources.keys),
            added=_bytes_of(moves.added.keys),
            target=_bytes_of(moves.target.keys),
            in_sync=_bytes_of(moves.in_sync.keys),
            is_running=is_running,
        )

    @classmethod
    def of_rows(cls, rows: Sequence[MoveRow]) -> "MoveTable":
        """A table from partitions in any order; those that gain no replica are left out. Raises ``BadMove``."""
        unknown = [None] * len(rows)
        running = [[broker for broker in row.adding if broker in row.replicas] for row in rows]
        found = read_moves(
            MoveColumns(
                topics=[row.topic for row in rows],
                partitions=[row.partition for row in rows],
                current=[row.replicas for row in rows],
                adding=running,
                target=[_target(row) for row in rows],
                leaders=[row.leader for row in rows],
                write_bytes_per_s=unknown,
                log_size_bytes=unknown,
                in_sync=[row.isr for row in rows],
            )
        )
        return cls.of(found.moves, is_running=any(running))

    def read(self) -> Moves:
        """The moves; every rate and size is ``UNKNOWN``."""
        topic, partition, leader = _ints_of(self.rows).reshape(3, -1)
        added = ReplicaSet(_ints_of(self.added))
        unknown = np.full(len(partition), UNKNOWN, dtype=np.int64)
        return Moves(
            topics=self.topics,
            topic=topic,
            partition=partition,
            sources=ReplicaSet(_ints_of(self.sources)),
            added=added,
            target=ReplicaSet(_ints_of(self.target)),
            in_sync=ReplicaSet(_ints_of(self.in_sync)),
            leader=leader,
            write_bytes_per_s=unknown,
            log_size_bytes=unknown,
            present_bytes=np.full(len(added.keys), UNKNOWN, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.rows) // 24


class MovesReport(msgspec.Struct, frozen=True, array_like=True):
    """All partitions that move in a cluster, and the throttled replica lists of its topics; no rows if nothing moves."""

    moves: MoveTable
    throttled: ThrottledLists = ThrottledLists()
    live_brokers: tuple[int, ...] | None = None
    """Brokers that are registered and not fenced; None: not known."""


def _target(row: MoveRow) -> list[int]:
    """Replicas after the move."""
    planned = (broker for broker in row.adding if broker not in row.replicas)
    return [*(broker for broker in row.replicas if broker not in row.removing), *planned]


def _bytes_of(values: Ints) -> bytes:
    return values.astype(_INT64).tobytes()


def _ints_of(values: bytes) -> Ints:
    return np.frombuffer(values, dtype=_INT64)
