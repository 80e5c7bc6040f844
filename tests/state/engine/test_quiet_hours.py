"""Quiet hours: spans of the day in UTC, judged by the round's end."""

import pytest

from state.engine.holds import Hold, quiet_hold
from state.settings import GuardSettings, QuietSpan

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
    ],
)
def test_anything_else_is_refused_with_what_was_expected(span: str) -> None:
    with pytest.raises(
        ValueError, match=r"quiet_hours has .*expected a span of the day such as '08:00-18:00'"
    ):
        GuardSettings(quiet_hours=(span,))
    with pytest.raises(ValueError, match="expected a span"):
        QuietSpan.parse(span)
