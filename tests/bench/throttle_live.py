"""A real reassignment on three local brokers: predicted, observed and measured, and the picture of it in the docs.

Run it alone: ``python -m tests.bench --only throttle-live``; it writes ``docs/throttling-move.svg``.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from streaming.settings import load
from tests.bench.move_plot import Line, plot
from tests.bench.report import Limit, Row, Section
from tests.live.driving import TRIMTAB, Child, until
from tests.live.moving import Moving, UsualFetches, pipeline, planned
from tests.live.stage import Stage

PICTURE = Path(__file__).parents[2] / "docs" / "throttling-move.svg"
CLUSTER = "kafka-1"
_MB = 1_000_000
_ASSIGNED = {0: (1, 2), 1: (2, 1)}
_TARGET = {0: (1, 3), 1: (2, 3)}
_WRITES = 1 * _MB
_SIZE = 150 * _MB
_RATE = 4_800_000
"""Twice what is needed and more: as a floor it is the rate from the first round to the last, whatever producers do."""
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
class _Run:
    """One move; seconds count from its start."""

    predicted_s: float
    measured_s: float
    left: list[tuple[float, float]]
    """Seconds and MB."""
    said: list[tuple[float, float]]
    """When a round's newest report was, and the end it foretold."""
    rate: int
    minimum: int


def measure_throttle_live(*, quick: bool) -> Section:
    """Predicted before the start and observed on the way, against what it took."""
    run = _run(_SIZE // 2 if quick else _SIZE)
    observed = [end for at, end in run.said if at >= _OBSERVED_AFTER_S]
    PICTURE.write_text(_picture(run), encoding="utf-8")
    ratio = run.measured_s / run.predicted_s
    rows = [
        Row(name="bytes to copy", value=run.left[0][1], unit="MB"),
        Row(name="minimum of the busiest role", value=run.minimum / _MB, unit="MB/s"),
        Row(name="rate", value=run.rate / _MB, unit="MB/s"),
        Row(name="predicted before the start", value=run.predicted_s, unit="s"),
        Row(name="measured", value=run.measured_s, unit="s"),
        Row(name="measured ÷ predicted", value=max(ratio, 1 / ratio), unit="x", limit=Limit(value=1.3)),
    ]
    if observed:
        off = abs(observed[0] - run.measured_s) / run.measured_s
        rows.append(
            Row(
                name=f"end foretold by the first round {_OBSERVED_AFTER_S} s after the start: off by",
                value=100 * off,
                unit="%",
                limit=Limit(value=10.0),
            )
        )
    return Section(
        title="A real reassignment",
        method="Two partitions of a topic on three local brokers gain a replica on the third, both written to at 1 MB/s; collector, "
        f"service and executor pace them at one rate. *measured ÷ predicted* is the larger of the quotient and "
        "its inverse.",
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
        moving.fill(size)
        command = (*TRIMTAB, "run", "--config", str(config), "--from", "earliest")
        settings = load(file=config, flags={}, environ={}).settings
        with (
            moving.written(_WRITES),
            Child(command, directory / "run.log") as run,
            pipeline(settings, cluster=CLUSTER),
        ):
            until(lambda: moving.throttle().rates_bytes_per_s, what="the throttle", running=[run])
            first = _said(stage.values(stage.topics.actions))[0]
            began_s, began_unix_s = time.monotonic(), time.time()
            moving.begin(_TARGET)
            left = [(0.0, moving.left_bytes(_TARGET) / _MB)]
            while moving.is_moving():
                at_s = time.monotonic() - began_s
                left.append((at_s, moving.left_bytes(_TARGET) / _MB))
                time.sleep(_SAMPLE_S)
            measured_s = time.monotonic() - began_s
            run.terminate()
        rounds = _said(stage.values(stage.topics.audit))
        stage.close()
        moving.close()
    return _Run(
        predicted_s=first["eta_s"],
        measured_s=measured_s,
        left=left,
        said=_foretold(rounds, began_unix_s),
        rate=max(first["leader_rate_bytes_per_s"].values()),
        minimum=max(*first["leader_min_bytes_per_s"].values(), *first["follower_min_bytes_per_s"].values()),
    )


def _said(values: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(value)["data"] for value in values]


def _foretold(rounds: list[dict[str, Any]], began_unix_s: float) -> list[tuple[float, float]]:
    """Of the rounds of the move that had an ETA: when they looked, and when they said it would end."""
    found = []
    for said in rounds:
        throttle = said["throttle"]
        if throttle is not None and throttle["eta_s"] is not None and throttle["partitions_moving_count"]:
            at_s = datetime.fromisoformat(throttle["as_of"]).timestamp() - began_unix_s
            if at_s > 0:
                found.append((at_s, at_s + throttle["eta_s"]))
    return found


def _picture(run: _Run) -> str:
    most = run.left[0][1]
    return plot(
        title=f"{most:.0f} MB to new replicas at {run.rate / _MB:.1f} MB/s, minimum {run.minimum / _MB:.1f} MB/s: predicted "
        f"{run.predicted_s:.0f} s, measured {run.measured_s:.0f} s",
        x="seconds since the start",
        y="MB left",
        lines=[
            Line(
                "predicted before the start", [(0.0, most), (run.predicted_s, 0.0)], "#888888", is_dashed=True
            ),
            *(_foretold_line(run, run.said[place]) for place in _shown(run)),
            Line("measured", [*run.left, (run.measured_s, 0.0)], "#1f6feb"),
        ],
    )


def _shown(run: _Run) -> list[int]:
    """The first round after some time, as long as there is one."""
    return [place for place, (at, _) in enumerate(run.said) if at >= _OBSERVED_AFTER_S][:1]


def _foretold_line(run: _Run, said: tuple[float, float]) -> Line:
    """From what was left then to the end that was foretold."""
    at_s, end_s = said
    left = min(run.left, key=lambda sample: abs(sample[0] - at_s))[1]
    return Line(f"foretold {at_s:.0f} s after it", [(at_s, left), (end_s, 0.0)], "#d9822b", is_dashed=True)
