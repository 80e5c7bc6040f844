"""Input and control topics on Pulsar, with the columns that Kafka's source has.

``offset`` is a message's packed place; the append time is the publish time, and a topic without partitions counts as
partition 0. Loads the Pulsar client only when it is used.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from streaming.settings import Settings


def pulsar_records(
    spark: SparkSession,
    settings: Settings,
    starting: tuple[str, str],
    *,
    skips_lost: bool = False,
    only_looks: bool = False,
) -> DataFrame:
    """Input and control, each from where ``starting`` says; each batch has all control records there are.

    With ``only_looks`` it keeps nothing from being trimmed, and moves no subscription.
    """
    from streaming.spark.pulsar_source import register  # noqa: PLC0415  brings the client

    register(spark)
    topics = settings.topics
    most = settings.spark.max_records_per_trigger_count
    begins_at, control_begins_at = starting
    how = {
        "fail_on_data_loss": str(not skips_lost).lower(),
        "moves_subscription": str(not only_looks).lower(),
    }
    loads = _topic(spark, settings, topics.input, begins_at, max_entries_per_trigger=str(most), **how)
    frame = loads.union(_topic(spark, settings, topics.control, control_begins_at, **how))
    return frame.select(
        "key",
        "value",
        "topic",
        F.greatest(F.col("partition"), F.lit(0)).alias("partition"),
        "offset",
        F.timestamp_millis("publish_ms").alias("timestamp"),
    )


def _topic(spark: SparkSession, settings: Settings, topic: str, starting: str, **more: str) -> DataFrame:
    pulsar = settings.input.pulsar
    options = {
        "service_url": settings.input.url,
        "admin_url": pulsar.admin_url,
        "topics": pulsar.full_name(topic),
        "subscription": pulsar.subscription,
        "starting": starting,
        **more,
    }
    files = {"token_file": pulsar.token_file, "ca_file": pulsar.ca_file}
    given = {name: file for name, file in files.items() if file is not None}
    return spark.readStream.format("pulsar").options(**options, **given).load()
