"""Whether the checkpoint's store and Spark's local directories take a file and give it back.

On a Spark cluster only the driver's local directories are looked at.
"""

import os
import secrets
from pathlib import Path

from pyspark.sql import SparkSession

from streaming.spark.errors import spark_errors

PROBE_BYTES = 1024 * 1024
"""More than the last free block of a disk that is almost full, and quickly written."""
_NAME = ".trimtab-probe-"


def probe_store(spark: SparkSession, location: str) -> None:
    """Probe the store through Hadoop's file system, as Spark writes there. Raises ``SparkError`` or ``OSError``."""
    with spark_errors():
        _probe_store(spark, location)


def _probe_store(spark: SparkSession, location: str) -> None:
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


def probe_local(spark: SparkSession) -> None:
    """Probe the directories that the shuffle spills to. Raises ``SparkError`` or ``OSError``."""
    with spark_errors():
        directories = _local_directories(spark)
    for directory in directories:
        file = Path(directory) / f"{_NAME}{secrets.token_hex(8)}"
        written = secrets.token_bytes(PROBE_BYTES)
        try:
            with file.open("wb") as stream:
                stream.write(written)
                stream.flush()
                os.fsync(stream.fileno())
            _compare(written, file.read_bytes(), directory)
        finally:
            file.unlink(missing_ok=True)


def _local_directories(spark: SparkSession) -> list[str]:
    blocks = spark._jsc.sc().env().blockManager().diskBlockManager()  # noqa: SLF001
    return [str(directory) for directory in blocks.localDirsString()]


def _compare(written: bytes, read: bytes, where: str) -> None:
    if written != read:
        raise OSError(f"{where} returns other bytes than were written there: check the disk")
