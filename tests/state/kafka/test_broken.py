"""Which brokers count as down, by what the reports say of them or by their silence, and what a person is told."""

from collections.abc import Collection
from dataclasses import replace

from state.events import MoveRow
from state.kafka.memory import KafkaMemory
from state.kafka.reconcile import Broken, observe_broken
from tests.state.kafka.test_snapshot import NOW_MS, logs, observed

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
        self, *heard: int, live: Collection[int] | None = None, failed: Collection[str] = (), rounds: int = 1
    ) -> Broken:
        seen = observed(*(logs(broker) for broker in heard), moves=MOVES)
        seen = replace(seen, live_brokers=None if live is None else frozenset(live))
        for _ in range(rounds):
            found = observe_broken(self.memory, seen, failed, stale_rounds_count=ROUNDS)
        return found


def test_a_broker_that_the_collector_does_not_call_alive_is_down_at_once() -> None:
    found = Rounds(1, 2, 3).after(1, 2, live=[1, 2])
    assert (found.down, found.copies, found.kept) == ({3}, {3: ["t-0", "t-1"]}, {})
    assert found.partitions_count == 2
    assert str(found) == "t-0, t-1 wait for broker 3"
    (finding,) = found.findings()
    assert (finding.kind, finding.broker, finding.subject) == ("broken-copy", "3", "t-0, t-1")
    assert finding.advice.startswith("broker 3 is down: start it. Until then t-0, t-1 cannot be copied")


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
