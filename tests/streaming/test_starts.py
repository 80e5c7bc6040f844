"""A checkpoint's directories: what a start reads before it has fenced another controller, what it copies, which starts count, which are deleted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest
from py4j.java_gateway import JavaObject

from state.closing import MemoryStart
from streaming.controller import leadership
from streaming.settings import Settings
from streaming.spark import checkpoint
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.failures import SparkGone, spark_errors
from streaming.spark.files import Files
from streaming.spark.probes import is_whole
from streaming.transport.checkpoint import MANIFEST, Start, manifest_of, newest_number, newest_start
from streaming.transport.errors import CheckpointError
from streaming.transport.publishing import Checkpoint, Marker
from tests.streaming.disk import SCHEMA, Disk, lay_out


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The checkpoint's directory, which is what the code opens as well."""
    made = Disk(tmp_path)
    monkeypatch.setattr(checkpoint, "Files", lambda _spark, _location: made)
    return made


@pytest.mark.parametrize("epoch", [0, 7], ids=["without-directories", "of-a-start"])
def test_a_start_goes_on_with_a_copy_of_the_newest_that_counts(disk: Disk, epoch: int):
    lay_out(disk, Start(epoch), planned=3, committed=2)
    disk.write("start-8/offsets/9", b"begun, and never counted")
    checkpoint.begin_start(disk, Start(9), b"new manifest")
    assert newest_start(disk) == Start(9)
    assert newest_number(disk, Start(9), "offsets") == 3
    assert newest_number(disk, Start(9), "commits") == 2
    assert disk.read("start-9/metadata") == b'{"id":"q"}'
    assert disk.read(f"start-9{SCHEMA}") == b"schema"
    moved = f'{{"stateSchemaFilePaths":["file:{disk.root}/start-9{SCHEMA}"]}}'
    assert disk.read("start-9/state/0/_metadata/v2/0") == moved.encode()
    assert disk.read(Start(epoch).file(MANIFEST)) == b"manifest"


def test_what_was_planned_behind_a_commit_that_came_while_it_was_copied_is_planned_anew(disk: Disk):
    lay_out(disk, Start(7), planned=4, committed=2)
    checkpoint.begin_start(disk, Start(9), b"")
    assert newest_number(disk, Start(9), "offsets") == 3


def test_a_first_start_has_nothing_to_copy(disk: Disk):
    checkpoint.begin_start(disk, Start(9), b"manifest")
    assert newest_start(disk) == Start(9)
    assert sorted(disk.names("start-9")) == ["claim", MANIFEST]


def test_a_start_killed_while_it_writes_its_manifest_does_not_count(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    class Killed(BaseException):
        pass

    lay_out(disk, Start(7), planned=3, committed=2)
    write = Disk.write

    def killed(self: Disk, name: str, content: bytes) -> None:
        write(self, name, content[: len(content) // 2])
        if MANIFEST in name:
            raise Killed

    monkeypatch.setattr(Disk, "write", killed)
    with pytest.raises(Killed):
        checkpoint.begin_start(disk, Start(8), b"new manifest")
    monkeypatch.undo()
    assert newest_start(disk) == Start(7)
    checkpoint.begin_start(disk, Start(9), b"new manifest")
    assert disk.read(Start(9).file(MANIFEST)) == b"new manifest"


def test_what_ceases_to_count_while_it_is_copied_is_left(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    lay_out(disk, Start(7), planned=3, committed=2)
    copy = Disk.copy

    def overtaken(self: Disk, name: str, to: str) -> None:
        copy(self, name, to)
        monkeypatch.undo()
        lay_out(disk, Start(8), planned=5, committed=5)
        checkpoint.drop_older_starts(disk, Start(8))

    monkeypatch.setattr(Disk, "copy", overtaken)
    checkpoint.begin_start(disk, Start(9), b"")
    assert newest_number(disk, Start(9), "commits") == 5


def test_a_copy_that_fails_does_not_count_and_leaves_nothing(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    lay_out(disk, Start(7), planned=3, committed=2)
    copy = Disk.copy

    def full(self: Disk, name: str, to: str) -> None:
        copy(self, name, to)
        if name.endswith("state"):
            raise OSError("no space left on device")

    monkeypatch.setattr(Disk, "copy", full)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.begin_start(disk, Start(9), b"")
    assert newest_start(disk) == Start(7)
    assert not disk.exists("start-9")


def test_older_ones_go_and_what_is_not_ours_or_newer_stays(disk: Disk):
    for epoch in (0, 7, 8, 9):
        lay_out(disk, Start(epoch), planned=1, committed=1)
    disk.write("letters.txt", b"mine")
    checkpoint.drop_older_starts(disk, Start(8))
    assert sorted(disk.names()) == ["letters.txt", "start-8", "start-9"]


def test_a_directory_that_another_process_has_claimed_is_left_to_it(disk: Disk):
    lay_out(disk, Start(7), planned=3, committed=2)
    disk.write("start-9/claim", b"")
    with pytest.raises(OSError, match="start-9 belongs to another process with the same epoch"):
        checkpoint.begin_start(disk, Start(9), b"manifest")
    assert disk.names("start-9") == ["claim"]
    assert newest_start(disk) == Start(7)


SETTINGS = Settings()
MANIFEST_BYTES = msgspec.json.encode(manifest_of(SETTINGS))


def directory() -> CheckpointDirectory:
    return CheckpointDirectory(None, "checkpoint")


@pytest.mark.parametrize("moment", ["trimtab.json", "metadata"])
def test_a_start_beside_a_controller_that_deletes_older_ones_is_not_refused(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str
):
    lay_out(disk, Start(7), planned=3, committed=2, manifest=MANIFEST_BYTES)
    read = Disk.read

    def overtaken(self: Disk, name: str) -> bytes | None:
        if name.endswith(moment):
            monkeypatch.setattr(Disk, "read", read)
            lay_out(disk, Start(8), planned=5, committed=4, manifest=MANIFEST_BYTES)
            checkpoint.drop_older_starts(disk, Start(8))
        return read(self, name)

    monkeypatch.setattr(Disk, "read", overtaken)
    assert directory().inspect(SETTINGS, "checkpoint") == Checkpoint(query_id="q", last_batch_id=5, epoch=8)


@pytest.mark.parametrize(
    ("before", "over", "expected"),
    [
        (None, (), MemoryStart(5_000)),
        (None, ("q",), MemoryStart(5_000, is_fresh=True)),
        (MemoryStart(3_000, is_fresh=True), (), MemoryStart(3_000, is_fresh=True)),
        (MemoryStart(3_000), ("q",), MemoryStart(3_000)),
    ],
)
def test_memory_begins_at_the_first_start_and_stays_as_long_as_starts_go_on_with_it(
    disk: Disk, before: MemoryStart | None, over: tuple[str, ...], expected: MemoryStart
):
    if before is not None:
        manifest = msgspec.json.encode(manifest_of(SETTINGS, memory_start=before))
        lay_out(disk, Start(7), planned=3, committed=2, manifest=manifest)
    started = directory()
    marker = Marker(query_id=None, batch_id=None, digest=None, epoch=9, over=over)
    started.begin(SETTINGS, marker, "checkpoint", now_ms=5_000)
    assert started.memory_start() == expected
    assert directory().memory_start() == expected, "a standby reads it, too"


@pytest.mark.usefixtures("disk")
def test_a_start_after_fresh_logs_when_it_acts_and_from_where_it_reads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level("INFO")
    marker = Marker(query_id=None, batch_id=None, digest=None, epoch=9, over=("q",))
    directory().begin(SETTINGS, marker, "checkpoint", now_ms=5_000)
    assert "the first round that acts ends after 1970-01-01T00:30:05.000Z, when every bundle" in caplog.text

    for name in ("publisher_of", "input_ids", "CheckpointDirectory", "take_over"):
        monkeypatch.setattr(leadership, name, Mock())
    leading = SimpleNamespace(
        settings=SETTINGS, start_with="fresh", begin=5_000, spark=Mock(), metrics=Mock()
    )
    with leadership.Leading.taken_over(cast("leadership.Leading", leading), lambda step: step()):
        assert "the input is read again from 1970-01-01T00:00:05.000Z (--from, or" in caplog.text


def test_what_cannot_be_read_is_refused_by_name_and_fresh_starts_over_from_it(disk: Disk):
    lay_out(disk, Start(7), planned=3, committed=2, manifest=MANIFEST_BYTES)
    disk.write("start-7/metadata", b"")
    with pytest.raises(CheckpointError, match=r"checkpoint/start-7/metadata cannot be read.*--fresh"):
        directory().inspect(SETTINGS, "checkpoint")
    assert directory().inspect(SETTINGS, "fresh") == Checkpoint(query_id=None, last_batch_id=None, epoch=7)
    disk.write("start-7/trimtab.json", b"{")
    with pytest.raises(CheckpointError, match=r"checkpoint/start-7/trimtab.json cannot be read.*--fresh"):
        directory().inspect(SETTINGS, "checkpoint")


def test_a_jvm_that_is_gone_is_no_fault_of_the_checkpoint(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    lay_out(disk, Start(7), planned=3, committed=2, manifest=MANIFEST_BYTES)

    def refused(*_: object) -> bytes:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Disk, "read", refused)
    with pytest.raises(SparkGone), spark_errors():
        directory().inspect(SETTINGS, "checkpoint")


def test_what_is_no_checkpoint_is_not_written_into(disk: Disk):
    disk.write("start-7/offsets/0", b"begun, and never counted")
    assert directory().inspect(SETTINGS, "checkpoint") == Checkpoint(query_id=None, last_batch_id=None)
    disk.write("letters.txt", b"mine")
    with pytest.raises(CheckpointError, match="is not empty and is not a checkpoint of trimtab"):
        directory().inspect(SETTINGS, "checkpoint")


OFFSETS = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"topic":{"0":7}}\n-'


def test_whole_files_are_left_alone():
    assert is_whole(OFFSETS)
    assert is_whole(b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')


@pytest.mark.parametrize("content", [b"", b"v1", b"\x00\x00\x00", OFFSETS[:20], OFFSETS[:-4], b"\xff\xfe"])
def test_empty_and_torn_ones_are_found(content: bytes):
    assert not is_whole(content)


BUCKET = "s3a://b/c"


class HadoopPath:
    """Stands in for Hadoop's ``Path``, with the methods that are used."""

    def __init__(self, text: str) -> None:
        self._text = text

    def toString(self) -> str:  # noqa: N802  Java's
        return self._text


class Store(Files):
    """A store that is a set of file names; a copy adds a name to it."""

    is_local = False

    def __init__(self, *names: str, fails: str = "") -> None:
        self.names_there = set(names)
        copies = SimpleNamespace(FileUtil=SimpleNamespace(copy=self._copied))
        self._jvm = cast(
            "Any",
            SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=copies)))),
        )
        self._conf = self._fs = cast("Any", self)
        self._fails = fails

    def _path(self, name: str) -> JavaObject:
        return cast("JavaObject", HadoopPath(f"{BUCKET}/{name}"))

    def listFiles(self, path: HadoopPath, _recursive: bool) -> Any:  # noqa: N802, FBT001  Java's
        found = sorted(name for name in self.names_there if f"{BUCKET}/{name}".startswith(path.toString()))
        statuses = [
            SimpleNamespace(getPath=lambda name=name: HadoopPath(f"{BUCKET}/{name}")) for name in found
        ]
        return SimpleNamespace(hasNext=lambda: bool(statuses), next=lambda: statuses.pop(0))

    def _copied(self, _fs: Any, status: Any, _other_fs: Any, to: HadoopPath, *_: Any) -> bool:
        assert status.getPath().toString().removeprefix(f"{BUCKET}/") in self.names_there
        self.names_there.add(to.toString().removeprefix(f"{BUCKET}/"))
        return not (self._fails and self._fails in to.toString())


def test_a_directory_is_copied_with_all_files_below_it():
    store = Store("one/state/0/1.zip", "one/state/0/SSTs/a.sst", "one/commits/0")
    store.copy("one/state", "two/state")
    assert store.names_there - {"one/state/0/1.zip", "one/state/0/SSTs/a.sst", "one/commits/0"} == {
        "two/state/0/1.zip",
        "two/state/0/SSTs/a.sst",
    }


def test_a_file_is_copied_alone():
    store = Store("one/metadata")
    store.copy("one/metadata", "two/metadata")
    assert store.names_there == {"one/metadata", "two/metadata"}


def test_a_file_that_is_not_copied_is_named():
    with pytest.raises(
        OSError, match=f"{BUCKET}/one/commits/7 could not be copied to {BUCKET}/two/commits/7"
    ):
        Store(*(f"one/commits/{number}" for number in range(9)), fails="commits/7").copy(
            "one/commits", "two/commits"
        )
