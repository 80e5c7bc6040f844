"""One cluster's controller: partitions, silence and sizes, limits of what a cluster may send, and its system."""

import json
from collections.abc import Callable

import pytest

from state import memory
from state.events import ActionResult, BrokerLogs, Coordinates, Event, KafkaLoadReport, Reassignment
from state.systems import shown_by, wrong_system
from tests.state.kafka.reporting import MoveRow, Replica, copies_report, replica_table
from tests.state.traces import facts, load, overlay, pause, result, run, settings_of, statistics, sweep, tick

EAGER = {"high_hit_count": 1, "min_unload_messages_per_s": 1.0}
AT_ONCE = {"warmup_rounds": 0}


def fleet(time_s: float, count: int, *, name: str = "broker-{:04}") -> list[Event]:
    """Brokers that report at once, every other one hot, with two bundles each."""
    return [
        load(
            name.format(i),
            time_s,
            cpu=90.0 if i % 2 else 10.0,
            bundles={
                f"t/n{i}/0x0_0x1": 100.0 if i % 2 else 10.0,
                f"t/n{i}/0x1_0x2": 900.0 if i % 2 else 10.0,
            },
        )
        for i in range(count)
    ]


def test_a_second_partition_is_refused_until_the_first_has_been_silent_for_long():
    batch = [
        (load("b1", 5), Coordinates(0)),
        (load("b2", 5), Coordinates(1)),
        overlay(6),
        (load("b2", 30), Coordinates(1)),
        (load("b2", 30.001), Coordinates(1)),
        (load("b1", 31), Coordinates(0)),
    ]
    found = run([batch[:2], batch[2:]], settings_of())
    assert [each.reason for each in found.rejections] == ["wrong-partition"] * 3
    assert "partition 1, but this cluster's records come in partition 0" in found.rejections[0].detail
    assert "partition 0, but this cluster's records come in partition 1" in found.rejections[2].detail


@pytest.mark.parametrize(("reporting", "outcome"), [(11, "decided"), (10, "no-quorum")])
def test_a_quorum_is_reached_exactly(reporting: int, outcome: str):
    """0.55 x 20 is 11.000000000000002 in floating point."""
    settings = settings_of(rounds=AT_ONCE | {"quorum_ratio": 0.55})
    batch = [*fleet(5, 20), *fleet(15, reporting)]
    assert [summary["outcome"] for summary in run([batch], settings).summaries] == ["decided", outcome]


def test_a_jump_of_years_is_one_step():
    settings = settings_of(rounds=AT_ONCE)
    far_s = 7_000_000_000.0
    summaries = run([[load("b1", 5), load("b1", far_s)]], settings).summaries
    assert [summary["gap_rounds"] for summary in summaries] == [0, 700_000_000 - 1]
    assert [summary["restarted"] for summary in summaries] == [False, True]


def test_a_silence_within_one_long_round_starts_the_cluster_again():
    settings = settings_of(rounds={"length_s": 100.0, "warmup_rounds": 1})
    batch = [load("b1", 5), load("b1", 105), load("b1", 131), load("b1", 205)]
    assert [
        (summary["restarted"], summary["outcome"], summary["brokers_live_count"])
        for summary in run([batch], settings).summaries
    ] == [(False, "warm-up", 0), (True, "warm-up", 0), (True, "warm-up", 0)]


def test_a_thousand_brokers_that_appear_at_once_are_decided_in_their_round():
    settings = settings_of(
        avg_shedder=EAGER,
        rounds=AT_ONCE,
        guards={"max_unloads_per_round_count": 0, "max_unloads_per_hour_count": 0},
    )
    found = run([[*fleet(5, 1000), sweep(15)]], settings)
    (summary,) = found.summaries
    assert summary["brokers_reporting_count"] == summary["brokers_live_count"] == 1000
    assert summary["examined"]["outcomes"] == {"fired": 500}
    assert summary["actions_count"] == len(found.actions) == 500
    assert len(summary["actions"]) == len(summary["examined"]["heaviest"]) == len(summary["brokers"]) == 100
    assert sum(summary["candidates"]["outcomes"].values()) == summary["candidates"]["count"] == 1000


LONG = "-very-long-name" * 60


@pytest.mark.parametrize("name", ["b{:04}" + LONG, "b{:04}" + LONG * 20, "b{:04}" + "\x01" * 2000])
def test_a_summary_stays_small_whatever_the_names_are(name: str):
    settings = settings_of(avg_shedder=EAGER, rounds=AT_ONCE)
    absent = [load(f"gone{i}{LONG}", 4) for i in range(200)]
    remarks = overlay(0.001, settings={"pulsar": {"guards": {"excluded_brokers": [f"x{LONG * 1000}"]}}})
    batch = [remarks, *absent, *fleet(5, 3000, name=name), sweep(10), *fleet(15, 3000, name=name), sweep(30)]
    outputs = [each for each in run([batch], settings).outputs if each.kind == "round"]
    assert len(outputs) == 2
    for each in outputs:
        assert len(each.data) <= 256 * 1024
        summary = json.loads(each.data)
        assert summary["brokers_reporting_count"] >= 3000
        assert sum(summary["candidates"]["outcomes"].values()) == summary["candidates"]["count"] > 0
    assert json.loads(outputs[1].data)["brokers_missing_count"] == 200


SETTINGS = settings_of()


def bundles(count: int, *, first: int = 0) -> dict[str, float | None]:
    return {f"t/a/0x{at:08x}_0x{at + 1:08x}": 1.0 for at in range(first, first + count)}


def failed(id_: str, time_s: float = 5.0) -> ActionResult:
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
            [load("b1", 5), failed("a"), failed("b")],
            failed("c"),
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
    found = run([[load("b1", 5), failed("a", 100.0), load("b2", 6)]], SETTINGS, is_closed=False)
    assert found.outputs == []
    assert found.results[type(load("b2", 6)), "late"] == 0


KAFKA = Reassignment(
    id="m", time_ms=65_000, report=copies_report(MoveRow("t", 0, (1, 2), (2,), (1,), 1, (1,)))
)


@pytest.mark.parametrize(
    ("event", "system"),
    [
        (load("b1", 65), "pulsar"),
        (statistics("b1", 65, {}), "pulsar"),
        (KAFKA, "kafka"),
        (tick(65), None),
        (result(65), None),
        (pause(65), None),
        (facts(65), None),
    ],
    ids=["report", "statistics", "moves", "tick", "result", "control", "facts"],
)
def test_reports_and_statistics_show_the_system(event: Event, system: str | None) -> None:
    assert shown_by(type(event)) == system


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
