"""Reports of Kafka brokers from rows, for tests."""

from typing import NamedTuple

from policies.throttle.lists import ThrottledLists
from state.events import MoveRow, MovesReport, MoveTable, ReplicaTable


class Replica(NamedTuple):
    """One replica as its broker has it."""

    topic: str
    partition: int
    log_size_bytes: int
    end_offset: int | None = None


def replica_table(*rows: Replica) -> ReplicaTable:
    topics, partitions, sizes, offsets = zip(*rows, strict=True) if rows else ((),) * 4
    return ReplicaTable.of(topics, partitions, sizes, offsets)


def moves_report(
    *rows: MoveRow, lists: ThrottledLists | None = None, live_brokers: tuple[int, ...] | None = None
) -> MovesReport:
    return MovesReport(MoveTable.of_rows(rows), lists or ThrottledLists(), live_brokers)
