"""A checkpoint on a real HDFS: it keeps its promises, and controllers take over from each other on it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.spark.files import Files, require_promises
from tests.live.driving import TRIMTAB, Child, Warm
from tests.live.loads import closing, leaning, played
from tests.live.stage import Stage, replayed
from tests.support.hdfs import LocalHdfs

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_hdfs_keeps_what_a_checkpoint_needs(tmp_path: Path, hdfs: LocalHdfs) -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        files = Files(spark, f"{hdfs.url}/{tmp_path.name}")
        require_promises(files)
        assert files.names() == []
        files.write_new("start-7/claim", b"mine")
        with pytest.raises(FileExistsError, match="was made by another process"):
            files.write_new("start-7/claim", b"yours")
        assert files.read("start-7/claim") == b"mine"
    finally:
        spark.stop()


def test_a_controller_that_is_killed_is_replaced_by_one_that_goes_on_from_hdfs(
    stage: Stage, hdfs: LocalHdfs, warm: Warm
) -> None:
    location = f"{hdfs.url}/{stage.name}/checkpoint"
    config = stage.settings(spark__checkpoint=location)
    arguments = ("run", "--config", str(config), "--from", "earliest")
    wanted = replayed(config, played(range(6)))
    assert wanted.actions_count == 2, "the third and the sixth hit fire"

    stage.send(played(range(2)))
    with Child((*TRIMTAB, *arguments), stage.directory / "first.log") as first:
        stage.wait_for(stage.topics.audit, 2, running=[first])
        first.close()  # SIGKILL to it and all its children
    stage.send([*played(range(2, 5)), *leaning(5), closing(5)])
    with warm.start(*arguments) as second:
        stage.wait_for_outputs(wanted, running=[second])
        assert second.terminate() == 0
    assert stage.published() == wanted
    assert stage.epochs(stage.topics.audit)[0] < stage.epochs(stage.topics.audit)[-1]
