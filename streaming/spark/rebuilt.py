"""Memory that was rebuilt outside Spark, as the initial state of a new query.

``transformWithState`` takes it in batch 0, for all clusters, also for those without records there, and before any records. We saw
Spark 4.1 take it again when batch 0 runs again, and never after the commit of batch 0: a query that is restarted after that may have
no initial state, an empty one, or the same. A restart before that commit would begin without memory unless it were given again, so
it is refused (``streaming.spark.checkpoint``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import GroupedData, Row, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from state.engine.store import Store, StoredKey
from streaming.ports.places import Progress

_WAITING = StructType(
    [
        StructField("round", LongType(), nullable=False),
        StructField("number", LongType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
    ]
)
_SCHEMA = StructType(
    [
        StructField("cluster", StringType(), nullable=False),
        StructField("header", BinaryType(), nullable=False),
        StructField("fleet", BinaryType(), nullable=True),
        StructField("waiting", ArrayType(_WAITING), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMemory:
    """What the store of a cluster holds."""

    cluster: str
    header: bytes
    fleet: bytes | None
    waiting: Sequence[tuple[StoredKey, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Memory of all clusters, and how far the input was read for it."""

    memories: Sequence[ClusterMemory]
    read_until: Progress


def initial_state(spark: SparkSession, memories: Sequence[ClusterMemory]) -> GroupedData:
    """The initial state for ``transformWithState``, grouped by cluster like its input."""
    rows = [
        (each.cluster, each.header, each.fleet, [(*key, value) for key, value in each.waiting])
        for each in memories
    ]
    return spark.createDataFrame(rows, _SCHEMA).groupBy("cluster")


def put(store: Store, row: Row) -> None:
    """Put a row of ``initial_state`` into the store of its cluster."""
    store.put_header(bytes(row.header))
    if row.fleet is not None:
        store.put_fleet(bytes(row.fleet))
    for key, value in _waiting(row):
        store.put_waiting(key, value)


def _waiting(row: Row) -> Iterator[tuple[StoredKey, bytes]]:
    for each in row.waiting:  # Spark hands over the structs of an array as dicts
        key = StoredKey(int(each["round"]), int(each["number"]))
        yield key, bytes(each["value"])
