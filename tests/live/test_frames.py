"""The frame that a standby makes before its turn is the one it leads with, unless its access to Kafka was renewed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from state.closing import UNBOUNDED, MemoryStart
from streaming.process.exits import WrongUse
from streaming.settings import Settings, load
from streaming.spark.query import Frames
from streaming.spark.session import Start

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----")
    return path


@pytest.fixture
def settings(tmp_path: Path, certificate: Path) -> Settings:
    file = tmp_path / "trimtab.toml"
    file.write_text(
        f'[input]\nurl = "kafka://127.0.0.1:9"\n[input.security]\nprotocol = "ssl"\nca_file = "{certificate}"\n'
    )
    return load(file=file, flags={}, environ={}).settings


@pytest.fixture
def spark(settings: Settings) -> Iterator[SparkSession]:
    session = Start().connect(settings)
    yield session.spark
    session.stop()


def test_a_frame_is_made_again_for_a_renewed_certificate(
    spark: SparkSession, settings: Settings, certificate: Path
):
    frames = Frames(spark, settings)
    first = frames.prepare_frame(UNBOUNDED)
    assert frames.prepare_frame(UNBOUNDED) is first

    certificate.unlink()
    assert frames.prepare_frame(UNBOUNDED) is first, "a file that is being replaced is on its way"

    certificate.write_text("-----BEGIN CERTIFICATE----- renewed")
    renewed = frames.prepare_frame(UNBOUNDED)
    assert renewed is not first
    assert frames.prepare_frame(UNBOUNDED) is renewed

    assert frames.prepare_frame(MemoryStart(1)) is not renewed, "the checkpoint began anew"

    certificate.unlink()
    with pytest.raises(WrongUse, match=r"input\.security\.ca_file"):
        Frames(spark, settings).prepare_frame(UNBOUNDED)
