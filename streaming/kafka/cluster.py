"""A cluster's admin API as programs use it: reads the cluster, reads and sets its throttle, and raises our own errors.

What could not be read is absent and named, never 0. If a broker does not answer, only its own numbers are missing.
Sources: KIP-455 (running reassignments), KIP-113 and KIP-827 (log directories and their space).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
)
from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from policies.throttle.copies import NO_LEADER
from streaming.kafka.client import ClusterError, Unanswered, connected, describe_error
from streaming.kafka.link import KafkaLink
from streaming.kafka.throttles import Change, ThrottlesFound, make_change, read_throttles
from streaming.settings import KafkaTarget

_METADATA_AGE_MAX_MS = 5_000
"""An open client cannot reach a broker that came back before it reads the metadata again: with kafka-python's default of 5 minutes
it could not for 288 s, with this for 3 s. The metadata that it reads are the list of brokers."""
_DEBUGGING_REPLICA = -2
"""The replica id with which any replica tells the end of its own log, and not only the leader. Source: ``ListOffsetsRequest``."""
Partition = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Where a partition is."""

    replicas: tuple[int, ...]
    """While the partition moves, the old and the new ones."""
    leader: int
    """-1: none."""
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMove:
    """A reassignment that Kafka carries out."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the move, in order."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSizes:
    """Sizes of logs and free space, as the brokers report them."""

    sizes_bytes: Mapping[Partition, Mapping[int, int]]
    """By partition and broker."""
    usable_bytes: Mapping[int, int]
    """Free space of all log directories of a broker; absent if one directory's is not reported."""
    failed: Mapping[int, str]
    """Brokers that did not answer, with the reason."""
    disk_lags: Mapping[Partition, Mapping[int, int]] = field(default_factory=dict)
    """By partition and broker that moves it between its disks, the records that the copy still lacks."""
    directory_of: Mapping[Partition, Mapping[int, str]] = field(default_factory=dict)
    """By partition and broker, the directory that it is in; not that of a copy."""
    directories: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Log directories of each broker."""


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Unanswered(describe_error(error)) from error


class KafkaCluster:
    """A connection to a cluster: the one reader of its state for collector, executor and planner.

    Methods raise ``ClusterError``; a request that fails is ``Unanswered``.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    @_explain_errors()
    def require_answer(self) -> None:
        """Raise ``Unanswered`` if the cluster does not answer."""
        self._admin.describe_cluster()

    @_explain_errors()
    def brokers(self) -> dict[int, str]:
        """Advertised hosts of the brokers that are registered and not fenced, by id."""
        return {
            broker["broker_id"]: broker["host"]
            for broker in self._admin.describe_cluster()["brokers"]
            if not broker.get("is_fenced", False)
        }

    @_explain_errors()
    def partitions(self, topics: Iterable[str] | None) -> dict[Partition, PartitionState]:
        """All partitions of the topics that exist; None: of all topics. Raises ``ClusterError`` for a topic that is hidden from us."""
        names = None if topics is None else sorted(set(topics))
        described = [] if names == [] else self._admin.describe_topics(names)
        hidden = [
            topic["name"] for topic in described if topic["error_code"] == TopicAuthorizationFailedError.errno
        ]
        if hidden:
            raise ClusterError(
                f"topic {hidden[0]} cannot be described (one of {len(hidden)}): is DESCRIBE on it allowed?"
            )
        return {
            (topic["name"], entry["partition_index"]): PartitionState(
                replicas=tuple(entry["replica_nodes"]),
                leader=entry["leader_id"],
                in_sync=tuple(entry["isr_nodes"]),
            )
            for topic in described
            if topic["error_code"] == 0
            for entry in topic["partitions"]
        }

    @_explain_errors()
    def reassignments(self) -> dict[Partition, RunningMove]:
        """All running moves of the cluster; empty when nothing moves. Raises ``ClusterError`` if we may not read them."""
        try:
            moves = self._list_reassignments()
        except ClusterAuthorizationFailedError as error:
            raise ClusterError(
                "the running reassignments cannot be read: is DESCRIBE on the cluster allowed?"
            ) from error
        return {
            (where.topic, where.partition): RunningMove(
                replicas=tuple(entry["replicas"]),
                adding=tuple(entry["adding_replicas"]),
                removing=tuple(entry["removing_replicas"]),
            )
            for where, entry in moves.items()
        }

    def _list_reassignments(self) -> Any:
        """The client's own answer. It keeps the broker that it asks for this, also one that has gone, or is back and not yet in its list."""
        try:
            return self._admin.list_partition_reassignments()
        except (NodeNotReadyError, UnknownBrokerIdError):
            manager = self._admin._manager  # noqa: SLF001  the client has no public way to forget the broker
            manager.run(manager.cluster.refresh_metadata)
            self._admin._controller_id = None  # noqa: SLF001
            return self._admin.list_partition_reassignments()

    @_explain_errors()
    def log_sizes(self, partitions: Iterable[Partition] | None, brokers: Iterable[int]) -> LogSizes:
        """Logs of the partitions on each of the brokers, which are asked one by one, so that a dead one fails alone; None: of all."""
        wanted = None if partitions is None else list(_by_topic(partitions).items())
        usable: dict[int, int] = {}
        failed: dict[int, str] = {}
        paths: dict[int, list[str]] = {}
        sizes: dict[Partition, dict[int, int]] = {}
        lags: dict[Partition, dict[int, int]] = {}
        places: dict[Partition, dict[int, str]] = {}
        for broker in sorted(set(brokers)):
            try:
                # the client's own method would ask for the metadata of all topics first, for each broker
                answer = self._ask(broker, DescribeLogDirsRequest(topics=wanted)).to_dict()["results"]
            except KafkaError as error:
                failed[broker] = describe_error(error)
                continue
            directories = [entry for entry in answer if entry["error_code"] == 0]
            if not directories:  # a request that is denied looks the same
                failed[broker] = "no log directory in the answer; is DESCRIBE on the cluster allowed?"
                continue
            paths[broker] = [directory["log_dir"] for directory in directories]
            for path, where, entry in _logs_in(directories):
                if entry["is_future_key"]:  # a copy on its way between two disks of the broker
                    lags.setdefault(where, {})[broker] = entry["offset_lag"]
                else:
                    sizes.setdefault(where, {})[broker] = entry["partition_size"]
                    places.setdefault(where, {})[broker] = path
            free = [entry.get("usable_bytes", -1) for entry in answer]
            if min(free) >= 0:
                usable[broker] = sum(free)
        return LogSizes(
            sizes_bytes=sizes,
            usable_bytes=usable,
            failed=failed,
            disk_lags=lags,
            directory_of=places,
            directories=paths,
        )

    def end_offsets(
        self, leaders: Mapping[Partition, int], *, at: OffsetSpec = OffsetSpec.LATEST
    ) -> dict[Partition, int]:
        """End offset of each partition that has a leader; its start with ``EARLIEST``.

        They only tell a log that shrank from one without writes, and how large a record is, so they are empty if they cannot be read.
        """
        led = [TopicPartition(*partition) for partition, leader in leaders.items() if leader != NO_LEADER]
        if not led:
            return {}
        with suppress(KafkaError):
            offsets = self._admin.list_partition_offsets(dict.fromkeys(led, at))
            return {(where.topic, where.partition): found.offset for where, found in offsets.items()}
        return {}

    def replica_end_offsets(self, broker: int, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Ends of a broker's own logs, whether or not it leads; without those that it does not tell."""
        wanted = _by_topic(partitions)
        if not wanted:
            return {}
        topic_type = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=_DEBUGGING_REPLICA,
            isolation_level=0,
            topics=[
                topic_type(
                    name=topic,
                    partitions=[
                        topic_type.ListOffsetsPartition(partition_index=number, timestamp=OffsetSpec.LATEST)
                        for number in numbers
                    ],
                )
                for topic, numbers in wanted.items()
            ],
        )
        with suppress(KafkaError):
            return {
                (topic.name, entry.partition_index): entry.offset
                for topic in self._ask(broker, request).topics
                for entry in topic.partitions
                if entry.error_code == 0
            }
        return {}

    def _ask(self, broker: int, request: object) -> Any:
        """A broker's own answer; the public methods of the client ask whom they choose."""
        manager = self._admin._manager  # noqa: SLF001  as above

        async def ask() -> Any:
            return await manager.send(request, node_id=broker)

        return manager.run(ask)

    @_explain_errors()
    def throttle(self, *, topics: Iterable[str], brokers: Iterable[int]) -> ThrottlesFound:
        """Lists of the topics, which must exist, and rates of the brokers. Raises ``ClusterError`` if a topic cannot be read."""
        return read_throttles(self._admin, topics, brokers)

    @_explain_errors()
    def apply(self, changes: Iterable[Change]) -> None:
        """Make the changes one after the other and read each back. Raises ``ClusterError`` at the first that takes no effect."""
        for change in changes:
            make_change(self._admin, change)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(set(partitions)):
        numbers.setdefault(topic, []).append(number)
    return numbers


def _logs_in(directories: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Partition, Mapping[str, Any]]]:
    """Every log in a broker's directories, with the directory."""
    return (
        (directory["log_dir"], (topic["name"], entry["partition_index"]), entry)
        for directory in directories
        for topic in directory["topics"]
        for entry in topic["partitions"]
    )


@contextmanager
def cluster_of(target: KafkaTarget, *, cluster: str) -> Iterator[KafkaCluster]:
    """The cluster of a target, closed at the end. Raises ``ClusterError``, and ``WrongUse`` for a file it cannot use."""
    link = KafkaLink(target.bootstrap, f"targets.{cluster}.kafka", target.security)
    with connected(link, timeout_s=target.timeout_s, metadata_max_age_ms=_METADATA_AGE_MAX_MS) as admin:
        yield KafkaCluster(admin)
