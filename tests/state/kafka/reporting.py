"""Reports of Kafka brokers from rows, for tests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from policies.throttle.copies import UNKNOWN
from policies.throttle.lists import ThrottledLists
from policies.throttle.needs import Needs
from policies.throttle.pacing_round import PacingExplanation, PacingMemory, ThrottleDecision
from policies.throttle.progress import UNKNOWN_END, Eta
from policies.throttle.rates import BrokerRole, RatePlan
from state.events import CopiesReport, PartitionTable
from state.kafka.memory import KafkaMemory, ThrottleConfigs
from state.kafka.snapshot import Observation
from streaming.contract import kafka as contract
from streaming.contract.kafka import Move, ReassignmentData
from tests.policies.throttle.moving import Partition, copies_of


class Replica(NamedTuple):
    """One replica as its broker has it."""

    topic: str
    partition: int
    log_size_bytes: int
    end_offset: int | None = None
    missing_bytes: int | None = None
    disk_missing_bytes: int | None = None


def replica_table(*rows: Replica) -> PartitionTable:
    topics, partitions, sizes, *numbers = zip(*rows, strict=True) if rows else ((),) * 6
    known = ([UNKNOWN if number is None else number for number in column] for column in numbers)
    return PartitionTable.of_rows(topics, partitions, sizes, *known)


class MoveRow(NamedTuple):
    """One partition of a reassignment."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    recovering: tuple[int, ...] = ()
    between_disks: tuple[int, ...] = ()
    min_isr: int | None = None


def copies_report(
    *rows: MoveRow, lists: ThrottledLists | None = None, live_brokers: tuple[int, ...] | None = None
) -> CopiesReport:
    copies = [Move(**msgspec.to_builtins(row._asdict())) for row in rows]
    report = contract.copies_report(ReassignmentData(copies))
    return msgspec.structs.replace(report, throttled=lists or ThrottledLists(), live_brokers=live_brokers)


L1, L2, F3 = BrokerRole("leader", 1), BrokerRole("leader", 2), BrokerRole("follower", 3)


OURS = ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})


RATES = {L1: 24, L2: 24, F3: 24}


CONFIRMED = ThrottleConfigs(OURS, RATES)


IN_FORCE = PacingMemory(begun_ms=0, added=OURS, rates=RATES)


def memory_of(**more: object) -> KafkaMemory:
    """The memory of a throttle that is in force."""
    memory = KafkaMemory(pacing=IN_FORCE, confirmed=CONFIRMED, tells_rates=True, tells_lists=True)
    for name, value in more.items():
        setattr(memory, name, value)
    return memory


def seen_of(lists: ThrottledLists = OURS, rates: Mapping[BrokerRole, int] = RATES) -> Observation:
    return Observation(
        at_ms=10_000,
        copies=copies_of(Partition("t-0", [1, 2], [2, 3], 10, 100)),
        is_running=True,
        lists=lists,
        rates_there=rates,
        defaults_there={},
        brokers=frozenset({1, 2, 3}),
        use={},
        readings=KafkaMemory().readings,
        rates=KafkaMemory().rates,
        held_over_count=0,
        why_unknown=lambda name, _: name,
    )


FIRST = ThrottleDecision(trigger="first-throttle", add=OURS, set_rates=RATES)


FINISHED = ThrottleDecision(trigger="finished", remove=OURS, clear_rates=(L1, F3, L2))


SEEN = seen_of()


NOTHING_MOVES, NOTHING_KNOWN = replace(SEEN, copies=copies_of()), replace(SEEN, copies=None)


def needs(**fields: Any) -> Needs:
    """What brokers 1 and 2 have to send to broker 3."""
    usual: dict[str, Any] = {
        "bytes_left": {L1: 60, L2: 40, F3: 100},
        "min_bytes_per_s": {L1: 20, L2: 30, F3: 10},
        "write_bytes_per_s": {},
        "failover_safe_min_bytes_per_s": {},
        "lacking": (),
        "without_leader": (),
        "whole_logs_count": 0,
    }
    return Needs(**usual | fields)


def plan(**fields: Any) -> RatePlan:
    usual: dict[str, Any] = {
        "rates": RATES,
        "feasible": True,
        "violations": (),
        "durations_s": {L1: 15.0, L2: 2.5, F3: 7.0},
        "total_s": 15.0,
        "bottleneck": L1,
    }
    return RatePlan(**usual | fields)


def eta(remaining_s: float | None = 15.4, **fields: Any) -> Eta:
    return replace(UNKNOWN_END, remaining_s=remaining_s, basis="predicted", **fields)


def explained(**fields: Any) -> PacingExplanation:
    return PacingExplanation(outcome="decided", **fields)
