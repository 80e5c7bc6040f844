"""Quiet hours: spans of the week, in UTC or in a zone, judged by the round's end."""

from datetime import UTC, datetime

import pytest

from state.closing import Hold, quiet_hold
from state.guard_settings import QuietSpan
from state.settings import GuardSettings

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
