"""What a round's reports come to: moves with rates, sizes and progress, and why a number is missing.

A partition's write rate is the growth of its leader's log since the reading before. Where the leader reported, but another one
than before, or retention shortened the log (of many partitions nearly always one), the rate known last is held over, as long
as missing reports are waited for. Everything that is not known is named with the reason; nothing is taken from another
partition.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from policies.columns import Ints
from policies.throttle.lists import ThrottledLists, without
from policies.throttle.moves import NO_LEADER, UNKNOWN, MoveColumns, Moves, read_moves
from policies.throttle.network import NetworkUse
from policies.throttle.rates import BrokerRole, Role
from policies.throttle.write_rates import MIN_INTERVAL_MS, LogReading, write_rates
from state.kafka.memory import KnownRate, Reading, WaitingLogs, WaitingMoves
from state.kafka_reports import MoveRow, Partition, ReplicaRow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One round of one cluster."""

    at_ms: int
    """Time of the newest report, at most the round's end."""
    moves: Moves | None
    """None: nobody said what moves."""
    is_running: bool
    """Whether Kafka carries any of it out already."""
    lists: ThrottledLists
    """Throttled replica lists on the cluster."""
    rates_there: Mapping[BrokerRole, int]
    """Rates set on the brokers that reported, each broker's own."""
    defaults_there: Mapping[Role, int]
    """Rates of all brokers that have none of their own."""
    brokers: frozenset[int]
    """Brokers that reported."""
    use: Mapping[int, NetworkUse]
    readings: dict[Partition, Reading]
    """To be remembered for the next round's rates."""
    rates: dict[Partition, KnownRate]
    """Write rates known now or lately, to be remembered for rounds that tell none."""
    held_over_count: int
    """Partitions whose write rate is one of a round before."""
    why_unknown: Callable[[str], str]
    """Why a partition, by its name, lacks a number."""


def observe(
    before: Mapping[Partition, Reading],
    moves: WaitingMoves | None,
    reports: Mapping[str, WaitingLogs],
    *,
    end_ms: int,
    known: Mapping[Partition, KnownRate],
    hold_ms: int,
) -> Observation:
    """The round that ends at ``end_ms``; ``before`` are the readings it is compared with.

    ``known`` are write rates of rounds before, which count for ``hold_ms``.
    """
    logs = _Logs.of(reports)
    times = [waiting.time_ms for waiting in reports.values()]
    at_ms = max(times, default=end_ms if moves is None else moves.time_ms)
    rows = [] if moves is None else moves.report.moves
    wheres = [row.where for row in rows]
    now = {
        where: reading
        for where, row in zip(wheres, rows, strict=True)
        if (reading := logs.reading(where, row.leader)) is not None
    }
    measured = _measured_rates(wheres, _write_rates(wheres, before, now), at_ms)
    recent = {
        where: rate
        for where in wheres
        if where not in measured and (rate := known.get(where)) and at_ms - rate.at_ms <= hold_ms
    }
    held = {where: rate for where, rate in recent.items() if where in now}
    return Observation(
        at_ms=at_ms,
        moves=None if moves is None else _moves(rows, wheres, now, logs, measured | held),
        is_running=any(row.running_adding for row in rows),
        lists=ThrottledLists() if moves is None else moves.report.throttled,
        rates_there=dict(_rates(reports)),
        defaults_there=_defaults(reports),
        brokers=frozenset(logs.times_ms),
        use={
            waiting.logs.broker: NetworkUse(
                in_bytes_per_s=waiting.logs.in_bytes_per_s, out_bytes_per_s=waiting.logs.out_bytes_per_s
            )
            for waiting in reports.values()
        },
        readings=dict(before) if moves is None else _keep_readings(wheres, before, now),
        rates=dict(known) if moves is None else measured | recent,
        held_over_count=len(held),
        why_unknown=_Reasons(rows, before, now, logs),
    )


def _measured_rates(wheres: list[Partition], rates: Ints, at_ms: int) -> dict[Partition, KnownRate]:
    return {
        where: KnownRate(rate, at_ms)
        for where, rate in zip(wheres, rates.tolist(), strict=True)
        if rate != UNKNOWN
    }


def _rates(reports: Mapping[str, WaitingLogs]) -> Iterator[tuple[BrokerRole, int]]:
    for waiting in reports.values():
        logs = waiting.logs
        if logs.leader_rate_bytes_per_s is not None:
            yield BrokerRole("leader", logs.broker), logs.leader_rate_bytes_per_s
        if logs.follower_rate_bytes_per_s is not None:
            yield BrokerRole("follower", logs.broker), logs.follower_rate_bytes_per_s


def _defaults(reports: Mapping[str, WaitingLogs]) -> dict[Role, int]:
    """Of the newest report; every broker says the same, unless it has just been changed."""
    if not reports:
        return {}
    logs = max(reports.values(), key=lambda waiting: waiting.age_key).logs
    both: dict[Role, int | None] = {
        "leader": logs.leader_default_bytes_per_s,
        "follower": logs.follower_default_bytes_per_s,
    }
    return {role: rate for role, rate in both.items() if rate is not None}


@dataclass(frozen=True, slots=True, eq=False)
class _Logs:
    """Replicas by broker; a broker that is not in it did not report."""

    times_ms: dict[int, int]
    replicas: dict[int, dict[Partition, ReplicaRow]]

    @classmethod
    def of(cls, reports: Mapping[str, WaitingLogs]) -> "_Logs":
        return cls(
            {waiting.logs.broker: waiting.time_ms for waiting in reports.values()},
            {
                waiting.logs.broker: {row.where: row for row in waiting.logs.replicas}
                for waiting in reports.values()
            },
        )

    def reading(self, where: Partition, leader: int) -> Reading | None:
        """The leader's log; None where nobody said how big it is."""
        found = self.replicas.get(leader, {}).get(where)
        if found is None:
            return None
        return Reading(
            at_ms=self.times_ms[leader],
            leader=leader,
            log_size_bytes=found.log_size_bytes,
            end_offset=UNKNOWN if found.log_end_offset is None else found.log_end_offset,
        )

    def present(self, where: Partition, adding: tuple[int, ...]) -> dict[int, int]:
        """What each added replica has; a broker that reported without it has nothing of it yet."""
        sizes = {}
        for broker in adding:
            replicas = self.replicas.get(broker)
            if replicas is not None:
                found = replicas.get(where)
                sizes[broker] = 0 if found is None else found.log_size_bytes
        return sizes


def _moves(
    rows: list[MoveRow],
    wheres: list[Partition],
    now: Mapping[Partition, Reading],
    logs: _Logs,
    rates: Mapping[Partition, KnownRate],
) -> Moves:
    columns = MoveColumns(
        topics=[row.topic for row in rows],
        partitions=[row.partition for row in rows],
        current=[row.replicas for row in rows],
        adding=[row.running_adding for row in rows],
        target=[row.target for row in rows],
        leaders=[row.leader for row in rows],
        write_bytes_per_s=[
            None if (rate := rates.get(where)) is None else rate.write_bytes_per_s for where in wheres
        ],
        log_size_bytes=[None if (at := now.get(where)) is None else at.log_size_bytes for where in wheres],
        in_sync=[row.isr for row in rows],
        present_bytes=[logs.present(where, row.adding) for where, row in zip(wheres, rows, strict=True)],
    )
    return read_moves(columns).moves


def _write_rates(
    wheres: list[Partition], before: Mapping[Partition, Reading], now: Mapping[Partition, Reading]
) -> Ints:
    """Write rate of each partition, (n,), or UNKNOWN; those whose two readings are of the same moments are taken together."""
    rates = np.full(len(wheres), UNKNOWN, dtype=np.int64)
    pairs = [(before.get(where), now.get(where)) for where in wheres]
    moments: dict[tuple[int, int], list[int]] = {}
    for place, (old, new) in enumerate(pairs):
        if old is not None and new is not None:
            moments.setdefault((old.at_ms, new.at_ms), []).append(place)
    for (old_ms, new_ms), places in moments.items():
        old_reading = _column([pairs[place][0] for place in places], old_ms)
        new_reading = _column([pairs[place][1] for place in places], new_ms)
        rates[places] = write_rates(old_reading, new_reading)
    return rates


def _column(readings: list[Reading | None], at_ms: int) -> LogReading:
    found = np.array(
        [
            (each.leader, each.log_size_bytes, each.end_offset) if each is not None else (NO_LEADER, -1, -1)
            for each in readings
        ],
        dtype=np.int64,
    )
    return LogReading(at_ms=at_ms, leader=found[:, 0], log_size_bytes=found[:, 1], end_offset=found[:, 2])


def _keep_readings(
    wheres: list[Partition], before: Mapping[Partition, Reading], now: Mapping[Partition, Reading]
) -> dict[Partition, Reading]:
    """Of the partitions that move: the new reading, or the old one while it is too young to tell a rate, or all there is."""
    kept = {}
    for where in wheres:
        old, new = before.get(where), now.get(where)
        if old is not None and (new is None or _is_too_soon(old, new)):
            kept[where] = old
        elif new is not None:
            kept[where] = new
    return kept


def _is_too_soon(old: Reading, new: Reading) -> bool:
    return old.leader == new.leader and new.at_ms - old.at_ms < MIN_INTERVAL_MS


@dataclass(frozen=True, slots=True, eq=False)
class _Reasons:
    """Why a partition lacks a write rate or a size."""

    rows: list[MoveRow]
    before: Mapping[Partition, Reading]
    now: Mapping[Partition, Reading]
    logs: _Logs

    def __call__(self, name: str) -> str:
        topic, _, partition = name.rpartition("-")
        row = next(row for row in self.rows if row.where == (topic, int(partition)))
        if row.leader == NO_LEADER:
            return "it has no leader: nothing of it is written or copied, and no minimum counts it until it has one"
        if row.leader not in self.logs.times_ms:
            return f"its leader, broker {row.leader}, did not report"
        new = self.now.get(row.where)
        if new is None:
            return f"its leader, broker {row.leader}, did not report its log"
        return self._why_no_rate(row, new)

    def _why_no_rate(self, row: MoveRow, new: Reading) -> str:
        old = self.before.get(row.where)
        if old is None:
            return "its log was read for the first time"
        if old.leader != new.leader:
            return f"its leader was broker {old.leader} before, and is {new.leader}"
        if new.at_ms - old.at_ms < MIN_INTERVAL_MS:
            return f"its log was read twice within {MIN_INTERVAL_MS // 1000} s"
        return f"its log shrank by {old.log_size_bytes - new.log_size_bytes} bytes (retention or compaction)"


def others_lists(there: ThrottledLists, ours: ThrottledLists) -> ThrottledLists:
    """Entries on the cluster that are not ours; without topics that have none."""
    both = ThrottledLists(
        leader=dict.fromkeys(there.leader, "") | dict(ours.leader),
        follower=dict.fromkeys(there.follower, "") | dict(ours.follower),
    )
    left = without(there, both)
    return ThrottledLists(
        leader={topic: text for topic, text in left.leader.items() if text},
        follower={topic: text for topic, text in left.follower.items() if text},
    )
