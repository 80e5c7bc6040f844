"""One cluster's records of a micro-batch in source order, in bounded memory.

Spark hands the rows of a cluster over one by one, in no order it promises. All of them have to be seen before the first can
be taken, and a batch may hold 2,000 records of 32 MiB. So only the first ``IN_MEMORY_BYTES`` of values stay in memory; those
that come later wait compressed in a temporary file, and only their order and their place in it are kept.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import IO, Any

import pyarrow as pa

from streaming.intake import Record

__all__ = ["IN_MEMORY_BYTES", "in_order"]

IN_MEMORY_BYTES = 64 * 1024 * 1024
"""A round of 1,000 brokers is about 4 MB: an ordinary batch, also one that catches up, never reaches the file."""
_CODEC = "lz4"


@dataclass(frozen=True, slots=True)
class _Spooled:
    """A record whose value is in the file."""

    head: Record
    place: int
    spooled_bytes: int
    value_bytes: int


class _Spool:
    """The values in a file without a name, on the disk Spark uses for its own; it is gone when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._end = 0

    def put(self, record: Record) -> _Spooled:
        value = record.value or b""
        packed = pa.compress(value, codec=_CODEC, asbytes=True)
        self._file.write(packed)
        place, self._end = self._end, self._end + len(packed)
        return _Spooled(replace(record, value=None), place, len(packed), len(value))

    def get(self, found: _Spooled) -> Record:
        self._file.seek(found.place)
        packed = self._file.read(found.spooled_bytes)
        value = pa.decompress(packed, decompressed_size=found.value_bytes, codec=_CODEC, asbytes=True)
        return replace(found.head, value=value)


def in_order(
    records: Iterable[Record], order: Callable[[Record], Any], *, in_memory_bytes: int = IN_MEMORY_BYTES
) -> Iterator[Record]:
    """The records ascending by ``order``, which must not look at their values. Raises ``OSError`` for a full disk."""
    with ExitStack() as stack:
        spool: _Spool | None = None
        room_bytes = in_memory_bytes
        taken: list[tuple[Any, Record | _Spooled]] = []
        for record in records:
            size = len(record.value or b"")
            if size <= room_bytes:
                room_bytes -= size
                taken.append((order(record), record))
                continue
            if spool is None:
                spool = _Spool(stack.enter_context(tempfile.TemporaryFile(dir=_directory())))
            taken.append((order(record), spool.put(record)))
        taken.sort(key=itemgetter(0), reverse=True)
        while taken:
            _, each = taken.pop()
            if isinstance(each, _Spooled):
                assert spool is not None, "a spooled record has a spool"
                each = spool.get(each)
            yield each


def _directory() -> str | None:
    """Where Spark's workers may write; None, the machine's own choice, outside of one."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
