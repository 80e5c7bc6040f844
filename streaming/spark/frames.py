"""The query's frame: what is read, and what decides on it.

To make one takes hundreds of calls into the JVM, a quarter of a second. So a standby makes it before its turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from streaming.kafka.link import input_link
from streaming.process.exits import WrongUse
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import AcceptedClusters, identity_of
from streaming.spark import source
from streaming.spark.operator import ClusterProcessor
from streaming.spark.rows import OUTPUT_SCHEMA

_CHECKPOINT_SAYS = source.Starting("earliest", "earliest")
"""Spark reads these only until the query has committed a batch; from then on the checkpoint counts."""


def decide_rows(rows: DataFrame, settings: Settings) -> DataFrame:
    """The decisions on input rows."""
    controller = settings.controller
    processor = ClusterProcessor(
        name=controller.name,
        identity=identity_of(settings),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=controller.max_record_bytes,
        accepted=AcceptedClusters(controller.accepted_clusters),
    )
    return rows.groupBy("cluster").transformWithState(
        statefulProcessor=processor,
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Update",
        timeMode="None",
    )


@dataclass(slots=True)
class Frames:
    """Keeps the frame of a query that goes on from its checkpoint, which is the same at each start."""

    spark: SparkSession
    settings: Settings
    _kept: DataFrame | None = field(init=False, default=None)
    _access: Mapping[str, str] = field(init=False, default_factory=dict)
    """The certificates and passwords that the kept frame was made with: their files may have been renewed since."""

    def prepare_frame(self) -> DataFrame:
        """The frame of a query that has committed a batch; made at the first call, and when the access to Kafka has changed.

        Raises ``WrongUse`` for a file that cannot be read at the first call; later the last access is kept: a new file may be coming.
        """
        try:
            access = self._read_access()
        except WrongUse:
            if self._kept is None:
                raise
            access = self._access
        if self._kept is None or access != self._access:
            rows = source.records(self.spark, self.settings, _CHECKPOINT_SAYS)
            self._kept, self._access = decide_rows(rows, self.settings), access
        return self._kept

    def _read_access(self) -> Mapping[str, str]:
        return {} if self.settings.input.is_pulsar else input_link(self.settings).spark_options()
