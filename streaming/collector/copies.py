"""What a Kafka cluster copies: its reassignments, the planned ones, replicas that are behind, and moves between disks.

To look at all is dear: the metadata of 100,000 partitions are 4.8 MB and 1.4 s of CPU, the log directories of 1,000 brokers 1,000
requests. So everything is looked at once a minute, and when a broker comes or goes; in between only what was found then.

A replica that is out of sync and that no reassignment adds is reported as *recovering*. Whether it is a recovery, or its broker is only
slow, decides the controller, which remembers who was away.

Planned moves come from a file, Kafka's own ``reassignment.json``; one that is not possible is refused or named, never dropped silently.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from policies.throttle.copies import NO_LEADER
from streaming.contract.kafka import Move
from streaming.kafka.cluster import KafkaCluster, Partition, PartitionState, RunningMove
from streaming.process.exits import words_of

_LOG = logging.getLogger(__name__)
_LOOK_MS = 60_000
"""Time between looks at everything."""


class _Row(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int]


class _File(msgspec.Struct, frozen=True):
    partitions: list[_Row]


Planned = Mapping[Partition, tuple[int, ...]]
"""Each partition's replicas after its move."""


def read_planned(path: str | None, before: Planned) -> tuple[Planned, list[str]]:
    """The planned moves, and a sentence for each that cannot be, or about a file that is not there, which plans nothing.

    If the file cannot be read, ``before`` is still the plan: half a file is no end of a plan.
    """
    if path is None:
        return {}, []
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except FileNotFoundError:
        missing = Path(path).absolute()
        return {}, [
            f"there is no file {missing}, so nothing is planned: correct the path, or take it out after the move"
        ]
    except (OSError, msgspec.MsgspecError) as error:
        return before, [f"{path} cannot be read, so the plan before it counts: {words_of(error)}"]
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


def planned_move(target: tuple[int, ...], state: PartitionState) -> RunningMove:
    """The move as it would start now. One that adds no replica, for example because it is over, is none."""
    return RunningMove(
        replicas=state.replicas,
        adding=tuple(broker for broker in target if broker not in state.replicas),
        removing=tuple(broker for broker in state.replicas if broker not in target),
    )


class CopyFinder:
    """Finds what a cluster copies, sweep by sweep. For one thread."""

    def __init__(self, cluster: str, *, planned_file: str | None = None) -> None:
        self._cluster = cluster
        self._planned_file = planned_file
        self._planned: Planned = {}
        self._warned: list[str] = []
        self._looked_ms: int | None = None
        self._alive: frozenset[int] = frozenset()
        self._behind: set[Partition] = set()
        self._on_disks: dict[Partition, set[int]] = {}
        self._unanswered: frozenset[int] = frozenset()
        """Brokers that did not say what they copy between their disks when they were asked last."""

    def find(self, kafka: KafkaCluster, alive: Collection[int], *, now_ms: int) -> dict[Partition, Move]:
        """Every partition of which something is copied, or will be, in order. Raises ``ClusterError``."""
        running = kafka.reassignments()
        self._planned, odd = read_planned(self._planned_file, self._planned)
        is_whole = (
            self._looked_ms is None or now_ms - self._looked_ms >= _LOOK_MS or set(alive) != self._alive
        )
        self._find_on_disks(kafka, alive, is_whole=is_whole)
        known = {topic for topic, _ in (*running, *self._planned, *self._behind, *self._on_disks)}
        states = kafka.partitions(None if is_whole else known)
        if is_whole:
            # a topic that is hidden from us is left out of all topics; asked for by name, it is told
            states |= kafka.partitions(known - {topic for topic, _ in states})
        self._behind = {where for where, state in states.items() if _behind(state, running.get(where))}
        if is_whole:
            self._looked_ms, self._alive = now_ms, frozenset(alive)
        self._warn([*odd, *find_conflicts(self._planned, states, running, alive)])
        moves: dict[Partition, RunningMove | None] = dict.fromkeys(
            where for where in (*self._behind, *self._on_disks) if where in states
        )
        for where, target in self._planned.items():
            if where in states and set(target) - set(states[where].replicas):
                moves[where] = planned_move(target, states[where])
        moves |= running
        return {
            where: _row(where, moves[where], states.get(where), self._on_disks.get(where, ()))
            for where in sorted(moves)
        }

    def _find_on_disks(self, kafka: KafkaCluster, alive: Collection[int], *, is_whole: bool) -> None:
        """Which replicas their brokers copy between disks. Of a broker that does not answer, what it copied before counts, and it is asked again next time."""
        if is_whole:
            looks = [kafka.log_sizes(None, alive)]
        else:
            brokers = {broker for brokers in self._on_disks.values() for broker in brokers} & set(alive)
            looks = [
                kafka.log_sizes(self._on_disks, brokers - self._unanswered),
                kafka.log_sizes(None, self._unanswered),
            ]
        before, self._on_disks = self._on_disks, {}
        self._unanswered = frozenset(broker for found in looks for broker in found.failed)
        kept = {where: brokers & self._unanswered for where, brokers in before.items()}
        for where, copying in chain(kept.items(), *(found.disk_lags.items() for found in looks)):
            if copying:
                self._on_disks.setdefault(where, set()).update(copying)

    def _warn(self, lines: list[str]) -> None:
        if lines != self._warned:  # each sweep would repeat them
            for line in lines:
                _LOG.warning('targets."%s".kafka.planned_file: %s', self._cluster, line)
        self._warned = lines


def _row(
    where: Partition, move: RunningMove | None, state: PartitionState | None, on_disks: Collection[int]
) -> Move:
    """The partition as it is reported. A leader that is not among the replicas is out of date, and counts as none.

    A broker that does not know the topic yet, because it has just come back, ends no move: nobody is known to lead it then.
    """
    if move is None:
        assert state is not None, "what is not reassigned is known by its state"
        move = RunningMove(replicas=state.replicas, adding=(), removing=())
    leader, in_sync = (NO_LEADER, ()) if state is None else (state.leader, state.in_sync)
    return Move(
        topic=where[0],
        partition=where[1],
        replicas=list(move.replicas),
        adding=list(move.adding),
        removing=list(move.removing),
        leader=leader if leader in move.replicas else NO_LEADER,
        isr=list(in_sync),
        recovering=[] if state is None else _behind(state, move),
        between_disks=sorted(set(on_disks).intersection(move.replicas)),
    )


def _behind(state: PartitionState, move: RunningMove | None) -> list[int]:
    """Replicas that are out of sync and that no reassignment adds."""
    adding = () if move is None else move.adding
    return [broker for broker in state.replicas if broker not in state.in_sync and broker not in adding]
