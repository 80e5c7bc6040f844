"""A cluster's admin API as programs use it: reads the cluster, sets its throttle, and raises our own errors.

What could not be read is absent and named, never 0. If a broker does not answer, only its own numbers are missing.
Sources: KIP-455 (running reassignments), KIP-113 and KIP-827 (log directories and their space).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from streaming.kafka.client import ClusterError, Unanswered, connected
from streaming.kafka.link import Link
from streaming.kafka.throttles import Change, ThrottlesFound, apply, read_throttle
from streaming.settings import KafkaTarget

_METADATA_AGE_MAX_MS = 5_000
"""An open client cannot reach a broker that came back before it reads the metadata again: with kafka-python's default of 5 minutes
it could not for 288 s, with this for 3 s. The metadata that it reads are the list of brokers."""

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


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Unanswered(str(error)) from error


class KafkaCluster:
    """A connection to a cluster. Methods raise ``ClusterError``; a request that fails is ``Unanswered``."""

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
    def partitions(self, topics: Iterable[str]) -> dict[Partition, PartitionState]:
        """All partitions of the topics that exist. Raises ``ClusterError`` for a topic that is hidden from us."""
        found = self._admin.describe_topics(sorted(set(topics))) if topics else []
        hidden = [
            topic["name"] for topic in found if topic["error_code"] == TopicAuthorizationFailedError.errno
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
            for topic in found
            if topic["error_code"] == 0
            for entry in topic["partitions"]
        }

    @_explain_errors()
    def reassignments(self) -> dict[Partition, RunningMove]:
        """All running moves of the cluster; empty when nothing moves. Raises ``ClusterError`` if we may not read them."""
        try:
            found = self._admin.list_partition_reassignments()
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

    @_explain_errors()
    def log_sizes(self, partitions: Iterable[Partition], brokers: Iterable[int]) -> LogSizes:
        """Sizes of the partitions on each of the brokers, which are asked one by one, so that a dead one fails alone."""
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(set(partitions)):
            wanted.setdefault(topic, []).append(partition)
        sizes: dict[Partition, dict[int, int]] = {}
        usable, failed = {}, {}
        for broker in sorted(set(brokers)):
            try:
                (answer,) = self._admin.describe_log_dirs(wanted, brokers=[broker])
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

    @_explain_errors()
    def end_offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """End offset of each partition, which must have a leader. Raises ``KafkaError``."""
        if not partitions:
            return {}
        asked = {TopicPartition(topic, partition): OffsetSpec.LATEST for topic, partition in partitions}
        return {
            (where.topic, where.partition): found.offset
            for where, found in self._admin.list_partition_offsets(asked).items()
        }

    @_explain_errors()
    def throttle(self, *, topics: Iterable[str], brokers: Iterable[int]) -> ThrottlesFound:
        """See ``read_throttle``."""
        return read_throttle(self._admin, topics=topics, brokers=brokers)

    @_explain_errors()
    def apply(self, changes: Iterable[Change]) -> None:
        """See ``streaming.kafka.throttles.apply``."""
        apply(self._admin, changes)


def _add_sizes(
    sizes: dict[Partition, dict[int, int]], broker: int, directories: list[dict[str, object]]
) -> None:
    for directory in directories:
        for topic in directory["topics"]:  # type: ignore[attr-defined]
            for entry in topic["partitions"]:
                if not entry["is_future_key"]:  # a copy on its way between two disks of the broker
                    where = (topic["name"], entry["partition_index"])
                    sizes.setdefault(where, {})[broker] = entry["partition_size"]


@contextmanager
def cluster_of(target: KafkaTarget, *, cluster: str) -> Iterator[KafkaCluster]:
    """The cluster of a target, closed at the end. Raises ``ClusterError``, and ``WrongUse`` for a file it cannot read."""
    link = Link(target.bootstrap, f"targets.{cluster}.kafka", target.security)
    with connected(link, timeout_s=target.timeout_s, metadata_max_age_ms=_METADATA_AGE_MAX_MS) as admin:
        yield KafkaCluster(admin)
