"""Whether the checkpoint and Spark's local directories are sound: a file that is written comes back, and the newest log files are whole.

They are looked at after a failure; Spark's error about a torn file does not name it. Spark writes ``offsets/N`` and ``commits/N`` as a
line ``v1`` and lines of JSON. Only the newest of each are looked at, for those are what a start reads, and a file torn at the end of a
line may look whole. On a Spark cluster only the driver's local directories are looked at.
"""

import os
import re
import secrets
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from streaming.spark.failures import spark_errors
from streaming.spark.files import Files
from streaming.transport.checkpoint import PROBE, PROBE_BYTES, all_starts

_NEWEST_COUNT = 2
_VERSION = re.compile(r"v[0-9]+")


def probe_store(spark: SparkSession, location: str) -> None:
    """Probe the store through Hadoop's file system, as Spark writes there. Raises ``SparkError`` or ``OSError``."""
    written, name = secrets.token_bytes(PROBE_BYTES), f"{PROBE}{secrets.token_hex(8)}"
    with spark_errors():
        files = Files(spark, location)
        try:
            files.write(name, written)
            read = files.read(name)
        finally:
            files.delete(name)
    _compare(written, read, location)


def probe_local(spark: SparkSession) -> None:
    """Probe the directories that the shuffle spills to. Raises ``SparkError`` or ``OSError``."""
    with spark_errors():
        blocks = spark._jsc.sc().env().blockManager().diskBlockManager()  # noqa: SLF001  pyspark has no public way to it
        directories = [str(directory) for directory in blocks.localDirsString()]
    for directory in directories:
        file = Path(directory) / f"{PROBE}{secrets.token_hex(8)}"
        written = secrets.token_bytes(PROBE_BYTES)
        try:
            with file.open("wb") as stream:
                stream.write(written)
                stream.flush()
                os.fsync(stream.fileno())
            _compare(written, file.read_bytes(), directory)
        finally:
            file.unlink(missing_ok=True)


def _compare(written: bytes, read: bytes | None, where: str) -> None:
    if written != read:
        raise OSError(f"{where} returns other bytes than were written there: check the disk")


def damaged_files(spark: SparkSession, location: str) -> list[str]:
    """Newest files of the logs that are empty or torn. Raises ``SparkError`` where the store does not answer."""
    with spark_errors():
        files = Files(spark, location)
        newest = [
            f"{log}/{number}"
            for start in all_starts(files)
            for log in (start.file("offsets"), start.file("commits"))
            for number in sorted(int(name) for name in files.names(log) if name.isdecimal())[-_NEWEST_COUNT:]
        ]
        return [files.address(name) for name in newest if not is_whole(files.read(name) or b"")]


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
