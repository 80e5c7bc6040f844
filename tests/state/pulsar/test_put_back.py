"""When a drain begins and ends, and which bundles came back to a broker meanwhile."""

import pytest

from state.events import LoadReport
from state.memory import DrainRecord, Header
from state.pulsar.drains import PutBack, begin
from state.pulsar.memory import Fleet
from state.upkeep import Spell, Upkeep
from tests.state.building import seen
from tests.state.traces import load

A, B, C = (f"t/{name}/0x0_0x1" for name in "abc")
SPELL = Spell(0)


def report(broker: str, time_s: float, *bundles: str) -> LoadReport:
    return load(broker, time_s, bundles=dict.fromkeys(bundles, 1.0))


def begun(
    *reports: LoadReport,
    before: Fleet | None = None,
    known: dict[str, DrainRecord] | None = None,
    drains: tuple[str, ...] = ("b1",),
) -> tuple[list[tuple[str, str]], dict[str, DrainRecord]]:
    """Bundles and brokers of what was put back, and the drains that are remembered after the round."""
    header = Header(length_ms=60_000, drains=dict(known or {}))
    upkeep = Upkeep(drains=dict.fromkeys(drains, SPELL))
    found: list[PutBack] = begin(header, seen(*reports, before=before).advanced, upkeep)
    return [(each.bundle, each.broker) for each in found], header.drains


EARLIER = seen(report("b1", 410, A), report("b2", 410, B, C)).advanced.fleet
"""At 410 s, b1 had A, and b2 had B and C."""
SINCE_410 = DrainRecord(410_000, 1)


def test_a_drain_begins_with_the_first_report_in_it_and_everything_there_is_to_leave() -> None:
    put_back, drains = begun(report("b1", 470, A, B), report("b2", 470, C))
    assert (put_back, drains) == ([], {"b1": DrainRecord(470_000, 2)})


def test_the_drain_of_a_broker_without_bundles_begins_as_well() -> None:
    assert begun(report("b1", 470), report("b2", 470, A)) == ([], {"b1": DrainRecord(470_000, 0)})


def test_the_drain_of_a_silent_broker_begins_with_its_next_report() -> None:
    silent = begun(report("b2", 470, A), before=EARLIER)
    assert silent == ([], {})
    assert begun(report("b2", 470, A), before=EARLIER, known={"b1": SINCE_410}) == ([], {"b1": SINCE_410})


def test_a_drain_that_ended_is_forgotten_and_begins_anew_if_it_is_asked_for_again() -> None:
    """b2 is not drained any more. What b1 lists new since the end of its earlier drain was not put back."""
    reports = (report("b1", 470, A, B), report("b2", 470, C))
    put_back, drains = begun(*reports, before=EARLIER, known={"b2": SINCE_410})
    assert (put_back, drains) == ([], {"b1": DrainRecord(470_000, 2)})
    assert begun(*reports, known={"b1": SINCE_410, "b2": SINCE_410}, drains=())[1] == {}


@pytest.mark.parametrize(
    ("report_ms", "put_back"),
    [(410_000, [(B, "b1")]), (469_999, [(B, "b1")]), (470_000, []), (409_999, [(A, "b1"), (B, "b1")])],
    ids=["it began with A there", "B came a moment later", "it began with B there", "it began before A came"],
)
def test_what_a_broker_lists_since_after_the_beginning_of_its_drain_was_put_back(
    report_ms: int, put_back: list[tuple[str, str]]
) -> None:
    """b1 lists A since 410 s and B since 470 s."""
    found, drains = begun(
        report("b1", 470, A, B), report("b2", 470, C), before=EARLIER, known={"b1": DrainRecord(report_ms, 1)}
    )
    assert (found, drains) == (put_back, {"b1": DrainRecord(report_ms, 1)})


def test_a_bundle_that_another_broker_has_by_now_was_not_put_back() -> None:
    """Both list B; b2 does so only since 475 s."""
    reports = (report("b1", 470, A, B), report("b2", 475, B))
    before = seen(report("b1", 410, A), report("b2", 410)).advanced.fleet
    assert begun(*reports, before=before, known={"b1": SINCE_410})[0] == []


def test_what_came_back_is_named_broker_by_broker() -> None:
    reports = (report("b1", 470, A, C), report("b2", 470, B))
    before = seen(report("b1", 410), report("b2", 410)).advanced.fleet
    found, _ = begun(*reports, before=before, known={"b2": SINCE_410, "b1": SINCE_410}, drains=("b2", "b1"))
    assert found == [(A, "b1"), (C, "b1"), (B, "b2")]
