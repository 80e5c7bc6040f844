"""Whether the checkpoint and Spark's local directories are sound: a file that is written comes back, and the newest log files are whole.

They are looked at after a failure; Spark's error about a torn file does not name it. Spark writes ``offsets/N`` and ``commits/N`` as a
line ``v1`` and lines of JSON. Only the newest of each are looked at, for those are what a start reads, and a file torn at the end of a
line may look whole. On a Spark cluster only the driver's local directories are looked at.
"""

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from streaming.spark.failures import spark_errors

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


_NEWEST_COUNT = 2
_VERSION = re.compile(r"v[0-9]+")
_LOGS = "{offsets,commits,*/offsets,*/commits}"
"""The logs are in the checkpoint, or in a directory of one take-over below it."""


def is_whole(content: bytes) -> bool:
    """Whether a file of Spark's logs is complete as far as its lines show."""
    try:
        head, *lines = content.decode().splitlines()
        for line in lines:
            if line.strip() not in {"", "-"}:
                msgspec.json.decode(line)
    except (ValueError, msgspec.DecodeError):
        return False
    return _VERSION.fullmatch(head) is not None and bool(lines)


def damaged_files(spark: SparkSession, location: str) -> list[str]:
    """Newest files of the logs that are empty or torn. Raises ``SparkError`` where the store does not answer."""
    with spark_errors():
        return [
            str(file.toString())
            for folder in _find_matching(spark, location, _LOGS)
            for file in _newest(spark, str(folder.toString()))
            if not is_whole(_read(spark, file))
        ]


def _newest(spark: SparkSession, folder: str) -> Iterator[Any]:
    files = [file for file in _find_matching(spark, folder, "*") if str(file.getName()).isdecimal()]
    yield from sorted(files, key=lambda file: int(str(file.getName())))[-_NEWEST_COUNT:]


def _find_matching(spark: SparkSession, folder: str, pattern: str) -> list[Any]:
    """Hadoop's paths below a folder."""
    root = _path(spark, folder)
    pattern_path = spark._jvm.org.apache.hadoop.fs.Path(root, pattern)  # type: ignore[union-attr]  # noqa: SLF001
    return [status.getPath() for status in _files(spark, root).globStatus(pattern_path) or ()]


def _read(spark: SparkSession, file: Any) -> bytes:
    stream = _files(spark, file).open(file)
    try:
        return bytes(spark._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))  # type: ignore[union-attr]  # noqa: SLF001
    finally:
        stream.close()


def _path(spark: SparkSession, text: str) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(text)  # type: ignore[union-attr]  # noqa: SLF001


def _files(spark: SparkSession, path: Any) -> Any:
    """Hadoop's file system of a path; pyspark has no public way to it."""
    return path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
