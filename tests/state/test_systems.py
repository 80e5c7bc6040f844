"""Events from before a cluster's system is known count in the rounds of the system that it turns out to have."""

from typing import Any

import pytest

from state.engine.memory import Header, OpenRound, ResultRecord, TickRecord
from state.events import Event, Reassignment, Tick
from state.kafka_reports import MoveRow
from state.kafka_settings import KafkaRoundSettings, KafkaSettings
from state.settings import ClusterSettings
from state.systems import adopt, is_late, remember_tick, wrong_system
from tests.state.kafka.reporting import moves_report
from tests.state.traces import facts, load

BASE = ClusterSettings(kafka=KafkaSettings(rounds=KafkaRoundSettings(length_s=10.0, lateness_s=5.0)))
"""Rounds of a minute while the system is unknown, and of ten seconds for Kafka."""
KAFKA = Reassignment(
    id="m", time_ms=65_000, report=moves_report(MoveRow("t", 0, (1, 2), (2,), (1,), 1, (1,)))
)


def result(time_ms: int) -> ResultRecord:
    return ResultRecord(time_ms, f"r{time_ms}", "a", "failed")


def tick(time_ms: int, id_: str = "t") -> Tick:
    return Tick(id=id_, time_ms=time_ms, asked=("1",), failed=())


def early_header(newest_ms: int | None = 65_000, **fields: Any) -> Header:
    return Header(length_ms=60_000, newest_ms=newest_ms, **fields)


def test_results_that_came_early_are_sorted_into_kafkas_rounds_and_late_ones_are_gone() -> None:
    header = early_header(
        rounds={0: OpenRound(results=[result(59_999), result(1_000)]), 1: OpenRound(results=[result(61_000)])}
    )
    assert adopt(header, type(KAFKA), BASE)
    assert (header.system, header.length_ms, header.is_known, header.next_round) == ("kafka", 10_000, True, 6)
    assert {number: each.results for number, each in header.rounds.items()} == {6: [result(61_000)]}


def test_without_any_event_before_nothing_is_late() -> None:
    header = early_header(None, rounds={0: OpenRound(results=[result(1_000)])})
    assert adopt(header, type(KAFKA), BASE)
    assert header.next_round is None
    assert {number: each.results for number, each in header.rounds.items()} == {0: [result(1_000)]}


def test_a_pulsar_cluster_keeps_its_rounds() -> None:
    header = early_header(rounds={1: OpenRound(results=[result(61_000)])})
    assert adopt(header, type(load("b1", 65)), BASE)
    assert (header.system, header.length_ms, list(header.rounds)) == ("pulsar", 60_000, [1])


@pytest.mark.parametrize("event", [tick(65_000), facts(65)], ids=["a tick", "facts alone"])
def test_what_both_systems_send_tells_no_system(event: Event) -> None:
    header = early_header()
    assert not adopt(header, type(event), BASE)
    assert header.system is None


def test_a_known_system_is_not_adopted_again() -> None:
    header = early_header(system="pulsar")
    assert not adopt(header, type(KAFKA), BASE)


def test_of_early_ticks_the_newest_of_each_of_kafkas_rounds_is_kept_while_it_would_be_open() -> None:
    header = early_header(70_000)
    for event in (tick(61_000), tick(62_000), tick(62_000, "a"), tick(70_000), tick(40_000)):
        remember_tick(header, event, BASE)
    assert header.early_ticks == [TickRecord(62_000, "t", ("1",), ()), TickRecord(70_000, "t", ("1",), ())]
    adopt(header, type(KAFKA), BASE)
    assert {number: each.tick and each.tick.time_ms for number, each in header.rounds.items()} == {
        6: 62_000,
        7: 70_000,
    }
    assert header.early_ticks == []


def test_ticks_of_a_known_cluster_are_not_kept() -> None:
    header = early_header(system="kafka", early_ticks=[TickRecord(1, "t", (), ())])
    remember_tick(header, tick(61_000), BASE)
    assert header.early_ticks == []


@pytest.mark.parametrize(
    ("time_ms", "newest_ms", "late"),
    [
        (59_999, 65_000, True),
        (60_000, 65_000, False),
        (60_000, 74_999, False),
        (60_000, 75_000, True),
        (0, None, False),
    ],
)
def test_a_first_report_of_a_round_that_closed_is_late(
    time_ms: int, newest_ms: int | None, *, late: bool
) -> None:
    event = Reassignment(id="m", time_ms=time_ms, report=KAFKA.report)
    assert is_late(event, early_header(newest_ms), BASE) == late


def test_a_report_of_the_other_system_is_refused_by_name() -> None:
    assert (
        wrong_system(KAFKA, "kafka") is wrong_system(KAFKA, None) is wrong_system(tick(1), "pulsar") is None
    )
    found = wrong_system(KAFKA, "pulsar")
    assert found is not None
    assert found.reason == "wrong-system"
    assert found.detail.startswith("a report of a Kafka cluster, and this name belongs to a Pulsar cluster: ")
    other = wrong_system(load("b1", 1), "kafka")
    assert other is not None
    assert other.detail.startswith("a report of a Pulsar cluster, and this name belongs to a Kafka cluster: ")
