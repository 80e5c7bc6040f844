"""What one cluster may send is limited, and what is above a limit is refused by name."""

from collections.abc import Callable

import pytest

from state import memory
from state.events import ActionResult, BrokerLogs, Event, KafkaLoadReport
from tests.state.kafka.reporting import Replica, replica_table
from tests.state.traces import load, run, settings_of, statistics

SETTINGS = settings_of()


def bundles(count: int, *, first: int = 0) -> dict[str, float | None]:
    return {f"t/a/0x{at:08x}_0x{at + 1:08x}": 1.0 for at in range(first, first + count)}


def result(id_: str, time_s: float = 5.0) -> ActionResult:
    return ActionResult(id=id_, time_ms=round(time_s * 1000), action_id=id_, outcome="failed")


def logs(broker: int, count: int, time_s: float = 5.0) -> KafkaLoadReport:
    replicas = replica_table(*(Replica("t", at, 1) for at in range(count)))
    return KafkaLoadReport(
        id=f"{broker}/{time_s:g}",
        time_ms=round(time_s * 1000),
        broker=str(broker),
        logs=BrokerLogs(broker, replicas),
    )


def topics(broker: str, count: int, time_s: float = 5.0) -> Event:
    return statistics(broker, time_s, {"t/a/0x0_0x1": {f"topic-{at}": 1.0 for at in range(count)}})


@pytest.mark.parametrize(
    ("name", "limit", "taken", "too_many", "reason"),
    [
        ("MAX_BROKERS_COUNT", 2, [load("b1", 5), load("b2", 5)], load("b3", 5), "too-many-brokers"),
        ("MAX_BROKERS_COUNT", 2, [topics("b1", 1), topics("b2", 1)], topics("b3", 1), "too-many-brokers"),
        (
            "MAX_ROWS_COUNT",
            3,
            [load("b1", 5, bundles=bundles(2)), load("b2", 5, bundles=bundles(1, first=2))],
            load("b3", 5, bundles=bundles(1, first=3)),
            "too-many-bundles",
        ),
        ("MAX_ROWS_COUNT", 3, [topics("b1", 3)], topics("b2", 1), "too-many-topics"),
        ("MAX_ROWS_COUNT", 3, [logs(1, 2)], logs(2, 2), "too-many-replicas"),
        (
            "MAX_RESULTS_COUNT",
            2,
            [load("b1", 5), result("a"), result("b")],
            result("c"),
            "too-many-results",
        ),
    ],
)
def test_what_is_above_a_limit_of_a_round_is_refused_by_name_and_the_rest_is_taken(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int, taken: list[Event], too_many: Event, reason: str
):
    monkeypatch.setattr(memory, name, limit)
    for batches in ([[*taken, too_many, *taken]], [taken, [too_many], taken]):
        found = run(batches, SETTINGS)
        assert [rejection.reason for rejection in found.rejections] == [reason]
        assert str(limit) in found.rejections[0].detail
        assert sum(found.results.values()) == 2 * len(taken) + 1
        assert found.results[type(too_many), "rejected"] == 1


@pytest.mark.parametrize(
    "report", [lambda at: load("b1", at, bundles=bundles(3)), lambda at: topics("b1", 3, at)]
)
def test_a_newer_report_of_the_same_broker_takes_the_place_of_the_older_one_at_the_limit(
    monkeypatch: pytest.MonkeyPatch, report: Callable[[float], Event]
):
    monkeypatch.setattr(memory, "MAX_BROKERS_COUNT", 1)
    monkeypatch.setattr(memory, "MAX_ROWS_COUNT", 3)
    for events in ([report(5), report(6), report(7)], [report(7), report(6), report(5)]):
        assert run([events], SETTINGS).rejections == []
        assert run([[event] for event in events], SETTINGS).rejections == []


def test_the_next_round_counts_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "MAX_BROKERS_COUNT", 1)
    assert run([[load("b1", 5), load("b2", 15)]], SETTINGS).rejections == []


def test_what_is_refused_moves_neither_the_clock_nor_the_round(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "MAX_RESULTS_COUNT", 0)
    found = run([[load("b1", 5), result("a", 100.0), load("b2", 6)]], SETTINGS, is_closed=False)
    assert found.outputs == []
    assert found.results[type(load("b2", 6)), "late"] == 0
