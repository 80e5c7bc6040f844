"""Which control event is in force in which round, whatever order they come in, and when quiet hours hold."""

from datetime import UTC, datetime
from typing import Any

import pytest

from state import control
from state.closing import Hold, quiet_hold
from state.events import Control, Rejection
from state.guard_settings import NO_ZONES, GuardSettings, QuietSpan
from state.memory import Header
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.settings import InForce, PulsarSettings, RoundSettings

ROUNDS = RoundSettings(length_s=60.0, lateness_s=15.0)


def event(time_s: float, *, id_: str = "", **fields: Any) -> Control:
    return Control(id=id_ or f"c{time_s:g}", time_ms=round(1000 * time_s), data=ControlData(**fields))


def header(**fields: Any) -> Header:
    return Header(length_ms=60_000, **{"system": "pulsar"} | fields)


def taken(found: Header) -> list[tuple[str, int]]:
    return [(event.id, number) for number, event in found.control.items()]


@pytest.mark.parametrize(
    ("time_s", "expected"), [(0, 1), (29.999, 1), (30, 1), (30.001, 2), (89.9, 2), (90, 2), (91, 3)]
)
def test_it_holds_from_the_first_round_that_starts_two_latenesses_after_it(
    time_s: float, expected: int
) -> None:
    assert control.first_round(round(1000 * time_s), lateness_ms=15_000, length_ms=60_000) == expected


def test_one_that_comes_after_its_round_has_closed_holds_from_the_first_open_one() -> None:
    found = header(next_round=5)
    assert control.take(found, event(30), ROUNDS)
    assert [(number, event.arrived_late) for number, event in found.control.items()] == [(5, True)]
    assert control.take(found, event(300), ROUNDS)
    assert not found.control[6].arrived_late


def test_a_repeat_and_what_a_newer_one_makes_pointless_are_not_taken() -> None:
    found = header()
    assert control.take(found, event(20), ROUNDS)
    assert not control.take(found, event(20), ROUNDS)
    assert not control.take(found, event(10), ROUNDS), "older, and for the same round"
    assert taken(found) == [("c20", 1)]
    assert control.take(found, event(100), ROUNDS)
    assert control.take(found, event(40), ROUNDS), "older, and for an earlier round"
    assert taken(found) == [("c20", 1), ("c40", 2), ("c100", 3)]
    assert control.take(found, event(31), ROUNDS) is False


def test_of_equal_times_the_greater_id_is_newer() -> None:
    found = header()
    control.take(found, event(20, id_="b"), ROUNDS)
    assert not control.take(found, event(20, id_="a"), ROUNDS)
    assert control.take(found, event(20, id_="c"), ROUNDS)
    assert taken(found) == [("c", 1)]


def test_a_silent_cluster_remembers_the_one_in_force_and_the_newest() -> None:
    found = header()
    for number in range(control.MAX_WAITING_COUNT + 2):
        assert control.take(found, event(60 * number), ROUNDS)
    assert len(found.control) == control.MAX_WAITING_COUNT
    assert [name for name, _ in taken(found)][:2] == ["c0", "c180"]
    assert taken(found)[-1] == ("c6060", 102)


def test_the_newest_that_applies_is_in_force_and_older_ones_are_forgotten() -> None:
    found = header()
    for time_s in (0, 60, 120):
        control.take(found, event(time_s), ROUNDS)
    assert control.in_force(found, 0) is None
    newest = control.in_force(found, 2)
    assert newest is not None
    assert newest.id == "c60"
    assert taken(found) == [("c60", 2), ("c120", 3)]
    assert control.in_force(found, 2) == newest


def drained(time_s: float, broker: str, *, until_s: float | None = None) -> Control:
    until = None if until_s is None else moment_at(round(1000 * until_s))
    return event(time_s, drained_brokers={broker: MaintenanceWindow(since=moment_at(0), until=until)})


@pytest.mark.parametrize(
    ("number", "apart"),
    [
        pytest.param(0, set(), id="no event applies yet"),
        pytest.param(1, {"b1"}, id="the first event"),
        pytest.param(2, {"b2"}, id="the newer event replaces it"),
        pytest.param(9, {"b2"}, id="round 9 begins before it ends"),
        pytest.param(10, set(), id="round 10 begins when it ends by itself"),
    ],
)
def test_a_drain_holds_in_the_rounds_that_begin_before_it_ends(number: int, apart: set[str]) -> None:
    found = header()
    assert control.take(found, drained(20, "b1"), ROUNDS)
    assert control.take(found, drained(80, "b2", until_s=600), ROUNDS)
    newest = control.in_force(found, number)
    overlay = ControlData() if newest is None else newest.data.at(moment_at(number * found.length_ms))
    assert overlay.apart == apart


HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_20778_MS = 20_778 * DAY_MS
"""Midnight of some day long after the epoch."""


@pytest.mark.parametrize(
    ("span", "hour", "held"),
    [
        ("08:00-18:00", 8.0, {"splits", "unloads"}),
        ("08:00-18:00", 7.99, set()),
        ("08:00-18:00", 17.99, {"splits", "unloads"}),
        ("08:00-18:00", 18.0, set()),
        ("22:30-02:00 splits", 22.5, {"splits"}),
        ("22:30-02:00 splits", 1.99, {"splits"}),
        ("22:30-02:00 splits", 2.0, set()),
        ("22:30-02:00 splits", 12.0, set()),
        ("12:00-24:00 unloads", 23.99, {"unloads"}),
        ("12:00-24:00 unloads", 0.0, set()),
        ("00:00-24:00", 0.0, {"splits", "unloads"}),
    ],
)
def test_a_span_holds_its_kinds_from_its_beginning_to_before_its_end(
    span: str, hour: float, held: set[str]
) -> None:
    guards = GuardSettings(quiet_hours=("03:00-03:01", span))
    end_ms = DAY_20778_MS + round(hour * HOUR_MS)
    found = {kind: quiet_hold(guards, kind, end_ms=end_ms) for kind in ("splits", "unloads")}
    assert {kind for kind, hold in found.items() if hold} == held
    assert set(found.values()) - {None} <= {Hold("quiet-hours", f"quiet_hours {span}")}


@pytest.mark.parametrize(
    "span",
    [
        "",
        "8-18",
        "08:00-18:00 throttles",
        "24:00-02:00",
        "08:60-09:00",
        "08:00-24:01",
        "08:00-08:00",
        "08:00 - 18:00",
        "Mon 08:00-18:00 Berlin",
        "mon-fri 08:00-18:00",
        "Mon-Fri, Sun 08:00-18:00",
        "08:00-18:00 splits Europe/Berlin",
    ],
)
def test_anything_else_is_refused_with_what_was_expected(span: str) -> None:
    with pytest.raises(
        ValueError, match=r"quiet_hours has .*expected a span of the day such as '08:00-18:00'"
    ):
        GuardSettings(quiet_hours=(span,))
    with pytest.raises(ValueError, match="expected a span"):
        QuietSpan.parse(span)


BERLIN = {"Europe/Berlin": ((0, 60), (1774746000000, 120), (1792890000000, 60))}
"""Summer time of 2026, from 29 March to 25 October, 01:00 UTC."""


@pytest.mark.parametrize(
    ("span", "moment", "is_held"),
    [
        ("Mon-Fri 08:00-18:00", "2026-03-27T08:00", True),
        ("Mon-Fri 08:00-18:00", "2026-03-28T08:00", False),
        ("Sat,Sun 08:00-18:00", "2026-03-28T08:00", True),
        ("Sat-Mon 08:00-18:00", "2026-03-30T08:00", True),
        ("Sat-Mon 08:00-18:00", "2026-03-31T08:00", False),
        ("Fri 22:00-02:00", "2026-03-27T23:00", True),
        ("Fri 22:00-02:00", "2026-03-28T01:59", True),
        ("Fri 22:00-02:00", "2026-03-27T01:00", False),
        ("Sun 22:00-02:00", "2026-03-30T01:00", True),
        ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-03-27T06:59", False),
        ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-03-27T07:00", True),
        ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-03-30T05:59", False),
        ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-03-30T06:00", True),
        ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-10-26T06:59", False),
        ("Mon 00:00-01:00 Europe/Berlin", "2026-03-29T22:30", True),
        ("08:00-18:00 UTC", "2026-03-30T07:59", False),
    ],
)
def test_a_span_has_days_and_may_be_in_a_zone(span: str, moment: str, *, is_held: bool) -> None:
    end_ms = round(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)
    guards = GuardSettings(quiet_hours=(span,))
    assert (quiet_hold(guards, "unloads", end_ms=end_ms, zones=BERLIN) is not None) is is_held


def test_the_digest_of_settings_covers_what_the_zones_are() -> None:
    named = PulsarSettings(guards=GuardSettings(quiet_hours=("08:00-18:00 Europe/Berlin",)))
    digests = {
        InForce.from_settings(named, zones).digest
        for zones in (NO_ZONES, BERLIN, {"Europe/Berlin": ((0, 60),)})
    }
    assert len(digests) == 3


@pytest.mark.parametrize(("length", "kept"), [(2000, 2000), (2001, 1999)])
def test_a_refusal_says_at_most_two_thousand_characters(length: int, kept: int) -> None:
    detail = Rejection(reason="bad-data", detail="x" * length).detail
    assert detail == "x" * kept + "…" * (length > kept)
