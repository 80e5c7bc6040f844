"""A folder of `trimtab record --max-total-size`: whole after every pass, limited in size, and a later start goes on where it ended."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.cli.options import Size
from streaming.controller.recorder import RotatingFolder
from streaming.controller.recording import Recorded, decode_recorded
from streaming.controller.replay import files_of
from tests.streaming.events import report, tick, traffic
from tests.streaming.records import recorded

ROUND_S = 3600
MONTH = range(30 * 24 * 3600 // ROUND_S)
"""Numbers of a month's rounds; they last an hour, so that the test takes seconds."""

LARGE = 10**9


def record(offset: int, *, at_ms: int | None = None, **more: Any) -> Recorded:
    """A record whose value does not compress well."""
    value = report(f"b{offset}", time_s=offset, id=f"{offset * 7919:x}")
    return recorded(value, offset=offset, at_ms=1000 * offset if at_ms is None else at_ms, **more)


class Folder:
    """A recording folder, opened as often as a test likes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[str] = []

    def open(self, *, file_bytes: int = LARGE, total_bytes: int = LARGE) -> RotatingFolder:
        return RotatingFolder(
            self.path, file_bytes=file_bytes, total_bytes=total_bytes, tell=self.told.append
        )

    def offsets(self) -> list[int]:
        """Offsets of all records, in the order in which replay reads them."""
        lines = b"".join(gzip.decompress(Path(file).read_bytes()) for file in files_of([str(self.path)]))
        return [decode_recorded(line).origin.offset for line in lines.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "recordings")


def test_a_full_file_is_followed_by_another_and_names_ascend_in_the_order_of_the_records(folder: Folder):
    out = folder.open(file_bytes=1)
    for offset in range(12):
        out.write(record(offset))
        out.flush()
    assert len(files_of([str(folder.path)])) == 12
    assert folder.offsets() == list(range(12))


def test_the_oldest_files_go_when_all_together_are_too_large_and_each_is_named(folder: Folder):
    out = folder.open(file_bytes=1, total_bytes=2000)
    for offset in range(20):
        out.write(record(offset))
        out.flush()
    sizes = [Path(file).stat().st_size for file in files_of([str(folder.path)])]
    assert sum(sizes) <= 2000
    kept = folder.offsets()
    assert kept == list(range(kept[0], 20))
    assert len(folder.told) == 20 - len(kept) > 0
    assert "00000001-0" in folder.told[0]


def test_the_newest_file_stays_even_if_it_alone_is_too_large(folder: Folder):
    out = folder.open(file_bytes=1, total_bytes=1)
    for offset in range(3):
        out.write(record(offset))
        out.flush()
    assert folder.offsets() == [2]


def test_a_later_start_goes_on_where_the_one_before_ended(folder: Folder):
    first = folder.open()
    assert first.begin("earliest") == "earliest"
    for offset in (5, 6):
        first.write(record(offset))
    first.write(record(0, at_ms=9, is_control=True))
    first.flush()
    second = folder.open()
    assert second.begin("earliest") == 6000, "the control topic is read whole and does not count"
    for offset in (6, 7):
        second.write(record(offset))
    second.write(record(0, at_ms=9, is_control=True))
    second.flush()
    assert folder.offsets() == [5, 6, 0, 7]
    assert second.count == 1


def test_each_partition_goes_on_by_itself(folder: Folder):
    first = folder.open()
    first.write(record(9, partition=0))
    first.write(record(2, partition=1))
    first.flush()
    second = folder.open()
    assert second.begin("latest") == 2000
    second.write(record(3, partition=1))
    second.flush()
    assert folder.offsets() == [9, 2, 3]


def test_a_topic_that_was_made_anew_is_recorded_although_its_offsets_are_small_again(folder: Folder):
    first = folder.open()
    first.write(record(9))
    first.flush()
    second = folder.open()
    second.write(record(0, at_ms=99_000))
    second.flush()
    assert folder.offsets() == [9, 0]


def test_a_file_that_a_stop_by_force_cut_off_keeps_the_passes_before(folder: Folder):
    out = folder.open()
    for offset in range(3):
        out.write(record(offset))
        out.flush()
    file = Path(files_of([str(folder.path)])[0])
    file.write_bytes(file.read_bytes()[:-20])
    folder.open()
    assert "removed its incomplete end" in folder.told[0]
    assert folder.offsets() == [0, 1]


def test_nothing_is_written_and_no_folder_is_made_where_nothing_came(folder: Folder):
    folder.open().flush()
    assert not folder.path.exists()


def test_replay_reads_a_folder_like_its_files(tmp_path: Path):
    folder = Folder(tmp_path / "recordings")
    out = folder.open(file_bytes=1)
    for offset in range(6):
        value = tick(time_s=60 * offset) if offset % 2 else report("b1", time_s=60 * offset)
        out.write(recorded(value, offset=offset, at_ms=60_000 * offset))
        out.flush()
    as_folder = CliRunner().invoke(main, ["replay", str(folder.path)])
    as_files = CliRunner().invoke(main, ["replay", *files_of([str(folder.path)])])
    assert as_folder.exit_code == 0, as_folder.stderr
    assert as_folder.stdout_bytes == as_files.stdout_bytes != b""


def round_of(number: int) -> list[Recorded]:
    """A sweep of three brokers, one of which is far busier, and its tick."""
    time_s = ROUND_S * number
    loads = {"b1": 85.0 + number % 7, "b2": 30.0 + number % 5, "b3": 10.0 + number % 3}
    values = [
        report(
            broker,
            time_s=time_s,
            cpu=(cpu, 100.0),
            rate=600 * cpu,
            bundles={
                f"shop/n{broker}/0x{place}_0x{place + 1}": traffic(100 * cpu + place) for place in range(6)
            },
            id=f"{broker}/{number}",
        )
        for broker, cpu in loads.items()
    ]
    values.append(tick(time_s=time_s))
    return [
        recorded(value, offset=len(values) * number + place, at_ms=1000 * time_s)
        for place, value in enumerate(values)
    ]


def test_a_month_keeps_its_limit_in_a_days_memory_and_is_backtested(folder: Folder, tmp_path: Path):
    limit_bytes, day = 50_000, 24 * 3600 // ROUND_S
    out, peaks = folder.open(file_bytes=5_000, total_bytes=limit_bytes), []
    tracemalloc.start()
    for number in MONTH:
        for each in round_of(number):
            out.write(each)
        if number % 12 == 11:
            out.flush()
            sizes = [file.stat().st_size for file in folder.path.glob("*.gz")]
            assert sum(sizes) <= limit_bytes
        if number % day == day - 1:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.reset_peak()
    tracemalloc.stop()
    assert max(peaks[1:]) < peaks[0] + 100_000
    kept = folder.offsets()
    assert kept == list(range(kept[0], 4 * len(MONTH))), "the oldest files are gone, and nothing else"
    assert 0 < kept[0] < 4 * (len(MONTH) - 2 * day)
    assert len(folder.told) >= 10

    config = tmp_path / "trimtab.toml"
    config.write_text(f"[pulsar.rounds]\nlength_s = {ROUND_S}\nmax_report_age_s = {3 * ROUND_S}\n")
    asked = ["backtest", "--config", str(config), "--loop", "open", "--processes", "1", "-o", "json"]
    done = CliRunner().invoke(main, [*asked, str(folder.path)])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["open_loop"]
    assert found["rounds_count"] == (4 * len(MONTH) - kept[0]) // 4
    assert found["unloads_count"] > 0


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("64MiB", 2**26), ("500MB", 5 * 10**8), ("7", 7), ("2 GiB", 2**31)]
)
def test_sizes_are_read_as_people_write_them(text: str, size_bytes: int):
    assert Size().convert(text, None, None) == size_bytes


@pytest.mark.parametrize("text", ["", "MiB", "0", "-1MB", "1.5GiB", "3XB"])
def test_what_is_no_size_is_refused_with_an_example(text: str):
    with pytest.raises(click.BadParameter, match="expected a size such as 64MiB"):
        Size().convert(text, None, None)
