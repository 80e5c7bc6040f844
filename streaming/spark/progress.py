"""What Spark says of its last micro-batch, for the metrics: size of the state store, what is left to read.

Spark keeps it in the JVM; a look is one call and a few hundred bytes of JSON.
"""

from pyspark.sql.streaming.query import StreamingQuery

from streaming.metrics import Metrics

_BEHIND = "maxOffsetsBehindLatest"
"""Key of Spark's Kafka source, by partition the largest."""


def show_progress(query: StreamingQuery, metrics: Metrics) -> None:
    """Show the last progress, if there was one."""
    last = query.lastProgress
    if last is None:
        return
    behind = [float(source.metrics[_BEHIND]) for source in last.sources if _BEHIND in source.metrics]
    metrics.show_progress(
        state_rows=sum(operator.numRowsTotal for operator in last.stateOperators),
        state_memory_bytes=sum(operator.memoryUsedBytes for operator in last.stateOperators),
        input_behind_records=max(behind, default=None),
    )
