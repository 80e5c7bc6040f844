"""What a round's reports show: copies with rates, sizes and progress, and why a number is missing.

A partition's write rate is the growth of its leader's log since the previous reading. If the leader reported, but is another
broker than before, or if retention shortened the log (among many partitions nearly always one), the last known rate is held
over, for as long as missing reports are waited for. Every number that is not known is named with the reason; none is taken
from another partition.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.capacity import NetworkUse
from policies.throttle.copies import DISK, NO_LEADER, UNKNOWN, Copies
from policies.throttle.lists import ThrottledLists
from policies.throttle.needs import MIN_INTERVAL_MS, LogReading, bytes_left, write_rates
from policies.throttle.rates import BrokerRole
from policies.throttle.replicas import key_of
from policies.throttle.roles import Role
from state.events import MISSING, KafkaLoadReport, Reassignment, find_places, partition_keys, places_in
from state.kafka.memory import READING, PartitionTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One round of one cluster."""

    at_ms: int
    """Time of the newest report, at most the round's end."""
    copies: Copies | None
    """What is copied; None: no report says so."""
    is_running: bool
    """Whether any of it has begun."""
    begun: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Which of the copies have, (k,)."""
    under_min_isr: Sequence[str] = ()
    """Partitions with too few replicas in sync to be written to, and with one that fetches, in order."""
    unpaced: Sequence[str] = ()
    """What is copied and not paced, and why: a clause for each reason."""
    lists: ThrottledLists
    """Throttled replica lists on the cluster."""
    rates_there: Mapping[BrokerRole, int]
    """Rates set on the brokers that reported, each broker's own."""
    defaults_there: Mapping[Role, int]
    """Rates for all brokers that have none of their own."""
    brokers: frozenset[int]
    """Brokers that reported."""
    live_brokers: frozenset[int] | None = None
    """Brokers that are alive, whether they reported or not; None: not known."""
    use: Mapping[int, NetworkUse]
    disk_threads: Mapping[int, int] = field(default_factory=dict)
    """Replicas that a broker moves between its disks at once, as far as it is known."""
    readings: PartitionTable
    """Log readings, to be remembered for the next round's rates."""
    rates: PartitionTable
    """Write rates known now or lately, to be remembered for rounds in which none can be measured."""
    held_over_count: int
    """Partitions whose write rate is from an earlier round."""
    why_unknown: Callable[[str, Copies | None], str]
    """From the name of a partition, and the copies that are paced, to why it lacks a number."""

    @property
    def running_count(self) -> int:
        """How many of the copies have begun."""
        return int(np.count_nonzero(self.begun))

    @property
    def is_planned(self) -> bool:
        """Whether something will be copied, and nothing of it has begun."""
        return self.copies is not None and len(self.copies) > 0 and not self.is_running


def observe(
    before: PartitionTable,
    copies: Reassignment | None,
    reports: Mapping[str, KafkaLoadReport],
    *,
    end_ms: int,
    known: PartitionTable,
    hold_ms: int,
) -> Observation:
    """What the round that ends at ``end_ms`` shows; ``before`` are the readings it is compared with.

    ``known`` are write rates of earlier rounds, which count for ``hold_ms``.
    """
    times = [waiting.time_ms for waiting in reports.values()]
    at_ms = max(times, default=end_ms if copies is None else copies.time_ms)
    observation = Observation(
        at_ms=at_ms,
        copies=None,
        is_running=False,
        lists=ThrottledLists(),
        rates_there=dict(_rates(reports)),
        defaults_there=_defaults(reports),
        brokers=frozenset(waiting.logs.broker for waiting in reports.values()),
        use={
            waiting.logs.broker: NetworkUse(
                in_bytes_per_s=waiting.logs.in_bytes_per_s, out_bytes_per_s=waiting.logs.out_bytes_per_s
            )
            for waiting in reports.values()
        },
        disk_threads={
            waiting.logs.broker: waiting.logs.disk_threads_count
            for waiting in reports.values()
            if waiting.logs.disk_threads_count is not None
        },
        readings=before,
        rates=known,
        held_over_count=0,
        why_unknown="no report says whether {} moves".format,
    )
    if copies is None:
        return observation
    return replace(
        _observe_moves(observation, copies.report.copies, before, reports, known=known, hold_ms=hold_ms),
        is_running=copies.report.is_running,
        lists=copies.report.throttled,
        live_brokers=None if copies.report.live_brokers is None else frozenset(copies.report.live_brokers),
    )


def _observe_moves(
    observation: Observation,
    copies: Copies,
    before: PartitionTable,
    reports: Mapping[str, KafkaLoadReport],
    *,
    known: PartitionTable,
    hold_ms: int,
) -> Observation:
    logs = _Logs.from_reports(reports, copies)
    old, new = _Readings.remembered(before, copies), logs.readings_of_leaders(copies)
    measured = write_rates(old.logs(), new.logs())
    measured[~(old.is_there & new.is_there)] = UNKNOWN
    is_measured = measured != UNKNOWN
    places = known.places_of(copies)
    earlier = _rows_at(known.columns[:, 2:], places)
    is_recent = ~is_measured & (places != MISSING) & (observation.at_ms - earlier[:, 1] <= hold_ms)
    is_held = is_recent & new.is_there
    rates = np.where(is_measured, measured, np.where(is_held, earlier[:, 0], UNKNOWN))
    present_bytes, missing_bytes = logs.at_destinations(copies)
    now = np.column_stack([measured, np.full(len(copies), observation.at_ms)])
    return replace(
        observation,
        copies=replace(
            copies,
            write_bytes_per_s=rates,
            log_size_bytes=np.where(new.is_there, new.columns[:, READING.index("log_size_bytes")], UNKNOWN),
            present_bytes=present_bytes,
            missing_bytes=missing_bytes,
        ),
        readings=_keep_readings(copies, old, new),
        rates=PartitionTable.from_copies(
            copies, np.where(is_measured[:, None], now, earlier), is_measured | is_recent
        ),
        held_over_count=int(np.count_nonzero(is_held)),
        why_unknown=_Reasons(copies, old, new, observation.brokers, rates != UNKNOWN),
    )


def _rows_at(columns: Ints, places: Ints) -> Ints:
    """The rows at ``places``, (len(places), k); zeros, which mean nothing, at a ``MISSING`` place."""
    rows = np.zeros((len(places), columns.shape[1]), dtype=np.int64)
    is_there = places != MISSING
    rows[is_there] = columns[places[is_there]]
    return rows


def _rates(reports: Mapping[str, KafkaLoadReport]) -> Iterator[tuple[BrokerRole, int]]:
    for waiting in reports.values():
        logs = waiting.logs
        for role, rate in logs.rates.items():
            yield BrokerRole(role, logs.broker), rate


def _defaults(reports: Mapping[str, KafkaLoadReport]) -> dict[Role, int]:
    """Default rates in the newest report; every broker reports the same ones, unless they have just been changed."""
    if not reports:
        return {}
    return max(reports.values(), key=lambda waiting: waiting.age_key).logs.default_rates


@dataclass(frozen=True, slots=True, eq=False)
class _Readings:
    """A reading of the log at the leader of each of n partitions that move."""

    is_there: Bools
    """Whether there is a reading, (n,)."""
    columns: Ints
    """The columns of ``READING``, (n, 4); zeros where there is none."""

    @classmethod
    def remembered(cls, before: PartitionTable, copies: Copies) -> "_Readings":
        """The readings of earlier rounds."""
        places = before.places_of(copies)
        return cls(places != MISSING, _rows_at(before.columns[:, 2:], places))

    def logs(self) -> LogReading:
        """The columns that write rates are computed from."""
        at_ms, leader, log_size_bytes, end_offset = self.columns.T
        return LogReading(at_ms=at_ms, leader=leader, log_size_bytes=log_size_bytes, end_offset=end_offset)


@dataclass(frozen=True, slots=True, eq=False)
class _Logs:
    """Replicas of the partitions that are copied, as their brokers reported them; m rows in any order."""

    row: Ints
    """Row of the partition among the copies, (m,)."""
    broker: Ints
    """(m,)."""
    columns: Ints
    """Time of the report, broker, log size, end offset: the columns of ``READING`` if that broker leads, (m, 4)."""
    missing: Ints
    """What the replica lacks, and what its copy on another disk does, bytes or ``UNKNOWN``, (m, 2)."""
    brokers: Ints
    """Brokers that reported."""

    @classmethod
    def from_reports(cls, reports: Mapping[str, KafkaLoadReport], copies: Copies) -> "_Logs":
        topics = {name: place for place, name in enumerate(copies.topics)}
        tables = [(report.logs.broker, report.time_ms, report.logs.replicas) for report in reports.values()]
        brokers = np.array([broker for broker, _, _ in tables], dtype=np.int64)
        times_ms = np.array([time_ms for _, time_ms, _ in tables], dtype=np.int64)
        counts = np.array([len(table) for _, _, table in tables], dtype=np.int64)
        read = [np.zeros((0, 6), dtype=np.int64), *(table.columns for _, _, table in tables)]
        topic, partition, log_size_bytes, end_offset, missing, on_disk = np.concatenate(read).T
        places = np.concatenate(
            [places_in(topics, ()), *(places_in(topics, table.topics) for *_, table in tables)]
        )
        starts = np.cumsum([0, *(len(table.topics) for *_, table in tables)])[:-1]
        keys = partition_keys(places[topic + np.repeat(starts, counts)], partition)
        rows = find_places(partition_keys(copies.topic, copies.partition), keys)
        is_copied = rows != MISSING
        broker = np.repeat(brokers, counts)
        columns = np.column_stack([np.repeat(times_ms, counts), broker, log_size_bytes, end_offset])
        return cls(
            rows[is_copied],
            broker[is_copied],
            columns[is_copied],
            np.column_stack([missing, on_disk])[is_copied],
            brokers,
        )

    def readings_of_leaders(self, copies: Copies) -> _Readings:
        """The log at each partition's leader, where the leader reported it."""
        leads = self.broker == copies.leader[self.row]
        is_there = np.zeros(len(copies), dtype=np.bool_)
        columns = np.zeros((len(copies), len(READING)), dtype=np.int64)
        is_there[self.row[leads]] = True
        columns[self.row[leads]] = self.columns[leads]
        return _Readings(is_there, columns)

    def at_destinations(self, copies: Copies) -> tuple[Ints, Ints]:
        """Bytes that each destination has, and that it says it lacks, (k,) each, or UNKNOWN.

        One whose broker reported without it has 0 bytes, because it has none of it yet.
        """
        keys = key_of(self.row, self.broker)
        order = np.argsort(keys, kind="stable")
        places = find_places(keys[order], copies.destinations.keys)
        is_there = places != MISSING
        absent = np.where(np.isin(copies.destinations.brokers, self.brokers), 0, UNKNOWN)
        present = np.where(is_there, _rows_at(self.columns[order], places)[:, 2], absent)
        told = _rows_at(self.missing[order], places)
        missing = np.where(is_there, np.where(copies.kind == DISK, told[:, 1], told[:, 0]), UNKNOWN)
        return present, missing


def _keep_readings(copies: Copies, old: _Readings, new: _Readings) -> PartitionTable:
    """The reading to keep of each partition that moves: the new one, or the old one if that is too recent for a rate or the only one."""
    is_too_soon = (old.columns[:, 1] == new.columns[:, 1]) & (
        new.columns[:, 0] - old.columns[:, 0] < MIN_INTERVAL_MS
    )
    keeps_old = old.is_there & (~new.is_there | is_too_soon)
    columns = np.where(keeps_old[:, None], old.columns, new.columns)
    return PartitionTable.from_copies(copies, columns, old.is_there | new.is_there)


def _row_of(copies: Copies, name: str) -> int:
    topic, _, partition = name.rpartition("-")
    is_row = (copies.topic == copies.topics.index(topic)) & (copies.partition == int(partition))
    return int(np.flatnonzero(is_row)[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Reasons:
    """Why a partition lacks a write rate or a size."""

    copies: Copies
    old: _Readings
    new: _Readings
    brokers: frozenset[int]
    is_rate_known: Bools
    """(n,)."""

    def __call__(self, name: str, paced: Copies | None) -> str:
        row = _row_of(self.copies, name)
        leader = int(self.copies.leader[row])
        if leader == NO_LEADER:
            return "it has no leader: nothing of it is written or copied, and no minimum counts it until it has one"
        if leader not in self.brokers:
            return f"its leader, broker {leader}, did not report"
        if not self.new.is_there[row]:
            return f"its leader, broker {leader}, did not report its log"
        if self.is_rate_known[row]:
            return self._why_no_size(name, self.copies if paced is None else paced)
        if not self.old.is_there[row]:
            return "its log was read for the first time"
        return self._why_no_rate(self.old.columns[row].tolist(), self.new.columns[row].tolist())

    def _why_no_size(self, name: str, copies: Copies) -> str:
        lacks = copies.destinations.rows == _row_of(copies, name)
        lacks &= bytes_left(copies, counts_whole_logs=False) == UNKNOWN
        copied_to = copies.destinations.brokers[lacks].tolist()
        unheard = set(copied_to) - self.brokers
        if unheard:
            return f"broker {min(unheard)}, to which it is copied, did not report"
        return f"what broker {min(copied_to)} lacks of it could not be read"

    def _why_no_rate(self, old: list[int], new: list[int]) -> str:
        if old[1] != new[1]:
            return f"its leader was broker {old[1]} before, and is {new[1]}"
        if new[0] - old[0] < MIN_INTERVAL_MS:
            return f"its log was read twice within {MIN_INTERVAL_MS // 1000} s"
        return f"its log shrank by {old[2] - new[2]} bytes (retention or compaction)"
