"""Reads a cluster: brokers, replicas, running reassignments, log sizes, end offsets.

What could not be read is absent and named, never 0. If a broker does not answer, only its own numbers are missing.
Sources: KIP-455 (running reassignments), KIP-113 and KIP-827 (log directories and their space).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from streaming.kafka.connection import ClusterError

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


def read_brokers(admin: KafkaAdminClient) -> dict[int, str]:
    """Advertised hosts of the brokers that are registered and not fenced, by id."""
    return {
        broker["broker_id"]: broker["host"]
        for broker in admin.describe_cluster()["brokers"]
        if not broker.get("is_fenced", False)
    }


def read_partitions(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[Partition, PartitionState]:
    """All partitions of the topics that exist. Raises ``ClusterError`` for a topic that is hidden from us."""
    found = admin.describe_topics(sorted(set(topics))) if topics else []
    hidden = [topic["name"] for topic in found if topic["error_code"] == TopicAuthorizationFailedError.errno]
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
        for topic in found
        if topic["error_code"] == 0
        for entry in topic["partitions"]
    }


def read_reassignments(admin: KafkaAdminClient) -> dict[Partition, RunningMove]:
    """All running moves of the cluster; empty when nothing moves. Raises ``ClusterError`` if we may not read them."""
    try:
        found = admin.list_partition_reassignments()
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
        for where, entry in found.items()
    }


def read_log_sizes(
    admin: KafkaAdminClient, partitions: Iterable[Partition], brokers: Iterable[int]
) -> LogSizes:
    """Sizes of the partitions on each of the brokers, which are asked one by one, so that a dead one fails alone."""
    wanted: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        wanted.setdefault(topic, []).append(partition)
    sizes: dict[Partition, dict[int, int]] = {}
    usable, failed = {}, {}
    for broker in sorted(set(brokers)):
        try:
            (answer,) = admin.describe_log_dirs(wanted, brokers=[broker])
        except KafkaError as error:
            failed[broker] = repr(error)
            continue
        directories = [entry for entry in answer["log_dirs"] if entry["error_code"] == 0]
        if not directories:  # a request that is denied looks the same
            failed[broker] = "no log directory in the answer; is DESCRIBE on the cluster allowed?"
            continue
        _add_sizes(sizes, broker, directories)
        free = [entry.get("usable_bytes", -1) for entry in answer["log_dirs"]]
        if min(free) >= 0:
            usable[broker] = sum(free)
    return LogSizes(sizes_bytes=sizes, usable_bytes=usable, failed=failed)


def _add_sizes(
    sizes: dict[Partition, dict[int, int]], broker: int, directories: list[dict[str, object]]
) -> None:
    for directory in directories:
        for topic in directory["topics"]:  # type: ignore[attr-defined]
            for entry in topic["partitions"]:
                if not entry["is_future_key"]:  # a copy on its way between two disks of the broker
                    where = (topic["name"], entry["partition_index"])
                    sizes.setdefault(where, {})[broker] = entry["partition_size"]


def read_end_offsets(admin: KafkaAdminClient, partitions: Collection[Partition]) -> dict[Partition, int]:
    """End offset of each partition, which must have a leader. Raises ``KafkaError``."""
    if not partitions:
        return {}
    asked = {TopicPartition(topic, partition): OffsetSpec.LATEST for topic, partition in partitions}
    return {
        (where.topic, where.partition): found.offset
        for where, found in admin.list_partition_offsets(asked).items()
    }
