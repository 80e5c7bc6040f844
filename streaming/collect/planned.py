"""Moves that somebody means to start: Kafka's own ``reassignment.json``, held against where the replicas are."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from streaming.kafka_admin.reading import Partition, PartitionState
from streaming.wire.kafka import Move


class _Row(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int]


class _File(msgspec.Struct, frozen=True):
    partitions: list[_Row]


class BadPlan(Exception):
    """The file is no reassignment; the text names it and what is wrong."""


Planned = Mapping[Partition, tuple[int, ...]]
"""Replicas in the end of each partition."""


def read_planned(path: str | None) -> Planned:
    """Empty where there is no file. Raises ``BadPlan``."""
    if path is None:
        return {}
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise BadPlan(f"planned_file {path} cannot be read: {error}") from error
    return {(row.topic, row.partition): tuple(row.replicas) for row in found.partitions}


def planned_move(where: Partition, target: tuple[int, ...], state: PartitionState) -> Move | None:
    """The move as it would start now; None where it gains no replica, as when it is over."""
    adding = [broker for broker in target if broker not in state.replicas]
    if not adding:
        return None
    return Move(
        topic=where[0],
        partition=where[1],
        replicas=list(state.replicas),
        adding=adding,
        removing=[broker for broker in state.replicas if broker not in target],
        leader=state.leader,
        isr=list(state.in_sync),
    )
