"""Which of a checkpoint's log files cannot be read: Spark's error about a torn file does not name it.

Spark writes ``offsets/N`` and ``commits/N`` as a line ``v1`` and lines of JSON. Only the newest of each are looked at, for those
are what a start reads. A file torn at the end of a line may look whole.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from streaming.spark.errors import spark_errors

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
