"""What a round's reports show of the moves, what is remembered of them, and which brokers are not there."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.throttle.capacity import NetworkUse
from policies.throttle.copies import UNKNOWN, Copies
from policies.throttle.lists import ThrottledLists, difference
from policies.throttle.rates import BrokerRole, ThrottleSettings
from state.events import (
    MISSING,
    BrokerLogs,
    KafkaLoadReport,
    Reassignment,
    find_places,
    partition_keys,
    places_in,
)
from state.kafka.absences import select_copies
from state.kafka.findings import Broken, observe_broken
from state.kafka.memory import KNOWN_RATE, READING, KafkaMemory, PartitionTable
from state.kafka.snapshot import Observation, observe
from tests.policies.throttle.moving import Partition, copies_of
from tests.state.kafka.reporting import MoveRow, Replica, copies_report, replica_table

NOW_MS, EARLIER_MS = 20_000, 10_000
HOLD_MS = 30_000
MOVE = MoveRow("t", 0, (1, 2, 3), (3,), (1,), 1, (1, 2))
"""A partition of brokers 1 and 2, led by 1, that moves to 3."""
NO_READINGS, NO_RATES = PartitionTable.empty(len(READING)), PartitionTable.empty(len(KNOWN_RATE))


def table(*rows: tuple[str, int, tuple[int, ...]], numbers_count: int) -> PartitionTable:
    """Topic, partition and numbers of each row."""
    topics = sorted({topic for topic, _, _ in rows})
    columns = [[topics.index(topic), partition, *numbers] for topic, partition, numbers in rows]
    return PartitionTable(tuple(topics), np.array(columns, dtype=np.int64).reshape(-1, 2 + numbers_count))


def readings(*rows: tuple[str, int, tuple[int, ...]]) -> PartitionTable:
    return table(*rows, numbers_count=len(READING))


def rates(*rows: tuple[str, int, tuple[int, ...]]) -> PartitionTable:
    return table(*rows, numbers_count=len(KNOWN_RATE))


def logs(broker: int, *replicas: Replica, at_ms: int = NOW_MS, **more: Any) -> KafkaLoadReport:
    return KafkaLoadReport(
        at_ms, f"l{broker}", str(broker), BrokerLogs(broker, replica_table(*replicas), **more)
    )


def observed(
    *reports: KafkaLoadReport,
    copies: tuple[MoveRow, ...] | None = (MOVE,),
    before: PartitionTable = NO_READINGS,
    known: PartitionTable = NO_RATES,
    lists: ThrottledLists | None = None,
) -> Observation:
    waiting = None if copies is None else Reassignment(NOW_MS - 1, "m", copies_report(*copies, lists=lists))
    by_name: Mapping[str, KafkaLoadReport] = {str(each.logs.broker): each for each in reports}
    return observe(before, waiting, by_name, end_ms=30_000, known=known, hold_ms=HOLD_MS)


def numbers_of(observation: Observation) -> tuple[list[int], list[int], list[int]]:
    """Write rates, log sizes, and what the added replicas have."""
    copies = observation.copies
    assert copies is not None
    return (
        copies.write_bytes_per_s.tolist(),
        copies.log_size_bytes.tolist(),
        copies.present_bytes.tolist(),
    )


def test_a_rate_is_the_growth_of_the_leaders_log_and_new_replicas_have_what_is_reported() -> None:
    found = observed(
        logs(1, Replica("t", 0, 60_000, 7)),
        logs(2, Replica("t", 0, 99_000)),
        logs(3, Replica("t", 0, 25)),
        before=readings(("t", 0, (EARLIER_MS, 1, 10_000, 3))),
    )
    assert numbers_of(found) == ([5_000], [60_000], [25])
    assert found.readings == readings(("t", 0, (NOW_MS, 1, 60_000, 7)))
    assert found.rates == rates(("t", 0, (5_000, NOW_MS)))
    assert (found.at_ms, found.is_running, found.held_over_count) == (NOW_MS, True, 0)
    assert found.brokers == {1, 2, 3}


def test_a_report_without_the_replica_means_nothing_of_it_and_silence_is_unknown() -> None:
    both = MoveRow("t", 1, (1, 2, 3, 4), (3, 4), (1,), 1, (1, 2))
    found = observed(logs(1, Replica("t", 1, 10)), logs(3), copies=(both,))
    assert numbers_of(found) == ([UNKNOWN], [10], [0, UNKNOWN])


def test_replicas_of_partitions_that_do_not_move_and_of_other_topics_are_left_aside() -> None:
    found = observed(
        logs(1, Replica("s", 0, 1), Replica("t", 0, 60_000), Replica("t", 5, 2), Replica("u", 0, 3)),
        before=readings(("s", 0, (EARLIER_MS, 1, 0, 0)), ("t", 0, (EARLIER_MS, 1, 10_000, -1))),
    )
    assert numbers_of(found) == ([5_000], [60_000], [UNKNOWN])
    assert found.readings == readings(("t", 0, (NOW_MS, 1, 60_000, UNKNOWN)))


def test_many_partitions_of_many_topics_each_get_their_own_numbers() -> None:
    copies = [
        MoveRow(topic, partition, (1, 2, 3), (3,), (1,), leader, ())
        for topic in ("b", "a")
        for partition, leader in ((1, 2), (0, 1))
    ]
    sizes = {("a", 0): 11, ("a", 1): 12, ("b", 0): 21, ("b", 1): 22}
    found = observed(
        logs(1, *(Replica(*where, size) for where, size in sizes.items())),
        logs(2, *(Replica(*where, 100 * size) for where, size in reversed(sizes.items()))),
        copies=tuple(copies),
    )
    assert found.copies is not None
    assert found.copies.names() == ["a-0", "a-1", "b-0", "b-1"]
    assert numbers_of(found)[1] == [11, 1200, 21, 2200]


KNOWN = rates(("t", 0, (700, EARLIER_MS)))
BEFORE = readings(("t", 0, (EARLIER_MS, 1, 10_000, 3)))


@pytest.mark.parametrize(
    ("reports", "known", "held_over_count", "expected_rates"),
    [
        pytest.param(
            (logs(1, Replica("t", 0, 9_000, 4)),), KNOWN, 1, KNOWN, id="a log that shrank: held over"
        ),
        pytest.param((logs(2),), KNOWN, 0, KNOWN, id="the leader is silent: kept, not used"),
        pytest.param(
            (logs(1, Replica("t", 0, 9_000, 4)),),
            rates(("t", 0, (700, NOW_MS - HOLD_MS))),
            1,
            rates(("t", 0, (700, NOW_MS - HOLD_MS))),
            id="as old as is still held",
        ),
        pytest.param(
            (logs(1, Replica("t", 0, 9_000, 4)),),
            rates(("t", 0, (700, NOW_MS - HOLD_MS - 1))),
            0,
            NO_RATES,
            id="too old",
        ),
    ],
)
def test_a_rate_that_is_not_told_is_held_over_for_a_while(
    reports: tuple[KafkaLoadReport, ...],
    known: PartitionTable,
    held_over_count: int,
    expected_rates: PartitionTable,
) -> None:
    found = observed(*reports, before=BEFORE, known=known)
    assert found.held_over_count == held_over_count
    assert numbers_of(found)[0] == [700 if held_over_count else UNKNOWN]
    assert len(found.rates) == len(expected_rates)
    assert not len(expected_rates) or found.rates == expected_rates


@pytest.mark.parametrize(
    ("move", "reports", "before", "why"),
    [
        (MOVE._replace(leader=-1), (logs(1),), BEFORE, "it has no leader"),
        (MOVE, (logs(2),), BEFORE, "its leader, broker 1, did not report"),
        (MOVE, (logs(1),), BEFORE, "its leader, broker 1, did not report its log"),
        (MOVE, (logs(1, Replica("t", 0, 5)),), NO_READINGS, "its log was read for the first time"),
        (
            MOVE._replace(leader=2),
            (logs(2, Replica("t", 0, 5)),),
            BEFORE,
            "its leader was broker 1 before, and is 2",
        ),
        (
            MOVE,
            (logs(1, Replica("t", 0, 50_000), at_ms=EARLIER_MS + 4_999),),
            BEFORE,
            "its log was read twice within 5 s",
        ),
        (
            MOVE,
            (logs(1, Replica("t", 0, 9_990, 4)),),
            BEFORE,
            "its log shrank by 10 bytes (retention or compaction)",
        ),
    ],
)
def test_a_number_that_is_missing_has_its_reason(
    move: MoveRow, reports: tuple[KafkaLoadReport, ...], before: PartitionTable, why: str
) -> None:
    found = observed(*reports, copies=(move,), before=before)
    assert numbers_of(found)[0] == [UNKNOWN]
    assert found.why_unknown("t-0", found.copies).startswith(why)


@pytest.mark.parametrize(
    ("heard", "why"),
    [
        ((1,), "broker 3, to which it is copied, did not report"),
        ((1, 2, 3), "what broker 3 lacks of it could not be read"),
    ],
)
def test_a_size_that_is_missing_is_not_blamed_on_a_replica_that_the_move_removes(
    heard: tuple[int, ...], why: str
) -> None:
    """Broker 2 is behind, and leaves: what it lacks is not copied."""
    row = MOVE._replace(replicas=(1, 2, 3), adding=(3,), removing=(2,), isr=(1,), recovering=(2,))
    full = observed(
        logs(1, Replica("t", 0, 20_000, 5)),
        *(logs(broker) for broker in heard[1:]),
        copies=(row,),
        before=BEFORE,
    )
    seen = replace(full, live_brokers=frozenset({1, 3}))
    paced = select_copies(KafkaMemory(), seen, ThrottleSettings()).copies
    assert paced is not None
    unread = replace(paced, present_bytes=np.full(1, UNKNOWN, dtype=np.int64))
    assert full.why_unknown("t-0", unread) == why


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param((logs(2),), BEFORE, id="no new reading: the old one stays"),
        pytest.param(
            (logs(1, Replica("t", 0, 11_000, 4), at_ms=EARLIER_MS + 4_999),),
            BEFORE,
            id="too soon: the old one stays",
        ),
        pytest.param(
            (logs(1, Replica("t", 0, 11_000, 4), at_ms=EARLIER_MS + 5_000),),
            readings(("t", 0, (EARLIER_MS + 5_000, 1, 11_000, 4))),
            id="late enough",
        ),
    ],
)
def test_the_reading_that_the_next_rate_is_measured_from(
    reports: tuple[KafkaLoadReport, ...], expected: PartitionTable
) -> None:
    assert observed(*reports, before=BEFORE).readings == expected


def test_another_leaders_reading_replaces_the_old_one_however_soon_it_comes() -> None:
    report = logs(2, Replica("t", 0, 11_000, 4), at_ms=EARLIER_MS + 1)
    found = observed(report, copies=(MOVE._replace(leader=2),), before=BEFORE)
    assert found.readings == readings(("t", 0, (EARLIER_MS + 1, 2, 11_000, 4)))


def test_without_word_on_moves_all_that_is_remembered_stays() -> None:
    found = observed(logs(1, Replica("t", 0, 60_000)), copies=None, before=BEFORE, known=KNOWN)
    assert found.copies is None
    assert (found.readings, found.rates, found.is_running) == (BEFORE, KNOWN, False)
    assert found.lists == ThrottledLists()


def test_without_reports_the_moment_is_that_of_the_moves_or_the_rounds_end() -> None:
    assert observed().at_ms == NOW_MS - 1
    assert observed(copies=None).at_ms == 30_000


def test_a_planned_move_does_not_run() -> None:
    planned = MoveRow("t", 0, (1, 2), (3,), (1,), 1, (1, 2))
    found = observed(logs(1), copies=(planned,))
    assert not found.is_running
    assert found.copies is not None
    assert found.copies.destinations.brokers.tolist() == [3]


def test_rates_and_network_of_the_brokers_that_reported() -> None:
    one = logs(1, rates={"leader": 10}, in_bytes_per_s=3, default_rates={"leader": 8}, at_ms=NOW_MS - 5)
    two = logs(2, rates={"follower": 20}, out_bytes_per_s=4, default_rates={"follower": 9})
    found = observed(one, two)
    assert found.rates_there == {BrokerRole("leader", 1): 10, BrokerRole("follower", 2): 20}
    assert found.defaults_there == {"follower": 9}, "as the newest report says"
    assert found.use == {
        1: NetworkUse(in_bytes_per_s=3, out_bytes_per_s=None),
        2: NetworkUse(in_bytes_per_s=None, out_bytes_per_s=4),
    }


def test_entries_that_are_not_ours_are_told_and_topics_without_any_are_left_out() -> None:
    there = ThrottledLists(leader={"t": "0:1,0:2", "u": "0:5"}, follower={"t": "0:3"})
    ours = ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"})
    assert difference(there, ours) == ThrottledLists(leader={"t": "0:2", "u": "0:5"}, follower={})


MOVES = (
    MoveRow("t", 0, (1, 2, 3), (3,), (1,), 1, (1, 2)),
    MoveRow("t", 1, (1, 2, 3), (3,), (2,), 1, (1, 2)),
)
"""Partitions of brokers 1 and 2 that move to 3, away from 1 and from 2."""
ROUNDS = 3


class Rounds:
    """Rounds of one cluster, in which the brokers ``heard`` report; ``live`` is what the collector says, None: nothing."""

    def __init__(self, *heard_before: int) -> None:
        self.memory = KafkaMemory(last_ms={str(broker): NOW_MS for broker in heard_before})

    def after(
        self,
        *heard: int,
        live: Collection[int] | None = None,
        failed: Collection[str] = (),
        rounds: int = 1,
        begun: Sequence[bool] = (True, True),
    ) -> Broken:
        seen = observed(*(logs(broker) for broker in heard), copies=MOVES)
        seen = replace(
            seen,
            live_brokers=None if live is None else frozenset(live),
            begun=np.array(begun, dtype=np.bool_),
        )
        for _ in range(rounds):
            found = observe_broken(self.memory, seen, failed, stale_after_rounds=ROUNDS)
        return found


def test_a_broker_that_the_collector_does_not_call_alive_is_down_at_once() -> None:
    found = Rounds(1, 2, 3).after(1, 2, live=[1, 2])
    assert (found.down, found.copies, found.kept) == ({3}, {3: ["t-0", "t-1"]}, {})
    assert found.partitions_count == 2
    assert str(found) == "t-0, t-1 wait for broker 3"
    (finding,) = found.findings()
    assert (finding.kind, finding.broker, finding.subject) == ("broken-copy", "3", "t-0, t-1")
    assert finding.advice.startswith("broker 3 is down: start it. Until then t-0, t-1 cannot be copied")


def test_what_is_planned_is_not_broken_where_its_new_broker_is_down() -> None:
    found = Rounds(1, 2, 3).after(1, 2, live=[1, 2], begun=(True, False))
    assert (found.copies, found.planned) == ({3: ["t-0"]}, {3: ["t-1"]})
    assert str(found) == "t-0 waits for broker 3; t-1, which is planned, cannot begin without broker 3"
    assert [finding.subject for finding in found.findings()] == ["t-0"]
    assert str(Rounds(1, 2, 3).after(1, 2, live=[1, 2], begun=(False, False))) == (
        "t-0, t-1, which are planned, cannot begin without broker 3"
    )


def test_a_broker_that_is_alive_and_silent_counts_after_three_rounds_and_is_not_called_down() -> None:
    rounds = Rounds(1, 2, 3)
    assert rounds.after(1, 2, live=[1, 2, 3], rounds=2) == Broken()
    found = rounds.after(1, 2, live=[1, 2, 3])
    assert (found.down, found.copies) == (frozenset(), {3: ["t-0", "t-1"]})
    (finding,) = found.findings()
    assert finding.advice.startswith("broker 3 is alive, but no report of it comes")
    assert rounds.after(1, 2, 3, live=[1, 2, 3]) == Broken()
    assert rounds.after(1, 2, live=[1, 2, 3]) == Broken(), "counted anew"


def test_where_nobody_says_who_is_alive_silence_for_three_rounds_is_down_and_one_gap_is_not() -> None:
    rounds = Rounds(1, 2, 3)
    assert [rounds.after(1, 2, failed=["3"]).down for _ in range(4)] == [set(), set(), {3}, {3}]
    assert rounds.after(1, 2, 3).down == set()


def test_one_that_never_reported_and_does_not_answer_is_down_from_the_start() -> None:
    assert Rounds(1, 2).after(1, 2, failed=["3"]).down == {3}
    assert Rounds(1, 2).after(1, 2).down == set()


def test_a_round_in_which_nobody_reports_says_nothing_of_a_single_broker() -> None:
    rounds = Rounds(1, 2, 3)
    assert rounds.after(live=[1, 2, 3], rounds=9) == Broken()
    assert rounds.after(rounds=9) == Broken()


def test_a_replica_that_stays_on_a_broker_that_is_down_is_told_and_breaks_nothing() -> None:
    found = Rounds(1, 2, 3).after(1, 3, live=[1, 3])
    assert (found.copies, found.kept) == ({}, {2: ["t-0"]})
    (finding,) = found.findings()
    assert (finding.kind, finding.broker, finding.subject) == ("kept-replica-down", "2", "t-0")


def moving(*names: str) -> Copies:
    return copies_of(*(Partition(name, [1, 2], [2, 3]) for name in names))


def numbers(*rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([[each, 10 * each] for each in rows], dtype=np.int64)


def kept(*rows: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(rows, dtype=np.bool_)


FOUR_MOVES = moving("t-0", "t-2", "u-1", "v-0")
TABLE = PartitionTable.from_copies(FOUR_MOVES, numbers(1, 2, 3, 4), kept(True, True, True, True))


def test_a_table_has_topic_partition_and_numbers_of_each_row_that_is_kept() -> None:
    assert TABLE.topics == ("t", "u", "v")
    assert TABLE.columns.tolist() == [[0, 0, 1, 10], [0, 2, 2, 20], [1, 1, 3, 30], [2, 0, 4, 40]]
    assert len(TABLE) == 4


def test_a_table_names_only_the_topics_of_its_rows_and_counts_them_anew() -> None:
    found = PartitionTable.from_copies(FOUR_MOVES, numbers(1, 2, 3, 4), kept(False, True, False, True))
    assert found.topics == ("t", "v")
    assert found.columns.tolist() == [[0, 2, 2, 20], [1, 0, 4, 40]]
    none = PartitionTable.from_copies(FOUR_MOVES, numbers(1, 2, 3, 4), kept(False, False, False, False))
    assert none == PartitionTable.empty(2)


def test_an_empty_table_has_a_column_for_each_number() -> None:
    found = PartitionTable.empty(3)
    assert (len(found), found.topics, found.columns.shape) == (0, (), (0, 5))


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["t-0", "t-2", "u-1", "v-0"], [0, 1, 2, 3]),
        (["v-0"], [3]),
        (["t-1", "t-2", "t-3"], [MISSING, 1, MISSING]),
        (["s-0", "u-0", "u-1", "w-0"], [MISSING, MISSING, 2, MISSING]),
    ],
    ids=str,
)
def test_a_partition_is_found_by_topic_and_number_whatever_moves_beside_it(
    names: list[str], places: list[int]
) -> None:
    assert TABLE.places_of(moving(*names)).tolist() == places


def test_nothing_is_found_in_an_empty_table_nor_by_a_table_without_moves() -> None:
    assert PartitionTable.empty(2).places_of(FOUR_MOVES).tolist() == [MISSING] * 4
    assert TABLE.places_of(moving()).tolist() == []


def test_a_part_of_a_table_keeps_its_topics_and_the_whole_is_the_table_itself() -> None:
    part = TABLE.take(kept(False, True, False, True))
    assert part.topics == ("t", "u", "v")
    assert part.columns.tolist() == [[0, 2, 2, 20], [2, 0, 4, 40]]
    assert part.places_of(FOUR_MOVES).tolist() == [MISSING, 0, MISSING, 1]
    assert TABLE.take(kept(True, True, True, True)) is TABLE


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (PartitionTable(TABLE.topics, TABLE.columns.copy()), True),
        (PartitionTable(("t", "u", "w"), TABLE.columns), False),
        (PartitionTable(TABLE.topics, TABLE.columns + 1), False),
        (PartitionTable(TABLE.topics, TABLE.columns[:3]), False),
        (TABLE.columns.tolist(), False),
    ],
    ids=["a copy", "another topic", "another number", "fewer rows", "no table"],
)
def test_tables_are_equal_with_equal_topics_and_numbers(other: object, *, is_equal: bool) -> None:
    assert (other == TABLE) is is_equal


def test_a_key_is_found_where_it_is_and_nowhere_else() -> None:
    keys = np.array([2, 5, 9])
    assert find_places(keys, np.array([9, 2, 5, 1, 3, 10])).tolist() == [2, 0, 1, MISSING, MISSING, MISSING]
    assert find_places(keys[:0], np.array([9, 2])).tolist() == [MISSING, MISSING]
    assert find_places(keys, keys[:0]).tolist() == []


def test_no_partition_of_an_unknown_topic_has_the_key_of_a_known_one() -> None:
    """Partition numbers go up to 2**31 - 1."""
    largest = 2**31 - 1
    found = partition_keys(np.array([MISSING, MISSING, 0, 0, 1]), np.array([0, largest, 0, largest, 0]))
    assert found.tolist() == [-(2**31), -1, 0, largest, 2**31]
    assert places_in({"t": 0, "u": 1}, ("u", "x", "t")).tolist() == [1, MISSING, 0]
