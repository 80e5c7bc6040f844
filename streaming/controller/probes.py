"""Whether what surrounds the query works: brokers, the checkpoint's store, Spark's local directories.

Asked after a failure, so that an outage is never taken for a damaged checkpoint. Each probe does what the query would: it
asks the brokers for the topics, writes a file and reads it back. On a Spark cluster only the driver's local directories
are looked at.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streaming.kafka.topics import StartError
from streaming.settings import Settings
from streaming.systems.topics import validate_all

__all__ = ["failed_probe"]

PROBE_BYTES = 1024 * 1024
"""More than the last block of a disk that is all but full, and written in no time."""
_NAME = ".trimtab-probe-"


def failed_probe(spark: SparkSession, settings: Settings) -> str | None:
    """The first thing found not to work, told in a sentence; None where all does."""
    probes: Iterator[Callable[[], None]] = iter(
        (
            lambda: _ask_brokers(settings),
            lambda: _probe_store(spark, settings.spark.checkpoint),
            lambda: _probe_local(spark),
        )
    )
    for probe in probes:
        try:
            probe()
        except (StartError, Py4JError, OSError) as error:
            return str(error)
    return None


def _ask_brokers(settings: Settings) -> None:
    validate_all(settings)


def _probe_store(spark: SparkSession, location: str) -> None:
    """Through Hadoop's file system, as Spark writes there."""
    jvm = spark._jvm  # noqa: SLF001  pyspark has no public way to Hadoop's file systems
    assert jvm is not None, "a classic Spark session has a JVM"
    root = jvm.org.apache.hadoop.fs.Path(location)
    files = root.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    file = jvm.org.apache.hadoop.fs.Path(root, f"{_NAME}{secrets.token_hex(8)}")
    written = secrets.token_bytes(PROBE_BYTES)
    try:
        stream = files.create(file, True)
        try:
            stream.write(written)
        finally:
            stream.close()
        stream = files.open(file)
        try:
            read = bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
    finally:
        files.delete(file, False)
    _compare(written, read, location)


def _probe_local(spark: SparkSession) -> None:
    blocks = spark._jsc.sc().env().blockManager().diskBlockManager()  # noqa: SLF001
    for directory in blocks.localDirsString():
        file = Path(str(directory)) / f"{_NAME}{secrets.token_hex(8)}"
        written = secrets.token_bytes(PROBE_BYTES)
        try:
            with file.open("wb") as stream:
                stream.write(written)
                stream.flush()
                os.fsync(stream.fileno())
            _compare(written, file.read_bytes(), str(directory))
        finally:
            file.unlink(missing_ok=True)


def _compare(written: bytes, read: bytes, where: str) -> None:
    if written != read:
        raise OSError(f"{where} gives back other bytes than were written there: look at the disk")
