"""Panels that count, asked of Prometheus' own engine: each event once, however young the process and whoever looked away."""

from pathlib import Path

import pytest

from deploy.grafana.queries import each_step, in_a_day
from streaming.contract import families
from tests.support.programs import check
from tests.support.queries import Asked

TARGET = 'job="trimtab",instance="a:9464"'
START = f"trimtab_start_timestamp_seconds{{{TARGET}}}"
RESTARTS = f"trimtab_query_restarts_total{{{TARGET}}}"
ROUNDS = f'trimtab_rounds_total{{{TARGET},cluster="east-1",outcome="decided"}}'

COUNTERS = {
    "first looked at when it had counted four": ("0x40", "_x3 4x30", "1m", {2: 0, 3: 4, 4: 0}),
    "two at once, then one": ("0x40", "0x20 2x1 3x10", "1m", {20: 0, 21: 2, 22: 0, 23: 1, 24: 0}),
    "a restart that counts from 0 again": ("0x20 1260x20", "9x20 3x20", "1m", {20: 0, 21: 3, 22: 0}),
    "a restart that overtakes": ("0x20 1260x20", "2x20 3x20", "1m", {20: 0, 21: 3, 22: 0}),
    "a restart half an hour before": ("0x90 5430x90", "9x90 7x90", "1h", {120: 7, 180: 0}),
    "a young process of which a scrape failed": (
        "0x40",
        "5x4 stale 5x20",
        "1m",
        {0: 5, 4: 0, 5: 0, 6: 0, 7: 0},
    ),
    "an old one, and it counted meanwhile": ("0x90", "5x60 stale 8x20", "1m", {60: 0, 61: 0, 62: 3, 63: 0}),
    "out of sight for eight minutes": ("0x90", "5x60 _x8 9x20", "1m", {60: 0, 69: 4, 70: 0}),
    "out of sight for twenty minutes, an hour after its start": (
        "0x99",
        "5x60 _x20 9x9",
        "1m",
        {81: 0, 82: 0},
    ),
}


@pytest.mark.parametrize(("started", "counted", "step", "shown"), COUNTERS.values(), ids=COUNTERS.keys())
def test_a_bar_shows_what_was_counted_since_the_last_and_no_bar_shows_it_again(
    tmp_path: Path, started: str, counted: str, step: str, shown: dict[int, float]
) -> None:
    expr = Asked("a graph", each_step(families.ROUNDS, by="cluster")).filled(interval=step)
    for minute, rise in shown.items():
        expected = {'{cluster="east-1"}': rise} if rise else {}
        check(tmp_path, {START: started, ROUNDS: counted}, [(expr, expected)], at=f"{minute}m")


DAYS = {
    "a process of today that was first looked at when it had counted four": (
        "0x60",
        "_x3 4x30 6x30",
        "1h",
        6,
    ),
    "a process of this minute, between two scrapes": ("_ 0x9", "_ 500x9", "90s", 500),
    "one that was restarted in between": ("0x30 1860x30", "0x10 5x20 2x30", "1h", 7),
    "one that has counted nothing": ("0x60", "0x60", "1h", 0),
    "one of the day before yesterday": ("0x3000", "100x2900 102x100", "50h", 2),
    "nobody": ("_x60", "_x60", "1h", 0),
}


@pytest.mark.parametrize(("started", "counted", "at", "shown"), DAYS.values(), ids=DAYS.keys())
def test_a_day_shows_a_whole_number_of_what_was_counted(
    tmp_path: Path, started: str, counted: str, at: str, shown: float
) -> None:
    expr = in_a_day(families.QUERY_RESTARTS)
    check(tmp_path, {START: started, RESTARTS: counted}, [(expr, {"{}": shown})], at=at)
