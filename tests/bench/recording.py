"""What `trimtab record --max-total-size` needs: size on disk, and time of the process."""

import tempfile
import time
from itertools import pairwise
from pathlib import Path

from streaming.contract.encode import Origin
from streaming.controller.recorder import RotatingFolder
from streaming.controller.recording import Recorded
from tests.bench.loads import BUNDLES_COUNT, CLUSTER, ROUND_MS, Fleet, tick
from tests.bench.report import Row, Section

_GB = 1e9
_SIZES = ((10, 20), (1000, 1))
"""Brokers, and sweeps that are written: enough for a steady rate."""
_SWEEPS_A_ROUND = 2
_PASSES_A_SWEEP = 10
"""A collector spreads a sweep over some seconds, and `record` packs what comes in each by itself."""
_SWEEPS_A_DAY = _SWEEPS_A_ROUND * 24 * 3600 * 1000 // ROUND_MS


def measure_recording(*, quick: bool) -> Section:
    """Recordings of a small and a large cluster."""
    rows = [row for brokers, sweeps in _SIZES for row in _measure(brokers, 1 if quick else sweeps * 4)]
    return Section(
        title="A recording",
        method=f"`trimtab record --max-total-size` of brokers with {BUNDLES_COUNT} bundles each, {_SWEEPS_A_ROUND} sweeps a minute, "
        f"written in {_PASSES_A_SWEEP} passes a sweep as they come in; the traffic of every bundle is random, which packs badly. A month "
        "has 30 days.",
        rows=rows,
    )


def _measure(brokers_count: int, sweeps_count: int) -> list[Row]:
    sweeps = [_sweep(brokers_count, number) for number in range(sweeps_count)]
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as directory:
        folder = Path(directory) / "recordings"
        begun_s = time.process_time()
        out = RotatingFolder(folder, file_bytes=2**26, total_bytes=2**40, tell=lambda _: None)
        for sweep in sweeps:
            edges = [len(sweep) * place // _PASSES_A_SWEEP for place in range(_PASSES_A_SWEEP + 1)]
            for low, high in pairwise(edges):
                for record in sweep[low:high]:
                    out.write(record)
                out.flush()
        spent_s = (time.process_time() - begun_s) / sweeps_count
        packed_bytes = sum(file.stat().st_size for file in folder.glob("*.gz")) / sweeps_count
    plain_bytes = sum(len(record.value or b"") for sweep in sweeps for record in sweep) / sweeps_count
    size = f"{brokers_count} x {BUNDLES_COUNT}"
    return [
        Row(name=f"{size}: a day", value=packed_bytes * _SWEEPS_A_DAY / _GB, unit="GB"),
        Row(name=f"{size}: a month", value=30 * packed_bytes * _SWEEPS_A_DAY / _GB, unit="GB"),
        Row(name=f"{size}: packed, of plain", value=100 * packed_bytes / plain_bytes, unit="%"),
        Row(
            name=f"{size}: packing, of one processor",
            value=100 * spent_s * _SWEEPS_A_ROUND * 1000 / ROUND_MS,
            unit="%",
        ),
    ]


def _sweep(brokers_count: int, number: int) -> list[Recorded]:
    time_ms = number * ROUND_MS // _SWEEPS_A_ROUND
    values = [*Fleet(brokers_count=brokers_count).reports(time_ms=time_ms), tick(time_ms=time_ms)]
    return [
        Recorded(
            origin=Origin(topic="trimtab.input", partition=0, offset=number * len(values) + place),
            key=CLUSTER.encode(),
            value=value,
            appended_ms=time_ms,
            is_control=False,
        )
        for place, value in enumerate(values)
    ]
