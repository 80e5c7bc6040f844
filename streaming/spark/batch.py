"""A micro-batch as the driver is handed it."""

from collections.abc import Sequence
from typing import cast

from pyspark.sql import DataFrame

from streaming.spark.rows import OutputRow

__all__ = ["Batch"]


class Batch:
    """Not collected yet; ``id`` is Spark's number of it."""

    def __init__(self, frame: DataFrame, batch_id: int) -> None:
        self.id = batch_id
        self._frame = frame

    def collect(self) -> Sequence[OutputRow]:
        """All of its rows, in no order: Spark's state commit depends on its being consumed whole."""
        return cast("list[OutputRow]", self._frame.collect())

    @property
    def query_id(self) -> str:
        """Of the query that runs it; known while it runs."""
        context = self._frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId"))
