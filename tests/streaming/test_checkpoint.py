"""What a start reads from a checkpoint before it has fenced another controller."""

from pathlib import Path

import msgspec
import pytest

from streaming.settings import Settings
from streaming.spark import checkpoint
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.failures import SparkGone, spark_errors
from streaming.transport.checkpoint import Start, card_of
from streaming.transport.errors import CheckpointError
from streaming.transport.publishing import Checkpoint
from tests.streaming.disk import Disk, lay_out

SETTINGS = Settings()
CARD = msgspec.json.encode(card_of(SETTINGS))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path)
    monkeypatch.setattr(checkpoint, "Files", lambda _spark, _location: made)
    return made


def directory() -> CheckpointDirectory:
    return CheckpointDirectory(None, "checkpoint")  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["trimtab.json", "metadata"])
def test_a_controller_that_has_just_begun_and_deletes_what_was_before_it_does_not_get_its_successor_refused(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    lay_out(disk, Start(7), planned=3, committed=2, card=CARD)
    read = Disk.read

    def overtaken(self: Disk, name: str) -> bytes | None:
        if name.endswith(moment):
            monkeypatch.setattr(Disk, "read", read)
            lay_out(disk, Start(8), planned=5, committed=4, card=CARD)
            checkpoint.drop_older_starts(disk, Start(8))
        return read(self, name)

    monkeypatch.setattr(Disk, "read", overtaken)
    assert directory().inspect(SETTINGS, "checkpoint") == Checkpoint(query_id="q", last_batch_id=5, epoch=8)


def test_what_cannot_be_read_is_refused_by_name_and_fresh_starts_over_from_it(disk: Disk) -> None:
    lay_out(disk, Start(7), planned=3, committed=2, card=CARD)
    disk.write("start-7/metadata", b"")
    with pytest.raises(CheckpointError, match=r"checkpoint/start-7/metadata cannot be read.*--fresh"):
        directory().inspect(SETTINGS, "checkpoint")
    assert directory().inspect(SETTINGS, "fresh") == Checkpoint(query_id=None, last_batch_id=None, epoch=7)
    disk.write("start-7/trimtab.json", b"{")
    with pytest.raises(CheckpointError, match=r"checkpoint/start-7/trimtab.json cannot be read.*--fresh"):
        directory().inspect(SETTINGS, "checkpoint")


def test_a_jvm_that_is_gone_is_no_fault_of_the_checkpoint(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(disk, Start(7), planned=3, committed=2, card=CARD)

    def refused(*_: object) -> bytes:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Disk, "read", refused)
    with pytest.raises(SparkGone), spark_errors():
        directory().inspect(SETTINGS, "checkpoint")


def test_what_is_no_checkpoint_is_not_written_into(disk: Disk) -> None:
    disk.write("start-7/offsets/0", b"begun, and never counted")
    assert directory().inspect(SETTINGS, "checkpoint") == Checkpoint(query_id=None, last_batch_id=None)
    disk.write("letters.txt", b"mine")
    with pytest.raises(CheckpointError, match="is not empty and is not a checkpoint of trimtab"):
        directory().inspect(SETTINGS, "checkpoint")
