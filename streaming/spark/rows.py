"""Columns that travel into and out of the stateful operator."""

from typing import NamedTuple

from pyspark.sql import Row
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from state.outputs import Output
from streaming.contract.encode import RefusedRecord, encode, encode_refused

ACTION, DRY_RUN_ACTION, ROUND, REJECTED, OBSERVED = (
    "action",
    "dry-run-action",
    "round",
    "rejected",
    "observed",
)
"""Kinds of output row; ``OBSERVED`` is for the driver's metrics and is not published."""

OUTPUT_SCHEMA = StructType(
    [
        StructField("kind", StringType(), nullable=False),
        StructField("key", StringType(), nullable=False),
        StructField("round", LongType(), nullable=False),
        StructField("place", IntegerType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
        StructField("topic", StringType(), nullable=True),
        StructField("partition", IntegerType(), nullable=True),
        StructField("offset", LongType(), nullable=True),
    ]
)
"""One row per output, already encoded; the last three columns are the coordinates of a rejected record."""


class OutputRow(NamedTuple):
    """A row of ``OUTPUT_SCHEMA`` in the driver."""

    kind: str
    key: str
    round: int
    place: int
    value: bytes
    topic: str | None
    partition: int | None
    offset: int | None

    @property
    def coordinates(self) -> tuple[str, int, int] | None:
        """Where a rejected record is; None for other outputs."""
        if self.topic is None or self.partition is None or self.offset is None:
            return None
        return self.topic, self.partition, self.offset


INPUT_SCHEMA = StructType(
    [
        StructField("cluster", StringType(), nullable=False),
        StructField("key", StringType(), nullable=False),
        StructField("chunk", IntegerType(), nullable=False),
        StructField("value", BinaryType(), nullable=True),
        StructField("oversize_bytes", LongType(), nullable=True),
        StructField("sha256", StringType(), nullable=True),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("appended_ms", LongType(), nullable=False),
        StructField("is_control", BooleanType(), nullable=False),
    ]
)
"""One row for each chunk of a record's value; ``cluster`` is the state key, empty where the record's key is no valid cluster
name."""


def _row(kind: str, key: str, value: bytes, *, number: int = 0, place: int = 0) -> Row:
    return Row(
        kind=kind, key=key, round=number, place=place, value=value, topic=None, partition=None, offset=None
    )


def output_row(output: Output, source: str) -> Row:
    """Row of an action or a round summary."""
    kind = ROUND if output.kind == "round" else DRY_RUN_ACTION if output.dry_run else ACTION
    return _row(kind, output.cluster, encode(output, source), number=output.round, place=output.place)


def refused_row(record: RefusedRecord, source: str) -> Row:
    """Row of a refused record."""
    origin = record.origin
    return Row(
        kind=REJECTED,
        key=record.cluster,
        round=0,
        place=0,
        value=encode_refused(record, source),
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
    )


def observation_row(cluster: str, value: bytes) -> Row:
    """Row of an observation for the driver's metrics."""
    return _row(OBSERVED, cluster, value)
