"""Panels, asked of Prometheus' own engine: each event counts once, and a reassignment is shown while it moves and where nothing does."""

from pathlib import Path

import pytest

from deploy.grafana.queries import each_step, in_a_day
from streaming.contract import families
from tests.support.programs import check
from tests.support.queries import KAFKA_ONLY, Asked, asked_by_dashboards, asked_by_rules

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
def test_a_bar_shows_what_was_counted_since_the_last(
    tmp_path: Path, started: str, counted: str, step: str, shown: dict[int, float]
):
    expr = Asked("a graph", each_step(families.ROUNDS, by="cluster").expr).filled(interval=step)
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
):
    expr = in_a_day(families.QUERY_RESTARTS)
    check(tmp_path, {START: started, RESTARTS: counted}, [(expr, {"{}": shown})], at=at)


MOVES_TARGET = 'job="trimtab",instance="127.0.0.1:9464"'
BOARD = "trimtab / Copies"
OF_CLUSTER = f'{{{MOVES_TARGET},cluster="logs"}}'
AT_101 = f'{{{MOVES_TARGET},cluster="logs",broker="101",role="leader"}}'
AT_104 = f'{{{MOVES_TARGET},cluster="logs",broker="104",role="follower"}}'
OF_KIND = f'{{{MOVES_TARGET},cluster="logs",kind="recovery"}}'
AT_DISK = f'{{{MOVES_TARGET},cluster="logs",broker="104",role="disk"}}'
MOVING = {
    f"trimtab_copies{OF_KIND}": "0x10 3x20",
    f"trimtab_throttle_rate_bytes_per_second{AT_DISK}": "_x11 900x20",
    f"trimtab_throttle_minimum_bytes_per_second{AT_DISK}": "_x11 300x20",
    f"trimtab_copies_left_bytes{OF_CLUSTER}": "0x10 72000-1000x20",
    f"trimtab_copies_eta_seconds{OF_CLUSTER}": "0x10 720-10x20",
    f"trimtab_copies_late{OF_CLUSTER}": "0x10 1x20",
    f"trimtab_copies_broken{OF_CLUSTER}": "0x10 2x20",
    f"trimtab_throttle_feasible{OF_CLUSTER}": "1x10 0x20",
    f"trimtab_throttle_changed{OF_CLUSTER}": "0x15 2x20",
    f"trimtab_throttle_failures{OF_CLUSTER}": "0x15 1x20",
    f"trimtab_throttle_rate_bytes_per_second{AT_101}": "_x11 2600x20",
    f"trimtab_throttle_rate_bytes_per_second{AT_104}": "_x11 2600x20",
    f"trimtab_throttle_minimum_bytes_per_second{AT_101}": "_x11 2600x20",
    f"trimtab_throttle_minimum_bytes_per_second{AT_104}": "_x11 1300x20",
    f"trimtab_copies_bottleneck{AT_104}": "_x11 1x20",
}
"""Nothing moves for ten minutes; then 72 kB do, of which a kilobyte a minute arrives."""
STILL = {
    f"trimtab_copies{OF_KIND}": "3x10 0x20",
    f"trimtab_copies_left_bytes{OF_CLUSTER}": "5000x10 0x20",
    f"trimtab_copies_eta_seconds{OF_CLUSTER}": "50x10 0x20",
    f"trimtab_copies_late{OF_CLUSTER}": "0x30",
    f"trimtab_copies_broken{OF_CLUSTER}": "0x30",
    f"trimtab_throttle_changed{OF_CLUSTER}": "0x30",
    f"trimtab_throttle_failures{OF_CLUSTER}": "0x30",
}
PULSAR = {
    f'trimtab_failing{{{MOVES_TARGET},cluster="east-1"}}': "0x30",
    **{
        f'trimtab_actions_published_total{{{MOVES_TARGET},cluster="east-1",kind="{kind}",dry_run="false"}}': "0x30"
        for kind in ("unload", "throttle")
    },
}
"""What of these queries' series there is without a Kafka cluster."""

Answers = dict[str, dict[str, float]]
WHILE_MOVING: dict[str, list[dict[str, float]]] = {
    "Left": [{'{cluster="logs"}': 63_000}],
    "Done in": [{'{cluster="logs"}': 630}],
    "Copies for": [{'{cluster="logs"}': 600}],
    "Last to finish": [{'{cluster="logs",broker="104",role="follower"}': 1}],
    "Never end": [{"{}": 1}],
    "Late": [{"{}": 1}],
    "Broken": [{"{}": 2}],
    "Copies by kind": [{'{cluster="logs",kind="recovery"}': 3}],
    "Bytes left": [{'{cluster="logs"}': 63_000}],
    "ETA against elapsed": [{'{cluster="logs"}': 630}, {'{cluster="logs"}': 600}],
    "Sources": [{'{cluster="logs",broker="101"}': 2600}, {'{cluster="logs",broker="101"}': 2600}],
    "Destinations": [{'{cluster="logs",broker="104"}': 2600}, {'{cluster="logs",broker="104"}': 1300}],
    "Disks": [{'{cluster="logs",broker="104"}': 900}, {'{cluster="logs",broker="104"}': 300}],
    "Rate to minimum": [
        {
            '{cluster="logs",broker="101",role="leader"}': 1,
            '{cluster="logs",broker="104",role="follower"}': 2,
            '{cluster="logs",broker="104",role="disk"}': 3,
        }
    ],
    "Feasible and late": [{'{cluster="logs"}': 0}, {'{cluster="logs"}': 1}],
    "Throttles": [{}],
    "Not as decided": [{'{cluster="logs"}': 2}, {'{cluster="logs"}': 1}],
}
"""Ten minutes into the move, by panel: the series of each of its queries."""
ONCE_STILL: dict[str, list[dict[str, float]]] = {
    **{panel: [{} for _ in answers] for panel, answers in WHILE_MOVING.items()},
    "Left": [{'{cluster="logs"}': 0}],
    "Done in": [{'{cluster="logs"}': 0}],
    "Copies for": [{'{cluster="logs"}': 0}],
    "Last to finish": [{'{role="none"}': 0}],
    "Copies by kind": [{'{cluster="logs",kind="recovery"}': 0}],
    "Bytes left": [{'{cluster="logs"}': 0}],
    "Never end": [{"{}": 0}],
    "Late": [{"{}": 0}],
    "Broken": [{"{}": 0}],
    "Feasible and late": [{}, {'{cluster="logs"}': 0}],
    "Not as decided": [{'{cluster="logs"}': 0}, {'{cluster="logs"}': 0}],
}


def asked_by(panel: str) -> list[Asked]:
    return [asked for asked in asked_by_dashboards() if asked.where == f"{BOARD}: {panel}"]


@pytest.mark.parametrize(
    ("series", "answers"), [(MOVING, WHILE_MOVING), (STILL, ONCE_STILL)], ids=["moving", "still"]
)
def test_every_panel_shows_what_is_the_case(
    tmp_path: Path, series: dict[str, str], answers: dict[str, list[dict[str, float]]]
):
    asked = {
        asked.where.removeprefix(f"{BOARD}: ") for asked in asked_by_dashboards() if BOARD in asked.where
    }
    assert asked == answers.keys()
    expected = [
        (asked.filled(interval="5m"), samples)
        for panel, found in answers.items()
        for asked, samples in zip(asked_by(panel), found, strict=True)
    ]
    check(tmp_path, series, expected, at="20m")


def test_what_is_unknown_counts_as_moving_and_never_as_nothing(tmp_path: Path):
    unknown = {
        f"trimtab_copies_left_bytes{OF_CLUSTER}": "0x10 " + " ".join(["NaN"] * 20),
        f"trimtab_copies_eta_seconds{OF_CLUSTER}": "0x10 600x20",
    }
    expected = [(asked.filled(), {'{cluster="logs"}': 600.0}) for asked in asked_by("Done in")]
    check(tmp_path, unknown, expected, at="20m")


@pytest.mark.parametrize("left", ["72000-1000x20", "NaN " + " ".join(["NaN"] * 20)], ids=["known", "unknown"])
def test_a_move_that_nobody_saw_begin_is_not_shown_as_none(tmp_path: Path, left: str):
    moving = {f"trimtab_copies_left_bytes{OF_CLUSTER}": left}
    (elapsed,) = (asked.filled() for asked in asked_by("Copies for"))
    nan = f"count by (cluster) (({elapsed}) != ({elapsed}))"
    check(tmp_path, moving, [(nan, {'{cluster="logs"}': 1})], at="20m")


def test_without_a_kafka_cluster_only_the_panels_that_count_something_answer(tmp_path: Path):
    counted: Answers = {
        f"{BOARD}: Never end": {"{}": 0},
        f"{BOARD}: Late": {"{}": 0},
        f"{BOARD}: Broken": {"{}": 0},
        f"{BOARD}: Last to finish": {'{role="none"}': 0},
        "trimtab / Overview: Late copies": {"{}": 0},
        "trimtab / Overview: Failing": {"{}": 0},
    }
    asked = [*asked_by_dashboards(), *asked_by_rules()]
    silent = [each for each in asked if each.where in KAFKA_ONLY]
    assert {each.where for each in silent} == KAFKA_ONLY
    about = {each.where for each in asked if "trimtab_copies" in each.expr or "throttle" in each.expr}
    assert about == (KAFKA_ONLY | counted.keys()) - {"trimtab / Overview: Failing"}
    expected = [
        (each.filled(interval="5m"), counted.get(each.where, {})) for each in asked if each.where in about
    ]
    check(tmp_path, PULSAR, expected, at="20m")
