"""A micro-batch as Spark hands it to the driver."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from streaming.ports.places import Progress
from streaming.spark.rows import OutputRow


class Batch:
    """A batch whose rows are not collected yet; ``id`` is Spark's batch number. ``planned`` returns how far it reads the input."""

    def __init__(self, frame: DataFrame, batch_id: int, planned: Callable[[], Progress] = Progress) -> None:
        self.id = batch_id
        self._frame = frame
        self._planned = planned

    def collect(self) -> Sequence[OutputRow]:
        """All rows of the batch, in no fixed order. They are consumed whole, because Spark's state commit depends on it.

        Arrow hands bytes over as they are; Spark's rows are pickled, and the JVM pickles bytes one by one.
        """
        columns = [column.to_pylist() for column in self._frame.toArrow().columns]
        return [OutputRow(*values) for values in zip(*columns, strict=True)]

    def read_until(self) -> Progress | None:
        """How far this batch reads the input; None where that is not known. Raises ``CheckpointError``."""
        planned = self._planned()
        return planned if planned.places else None

    @property
    def query_id(self) -> str:
        """Spark's id of the query that runs this batch; known while the batch runs."""
        context = self._frame.sparkSession.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId"))
