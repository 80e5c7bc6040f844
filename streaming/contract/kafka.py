"""Reports about a Kafka cluster: a broker's replicas of what is copied, and everything that is copied in the whole cluster.

Only partitions of which something is copied, or will be, are reported. Null means unknown and never counts as 0. Unknown fields
are ignored. An impossible reassignment is refused here, so that later code does not have to check again.
"""

from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from policies.throttle.checked_copies import (
    LARGEST_PARTITION,
    TOPIC_PATTERN,
    BadCopy,
    CopyColumns,
    read_copies,
)
from policies.throttle.copies import LARGEST_NUMBER, UNKNOWN, Copies
from policies.throttle.lists import EVERYTHING, BadList, ThrottledLists, entries_of
from policies.throttle.replicas import LARGEST_BROKER
from policies.throttle.roles import ROLES, Role
from state.events import BrokerLogs, CopiesReport, PartitionTable
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
    disk_bytes_per_s: Count | None = None
    """Dynamic setting `replica.alter.log.dirs.io.max.bytes.per.second` of this broker."""
    disk_default_bytes_per_s: Count | None = None
    """The default of all brokers for moves between disks."""


class Network(msgspec.Struct, frozen=True):
    """Traffic of a broker's network; null: not measured."""

    in_bytes_per_s: Count | None = None
    """Received, replication included."""
    out_bytes_per_s: Count | None = None
    """Sent, replication included."""


class Replica(msgspec.Struct, frozen=True, gc=False):
    """A replica of a partition that is copied, as its broker has it."""

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
    missing_bytes: Count | None = None
    """What it lacks, by its own end offset and the size of the leader's records; null: not read. Of a replica that recovers, because
    there sizes do not tell: retention has shortened the leader's log, and not yet the replica's."""
    disk_missing_bytes: Count | None = None
    """What its copy on another of the broker's disks lacks; null: there is none, or not read."""


class KafkaBrokerData(msgspec.Struct, frozen=True):
    """A Kafka broker's load, as far as it matters for what is copied."""

    broker: Broker
    """Its id, the same as the subject."""
    throttle: ThrottleRates = ThrottleRates()
    """The throttle set on it."""
    network: Network = Network()
    """Traffic of its network."""
    replicas: list[Replica] = []
    """Its replicas of partitions of which something is copied, or will be."""
    disk_threads_count: Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)] | None = None
    """How many replicas it moves between its disks at once: `num.replica.alter.log.dirs.threads`, or one for each disk. Null: not read."""


class Move(msgspec.Struct, frozen=True):
    """A partition of which something is copied, or will be: it is reassigned, a replica recovers, or one moves between disks."""

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
    recovering: list[Broker] = []
    """Replicas that are out of sync and that no reassignment adds. The controller takes for a recovery those whose broker was away
    for long enough; as long as it is not alive, the recovery is planned."""
    between_disks: list[Broker] = []
    """Replicas that their broker copies from one of its disks to another."""
    min_isr: Annotated[int, Meta(ge=1, le=LARGEST_BROKER)] | None = None
    """`min.insync.replicas` of its topic; null: not read."""


class Throttled(msgspec.Struct, frozen=True):
    """Throttled replica lists of the topics that are copied, as they are set on the cluster."""

    leader: dict[Topic, str] = {}
    """By topic, `leader.replication.throttled.replicas`: `0:101,0:102`, or `*`."""
    follower: dict[Topic, str] = {}
    """By topic, `follower.replication.throttled.replicas`."""


class ReassignmentData(msgspec.Struct, frozen=True):
    """All copies of a cluster at one moment. Without `moves`, nothing is copied: everything is completed or cancelled."""

    moves: list[Move]
    """Partitions of which something is copied, or will be."""
    throttled: Throttled = Throttled()
    """Throttled replica lists of their topics."""
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
        *(
            [UNKNOWN if number is None else number for number in column]
            for column in (
                [row.log_end_offset for row in rows],
                [row.missing_bytes for row in rows],
                [row.disk_missing_bytes for row in rows],
            )
        ),
    )
    throttle = data.throttle
    return BrokerLogs(
        broker=data.broker,
        replicas=replicas,
        rates=_known(throttle.leader_bytes_per_s, throttle.follower_bytes_per_s, throttle.disk_bytes_per_s),
        default_rates=_known(
            throttle.leader_default_bytes_per_s,
            throttle.follower_default_bytes_per_s,
            throttle.disk_default_bytes_per_s,
        ),
        disk_threads_count=data.disk_threads_count,
        in_bytes_per_s=data.network.in_bytes_per_s,
        out_bytes_per_s=data.network.out_bytes_per_s,
    )


def _known(*rates: int | None) -> dict[Role, int]:
    return {role: rate for role, rate in zip(ROLES, rates, strict=True) if rate is not None}


def copies_report(data: ReassignmentData) -> CopiesReport:
    """The copies as the state keeps them. Raises ``Refusal``."""
    copies, is_running = _copies_of(data.moves)
    for lists in (data.throttled.leader, data.throttled.follower):
        for topic, text in lists.items():
            try:
                if text.strip() != EVERYTHING:
                    entries_of(text)
            except BadList as error:
                raise Refusal("bad-data", f"throttled list of topic {topic}: {error}") from error
    return CopiesReport(
        copies,
        is_running,
        ThrottledLists(leader=data.throttled.leader, follower=data.throttled.follower),
        None if data.live_brokers is None else tuple(data.live_brokers),
    )


def _copies_of(rows: list[Move]) -> tuple[Copies, bool]:
    """What is copied, and whether Kafka already carries out any of the reassignments. Raises ``Refusal``."""
    for row in rows:
        strangers = sorted(set(row.removing) - set(row.replicas))
        if strangers:
            raise Refusal(
                "bad-data",
                f"{row.topic}-{row.partition}: removing has {strangers}, which are not among replicas {row.replicas}",
            )
    running = [[broker for broker in row.adding if broker in row.replicas] for row in rows]
    unknown = [None] * len(rows)
    columns = CopyColumns(
        topics=[row.topic for row in rows],
        partitions=[row.partition for row in rows],
        current=[row.replicas for row in rows],
        adding=running,
        target=[_target(row) for row in rows],
        leaders=[row.leader for row in rows],
        write_bytes_per_s=unknown,
        log_size_bytes=unknown,
        in_sync=[row.isr for row in rows],
        recovering=[row.recovering for row in rows],
        between_disks=[row.between_disks for row in rows],
        min_in_sync=[row.min_isr for row in rows],
    )
    try:
        return read_copies(columns).copies, any(running)
    except BadCopy as error:
        raise Refusal("bad-data", str(error)) from error


def _target(row: Move) -> list[int]:
    """Replicas after the move."""
    planned = (broker for broker in row.adding if broker not in row.replicas)
    return [*(broker for broker in row.replicas if broker not in row.removing), *planned]
