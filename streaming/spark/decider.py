"""What the operator does with one cluster's records of a micro-batch. It is sent to Spark's workers, pickled.

It is apart from ``operator``, which Spark loads at each start of a query only to get the state variables, because it loads all that decides.

Spark hands over the rows of a cluster one by one, in no promised order. All of them have to be seen before the first can
be taken, and a batch may hold 2,000 records of 32 MiB. So only the first ``IN_MEMORY_BYTES`` of values stay in memory; those
that come later wait compressed in a temporary file, and only their order and their place in it are kept. The value of a large record
comes in chunks, a row each, because Spark's own sort keeps some rows of each of its files in memory.
"""

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import IO

import pyarrow as pa
from pyspark.sql import Row

from state.closing import Identity
from state.controller import Controller
from state.settings import SettingsSource
from state.store import Store
from streaming.contract.encode import Origin, source_of
from streaming.settings.identity import EVERY_CLUSTER, AcceptedClusters
from streaming.spark.rows import observation_row, output_row, refused_row
from streaming.transport.intake import Intake, Record, encode_observation, event_observation

IN_MEMORY_BYTES = 64 * 1024 * 1024
"""A round of 1,000 brokers is about 4 MB: an ordinary batch, also one that catches up, never reaches the file."""
_CODEC = "lz4"
_WHERE = 4
"""Numbers that say where a chunk is in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Decides on records for the controller ``name``."""

    name: str
    identity: Identity
    settings: SettingsSource
    max_record_bytes: int
    accepted: AcceptedClusters = EVERY_CLUSTER

    def decide(self, cluster: str, rows: Iterator[Row], store: Store) -> Iterator[Row]:
        """Rows of ``OUTPUT_SCHEMA``; the store is written at the end."""
        source = source_of(self.name)
        controller: Controller | None = None

        def controller_of(_cluster: str) -> Controller:
            nonlocal controller
            if controller is None:
                controller = Controller(cluster, store, identity=self.identity, settings=self.settings)
            return controller

        intake = Intake(controller_of, max_record_bytes=self.max_record_bytes, accepted=self.accepted)
        for record in in_source_order((_record(row), row.chunk) for row in rows):
            outputs, refused = intake.take(record)
            for output in outputs:
                yield output_row(output, source)
            if refused is not None:
                yield refused_row(refused, source)
        forgotten = controller is not None and controller.is_forgotten
        if controller is not None:
            controller.commit()
        is_known = controller is not None and controller.is_known
        observation = event_observation(
            cluster if is_known or forgotten else "", intake.tally, forgotten=forgotten
        )
        yield observation_row(cluster, encode_observation(observation))


def _record(row: Row) -> Record:
    oversize = None if row.oversize_bytes is None else (int(row.oversize_bytes), str(row.sha256))
    return Record(
        value=None if row.value is None else bytes(row.value),
        origin=Origin(topic=row.topic, partition=row.partition, offset=row.offset),
        key=row.key,
        appended_ms=row.appended_ms,
        is_control=row.is_control,
        oversize=oversize,
    )


class _Spool:
    """Values in a file without a name, on the disk Spark uses for its own; it is gone when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._end = 0

    def put(self, value: bytes) -> tuple[int, int, int]:
        """Write a value; returns its place in the file, its bytes there, and the bytes of the value."""
        packed = pa.compress(value, codec=_CODEC, asbytes=True)
        self._file.write(packed)
        place, self._end = self._end, self._end + len(packed)
        return place, len(packed), len(value)

    def get(self, place: int, spooled_bytes: int, value_bytes: int) -> bytes:
        self._file.seek(place)
        packed = self._file.read(spooled_bytes)
        value: bytes = pa.decompress(packed, decompressed_size=value_bytes, codec=_CODEC, asbytes=True)
        return value


class _PartialRecord:
    """A record with the chunks seen so far: those in memory, and where in the file the others are, each by its number."""

    __slots__ = ("_head", "_spooled", "_values")

    def __init__(self, head: Record) -> None:
        """``head`` is the chunk that was seen first, without its value if that is in the file."""
        self._head = head
        self._values: dict[int, bytes] = {}
        self._spooled = array("q")
        """For each chunk in the file its number, place, bytes there and bytes of the value; a batch may have 256,000 chunks."""

    def keep(self, number: int, value: bytes) -> None:
        self._values[number] = value

    def keep_spooled(self, number: int, where: tuple[int, int, int]) -> None:
        self._spooled.extend((number, *where))

    def join(self, spool: _Spool | None) -> Record:
        """The record; ``spool`` holds the chunks that are not in memory."""
        values = self._values
        if len(values) <= 1 and not self._spooled:
            return self._head
        for at in range(0, len(self._spooled), _WHERE):
            assert spool is not None, "pass the spool: some chunks of this record are in its file"
            number, *where = self._spooled[at : at + _WHERE]
            values[number] = spool.get(*where)
        return replace(self._head, value=b"".join(values[number] for number in sorted(values)))


def in_source_order(
    chunks: Iterable[tuple[Record, int]], *, in_memory_bytes: int = IN_MEMORY_BYTES
) -> Iterator[Record]:
    """Whole records in the order of their origins; control first, so that an operator's pause takes effect as early as possible.

    A chunk is a record with a part of its value, and the part's number. Raises ``OSError`` for a full disk.
    """
    # The directory that Spark's workers may write to; outside of a worker the machine's default.
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with ExitStack() as stack:
        spool: _Spool | None = None
        room_bytes = in_memory_bytes
        taken: dict[tuple[bool, Origin], _PartialRecord] = {}
        for chunk, number in chunks:
            value, order = chunk.value or b"", (not chunk.is_control, chunk.origin)
            is_kept = len(value) <= room_bytes
            known = taken.get(order)
            if known is None:
                known = taken[order] = _PartialRecord(chunk if is_kept else replace(chunk, value=None))
            if is_kept:
                room_bytes -= len(value)
                known.keep(number, value)
                continue
            if spool is None:
                spool = _Spool(stack.enter_context(tempfile.TemporaryFile(dir=directory)))
            known.keep_spooled(number, spool.put(value))
        for order in sorted(taken):
            yield taken.pop(order).join(spool)
