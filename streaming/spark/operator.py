"""The stateful operator: it passes one cluster's records of a micro-batch to that cluster's controller.

Invariants: a cluster's records are taken in source order (Spark does not promise it, so their coordinates travel
along); memory is written once, after the last record; what is yielded depends on the records and the memory alone.
Runs in Spark's Python workers; knows no clock, no broker and no metrics.

At each start of a query Spark starts a Python process only to get the state variables, and plans no batch before it has them.
So this module has to load quickly, and a processor carries ``Decider`` pickled: that saves half a second of CPU in a fail-over.

Spark's JVM hands bytes of the state to Python as text and makes that text character by character. So memory lies packed in the state:
a third to a half as many bytes, also in the checkpoint.
"""

import gc
import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from state.store import StoredKey

_VALUE = StructType([StructField("value", BinaryType())])
_WAITING_KEY = StructType(
    [
        StructField("round", LongType()),
        StructField("number", LongType()),
    ]
)


class SparkStore:
    """``state.store.Store`` on Spark's state handle."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._header: ValueState = handle.getValueState("header", _VALUE)
        self._fleet: ValueState = handle.getValueState("fleet", _VALUE)
        self._waiting: MapState = handle.getMapState("waiting", _WAITING_KEY, _VALUE)

    def header(self) -> bytes | None:
        return _value(self._header.get())

    def put_header(self, value: bytes) -> None:
        self._header.update((pack(value),))

    def fleet(self) -> bytes | None:
        return _value(self._fleet.get())

    def put_fleet(self, value: bytes) -> None:
        self._fleet.update((pack(value),))

    def all_waiting(self) -> Iterator[tuple[StoredKey, bytes]]:
        for key, value in self._waiting.iterator():
            yield StoredKey(int(key[0]), int(key[1])), unpack(value[0])

    def put_waiting(self, key: StoredKey, value: bytes) -> None:
        self._waiting.updateValue(key, (pack(value),))

    def remove_waiting(self, key: StoredKey) -> None:
        self._waiting.removeKey(key)

    def clear_waiting(self) -> None:
        self._waiting.clear()

    def clear(self) -> None:
        self._header.clear()
        self._fleet.clear()
        self._waiting.clear()


def _value(row: tuple[Any, ...] | None) -> bytes | None:
    return None if row is None else unpack(row[0])


@cache
def _freeze_once() -> None:
    """Spare full collections what a worker has loaded by now and keeps until it ends: they took a tenth of a second each.

    Only once, not with every task: objects that are in a cycle at a freeze are never freed.
    """
    gc.freeze()


def at_cluster(cluster: str) -> str:
    """The note on an error of the operator that names the cluster whose records it was about."""
    return f"while the records of the cluster {cluster!r} were taken"


class ClusterProcessor(StatefulProcessor):
    """``transformWithState`` keyed by cluster; no timers, so an idle topic costs no batches."""

    def __init__(self, **options: Any) -> None:
        """``options`` are those of ``Decider``."""
        from streaming.spark.decider import Decider  # noqa: PLC0415  see above

        self._pickled = pickle.dumps(Decider(**options))
        self._decider: Decider | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Bind the state variables of this task."""
        self._store = SparkStore(handle)

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803  Spark passes it by keyword
    ) -> Iterator[Row]:
        """Decide on all records of one cluster in this micro-batch; an error names the cluster."""
        cluster = str(key[0])
        try:
            if self._decider is None:
                self._decider = pickle.loads(self._pickled)  # noqa: S301  our own
                _freeze_once()
            yield from self._decider.decide(cluster, rows, self._store)
        except Exception as error:
            error.add_note(at_cluster(cluster))
            raise

    def close(self) -> None:
        """Nothing to release: the state belongs to Spark."""


_CODEC = "zstd"
_MARK = b"\xff"
"""First byte of a packed value. Without it a value begins with the version of its layout (``state.layouts``), and a trimtab that
knows no packed values says that a newer one wrote it."""
_SIZE_BYTES = 4
_FEWEST_BYTES = 256
"""Shorter values hardly become shorter."""


def pack(value: bytes) -> bytes:
    """The value as it is stored."""
    if len(value) < _FEWEST_BYTES:
        return value
    import pyarrow as pa  # noqa: PLC0415  a worker has it already, and what only asks for the state variables does not need it

    packed: bytes = pa.compress(value, codec=_CODEC, asbytes=True)
    return b"".join((_MARK, len(value).to_bytes(_SIZE_BYTES, "little"), packed))


def unpack(stored: bytes | bytearray) -> bytes:
    """The value that was stored."""
    if stored[:1] != _MARK:
        return bytes(stored)
    import pyarrow as pa  # noqa: PLC0415  as above

    head = len(_MARK) + _SIZE_BYTES
    size = int.from_bytes(stored[len(_MARK) : head], "little")
    value: bytes = pa.decompress(
        memoryview(stored)[head:], decompressed_size=size, codec=_CODEC, asbytes=True
    )
    return value
