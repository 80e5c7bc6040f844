"""One cluster's records of a micro-batch in source order, in bounded memory.

Spark hands the rows of a cluster over one by one, in no order it promises. All of them have to be seen before the first can
be taken, and a batch may hold 2,000 records of 32 MiB. So only the first ``IN_MEMORY_BYTES`` of values stay in memory; those
that come later wait compressed in a temporary file, and only their order and their place in it are kept.

The value of a large record comes in chunks, a row each, because Spark's own sort keeps some rows of each of its files in memory.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import IO

import pyarrow as pa

from streaming.contract.origin import Origin
from streaming.intake.records import Record

__all__ = ["IN_MEMORY_BYTES", "in_source_order"]

IN_MEMORY_BYTES = 64 * 1024 * 1024
"""A round of 1,000 brokers is about 4 MB: an ordinary batch, also one that catches up, never reaches the file."""
_CODEC = "lz4"

_Order = tuple[bool, Origin, int]


@dataclass(frozen=True, slots=True)
class _Spooled:
    """A chunk whose value is in the file."""

    head: Record
    place: int
    spooled_bytes: int
    value_bytes: int


class _Spool:
    """The values in a file without a name, on the disk Spark uses for its own; it is gone when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._end = 0

    def put(self, chunk: Record) -> _Spooled:
        value = chunk.value or b""
        packed = pa.compress(value, codec=_CODEC, asbytes=True)
        self._file.write(packed)
        place, self._end = self._end, self._end + len(packed)
        return _Spooled(replace(chunk, value=None), place, len(packed), len(value))

    def get(self, found: _Spooled) -> Record:
        self._file.seek(found.place)
        packed = self._file.read(found.spooled_bytes)
        value = pa.decompress(packed, decompressed_size=found.value_bytes, codec=_CODEC, asbytes=True)
        return replace(found.head, value=value)


def in_source_order(
    chunks: Iterable[tuple[Record, int]], *, in_memory_bytes: int = IN_MEMORY_BYTES
) -> Iterator[Record]:
    """Whole records, by where they came from; control first: an operator's pause takes effect as early as it can.

    A chunk is a record with a part of its value, and the part's number. Raises ``OSError`` for a full disk.
    """
    ordered = _sorted(chunks, in_memory_bytes=in_memory_bytes)
    for _, found in groupby(ordered, key=attrgetter("origin")):
        first, *more = found
        yield replace(first, value=b"".join(each.value or b"" for each in (first, *more))) if more else first


def _sorted(chunks: Iterable[tuple[Record, int]], *, in_memory_bytes: int) -> Iterator[Record]:
    with ExitStack() as stack:
        spool: _Spool | None = None
        room_bytes = in_memory_bytes
        taken: list[tuple[_Order, Record | _Spooled]] = []
        for chunk, number in chunks:
            order = (not chunk.is_control, chunk.origin, number)
            size = len(chunk.value or b"")
            if size <= room_bytes:
                room_bytes -= size
                taken.append((order, chunk))
                continue
            if spool is None:
                spool = _Spool(stack.enter_context(tempfile.TemporaryFile(dir=_directory())))
            taken.append((order, spool.put(chunk)))
        taken.sort(key=itemgetter(0), reverse=True)
        while taken:
            _, each = taken.pop()
            if isinstance(each, _Spooled):
                assert spool is not None, "a spooled chunk has a spool"
                each = spool.get(each)
            yield each


def _directory() -> str | None:
    """Where Spark's workers may write; None, the machine's own choice, outside of one."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
