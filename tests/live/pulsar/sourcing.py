"""A program for the warm process: a Spark query takes all there is on a topic, and what it takes is kept in a file.

`-m tests.live.pulsar.sourcing OPTIONS CHECKPOINT TAKEN`: the source's options as JSON, the query's checkpoint, and a file
that gets a line for each message, in the order of the batches.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from streaming.settings import Settings, SparkSettings
from streaming.spark import pulsar_source, session


def main(arguments: Sequence[str]) -> None:
    """Ends when it has taken everything that was there at the start."""
    options, checkpoint, taken = arguments
    spark = (
        session.Start().connect(Settings(spark=SparkSettings(master="local[1]", driver_memory="512m"))).spark
    )

    def keep(batch: DataFrame, _id: int) -> None:
        with Path(taken).open("a") as lines:
            lines.writelines(f"{bytes(row.value).decode()}\n" for row in batch.collect())

    try:
        pulsar_source.register(spark)
        frame = spark.readStream.format("pulsar").options(**json.loads(options)).load()
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
