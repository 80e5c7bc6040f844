"""Which stores a checkpoint may be in: those that keep the promises it needs, whatever their names."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from streaming.settings import Settings
from streaming.spark import checkpoint
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.files import UnsafeStore, require_promises, unsafe_mount
from streaming.transport.checkpoint import is_full
from streaming.transport.errors import CheckpointError
from tests.streaming.disk import Disk

RACERS, ROUNDS = 4, 200


class LetsBoth(Disk):
    """Behaves like an object store without conditional writes: the last writer to close the file wins."""

    def creates_exclusively(self, name: str) -> bool:
        self.write(name, b"first")
        self.write(name, b"second")
        return False


class ListsLate(Disk):
    """Behaves like an object store from before 2020, or a mount with a cache: it lists a new file late."""

    def names(self, name: str = "") -> list[str]:
        return [each for each in super().names(name) if not each.startswith(".trimtab-probe")]


class RenamesNothing(Disk):
    """Behaves like mountpoint-s3, which cannot rename."""

    def rename(self, name: str, to: str) -> bool:  # noqa: ARG002  the same signature
        return False


class RenamesByCopy(Disk):
    """Renames by a copy, and leaves the source there for a while."""

    def rename(self, name: str, to: str) -> bool:
        self.copy(name, to)
        return True


def directory_on(
    store: Disk, monkeypatch: pytest.MonkeyPatch, address: str = "checkpoint"
) -> CheckpointDirectory:
    monkeypatch.setattr(checkpoint, "Files", lambda _spark, _location: store)
    return CheckpointDirectory(None, address)


def test_a_disk_keeps_its_promises_and_nothing_is_left_of_the_trial(tmp_path: Path):
    require_promises(Disk(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("store", "why"),
    [
        (LetsBoth, "lets two processes create the same file at the same moment"),
        (ListsLate, "does not show a file that was just written"),
        (RenamesNothing, "does not rename a file"),
        (RenamesByCopy, "does not show a renamed file complete, and only under its new name"),
    ],
)
def test_a_store_that_breaks_one_is_refused_with_the_remedy_before_anything_is_begun(
    store: type[Disk], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    directory = directory_on(store(tmp_path), monkeypatch, "s3a://b/c")
    with pytest.raises(CheckpointError) as refusal:
        directory.inspect(Settings(), "checkpoint")
    assert str(refusal.value).startswith(
        f"the checkpoint s3a://b/c cannot be used: its store {why}. Set spark"
    )
    assert "docs/run/scaling.md" in str(refusal.value)
    assert list(tmp_path.iterdir()) == [], "the trial is cleared away"


class Full(Disk):
    """A disk without a free block."""

    def write(self, name: str, content: bytes) -> None:  # noqa: ARG002  the same signature
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root / name))


def test_a_full_disk_is_called_full_and_not_a_matter_of_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    directory = directory_on(Full(tmp_path), monkeypatch, "/data/checkpoint")
    said = r"^the disk of the checkpoint /data/checkpoint is full \(No space left on device: .*\): free space on it, or set"
    with pytest.raises(CheckpointError, match=said):
        directory.inspect(Settings(), "checkpoint")


@pytest.mark.parametrize(
    ("location", "found"),
    [("/data/checkpoint", True), ("file:/data/checkpoint", True), ("checkpoint", True), ("s3a://b/c", False)],
)
def test_a_full_disk_is_seen_wherever_a_checkpoint_of_this_machine_is(
    location: str, monkeypatch: pytest.MonkeyPatch, *, found: bool
):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert is_full(location) is found


def test_a_store_is_tried_once_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = directory_on(Disk(tmp_path), monkeypatch)
    directory.inspect(Settings(), "checkpoint")

    def never(_: object) -> None:
        raise UnsafeStore("asked again")

    monkeypatch.setattr(checkpoint, "require_promises", never)
    directory.inspect(Settings(), "checkpoint")


def test_what_a_killed_trial_left_is_no_directory_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".trimtab-probe-1").write_bytes(b"")
    directory = directory_on(Disk(tmp_path), monkeypatch)
    assert directory.inspect(Settings(), "checkpoint").query_id is None


MOUNTS = """\
/dev/vda1 / ext4 rw 0 0
nas:/export /nfs nfs4 rw 0 0
s3fs /buckets/a fuse.s3fs rw 0 0
mountpoint-s3 /buckets/b fuse rw 0 0
/dev/vdb1 /buckets/a/disk xfs rw 0 0
gcsfuse /with\\040space fuse.gcsfuse rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/var/lib/trimtab/checkpoint", None),
        ("/nfs/checkpoint", None),
        ("/buckets/a/checkpoint", "s3fs"),
        ("/buckets/b/checkpoint", "mountpoint-s3"),
        ("/buckets/a/disk/checkpoint", None),
        ("/buckets/another", None),
        ("/with space/checkpoint", "gcsfuse"),
    ],
)
def test_a_mount_of_an_object_store_is_told_from_a_file_system(path: str, mount: str | None):
    assert unsafe_mount(Path(path), MOUNTS) == mount


def test_where_no_mounts_are_listed_nothing_is_refused_for_them():
    assert unsafe_mount(Path("/var/lib"), "") is None


RACE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from tests.streaming.disk import Disk

root, rounds = Path(sys.argv[1]), int(sys.argv[2])
disk = Disk(root)
print("ready", flush=True)
sys.stdin.readline()
for number in range(rounds):
    try:
        disk.write_new(f"start-{number}/claim", b"")
    except FileExistsError:
        continue
    print(number, flush=True)
"""


@pytest.fixture
def racers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that wait for a line."""
    command = [sys.executable, "-c", RACE, str(tmp_path), str(ROUNDS)]
    started = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for _ in range(RACERS)
    ]
    yield started
    for process in started:
        process.kill()
        process.wait(30)


def test_of_processes_that_begin_in_one_shared_directory_one_alone_has_it(
    racers: list[subprocess.Popen[str]],
):
    for process in racers:
        assert process.stdout.readline() == "ready\n"
    had: list[str] = []
    for process in racers:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in racers:
        had += process.communicate(timeout=60)[0].split()
    assert sorted(map(int, had)) == list(range(ROUNDS))


class Stream:
    """A stream to an object store, which learns of a file when it is closed; a second close raises nothing."""

    def __init__(self, refusal: Exception | None) -> None:
        self._refusal = refusal

    def close(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal


class Closing(Disk):
    """An object store that gives these answers when files are closed, in order."""

    is_local = False

    def __init__(self, root: Path, *answers: Exception | None) -> None:
        super().__init__(root)
        self._answers = iter(answers)

    def _create_alone(self, _name: str) -> JavaObject:
        return cast("JavaObject", Stream(next(self._answers)))


NO = Py4JJavaError("no", SimpleNamespace(_target_id="o1", toString=lambda: "501 Not Implemented\nand a page"))


@pytest.mark.parametrize(("second", "is_exclusive"), [(NO, True), (None, False)])
def test_a_store_is_exclusive_where_the_first_has_the_file_and_the_second_is_refused(
    second: Exception | None, *, is_exclusive: bool, tmp_path: Path
):
    assert Closing(tmp_path, None, second).creates_exclusively("claim") == is_exclusive


def test_a_store_that_refuses_the_first_as_well_knows_no_conditional_writes(tmp_path: Path):
    """Such stores answer 501 to a conditional write."""
    with pytest.raises(UnsafeStore) as refusal:
        require_promises(Closing(tmp_path, NO, NO))
    assert str(refusal.value).startswith(
        "its store cannot create a file on the condition that it does not exist (501 Not Implemented). Set spark.checkpoint"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_store_out_of_reach_is_not_called_unsafe(tmp_path: Path):
    class Gone(Closing):
        def write(self, name: str, content: bytes) -> None:  # noqa: ARG002  the same signature
            raise NO

    with pytest.raises(Py4JJavaError):
        require_promises(Gone(tmp_path))
