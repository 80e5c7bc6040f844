"""A reassignment looked up on a cluster: its replicas, leaders, log sizes, write rates, and the throttle that is there.

Write rates come from two readings some seconds apart. Numbers that the file gives win over measured ones, because a
person may know the peak. It sets nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Ints
from policies.throttle.lists import BadList, foreign_entries_of, lists_of
from policies.throttle.moves import NO_LEADER, UNKNOWN, MoveColumns, Reassignment
from policies.throttle.needs import needs_of
from policies.throttle.write_rates import LogReading, write_rates
from streaming.kafka.client import Unanswered
from streaming.kafka.cluster import KafkaCluster, LogSizes, Partition, PartitionState, RunningMove, Throttle
from streaming.planner.throttle.request import (
    BadRequest,
    Checked,
    NotPlanned,
    PartitionRow,
    ThrottleRequest,
    check,
    require_any,
    show,
    sift,
    whole_numbers,
)

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """What was found."""

    checked: Checked
    throttle: Throttle
    """The throttle on the topics and brokers of the reassignment."""
    unreachable: Mapping[int, str]
    """Brokers of the reassignment that take no setting now, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Placed:
    """The rows with what the cluster says about each."""

    rows: Sequence[PartitionRow]
    states: Sequence[PartitionState]
    adding: Sequence[tuple[int, ...]]

    @property
    def partitions(self) -> list[Partition]:
        return [(row.topic, row.partition) for row in self.rows]

    @property
    def added(self) -> list[set[int]]:
        return [
            set(row.target) - set(state.replicas) | set(adding) & set(row.target)
            for row, state, adding in zip(self.rows, self.states, self.adding, strict=True)
        ]


def survey(
    kafka: KafkaCluster,
    request: ThrottleRequest,
    *,
    interval_s: float,
    wait: Callable[[float], None] = time.sleep,
) -> Survey:
    """Look everything up; takes ``interval_s``. Raises ``BadRequest`` if nothing of the request fits the cluster.

    Raises ``ClusterError`` where the cluster as a whole does not answer.
    """
    alive = kafka.brokers()
    placed, refused = _place(kafka, request, alive)
    before, _ = _read_logs(kafka, placed, [state.leader for state in placed.states])
    wait(interval_s)
    states = kafka.partitions([row.topic for row in placed.rows])
    leaders = [states[where].leader if where in states else NO_LEADER for where in placed.partitions]
    after, sizes = _read_logs(kafka, placed, leaders)
    checked = _without_full_disks(
        check(_columns(placed, write_rates(before, after), after, sizes), refused), sizes
    )
    moves = checked.reassignment.moves
    brokers = {*moves.sources.brokers.tolist(), *moves.added.brokers.tolist()}
    topics = {moves.topics[place] for place in np.unique(moves.topic).tolist()}
    found = kafka.throttle(topics=topics, brokers=brokers & alive.keys())
    down = dict.fromkeys(sorted(brokers - alive.keys()), "it is down, and needs no rate before it is back")
    unreachable = {**found.failed, **down}
    notes = _notes(checked.reassignment, sizes, found.throttle, unreachable, interval_s)
    return Survey(
        checked=replace(checked, notes=tuple(notes)), throttle=found.throttle, unreachable=unreachable
    )


def _place(
    kafka: KafkaCluster, request: ThrottleRequest, alive: Mapping[int, str]
) -> tuple[_Placed, list[NotPlanned]]:
    """The rows that fit the cluster, and the others."""
    states = kafka.partitions([row.topic for row in request.partitions])
    running = kafka.reassignments()

    def problem_of(row: PartitionRow) -> str | None:
        state, move = states.get((row.topic, row.partition)), running.get((row.topic, row.partition))
        return _unknown(row, states) if state is None else _misfit(row, state, move, alive)

    rows, refused = sift(request.partitions, problem_of)
    placed = _Placed(
        rows=rows,
        states=[states[row.topic, row.partition] for row in rows],
        adding=[
            running[row.topic, row.partition].adding if (row.topic, row.partition) in running else ()
            for row in rows
        ],
    )
    return placed, refused


def _misfit(
    row: PartitionRow, state: PartitionState, move: RunningMove | None, alive: Mapping[int, str]
) -> str | None:
    """Why a row does not fit the cluster; None if it does. Brokers of replicas that stay or leave need not be alive."""
    sources = set(state.replicas) - set(() if move is None else move.adding)
    strangers = sorted(set(row.target) - sources - alive.keys())
    if strangers:
        return (
            f"broker {show(map(str, strangers))} of the target is not in the cluster, "
            f"which has {show(map(str, sorted(alive)), 10)}"
        )
    if move is not None and set(move.target) != set(row.target):
        return (
            f"already being reassigned, to {list(move.target)} and not to {row.target}; "
            "cancel that move first, or plan with its targets"
        )
    if row.current_replicas is not None and set(row.current_replicas) != set(state.replicas):
        return f"current_replicas is {row.current_replicas}, and the cluster has {list(state.replicas)}"
    return None


def _unknown(row: PartitionRow, states: Mapping[Partition, PartitionState]) -> str:
    known = sorted(partition for topic, partition in states if topic == row.topic)
    if not known:
        return f"the cluster has no topic {row.topic!r}"
    return f"topic {row.topic!r} has partitions {known[0]} to {known[-1]}"


def _read_logs(kafka: KafkaCluster, placed: _Placed, leaders: Sequence[int]) -> tuple[LogReading, LogSizes]:
    """The logs of ``leaders`` now, and everything that was read for it."""
    led = [where for where, leader in zip(placed.partitions, leaders, strict=True) if leader != NO_LEADER]
    try:
        offsets = kafka.end_offsets(led)
    except Unanswered:
        offsets = {}  # they only tell a log that shrank from one without writes
    brokers = {*leaders, *(broker for added in placed.added for broker in added)} - {NO_LEADER}
    at_ms = round(time.time() * _MS_PER_S)
    sizes = kafka.log_sizes(placed.partitions, brokers)
    reading = LogReading(
        at_ms=at_ms,
        leader=_column(leaders),
        log_size_bytes=_column(
            sizes.sizes_bytes.get(where, {}).get(leader, UNKNOWN)
            for where, leader in zip(placed.partitions, leaders, strict=True)
        ),
        end_offset=_column(offsets.get(where, UNKNOWN) for where in placed.partitions),
    )
    return reading, sizes


def _column(values: Iterator[int] | Sequence[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _columns(placed: _Placed, rates: Ints, now: LogReading, sizes: LogSizes) -> MoveColumns:
    rows = placed.rows
    return MoveColumns(
        topics=[row.topic for row in rows],
        partitions=[row.partition for row in rows],
        current=[state.replicas for state in placed.states],
        adding=placed.adding,
        target=[row.target for row in rows],
        leaders=now.leader.tolist(),
        write_bytes_per_s=_fill_in_measured(whole_numbers(rows, "write_bytes_per_s"), rates),
        log_size_bytes=_fill_in_measured(whole_numbers(rows, "log_size_bytes"), now.log_size_bytes),
        in_sync=[state.in_sync for state in placed.states],
        present_bytes=[
            {
                broker: sizes.sizes_bytes.get(where, {}).get(broker, 0)
                for broker in added
                if broker not in sizes.failed
            }
            for where, added in zip(placed.partitions, placed.added, strict=True)
        ],
    )


def _fill_in_measured(given: Sequence[int | None], measured: Ints) -> list[int | None]:
    return [
        value if value is not None else None if found == UNKNOWN else found
        for value, found in zip(given, measured.tolist(), strict=True)
    ]


def _without_full_disks(checked: Checked, sizes: LogSizes) -> Checked:
    """The same without the partitions that gain a replica on a broker whose disks are too small for all that it would receive."""
    moves, full = checked.reassignment.moves, {}
    for broker, needed in needs_of(moves).follower_bytes_to_receive.items():
        free = sizes.usable_bytes.get(broker)
        if needed is not None and free is not None and needed > free:
            full[broker] = (
                f"broker {broker} would receive {needed} bytes and has {free} free: the plan is larger than its disks"
            )
    if not full:
        return checked
    fits = np.ones(len(moves), dtype=np.bool_)
    refused = []
    for row, broker in zip(moves.added.rows.tolist(), moves.added.brokers.tolist(), strict=True):
        if broker in full and fits[row]:
            fits[row] = False
            refused.append(NotPlanned(moves.name(row), full[broker]))
    return require_any(
        replace(
            checked,
            reassignment=replace(checked.reassignment, moves=moves.take(fits)),
            not_planned=tuple(sorted([*checked.not_planned, *refused])),
        )
    )


def _notes(
    reassignment: Reassignment,
    sizes: LogSizes,
    throttle: Throttle,
    failed: Mapping[int, str],
    interval_s: float,
) -> Iterator[str]:
    yield f"write rates are those of the last {interval_s:g} s unless the request gives them; traffic has peaks"
    for broker, reason in {**sizes.failed, **failed}.items():
        yield f"broker {broker} does not answer: {reason}"
    try:
        strange = foreign_entries_of(throttle.lists, lists_of(reassignment.moves))
    except BadList as error:
        raise BadRequest(f"a throttled replica list on the cluster cannot be read: {error}") from error
    for role, lists in (("leader", strange.leader), ("follower", strange.follower)):
        for topic, text in lists.items():
            yield f"topic {topic} has {role}.replication.throttled.replicas that are not of this plan; they are kept: {text}"
    for key, rate in throttle.rates_bytes_per_s.items():
        yield f"broker {key.broker} has {key.role}.replication.throttled.rate {rate} already"
    for role, rate in throttle.defaults_bytes_per_s.items():
        yield (
            f"all brokers have {role}.replication.throttled.rate {rate} by default; the rates of this plan override it, "
            "and it is kept"
        )
