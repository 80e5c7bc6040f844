"""``trimtab replay`` as a user runs it: a process, a file, its start included."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.bench.loads import BUNDLES_COUNT, ROUND_MS, Fleet
from tests.bench.report import Limit, Row, Section
from tests.bench.running import ROOT, TRIMTAB

_MB = 1e6
_BROKERS_COUNT = 1000


def measure_replay(*, quick: bool) -> Section:
    """How quickly a recording is decided."""
    rounds_count = 2 if quick else 12
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as directory:
        recording = Path(directory) / "recording.ndjson"
        _record(recording, rounds_count)
        size_mb = recording.stat().st_size / _MB
        walls, cpus = zip(*(_replay(recording) for _ in range(1 if quick else 5)), strict=True)
    return Section(
        title="Replay",
        method=f"`trimtab replay FILE >/dev/null`: {rounds_count} rounds of {_BROKERS_COUNT} x {BUNDLES_COUNT}, "
        f"{size_mb:.0f} MB, the start of the process included; the best run.",
        rows=[
            Row(
                name="by the clock",
                value=size_mb / min(walls),
                unit="MB/s",
                limit=Limit(value=100.0, at_least=True),
            ),
            Row(name="by CPU time", value=size_mb / min(cpus), unit="MB/s"),
        ],
    )


def _record(file: Path, rounds_count: int) -> None:
    fleet = Fleet(brokers_count=_BROKERS_COUNT)
    with file.open("wb") as out:
        for number in range(rounds_count):
            out.writelines(report + b"\n" for report in fleet.reports(time_ms=number * ROUND_MS))


def _replay(recording: Path) -> tuple[float, float]:
    """Seconds by the clock and of CPU."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run(
        [*TRIMTAB, "replay", str(recording)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        check=True,
    )
    wall_s, after = time.perf_counter() - begun, os.times()
    return wall_s, (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
