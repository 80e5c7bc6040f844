"""A cluster's admin API as programs use it: reads the cluster and sets its throttle, and raises our own errors."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from policies.throttle.moves import NO_LEADER
from streaming.kafka.cluster import (
    LogSizes,
    Partition,
    PartitionState,
    RunningMove,
    read_brokers,
    read_end_offsets,
    read_log_sizes,
    read_partitions,
    read_reassignments,
)
from streaming.kafka.connection import Unanswered, connected
from streaming.kafka.link import Link
from streaming.kafka.throttles import Change, ThrottlesFound, apply, read_throttle
from streaming.settings import KafkaTarget

_METADATA_AGE_MAX_MS = 5_000
"""An open client cannot reach a broker that came back before it reads the metadata again: with kafka-python's default of 5 minutes
it could not for 288 s, with this for 3 s. The metadata that it reads are the list of brokers."""


class KafkaCluster:
    """A connection to a cluster: the one reader of its state for collector, executor and planner.

    Methods raise ``ClusterError``; see the functions of the same or a similar name.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def require_answer(self) -> None:
        """Raise ``Unanswered`` if the cluster does not answer."""
        with _explain_errors():
            self._admin.describe_cluster()

    def brokers(self) -> dict[int, str]:
        """See ``read_brokers``."""
        with _explain_errors():
            return read_brokers(self._admin)

    def partitions(self, topics: Iterable[str]) -> dict[Partition, PartitionState]:
        """See ``read_partitions``."""
        with _explain_errors():
            return read_partitions(self._admin, topics)

    def reassignments(self) -> dict[Partition, RunningMove]:
        """See ``read_reassignments``."""
        with _explain_errors():
            return read_reassignments(self._admin)

    def log_sizes(self, partitions: Iterable[Partition], brokers: Iterable[int]) -> LogSizes:
        """See ``read_log_sizes``."""
        with _explain_errors():
            return read_log_sizes(self._admin, partitions, brokers)

    def end_offsets(self, leaders: Mapping[Partition, int]) -> dict[Partition, int]:
        """End offset of each partition that has a leader.

        They only tell a log that shrank from one without writes, so they are empty if they cannot be read.
        """
        led = [partition for partition, leader in leaders.items() if leader != NO_LEADER]
        with suppress(KafkaError):
            return read_end_offsets(self._admin, led)
        return {}

    def throttle(self, *, topics: Iterable[str], brokers: Iterable[int]) -> ThrottlesFound:
        """See ``read_throttle``."""
        with _explain_errors():
            return read_throttle(self._admin, topics=topics, brokers=brokers)

    def apply(self, changes: Iterable[Change]) -> None:
        """See ``streaming.kafka.throttles.apply``."""
        with _explain_errors():
            apply(self._admin, changes)


@contextmanager
def cluster_of(target: KafkaTarget, *, cluster: str) -> Iterator[KafkaCluster]:
    """The cluster of a target, closed at the end. Raises ``ClusterError``, and ``WrongUse`` for a file it cannot read."""
    options = Link(target.bootstrap, f"targets.{cluster}.kafka", target.security).client_options()
    options["metadata_max_age_ms"] = _METADATA_AGE_MAX_MS
    with connected(target.bootstrap, options, timeout_s=target.timeout_s) as admin:
        yield KafkaCluster(admin)


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Unanswered(str(error)) from error
