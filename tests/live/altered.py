"""The operator with something done before and after each cluster's records of a batch; for tests that make it misbehave."""

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Row

from streaming.spark import query
from streaming.spark.operator import ClusterProcessor, SparkStore

Before = Callable[[str], None]
After = Callable[[str, SparkStore], None]


class AlteredProcessor(ClusterProcessor):
    """Travels into Spark's workers with what it is to do."""

    before: Before
    after: After

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803  Spark passes it by keyword
    ) -> Iterator[Row]:
        """Do the usual work between ``before`` and ``after``."""
        self.before(str(key[0]))
        yield from super().handleInputRows(key, rows, timerValues)
        self.after(str(key[0]), self._store)


def alter(*, before: Before = lambda _: None, after: After = lambda *_: None) -> Callable[[], None]:
    """Let the query use it; returns a function that takes it back."""

    def made(**options: Any) -> AlteredProcessor:
        processor = AlteredProcessor(**options)
        processor.before, processor.after = before, after
        return processor

    plain = query.ClusterProcessor
    query.ClusterProcessor = made  # type: ignore[assignment,misc]

    def restore() -> None:
        query.ClusterProcessor = plain  # type: ignore[misc]

    return restore
