"""A micro-batch as the driver is handed it."""

from collections.abc import Callable, Sequence
from typing import cast

from pyspark.sql import DataFrame

from streaming.ports.places import Progress
from streaming.spark.rows import OutputRow

__all__ = ["Batch"]


class Batch:
    """Not collected yet; ``id`` is Spark's number of it. ``planned`` says how far the input is read with it."""

    def __init__(self, frame: DataFrame, batch_id: int, planned: Callable[[], Progress] = Progress) -> None:
        self.id = batch_id
        self._frame = frame
        self._planned = planned

    def collect(self) -> Sequence[OutputRow]:
        """All of its rows, in no order: Spark's state commit depends on its being consumed whole."""
        return cast("list[OutputRow]", self._frame.collect())

    def read_until(self) -> Progress | None:
        """How far the input is read with it; None where nobody knows. Raises ``CheckpointError``."""
        planned = self._planned()
        return planned if planned.places else None

    @property
    def query_id(self) -> str:
        """Of the query that runs it; known while it runs."""
        context = self._frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId"))
