"""Directories of starts: what is copied, which of them count, and which are deleted."""

from pathlib import Path

import pytest

from streaming.spark import checkpoint
from streaming.transport.checkpoint import CARD, Start, newest_number, newest_start
from tests.streaming.disk import SCHEMA, Disk, lay_out


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.mark.parametrize("epoch", [0, 7], ids=["without-directories", "of-a-start"])
def test_a_start_goes_on_with_a_copy_of_the_newest_that_counts(disk: Disk, epoch: int) -> None:
    lay_out(disk, Start(epoch), planned=3, committed=2)
    disk.write("start-8/offsets/9", b"begun, and never counted")
    checkpoint.begin_start(disk, Start(9), b"new card")
    assert newest_start(disk) == Start(9)
    assert newest_number(disk, Start(9), "offsets") == 3
    assert newest_number(disk, Start(9), "commits") == 2
    assert disk.read("start-9/metadata") == b'{"id":"q"}'
    assert disk.read(f"start-9{SCHEMA}") == b"schema"
    moved = f'{{"stateSchemaFilePaths":["file:{disk.root}/start-9{SCHEMA}"]}}'
    assert disk.read("start-9/state/0/_metadata/v2/0") == moved.encode()
    assert disk.read(Start(epoch).file(CARD)) == b"card"


def test_what_was_planned_behind_a_commit_that_came_while_it_was_copied_is_planned_anew(disk: Disk) -> None:
    lay_out(disk, Start(7), planned=4, committed=2)
    checkpoint.begin_start(disk, Start(9), b"")
    assert newest_number(disk, Start(9), "offsets") == 3


def test_a_first_start_has_nothing_to_copy(disk: Disk) -> None:
    checkpoint.begin_start(disk, Start(9), b"card")
    assert newest_start(disk) == Start(9)
    assert sorted(disk.names("start-9")) == ["claim", CARD]


def test_a_start_that_is_killed_while_it_writes_its_card_does_not_count(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    lay_out(disk, Start(7), planned=3, committed=2)
    write = Disk.write

    def killed(self: Disk, name: str, content: bytes) -> None:
        write(self, name, content[: len(content) // 2])
        if CARD in name:
            raise Killed

    monkeypatch.setattr(Disk, "write", killed)
    with pytest.raises(Killed):
        checkpoint.begin_start(disk, Start(8), b"new card")
    monkeypatch.undo()
    assert newest_start(disk) == Start(7)
    checkpoint.begin_start(disk, Start(9), b"new card")
    assert disk.read(Start(9).file(CARD)) == b"new card"


def test_what_ceases_to_count_while_it_is_copied_is_not_gone_on_with(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_copy_that_fails_does_not_count_and_leaves_nothing_behind(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_older_ones_go_and_what_is_not_ours_or_newer_stays(disk: Disk) -> None:
    for epoch in (0, 7, 8, 9):
        lay_out(disk, Start(epoch), planned=1, committed=1)
    disk.write("letters.txt", b"mine")
    checkpoint.drop_older_starts(disk, Start(8))
    assert sorted(disk.names()) == ["letters.txt", "start-8", "start-9"]


def test_a_directory_that_another_process_has_claimed_is_left_to_it(disk: Disk) -> None:
    lay_out(disk, Start(7), planned=3, committed=2)
    disk.write("start-9/claim", b"")
    with pytest.raises(OSError, match="start-9 belongs to another process with the same epoch"):
        checkpoint.begin_start(disk, Start(9), b"card")
    assert disk.names("start-9") == ["claim"]
    assert newest_start(disk) == Start(7)
