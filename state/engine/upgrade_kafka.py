"""From version 2 of the layout of a Kafka cluster's waiting reports, which trimtab 0.1.0 wrote, to version 3: rows become columns."""

from typing import Any

from state.kafka_reports import MoveRow, MoveTable, ReplicaTable


def with_replica_table(body: Any) -> Any:
    """A broker's waiting report; a row was topic, partition, whether it leads, log size, end offset."""
    time_ms, id_, (broker, rows, *rest) = body
    topics, partitions, _, sizes, offsets = zip(*rows, strict=True) if rows else ((),) * 5
    return [time_ms, id_, [broker, ReplicaTable.of(topics, partitions, sizes, offsets), *rest]]


def with_move_table(body: Any) -> Any:
    """The waiting word on reassignments."""
    time_ms, id_, (rows, *rest) = body
    return [time_ms, id_, [MoveTable.of_rows([MoveRow(*row) for row in rows]), *rest]]
