"""Which system an event shows, and what is refused because a cluster belongs to the other one."""

import pytest

from state.events import Event, MoveRow, Reassignment
from state.systems import shown_by, wrong_system
from tests.state.kafka.reporting import moves_report
from tests.state.traces import facts, load, pause, result, statistics, tick

KAFKA = Reassignment(
    id="m", time_ms=65_000, report=moves_report(MoveRow("t", 0, (1, 2), (2,), (1,), 1, (1,)))
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
