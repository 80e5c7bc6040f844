"""Reports about a Kafka cluster: a broker's replicas that move, and everything that moves in the whole cluster.

Only partitions that move, or are planned to move, are reported. Null means unknown and never counts as 0. Unknown fields
are ignored. An impossible reassignment is refused here, so that later code does not have to check again.
"""

from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from policies.throttle.lists import EVERYTHING, BadList, ThrottledLists, entries_of
from policies.throttle.moves import (
    LARGEST_BROKER,
    LARGEST_NUMBER,
    LARGEST_PARTITION,
    TOPIC_PATTERN,
    UNKNOWN,
    BadMove,
    MoveColumns,
    Moves,
    read_moves,
)
from policies.throttle.roles import ROLES, Role
from state.events import BrokerLogs, MovesReport, PartitionTable
from streaming.contract.refusal import Refusal

Topic = Annotated[str, Meta(pattern=rf"^{TOPIC_PATTERN}(?![\s\S])")]
Broker = Annotated[int, Meta(ge=0, le=LARGEST_BROKER)]
MaybeBroker = Annotated[int, Meta(ge=-1, le=LARGEST_BROKER)]
PartitionNumber = Annotated[int, Meta(ge=0, le=LARGEST_PARTITION)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]


class ThrottleRates(msgspec.Struct, frozen=True):
    """The throttle that is set on a broker; null: none, or not known."""

    leader_bytes_per_s: Count | None = None
    """Dynamic setting `leader.replication.throttled.rate` of this broker."""
    follower_bytes_per_s: Count | None = None
    """Dynamic setting `follower.replication.throttled.rate` of this broker."""
    leader_default_bytes_per_s: Count | None = None
    """The same setting as the default of all brokers; a broker's own setting takes precedence."""
    follower_default_bytes_per_s: Count | None = None
    """The default of all brokers for followers."""


class Network(msgspec.Struct, frozen=True):
    """Traffic of a broker's network; null: not measured."""

    in_bytes_per_s: Count | None = None
    """Received, replication included."""
    out_bytes_per_s: Count | None = None
    """Sent, replication included."""


class Replica(msgspec.Struct, frozen=True, gc=False):
    """A replica of a moving partition as its broker has it."""

    topic: Topic
    """Topic."""
    partition: PartitionNumber
    """Partition."""
    leader: bool
    """Whether the broker leads the partition."""
    log_size_bytes: Count
    """Size of the replica's log on this broker."""
    log_end_offset: Count | None = None
    """End offset; null: not read."""


class KafkaBrokerData(msgspec.Struct, frozen=True):
    """A Kafka broker's load, as far as it matters for reassignments."""

    broker: Broker
    """Its id, the same as the subject."""
    throttle: ThrottleRates = ThrottleRates()
    """The throttle set on it."""
    network: Network = Network()
    """Traffic of its network."""
    replicas: list[Replica] = []
    """Its replicas of partitions that move or are planned to move."""


class Move(msgspec.Struct, frozen=True):
    """A partition that moves or is planned to move."""

    topic: Topic
    """Topic."""
    partition: PartitionNumber
    """Partition."""
    replicas: list[Broker]
    """Replicas now; while the move runs, the old and the new ones together."""
    leader: MaybeBroker
    """Live leader; -1: none."""
    adding: list[Broker] = []
    """Replicas it gains; not among `replicas` as long as the move is only planned."""
    removing: list[Broker] = []
    """Replicas it loses in the end."""
    isr: list[Broker] = []
    """In-sync replicas."""


class Throttled(msgspec.Struct, frozen=True):
    """Throttled replica lists of the topics that move, as they are set on the cluster."""

    leader: dict[Topic, str] = {}
    """By topic, `leader.replication.throttled.replicas`: `0:101,0:102`, or `*`."""
    follower: dict[Topic, str] = {}
    """By topic, `follower.replication.throttled.replicas`."""


class ReassignmentData(msgspec.Struct, frozen=True):
    """All reassignments of a cluster at one moment. Without moves, nothing moves: all are completed or cancelled."""

    moves: list[Move]
    """Partitions that move or are planned to move."""
    throttled: Throttled = Throttled()
    """Throttled replica lists of the topics that move."""
    live_brokers: list[Broker] | None = None
    """All brokers of the cluster that are registered and not fenced, whether or not they could be read; null: not known."""


def broker_logs(data: KafkaBrokerData, *, subject: str) -> BrokerLogs:
    """The report as the state keeps it. Raises ``Refusal``."""
    if subject != str(data.broker):
        raise Refusal(
            "bad-data", f"subject is {subject[:200]!r}, and data.broker is {data.broker}: they must be equal"
        )
    rows = data.replicas
    if len({(row.topic, row.partition) for row in rows}) < len(rows):
        names = sorted(f"{row.topic}-{row.partition}" for row in rows)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise Refusal("bad-data", f"{twice} is reported twice; report each replica once")
    replicas = PartitionTable.of_rows(
        [row.topic for row in rows],
        [row.partition for row in rows],
        [row.log_size_bytes for row in rows],
        [UNKNOWN if row.log_end_offset is None else row.log_end_offset for row in rows],
    )
    throttle = data.throttle
    return BrokerLogs(
        broker=data.broker,
        replicas=replicas,
        rates=_known(throttle.leader_bytes_per_s, throttle.follower_bytes_per_s),
        default_rates=_known(throttle.leader_default_bytes_per_s, throttle.follower_default_bytes_per_s),
        in_bytes_per_s=data.network.in_bytes_per_s,
        out_bytes_per_s=data.network.out_bytes_per_s,
    )


def _known(leader: int | None, follower: int | None) -> dict[Role, int]:
    return {role: rate for role, rate in zip(ROLES, (leader, follower), strict=True) if rate is not None}


def moves_report(data: ReassignmentData) -> MovesReport:
    """The reassignments as the state keeps them. Raises ``Refusal``."""
    moves, is_running = _moves_of(data.moves)
    for lists in (data.throttled.leader, data.throttled.follower):
        for topic, text in lists.items():
            try:
                if text.strip() != EVERYTHING:
                    entries_of(text)
            except BadList as error:
                raise Refusal("bad-data", f"throttled list of topic {topic}: {error}") from error
    return MovesReport(
        moves,
        is_running,
        ThrottledLists(leader=data.throttled.leader, follower=data.throttled.follower),
        None if data.live_brokers is None else tuple(data.live_brokers),
    )


def _moves_of(rows: list[Move]) -> tuple[Moves, bool]:
    """The partitions that gain a replica, and whether Kafka already carries out any of the moves. Raises ``Refusal``."""
    for row in rows:
        strangers = sorted(set(row.removing) - set(row.replicas))
        if strangers:
            raise Refusal(
                "bad-data",
                f"{row.topic}-{row.partition}: removing has {strangers}, which are not among replicas {row.replicas}",
            )
    running = [[broker for broker in row.adding if broker in row.replicas] for row in rows]
    unknown = [None] * len(rows)
    columns = MoveColumns(
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
    try:
        return read_moves(columns).moves, any(running)
    except BadMove as error:
        raise Refusal("bad-data", str(error)) from error


def _target(row: Move) -> list[int]:
    """Replicas after the move."""
    planned = (broker for broker in row.adding if broker not in row.replicas)
    return [*(broker for broker in row.replicas if broker not in row.removing), *planned]
