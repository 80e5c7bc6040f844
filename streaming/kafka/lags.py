"""How far replicas are behind, in bytes: by their end offsets, and the mean size of a record in their leader's log.

Sizes of logs do not tell: retention has shortened the leader's log, and not yet that of a replica that was away. The field for a lag
in the answer about log directories is 0 for such a replica, too; only of a copy between disks it is right.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from streaming.kafka.cluster import KafkaCluster, OffsetSpec, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Lags:
    """Where logs begin and end; what could not be read is not there."""

    ends: Mapping[Partition, int]
    """At the leaders."""
    starts: Mapping[Partition, int]
    """At the leaders, of what is behind or moves between disks."""
    replica_ends: Mapping[int, Mapping[Partition, int]]
    """By broker, of its own replicas that are behind."""

    @classmethod
    def read(
        cls,
        kafka: KafkaCluster,
        leaders: Mapping[Partition, int],
        *,
        counted: Collection[Partition],
        behind: Mapping[int, Collection[Partition]],
    ) -> "Lags":
        """``counted`` are partitions of which bytes will be asked for; ``behind`` has the replicas by broker."""
        return cls(
            ends=kafka.end_offsets(leaders),
            starts=kafka.end_offsets({where: leaders[where] for where in counted}, at=OffsetSpec.EARLIEST),
            replica_ends={
                broker: kafka.replica_end_offsets(broker, partitions) for broker, partitions in behind.items()
            },
        )

    def missing_bytes(self, broker: int, where: Partition, leader_bytes: int | None) -> int | None:
        """What a replica lacks of its leader's log of that size; None: not known."""
        end, replica_end = self.ends.get(where), self.replica_ends.get(broker, {}).get(where)
        return (
            None
            if end is None or replica_end is None
            else self.bytes_of(end - replica_end, where, leader_bytes)
        )

    def bytes_of(self, records_count: int | None, where: Partition, leader_bytes: int | None) -> int | None:
        """Size of so many records of a partition; None: not known."""
        start, end = self.starts.get(where), self.ends.get(where)
        if records_count is None or start is None or end is None or leader_bytes is None:
            return None
        return ceil(max(records_count, 0) * Fraction(leader_bytes, max(end - start, 1)))
