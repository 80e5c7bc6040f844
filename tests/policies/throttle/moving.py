"""Readable reassignments: partitions by name become the columns a policy reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.throttle.checked_copies import CopyColumns, Reassignment, read_copies
from policies.throttle.copies import Copies

MB = 10**6
GB = 10**9


@dataclass(frozen=True, slots=True)
class Partition:
    """One row; the leader is the first replica unless given."""

    name: str
    replicas: Sequence[int]
    target: Sequence[int]
    writes: int | None = 0
    size: int | None = 0
    leader: int | None = None
    adding: Sequence[int] = ()
    isr: Sequence[int] = ()
    present: Mapping[int, int] = field(default_factory=dict)
    recovering: Sequence[int] = ()
    between_disks: Sequence[int] = ()
    min_in_sync: int | None = None
    missing: Mapping[int, int] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def number(self) -> int:
        return int(self.name.rpartition("-")[2])


WORKED_EXAMPLE = (
    Partition("t0-0", [101, 102], [102, 103], 4 * MB, 12 * GB, leader=101),
    Partition("t0-1", [102, 103], [103, 104], 8 * MB, 24 * GB, leader=102),
    Partition("t0-2", [101, 103], [101, 104], 2 * MB, 6 * GB, leader=103),
    Partition("t1-0", [101, 102, 103], [102, 103, 104], 6 * MB, 30 * GB, leader=101),
)
"""Two topics on brokers 101 to 103, moving so that 104 gets its share."""


def columns(partitions: Sequence[Partition]) -> CopyColumns:
    return CopyColumns(
        topics=[one.topic for one in partitions],
        partitions=[one.number for one in partitions],
        current=[one.replicas for one in partitions],
        adding=[one.adding for one in partitions],
        target=[one.target for one in partitions],
        leaders=[
            one.replicas[0] if one.leader is None and one.replicas else one.leader or 0 for one in partitions
        ],
        write_bytes_per_s=[one.writes for one in partitions],
        log_size_bytes=[one.size for one in partitions],
        in_sync=[one.isr for one in partitions],
        present_bytes=[one.present for one in partitions],
        recovering=[one.recovering for one in partitions],
        between_disks=[one.between_disks for one in partitions],
        min_in_sync=[one.min_in_sync for one in partitions],
        missing_bytes=[one.missing for one in partitions],
    )


def read(*partitions: Partition) -> Reassignment:
    return read_copies(columns(partitions))


def copies_of(*partitions: Partition) -> Copies:
    return read(*partitions).copies
