"""``trimtab run`` with an operator that only counts: what Spark and Kafka take before anything is decided.

Everything else is the application's own: source, state store, publisher, settings, options.
"""

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from streaming.cli import main
from streaming.spark import query
from streaming.spark.rows import ACTION

_COUNT = StructType([StructField("value", LongType())])


def _decision(cluster: str, count: int) -> bytes:
    """As little of an action as the driver's log and follow-up read; it is a throttle, because none of those is followed up."""
    event = {
        "id": f"{cluster}-{count}",
        "type": "trimtab.action.throttle.v1",
        "cluster": cluster,
        "time": "2026-01-01T00:00:00Z",
        "data": {"round": count, "reason": "counted"},
    }
    return msgspec.json.encode(event)


class CountingProcessor(StatefulProcessor):
    """Keeps one number, emits one row for each batch of a cluster."""

    def __init__(self, **_: object) -> None:
        """Takes what the real one takes, and needs none of it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Bind the counter."""
        self._count = handle.getValueState("count", _COUNT)

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803  Spark passes it by keyword
    ) -> Iterator[Row]:
        """Count the records."""
        known = self._count.get()
        count = sum(1 for _ in rows) + (0 if known is None else int(known[0]))
        self._count.update((count,))
        yield Row(
            kind=ACTION,
            key=str(key[0]),
            round=count,
            place=0,
            value=_decision(str(key[0]), count),
            topic=None,
            partition=None,
            offset=None,
        )

    def close(self) -> None:
        """Nothing to release."""


if __name__ == "__main__":
    # Imported, not __main__'s own: Spark's workers find the class by its module's name.
    from tests.bench.empty_operator import CountingProcessor as Imported

    with patch.object(query, "ClusterProcessor", Imported):
        main(args=sys.argv[1:], prog_name="trimtab")
