"""A damaged checkpoint ends the controller with the exit code for data and names the file, while everything else works."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.process.exits import REFUSED
from tests.support.loads import played
from tests.support.operating import output_of
from tests.support.processes import Warm, ask, cold, is_ready, samples
from tests.support.stage import Stage, filled, newest_start, small_disk

pytestmark = pytest.mark.live

RESTARTS = ("trimtab_query_restarts_total", frozenset[tuple[str, str]]())
FAULT_LINES = 5
"""A fault is a line; some more if it fails in different ways, however often the query is started again."""
Damage = Callable[[Path], Path]


def newest(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdecimal()), key=lambda file: int(file.name))


def write(file: Path, content: bytes) -> Path:
    """Write a file as a disk leaves it: without the checksum that Hadoop keeps beside it, so that the content is read."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(content)
    return file


def emptied(file: Path) -> Path:
    return write(file, b"")


def torn(file: Path) -> Path:
    content = file.read_bytes()
    return write(file, content[: len(content) // 2])


def changelog(checkpoint: Path) -> Path:
    """A changelog that has something in it: the largest one."""
    files = [file for file in checkpoint.glob("state/0/*/*.changelog") if not file.name.startswith(".")]
    return max(files, key=lambda file: (file.stat().st_size, file.name))


QUICK_ONES: dict[str, Damage] = {"an empty offsets file": lambda at: emptied(newest(at / "offsets"))}
SLOW_ONES: dict[str, Damage] = {
    "an empty manifest": lambda at: emptied(at / "trimtab.json"),
    "a torn offsets file": lambda at: torn(newest(at / "offsets")),
    "an empty commits file": lambda at: emptied(newest(at / "commits")),
    "a torn commits file": lambda at: torn(newest(at / "commits")),
    "a torn manifest": lambda at: torn(at / "trimtab.json"),
    "an empty changelog": lambda at: emptied(changelog(at)),
    "a torn changelog": lambda at: torn(changelog(at)),
    "an empty metadata file": lambda at: emptied(at / "metadata"),
}


@pytest.mark.parametrize(
    "name", [*QUICK_ONES, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW_ONES)]
)
def test_a_damaged_checkpoint_is_final_and_names_the_file(stage: Stage, warm: Warm, name: str):
    config = stage.settings(spark__max_records_per_trigger_count=3)
    stage.send(played(range(2)))
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
    shutil.copytree(stage.checkpoint, stage.directory / "sound")
    start = newest_start(stage.checkpoint)
    file = (QUICK_ONES | SLOW_ONES)[name](start)
    stage.send(played(range(2, 3)))
    said = warm.refused(config)
    assert str(stage.checkpoint) in said
    assert f"/{file.relative_to(start)}" in said, "in the directory of either start"
    assert "--fresh" in said
    before = stage.published()
    shutil.rmtree(stage.checkpoint)
    (stage.directory / "sound").rename(stage.checkpoint)
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 3, running=[run])
    after = stage.published()
    assert after.rounds["east-1"][:2] == before.rounds["east-1"], "the copy that was put back goes on"


@pytest.mark.slow
def test_a_memory_that_cannot_be_decoded_is_final_and_names_the_cluster(stage: Stage, warm: Warm):
    config = stage.settings()
    arguments = ("run", "--config", str(config), "--from", "earliest")
    stage.send(played([0]))
    stage.send(played([0], cluster="west-1"))
    with warm.start("-m", "tests.support.misbehaving", "garbles", "east-1", "", *arguments) as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
        assert run.terminate() == 0
    stage.send(played([1]))
    with warm.start(*arguments) as run:
        assert run.wait() == REFUSED, run.output
        assert "Look at the cluster east-1: if its memory in the checkpoint is damaged" in run.output
        assert "west-1" not in run.output


@pytest.mark.slow
def test_what_a_full_disk_leaves_of_the_first_batch_does_not_end_it(stage: Stage, tmp_path: Path):
    """Where the disk fills while Spark writes ``offsets/0`` the unfinished file stays; here it is put there."""
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("mounting a small disk needs root")
        checkpoint = disk / "checkpoint"
        config = stage.settings(spark__checkpoint=str(checkpoint))
        with cold(config, stage.directory / "run.log") as run:
            run.until(lambda: is_ready(run), "the start")
            with filled(disk):
                stage.send(played(range(2)))
                run.until(lambda: "No space left" in run.output, "a batch to fail")
                assert f"the disk of the checkpoint {checkpoint} is full: " in run.output
                run.until(lambda: samples(run.url)[RESTARTS] >= 3, "the query to fail again and again")
                about = run.output.partition("running, set to mode")[2].splitlines()[1:]
                assert len(about) < FAULT_LINES, about
                found = output_of(config, "doctor", code=REFUSED)
                assert f"the disk of the checkpoint {checkpoint} is full: No space left on device" in found, (
                    found
                )
                (newest_start(checkpoint) / "offsets" / ".0.6c0f7fb5.tmp").touch()
            stage.wait_for(stage.topics.audit, 2, running=[run])
            run.until(lambda: "the query works again, after " in run.output, "the log to say that it is over")
            assert run.terminate() == 0


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_start_is_named_in_a_line_and_waited_for(stage: Stage, tmp_path: Path):
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("mounting a small disk needs root")
        config = stage.settings(spark__checkpoint=str(disk / "checkpoint"))
        with cold(config, stage.directory / "run.log") as run:
            with filled(disk):
                run.until(lambda: "No space left" in run.output, "the line")
                assert ask(f"{run.url}/readyz").status == 503
                (line,) = [each for each in run.output.splitlines() if "No space left" in each][:1]
                assert f"the disk of the checkpoint {disk}/checkpoint is full (" in line
                assert "Traceback" not in run.output
            stage.send(played(range(2)))
            stage.wait_for(stage.topics.audit, 2, running=[run])
            assert run.terminate() == 0
