"""Events in bulk: from bytes to the controller's columns, through `trimtab replay` as a user runs it, and into a recording's files."""

import os
import subprocess
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

from state.closing import Identity
from state.controller import Controller
from state.store import DictStore
from streaming.contract.encode import Origin
from streaming.controller.recorder import RotatingFolder
from streaming.controller.recording import Recorded
from streaming.settings import ClusterSettingsSource, Settings
from streaming.transport.intake import Intake, Record
from tests.bench.loads import BUNDLES_COUNT, CLUSTER, ROUND_MS, Fleet, tick
from tests.bench.report import Row, Section, best_cpu_s
from tests.support.processes import ROOT, TRIMTAB

_BROKERS_COUNT = 50
"""So few that a call takes milliseconds, so that some calls are not disturbed."""
_MB, _GB = 1e6, 1e9
_LARGE_BROKERS_COUNT = 1000
_SETTINGS = ClusterSettingsSource(Settings())


def measure_ingest(*, quick: bool) -> Section:
    """Decoding and taking reports, of brokers never seen and of brokers seen before."""
    times = 2 if quick else 100
    fleet = Fleet(brokers_count=_BROKERS_COUNT)
    rounds = [fleet.reports(time_ms=number * ROUND_MS) for number in range(4)]
    size_mb = sum(map(len, rounds[0])) / _MB
    strangers = [_strangers(rounds[0], number) for number in range(min(times, 20))]
    first = min(best_cpu_s(partial(_ingest, reports), times=1) for reports in strangers)
    known = min(best_cpu_s(partial(_ingest, reports), times=times) for reports in rounds)
    return Section(
        title="Decoding and ingesting load reports",
        method=f"Reports of {BUNDLES_COUNT} bundles, {size_mb * 1000 / _BROKERS_COUNT:.0f} kB each, from bytes to columns in "
        "the controller's open round; CPU time of one core. Names of bundles are checked once: a broker's first report "
        "takes longer than those that follow.",
        rows=[
            Row("reports of brokers seen before", size_mb / known, "MB/s", at_least=250.0),
            Row("first reports, every name new", size_mb / first, "MB/s"),
        ],
    )


def _strangers(reports: list[bytes], number: int) -> list[bytes]:
    """The same reports with bundles that were never seen before."""
    return [report.replace(b"/namespace-", b"/name-%04d-" % number) for report in reports]


def _ingest(reports: list[bytes]) -> None:
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=_SETTINGS)
    intake = Intake(lambda _: controller, max_record_bytes=2**25)
    for offset, value in enumerate(reports):
        _, refused = intake.take(
            Record(value=value, origin=Origin(topic="bench", partition=0, offset=offset))
        )
        assert refused is None, f"a report was refused: {refused}"


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
        Row(f"{size}: a day", packed_bytes * _SWEEPS_A_DAY / _GB, "GB"),
        Row(f"{size}: a month", 30 * packed_bytes * _SWEEPS_A_DAY / _GB, "GB"),
        Row(f"{size}: packed, of plain", 100 * packed_bytes / plain_bytes, "%"),
        Row(f"{size}: packing, of one processor", 100 * spent_s * _SWEEPS_A_ROUND * 1000 / ROUND_MS, "%"),
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


def measure_replay(*, quick: bool) -> Section:
    """How quickly a recording is decided."""
    rounds_count, fleet = 2 if quick else 12, Fleet(brokers_count=_LARGE_BROKERS_COUNT)
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as directory:
        recording = Path(directory) / "recording.ndjson"
        with recording.open("wb") as out:
            for number in range(rounds_count):
                out.writelines(report + b"\n" for report in fleet.reports(time_ms=number * ROUND_MS))
        size_mb = recording.stat().st_size / _MB
        walls, cpus = zip(*(_replay(recording) for _ in range(1 if quick else 5)), strict=True)
    return Section(
        title="Replay",
        method=f"`trimtab replay FILE >/dev/null`: {rounds_count} rounds of {_LARGE_BROKERS_COUNT} x {BUNDLES_COUNT}, "
        f"{size_mb:.0f} MB, the start of the process included; the best run.",
        rows=[
            Row("by the clock", size_mb / min(walls), "MB/s", at_least=100.0),
            Row("by CPU time", size_mb / min(cpus), "MB/s"),
        ],
    )


def _replay(recording: Path) -> tuple[float, float]:
    """Seconds by the clock and of CPU."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run([*TRIMTAB, "replay", str(recording)], capture_output=True, cwd=ROOT, check=True)
    wall_s, after = time.perf_counter() - begun, os.times()
    return wall_s, sum(after[2:4]) - sum(before[2:4])
