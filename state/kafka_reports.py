"""What Kafka's brokers and controller say of the partitions that move; checked at the edge, stored as it is.

Sizes, offsets and rates are Kafka's int64; None is unknown, never 0. Only partitions that move, or are planned to, are
in it.
"""

import msgspec

from policies.throttle.lists import ThrottledLists

Partition = tuple[str, int]
"""Topic and partition."""


class ReplicaRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One replica as its broker has it."""

    topic: str
    partition: int
    leader: bool
    log_size_bytes: int
    log_end_offset: int | None = None

    @property
    def where(self) -> Partition:
        return self.topic, self.partition


class BrokerLogs(msgspec.Struct, frozen=True, array_like=True):
    """One broker: its replicas of moving partitions, the throttle set on it, the traffic of its network."""

    broker: int
    replicas: list[ReplicaRow]
    leader_rate_bytes_per_s: int | None = None
    """Dynamic setting of the broker itself; None: not set, or not known."""
    follower_rate_bytes_per_s: int | None = None
    in_bytes_per_s: int | None = None
    """None: not measured."""
    out_bytes_per_s: int | None = None
    leader_default_bytes_per_s: int | None = None
    """Dynamic setting of all brokers that have none of their own."""
    follower_default_bytes_per_s: int | None = None


class MoveRow(msgspec.Struct, frozen=True, array_like=True):
    """One partition of a reassignment; KIP-455."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """Now; of a move that runs the old and the new ones."""
    adding: tuple[int, ...]
    """Not among ``replicas`` as long as the move is only planned."""
    removing: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]

    @property
    def where(self) -> Partition:
        return self.topic, self.partition

    @property
    def running_adding(self) -> tuple[int, ...]:
        """Those that Kafka is adding already."""
        return tuple(broker for broker in self.adding if broker in self.replicas)

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas in the end."""
        planned = (broker for broker in self.adding if broker not in self.replicas)
        return (*(broker for broker in self.replicas if broker not in self.removing), *planned)


class MovesReport(msgspec.Struct, frozen=True, array_like=True):
    """All that moves in a cluster, with the throttled replica lists of its topics; nothing moves: no rows."""

    moves: list[MoveRow]
    throttled: ThrottledLists = ThrottledLists()
