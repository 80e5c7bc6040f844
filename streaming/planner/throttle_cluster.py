"""``trimtab throttle plan`` with a cluster: what is to be copied is looked up there, and its planned throttle is set there.

Looked up are replicas, leaders, logs and their directories, write rates, and the throttle that is there. What a broker that was away
will fetch is looked up, too: its replicas that are out of sync. Write rates come from two readings some
seconds apart. Numbers that the file gives win over measured ones, because a person may know the peak.

The throttle is set before the move is started, so that the move never floods the network. A rate that somebody else set is kept and
reported unless it is to be replaced; lists are merged, never overwritten.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from policies.columns import Ints
from policies.throttle.checked_copies import CopyColumns, Reassignment
from policies.throttle.copies import NO_LEADER, RECOVERY, UNKNOWN, Copies
from policies.throttle.lists import BadList, foreign_entries_of, lists_of, merge
from policies.throttle.needs import LogReading, needs_of, total_by_broker, write_rates
from policies.throttle.pacing import is_another
from policies.throttle.rates import Load, RatePlan, per_broker_plan
from policies.throttle.roles import BrokerRole, of_role
from policies.wording import bytes_text
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster, LogSizes, Partition, PartitionState, RunningMove
from streaming.kafka.lags import Lags
from streaming.kafka.throttles import Throttle, changes_of, rate_key
from streaming.planner.throttle_plan import ThrottlePlan
from streaming.planner.throttle_request import (
    BadRequest,
    Checked,
    PartitionRow,
    ThrottleRequest,
    check,
    leave_out,
    show,
    sift,
    whole_numbers,
)

_MS_PER_S = 1000
_S_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """What was found."""

    checked: Checked
    throttle: Throttle
    """The throttle on the topics and brokers of the reassignment."""
    unreachable: Mapping[int, str]
    """Brokers of the reassignment that take no setting now, with the reason."""
    awaited: Collection[int] = ()
    """Those that are to recover and are away: the rates of the leaders hold them back, and one of their own would come too late."""


def recovery_rows(
    kafka: KafkaCluster, brokers: Collection[int], *, tell: Callable[[str], object] = lambda _: None
) -> list[PartitionRow]:
    """The partitions of which a broker has a replica that is out of sync; ``tell`` gets a line for a broker that has none.

    Raises ``BadRequest`` where none of the brokers has one, or one is not of the cluster.
    """
    if not brokers:
        return []
    states, registered, idle = kafka.partitions(None), kafka.brokers(), list[str]()
    for broker in sorted(brokers):
        has_any = any(broker in state.replicas for state in states.values())
        if not has_any and broker not in registered:
            raise BadRequest(
                f"--recovering {broker}: the cluster has no broker {broker}; it has {show(map(str, sorted(registered)), 10)}"
            )
        if not any(_is_behind(broker, state) for state in states.values()):
            why = "all its replicas are in sync" if has_any else "no partition has a replica on it"
            idle.append(f"--recovering {broker}: nothing is to be fetched, because {why}")
    if len(idle) == len(set(brokers)):
        raise BadRequest("; ".join(idle))
    for each in idle:
        tell(each)
    return [
        PartitionRow(topic=topic, partition=number, replicas=list(state.replicas))
        for (topic, number), state in sorted(states.items())
        if any(_is_behind(broker, state) for broker in brokers)
    ]


def _is_behind(broker: int, state: PartitionState) -> bool:
    return broker in state.replicas and broker not in state.in_sync


def survey(
    kafka: KafkaCluster,
    request: ThrottleRequest,
    *,
    recovering: Collection[int] = (),
    interval_s: float,
    wait: Callable[[float], None] = time.sleep,
) -> Survey:
    """Look everything up; takes ``interval_s``. Raises ``BadRequest`` if nothing of the request fits the cluster.

    Raises ``ClusterError`` where the cluster as a whole does not answer.
    """
    alive = kafka.brokers()
    states = kafka.partitions([row.topic for row in request.partitions])
    running = kafka.reassignments()
    placed = [row for row in request.partitions if row.log_dirs]
    logs = kafka.log_sizes(
        [row.where for row in placed], {broker for row in placed for broker in row.target} & alive.keys()
    )
    rows, refused = sift(
        request,
        lambda row: _misfit(row, states, running, alive) or _strange_directory(row, logs.directories),
    )
    between_disks = [_moved_between_disks(row, logs) for row in rows]
    columns, sizes = _measure(kafka, rows, states, running, between_disks, recovering, interval_s, wait)
    checked = _without_full_disks(check(columns, refused), sizes)
    copies = checked.reassignment.copies
    brokers = copies.brokers()
    topics = {copies.topics[place] for place in np.unique(copies.topic).tolist()}
    found = kafka.throttle(topics=topics, brokers=brokers & alive.keys())
    down = dict.fromkeys(sorted(brokers - alive.keys()), "it is down")
    unreachable = {**found.failed, **down}
    notes = _notes(checked.reassignment, sizes, found.throttle, unreachable, interval_s)
    threads = {broker: len(paths) for broker, paths in logs.directories.items()} | dict(found.disk_threads)
    return Survey(
        checked=replace(checked, notes=tuple(notes), disk_threads=threads),
        throttle=found.throttle,
        unreachable=unreachable,
        awaited=set(recovering) & down.keys(),
    )


def _misfit(
    row: PartitionRow,
    states: Mapping[Partition, PartitionState],
    running: Mapping[Partition, RunningMove],
    alive: Mapping[int, str],
) -> str | None:
    """Why a row does not fit the cluster; None if it does. Brokers of replicas that stay or leave need not be alive."""
    state, move = states.get(row.where), running.get(row.where)
    if state is None:
        known = sorted(partition for topic, partition in states if topic == row.topic)
        if not known:
            return f"the cluster has no topic {row.topic!r}"
        return f"topic {row.topic!r} has partitions {known[0]} to {known[-1]}"
    sources = set(state.replicas) - set(() if move is None else move.adding)
    strangers = sorted(set(row.target) - sources - alive.keys())
    if strangers:
        return f"broker {show(map(str, strangers))} of the target is down, or there is none; up are {show(map(str, sorted(alive)), 10)}"
    if move is not None and set(move.target) != set(row.target):
        return (
            f"already being reassigned, to {list(move.target)} and not to {row.target}; "
            "cancel that move first, or plan with its targets"
        )
    if row.current_replicas is not None and set(row.current_replicas) != set(state.replicas):
        return f"current_replicas is {row.current_replicas}, and the cluster has {list(state.replicas)}"
    return None


def _strange_directory(row: PartitionRow, directories: Mapping[int, Sequence[str]]) -> str | None:
    """Why a row's directories cannot be; None if they can."""
    for broker, path in row.placed:
        if path not in directories.get(broker, (path,)):
            return f"broker {broker} has no log directory {path}; it has {show(directories[broker])}"
    return None


def _moved_between_disks(row: PartitionRow, logs: LogSizes) -> list[int]:
    """Brokers that have a replica in another directory than it shall be in."""
    there = logs.directory_of.get(row.where, {})
    return [broker for broker, path in row.placed if there.get(broker, path) != path]


def _measure(
    kafka: KafkaCluster,
    rows: Sequence[PartitionRow],
    states: Mapping[Partition, PartitionState],
    running: Mapping[Partition, RunningMove],
    between_disks: Sequence[Sequence[int]],
    recovering: Collection[int],
    interval_s: float,
    wait: Callable[[float], None],
) -> tuple[CopyColumns, LogSizes]:
    """The rows with what the cluster says about each, and the logs as they were read last."""
    places = [row.where for row in rows]
    adding = [running[where].adding if where in running else () for where in places]
    added = [
        set(row.target) - (set(states[row.where].replicas) - set(joining))
        for row, joining in zip(rows, adding, strict=True)
    ]
    before, _ = _read_logs(kafka, places, added, [states[where].leader for where in places])
    wait(interval_s)
    now = kafka.partitions([row.topic for row in rows])
    leaders = [now[where].leader if where in now else NO_LEADER for where in places]
    after, sizes = _read_logs(kafka, places, added, leaders)
    behind = [
        sorted(broker for broker in recovering if _is_behind(broker, states[where])) for where in places
    ]
    missing = _missing_bytes(kafka, places, behind, leaders, sizes)
    columns = CopyColumns(
        topics=[row.topic for row in rows],
        partitions=[row.partition for row in rows],
        current=[states[where].replicas for where in places],
        adding=adding,
        target=[row.target for row in rows],
        leaders=leaders,
        write_bytes_per_s=_fill_in_measured(
            whole_numbers(rows, "write_bytes_per_s"), write_rates(before, after)
        ),
        log_size_bytes=_fill_in_measured(whole_numbers(rows, "log_size_bytes"), after.log_size_bytes),
        in_sync=[states[where].in_sync for where in places],
        recovering=behind,
        missing_bytes=missing,
        between_disks=between_disks,
        present_bytes=[
            {
                broker: sizes.sizes_bytes.get(where, {}).get(broker, 0)
                for broker in brokers - sizes.failed.keys()
            }
            for where, brokers in zip(places, added, strict=True)
        ],
    )
    return columns, sizes


def _missing_bytes(
    kafka: KafkaCluster,
    places: Sequence[Partition],
    behind: Sequence[Sequence[int]],
    leaders: Sequence[int],
    sizes: LogSizes,
) -> list[dict[int, int]]:
    """What each replica that recovers lacks, as far as its broker is alive and tells."""
    by_broker: dict[int, list[Partition]] = {}
    for where, brokers in zip(places, behind, strict=True):
        for broker in brokers:
            by_broker.setdefault(broker, []).append(where)
    alive = kafka.brokers()
    lags = Lags.read(
        kafka,
        dict(zip(places, leaders, strict=True)),
        counted=[where for where, brokers in zip(places, behind, strict=True) if brokers],
        behind={broker: partitions for broker, partitions in by_broker.items() if broker in alive},
    )
    return [
        {
            broker: lacks
            for broker in brokers
            if (lacks := lags.missing_bytes(broker, where, sizes.sizes_bytes.get(where, {}).get(leader)))
            is not None
        }
        for where, brokers, leader in zip(places, behind, leaders, strict=True)
    ]


def _read_logs(
    kafka: KafkaCluster, places: Sequence[Partition], added: Sequence[set[int]], leaders: Sequence[int]
) -> tuple[LogReading, LogSizes]:
    """The logs of the leaders now, and everything that was read for it, the added replicas included."""
    offsets = kafka.end_offsets(dict(zip(places, leaders, strict=True)))
    brokers = set(leaders).union(*added) - {NO_LEADER}
    at_ms = round(time.time() * _MS_PER_S)
    sizes = kafka.log_sizes(places, brokers)
    led_bytes = [
        sizes.sizes_bytes.get(where, {}).get(leader, UNKNOWN)
        for where, leader in zip(places, leaders, strict=True)
    ]
    reading = LogReading(
        at_ms=at_ms,
        leader=np.array(leaders, dtype=np.int64),
        log_size_bytes=np.array(led_bytes, dtype=np.int64),
        end_offset=np.array([offsets.get(where, UNKNOWN) for where in places], dtype=np.int64),
    )
    return reading, sizes


def _fill_in_measured(given: Sequence[int | None], measured: Ints) -> list[int | None]:
    return [
        value if value is not None else None if found == UNKNOWN else found
        for value, found in zip(given, measured.tolist(), strict=True)
    ]


def _without_full_disks(checked: Checked, sizes: LogSizes) -> Checked:
    """The same without the partitions that gain a replica on a broker whose disks are too small for all that it would receive."""
    copies, full = checked.reassignment.copies, {}
    for broker, needed in of_role(needs_of(copies).bytes_left, "follower").items():
        free = sizes.usable_bytes.get(broker)
        if needed is not None and free is not None and needed > free:
            full[broker] = (
                f"broker {broker} would receive {bytes_text(needed)} and has {bytes_text(free)} free: the plan is larger than its disks"
            )
    to = copies.destinations
    gains = zip(to.rows.tolist(), to.brokers.tolist(), strict=True)
    return leave_out(checked, {row: full[broker] for row, broker in gains if broker in full})


def _notes(
    reassignment: Reassignment,
    sizes: LogSizes,
    throttle: Throttle,
    failed: Mapping[int, str],
    interval_s: float,
) -> Iterator[str]:
    yield f"write rates are those of the last {interval_s:,.0f} s unless the request gives them; traffic has peaks"
    for broker, reason in {**sizes.failed, **failed}.items():
        yield f"broker {broker} does not answer: {reason}"
    yield from _absence_notes(reassignment.copies, failed)
    try:
        strange = foreign_entries_of(throttle.lists, lists_of(reassignment.copies))
    except BadList as error:
        raise BadRequest(f"a throttled replica list on the cluster cannot be read: {error}") from error
    for role, lists in (("leader", strange.leader), ("follower", strange.follower)):
        for topic, text in lists.items():
            yield f"topic {topic} has {role}.replication.throttled.replicas that are not of this plan; they are kept: {text}"
    for key, rate in throttle.rates_bytes_per_s.items():
        yield f"broker {key.broker} has {rate_key(key.role)} {rate} already"
    for role, rate in throttle.defaults_bytes_per_s.items():
        yield (
            f"all brokers have {rate_key(role)} {rate} by default; the rates of this plan override it, "
            "and it is kept"
        )


def _absence_notes(copies: Copies, failed: Mapping[int, str]) -> Iterator[str]:
    """What brokers lack that are away: nobody knows how much they have, but each hour adds what is written."""
    recovering = copies.of_kind(RECOVERY)
    rates = total_by_broker(recovering.brokers, copies.write_bytes_per_s[recovering.rows])
    for broker, bytes_per_s in rates.items():
        if broker in failed and bytes_per_s is not None:
            yield (
                f"broker {broker} is counted with empty disks; if it has kept them, it lacks {bytes_text(bytes_per_s * _S_PER_HOUR)} for each "
                "hour that it was away, at the write rates of now"
            )


Chosen = Literal["uniform", "per-broker"]


class NotApplied(ClusterError):
    """Nothing was set; the message says why and what to do."""


class Applied(NamedTuple):
    """What was done, and what could not be set; a line each."""

    done: list[str]
    not_set: list[str]


def apply_plan(
    kafka: KafkaCluster, plan: ThrottlePlan, found: Survey, *, chosen: Chosen, replace_rates: bool
) -> Applied:
    """Set and read back what is not right yet. Raises ``NotApplied`` or ``ClusterError``."""
    if not plan.loads:
        return Applied(["nothing is copied, so nothing was set"], [])
    outcome = plan.uniform.plan if chosen == "uniform" else plan.per_broker
    if outcome.feasible is not True:
        why = (
            "it would never end"
            if outcome.feasible is False
            else f"it is not known whether it would ever end, because the write rate of {plan.without_rate} is unknown: give it as "
            "write_bytes_per_s"
        )
        raise NotApplied(f"not applied: {why}; the throttle of the cluster is as it was")
    if plan.late:
        raise NotApplied(
            f"not applied: {plan.late[0 if chosen == 'uniform' else -1]}; the throttle of the cluster is as it was"
        )
    wanted = rates_of(plan, chosen)
    rates = {role: rate for role, rate in wanted.items() if role.broker not in found.unreachable}
    lacking = sorted({role.broker for role in wanted} & found.unreachable.keys())
    kept: dict[BrokerRole, int] = {}
    planned = rates
    if not replace_rates:
        kept = _near_rates(plan, found.throttle, planned)
        rates = {**planned, **kept}
        _refuse_other_rates(found.throttle, rates)
    lists, _ = merge(found.throttle.lists, plan.lists)
    try:
        changes = changes_of(found.throttle, lists, rates)
    except ValueError as error:
        raise NotApplied(f"not applied: {error}") from error
    kafka.apply(changes)
    already = "all else was set already" if lacking else "everything was set already"
    return Applied(
        [
            *([f"set and read back: {change}" for change in changes] or [already]),
            *(
                f"kept: {role} has {rate:,} bytes/s, near enough to the {planned[role]:,} of this plan"
                for role, rate in kept.items()
            ),
            *(
                f"broker {broker} is away, so it gets no rate of its own; the rates of the leaders hold it back"
                for broker in lacking
                if broker in found.awaited
            ),
        ],
        [
            f"NOT set, the rates of broker {broker}: {found.unreachable[broker]}. Until they are set, it may "
            "copy without a limit; repeat the command when it answers"
            for broker in lacking
            if broker not in found.awaited
        ],
    )


def rates_of(plan: ThrottlePlan, chosen: Chosen) -> dict[BrokerRole, int | None]:
    """A rate for every broker on a list. Sources that do not lead yet get one for their failover-safe minimum, in case they will."""
    outcome: RatePlan = plan.uniform.plan if chosen == "uniform" else plan.per_broker
    safe = (
        Load(role=role, bytes_left=0, min_bytes_per_s=minimum)
        for role, minimum in plan.needs.failover_safe_min_bytes_per_s.items()
        if role not in outcome.rates
    )
    spare = per_broker_plan(tuple(safe), plan.rule).rates
    if chosen == "uniform":
        spare = dict.fromkeys(spare, plan.uniform.rate_bytes_per_s)
    return {**outcome.rates, **spare}


def _near_rates(
    plan: ThrottlePlan, there: Throttle, rates: Mapping[BrokerRole, int | None]
) -> dict[BrokerRole, int]:
    """Rates that are set, differ from the planned ones by less than is ever written again, and still let the copies end.

    Two measurements of the same write rate differ by as much. A rate that somebody asks for, and a limit, are exact; with a deadline a
    lower rate would miss it.
    """
    if plan.rule.fixed_bytes_per_s is not None:
        return {}
    minimums = {**plan.needs.failover_safe_min_bytes_per_s, **plan.needs.min_bytes_per_s}
    near = {}
    for role, rate in rates.items():
        set_already, cap = there.rates_bytes_per_s.get(role), plan.rule.caps.cap_of(role)
        if rate is None or set_already is None or set_already == rate:
            continue
        is_allowed = set_already > (minimums.get(role) or 0) and (cap is None or set_already <= cap)
        is_allowed &= plan.rule.deadline_s is None or set_already > rate
        if is_allowed and not is_another(set_already, rate, up=True, down=True):
            near[role] = set_already
    return near


def _refuse_other_rates(there: Throttle, rates: Mapping[BrokerRole, int | None]) -> None:
    others = [
        f"{role} has {there.rates_bytes_per_s[role]:,} bytes/s"
        for role, rate in rates.items()
        if role in there.rates_bytes_per_s and there.rates_bytes_per_s[role] != rate
    ]
    if others:
        raise NotApplied(
            f"not applied: rates are set already and are kept ({show(others)}); "
            "to replace them, add --replace-rates"
        )
