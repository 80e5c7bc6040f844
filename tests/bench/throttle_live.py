"""A real reassignment on three local brokers: predicted, observed and measured, and the picture of it in the docs.

Run it alone: ``python -m tests.bench --only throttle-live``; it writes ``docs/use/throttling-move.svg``, drawn here because nothing else
draws charts.
"""

import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from streaming.settings import load
from tests.bench.report import Row, Section
from tests.support.moving import Moving, UsualFetches, pipeline, planned
from tests.support.processes import TRIMTAB, Child, ask, until
from tests.support.stage import Stage


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, x ascending."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    is_dashed: bool = False


PICTURE = Path(__file__).parents[2] / "docs" / "use" / "throttling-move.svg"
CLUSTER = "kafka-1"
_MB = 1_000_000
_ASSIGNED = {0: (1, 2), 1: (2, 1)}
_TARGET = {0: (1, 3), 1: (2, 3)}
_WRITES = 1 * _MB
_SIZE = 150 * _MB
_RATE = 4_800_000
"""More than twice what is needed: as the floor it stays the rate from the first round to the last, whatever producers do."""
_SAMPLE_S = 1.0
_OBSERVED_AFTER_S = 15
_RULES = f"""
[kafka.rounds]
length_s = 6
lateness_s = 2

[kafka.throttle]
floor_bytes_per_s = {_RATE}

[targets."{CLUSTER}".kafka]
"""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a round predicted for the end."""

    at_s: float
    """The time of its newest report; below 0 the move had not begun."""
    eta_s: float
    basis: str
    rate: int
    minimum: int

    @property
    def end_s(self) -> float:
        """The predicted end."""
        return self.at_s + self.eta_s


@dataclass(frozen=True, slots=True)
class _Run:
    """One move; seconds count from its start."""

    before: Prediction
    """The last prediction before the start."""
    measured_s: float
    left: list[tuple[float, float]]
    """Samples: seconds, and the MB left."""
    observed: list[Prediction]
    """Predictions of rounds that saw a slope, from ``_OBSERVED_AFTER_S`` on."""

    def off_percent(self, prediction: Prediction) -> float:
        """How far the end was from the predicted one, in percent of the time that the move took."""
        return 100 * abs(prediction.end_s - self.measured_s) / self.measured_s


def measure_throttle_live(*, quick: bool) -> Section:
    """Predicted before the start and observed on the way, against what it took."""
    run = _run(_SIZE // 2 if quick else _SIZE)
    PICTURE.write_text(_picture(run), encoding="utf-8")
    ratio = run.measured_s / run.before.eta_s
    rows = [
        Row("bytes to copy", run.left[0][1], "MB"),
        Row("minimum of the busiest role", run.before.minimum / _MB, "MB/s"),
        Row("rate", run.before.rate / _MB, "MB/s"),
        Row("predicted before the start", run.before.eta_s, "s"),
        Row("measured", run.measured_s, "s"),
        Row("measured ÷ predicted", max(ratio, 1 / ratio), "x", at_most=1.3),
    ]
    if run.observed:
        rows += [
            Row(
                f"end foretold by the first round with a slope, {_OBSERVED_AFTER_S} s or more after the start: off by",
                run.off_percent(run.observed[0]),
                "%",
                at_most=10.0,
            ),
            Row(
                "the same of the round that was off most, from then on",
                max(run.off_percent(prediction) for prediction in run.observed),
                "%",
                at_most=10.0,
            ),
        ]
    return Section(
        title="A real reassignment",
        method="Two partitions of a topic on three local brokers gain a replica on the third, both written to at 1 MB/s; collector, "
        "service and executor keep them at one rate, because the end is predicted at the rates in force. "
        "*measured ÷ predicted* is the larger of the quotient and its inverse. The first round with a slope still "
        "uses mostly the prediction; in later rounds the slope counts more and more, and in the end only the slope counts.",
        rows=rows,
    )


def _run(size: int) -> _Run:
    with tempfile.TemporaryDirectory() as folder, UsualFetches(Path(folder) / "kafka", nodes=3) as kafka:
        directory = Path(folder)
        moving = Moving(kafka, _ASSIGNED)
        stage = Stage(kafka.bootstrap, "bench", directory)
        stage.create_topics()
        plan = directory / "reassignment.json"
        planned(plan, moving.topic, _TARGET)
        target = f'bootstrap = "{kafka.bootstrap}"\nplanned_file = "{plan}"\n'
        config = stage.settings(base=_RULES + target)
        command = (*TRIMTAB, "run", "--config", str(config), "--from", "earliest")
        settings = load(file=config, flags={}, environ={}).settings
        with ExitStack() as stack:
            run = stack.enter_context(Child(command, directory / "run.log"))
            moving.fill(size)
            until(lambda: ask(f"{run.url}/readyz").status == 200, what="readiness", running=[run])
            stack.enter_context(moving.written(_WRITES))
            stack.enter_context(pipeline(settings, cluster=CLUSTER))
            until(lambda: moving.throttle().rates_bytes_per_s, what="the throttle", running=[run])
            began_s, began_unix_s = time.monotonic(), time.time()
            moving.begin(_TARGET)
            left = [(0.0, moving.left_bytes(_TARGET) / _MB)]
            while moving.is_moving():
                at_s = time.monotonic() - began_s
                left.append((at_s, moving.left_bytes(_TARGET) / _MB))
                time.sleep(_SAMPLE_S)
            measured_s = time.monotonic() - began_s
            run.terminate()
        rounds = [json.loads(value)["data"] for value in stage.values(stage.topics.audit)]
        stage.close()
        moving.close()
    found = list(predictions(rounds, began_unix_s))
    return _Run(
        before=[each for each in found if each.at_s <= 0][-1],
        measured_s=measured_s,
        left=left,
        observed=[
            each for each in found if each.at_s >= _OBSERVED_AFTER_S and each.basis in {"blended", "observed"}
        ],
    )


def predictions(rounds: list[dict[str, Any]], began_unix_s: float) -> Iterator[Prediction]:
    """The predictions of the rounds that had an ETA and something to move."""
    for each in rounds:
        throttle = each["throttle"]
        if throttle is not None and throttle["eta_s"] is not None and throttle["partitions_moving_count"]:
            yield Prediction(
                at_s=datetime.fromisoformat(throttle["as_of"]).timestamp() - began_unix_s,
                eta_s=throttle["eta_s"],
                basis=throttle["eta_basis"],
                rate=max(throttle["rates_bytes_per_s"].values()),
                minimum=max(throttle["min_bytes_per_s"].values()),
            )


def _picture(run: _Run) -> str:
    most, before = run.left[0][1], run.before
    return plot(
        title=f"{most:.0f} MB to new replicas at {before.rate / _MB:.1f} MB/s, minimum {before.minimum / _MB:.1f} MB/s: predicted "
        f"{before.eta_s:.0f} s, measured {run.measured_s:.0f} s",
        x="seconds since the start",
        y="MB left",
        lines=[
            Line("predicted before the start", [(0.0, most), (before.eta_s, 0.0)], "#888888", is_dashed=True),
            *(_prediction_line(run, prediction) for prediction in run.observed[:1]),
            Line("measured", [*run.left, (run.measured_s, 0.0)], "#1f6feb"),
        ],
    )


def _prediction_line(run: _Run, prediction: Prediction) -> Line:
    """A line from what was left then to the predicted end."""
    left = min(run.left, key=lambda sample: abs(sample[0] - prediction.at_s))[1]
    points = [(prediction.at_s, left), (prediction.end_s, 0.0)]
    return Line(f"predicted {prediction.at_s:.0f} s after it", points, "#d9822b", is_dashed=True)


_WIDTH, _HEIGHT = 760, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 50
_TICKS_COUNT_MAX = 6


def plot(*, title: str, x: str, y: str, lines: Sequence[Line]) -> str:
    """The chart; both axes begin at 0."""
    across = _ticks(max(at for line in lines for at, _ in line.points))
    up = _ticks(max(value for line in lines for _, value in line.points))
    scale = _Scale(across[-1], up[-1])
    parts = [
        _text(_WIDTH / 2, 24, title, size=15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, x),
        f'<text transform="translate(18 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle" fill="#333333">{escape(y)}</text>',
        *(_tick_x(scale, value) for value in across),
        *(_tick_y(scale, value) for value in up),
        *(_path(scale, line) for line in lines),
        *(_legend(place, line) for place, line in enumerate(lines)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    x_max: float
    y_max: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + width * x / self.x_max, _HEIGHT - _BOTTOM - height * y / self.y_max


def _ticks(largest: float) -> list[float]:
    """From 0 on, in steps of 1, 2, 2.5 or 5 times a power of ten, as few as hold the largest."""
    rough = max(largest, 1e-9) / _TICKS_COUNT_MAX
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough)
    return [number * step for number in range(math.ceil(largest / step) + 1)]


def _tick_x(scale: _Scale, value: float) -> str:
    x, y = scale.at(value, 0)
    return f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#eeeeee"/>' + _text(
        x, y + 18, f"{value:g}"
    )


def _tick_y(scale: _Scale, value: float) -> str:
    x, y = scale.at(0, value)
    line = f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#eeeeee"/>'
    return line + _text(x - 8, y + 4, f"{value:g}", anchor="end")


def _path(scale: _Scale, line: Line) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (scale.at(*point) for point in line.points))
    dashes = ' stroke-dasharray="6 4"' if line.is_dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dashes}/>'


def _legend(place: int, line: Line) -> str:
    x, y = _WIDTH - 230, _TOP + 14 + 18 * place
    dashes = ' stroke-dasharray="6 4"' if line.is_dashed else ""
    mark = f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{line.colour}" stroke-width="2"{dashes}/>'
    return mark + _text(x + 30, y, line.name, anchor="start")


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#333333">{escape(text)}</text>'
