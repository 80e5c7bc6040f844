"""A micro-batch as Spark hands it to the driver."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from streaming.spark.rows import OutputRow


class Batch:
    """A batch whose rows are not collected yet; ``id`` is Spark's batch number."""

    def __init__(self, frame: DataFrame, batch_id: int) -> None:
        self.id = batch_id
        self._frame = frame

    def collect(self) -> Sequence[OutputRow]:
        """All rows of the batch, in no fixed order. They are consumed whole, because Spark's state commit depends on it.

        Arrow hands bytes over as they are; Spark's rows are pickled, and the JVM pickles bytes one by one.
        """
        columns = [column.to_pylist() for column in self._frame.toArrow().columns]
        return [OutputRow(*values) for values in zip(*columns, strict=True)]

    @property
    def query_id(self) -> str:
        """Spark's id of the query that runs this batch; known while the batch runs."""
        context = self._frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId"))
