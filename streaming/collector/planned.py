"""Moves that somebody plans to start: Kafka's own ``reassignment.json``, compared with where the replicas are.

A move that is not possible is refused or named, never dropped silently.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from streaming.contract.kafka import Move
from streaming.kafka.cluster import Partition, PartitionState, RunningMove


class _Row(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int]


class _File(msgspec.Struct, frozen=True):
    partitions: list[_Row]


class BadPlan(Exception):
    """The file is no reassignment; the text names it and what is wrong."""


Planned = Mapping[Partition, tuple[int, ...]]
"""Each partition's replicas after its move."""


def read_planned(path: str | None) -> tuple[Planned, list[str]]:
    """The planned moves, empty if there is no file, and a sentence for each that cannot be. Raises ``BadPlan`` for a file that is none."""
    if path is None:
        return {}, []
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except FileNotFoundError:
        return {}, []
    except (OSError, msgspec.MsgspecError) as error:
        raise BadPlan(f"{path} cannot be read, so the plan before it counts: {error}") from error
    planned: dict[Partition, tuple[int, ...]] = {}
    odd = []
    for row in found.partitions:
        name = f"{row.topic}-{row.partition}"
        if not row.replicas or len(set(row.replicas)) < len(row.replicas) or min(row.replicas) < 0:
            odd.append(f"{name} is left out: replicas is {row.replicas}; give one broker or more, each once")
        elif planned.setdefault((row.topic, row.partition), tuple(row.replicas)) != tuple(row.replicas):
            odd.append(f"{name} is given twice, and the first counts: give each partition once")
    return planned, odd


def find_conflicts(
    planned: Planned,
    states: Mapping[Partition, PartitionState],
    running: Mapping[Partition, RunningMove],
    brokers: Collection[int],
) -> Iterator[str]:
    """One sentence for each planned move that cannot happen as planned, in order."""
    for where, target in sorted(planned.items()):
        name = f"{where[0]}-{where[1]}"
        there = states[where].replicas if where in states else ()  # they need not be alive
        strangers = sorted(set(target) - set(there) - set(brokers))
        move = running.get(where)
        if where not in states:
            yield f"{name} is planned, but the cluster has no such partition: it is left out"
        elif strangers:
            yield (
                f"{name} is planned for {list(target)}, but the cluster has no broker {strangers}: start it, or "
                "plan another one"
            )
        elif move is not None and set(move.target) != set(target):
            yield (
                f"{name} is planned for {list(target)}, but already moves to {list(move.target)}: the running "
                "move counts"
            )


def planned_move(where: Partition, target: tuple[int, ...], state: PartitionState) -> Move | None:
    """The move as it would start now; None if it adds no replica, for example because it is over."""
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
