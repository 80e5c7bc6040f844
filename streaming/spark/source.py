"""The source, on Kafka or Pulsar: input and control topics as the operator's input rows.

Records stay bytes: the key alone decides the cluster, and JSON is decoded once, in the operator. A record above
``max_record_bytes`` is cut to its head, with its size and hash, so that one record cannot exhaust a worker. A key is text in
the worker, so bytes in it that are not UTF-8 are replaced: otherwise Python could not read the row, and the query would fail
for ever. On Pulsar the offset is a message's packed place, the append time is the publish time, and a topic without partitions counts as
partition 0.

Invariant: a batch holds every control record that exists when it is planned, also when the input is too long for one batch.
Otherwise a pause would come after the rounds it is meant for, and how late would depend on the size of a batch.
"""

import json
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from streaming.contract.encode import MAX_QUOTED_BYTES
from streaming.contract.messages import CLUSTER_PATTERN
from streaming.kafka.link import input_link
from streaming.kafka.side import first_offsets
from streaming.settings import Settings
from streaming.spark.rows import INPUT_SCHEMA
from streaming.transport.side import Begin

_FETCH_WAIT_MS = "20"
"""Kafka's default of 500 would hold every micro-batch back for that long."""
_ANSWER_MS, _ATTEMPTS = "10000", "1"
"""How long and how often Spark tries a broker that is down: its own defaults add up to three minutes without a message."""
_POLL_RECORDS = "4"
"""Records that Kafka's consumer unpacks at once. A fetch of 1 MB may hold many that compress well: with its default of 500,
records of 32 MiB would take 16 GB of heap, and 8 are too many for a heap of 640 MB. After each poll Spark asks the broker twice for the
log's offsets: with one record a poll, each record would take 1 ms more."""
_CHUNK_BYTES = 262_144
"""Bytes of a record's value in one row. When Spark's sort by cluster has spilled, it reads a row of each of its files at once: some
300 files for a batch of 2,000 records of 32 MiB."""


def records(
    spark: SparkSession,
    settings: Settings,
    starting: str,
    *,
    skips_lost: bool = False,
    only_looks: bool = False,
) -> DataFrame:
    """A streaming frame with the columns of ``INPUT_SCHEMA``; ``starting`` counts at a first start only, and control begins at its beginning.

    With ``skips_lost`` it goes on where the logs begin now; otherwise the query ends if records are gone that it has not read. With
    ``only_looks`` it keeps nothing from being trimmed, and moves no subscription.
    """
    topics, is_pulsar = settings.topics, settings.input.is_pulsar
    read = partial(
        _pulsar_topic if is_pulsar else _kafka_topic,
        spark,
        settings,
        skips_lost=skips_lost,
        only_looks=only_looks,
    )
    most = settings.spark.max_records_per_trigger_count
    frame = read(topics.input, starting, most=most).union(read(topics.control, "earliest", most=None))
    control = settings.input.pulsar.full_name(topics.control) if is_pulsar else topics.control
    key = F.make_valid_utf8(F.coalesce(F.col("key").cast("string"), F.lit("")))
    size = F.length("value")
    is_oversize = size > settings.controller.max_record_bytes
    value = F.when(is_oversize, F.substring("value", 1, MAX_QUOTED_BYTES)).otherwise(F.col("value"))
    cut = frame.select(
        F.when(key.rlike(CLUSTER_PATTERN), key).otherwise("").alias("cluster"),
        key.alias("key"),
        _chunks(value).alias("chunks"),
        F.when(is_oversize, size.cast("long")).alias("oversize_bytes"),
        F.when(is_oversize, F.sha2("value", 256)).alias("sha256"),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis("timestamp").alias("appended_ms"),
        (F.col("topic") == control).alias("is_control"),
    )
    # In a select of its own: beside other columns that use the value, each chunk's row would carry the whole value.
    return cut.select("*", F.posexplode("chunks").alias("chunk", "value")).select(*INPUT_SCHEMA.fieldNames())


def _chunks(value: Column) -> Column:
    """An array of a value's parts, in their order; nearly every value has only one.

    The value is bound to a variable: Spark copies a column's bytes each time it is named, which would be once for each part.
    """
    most = F.lit(_CHUNK_BYTES)

    def cut(bound: Column) -> Column:
        starts = F.sequence(F.lit(1), F.length(bound), most)
        return F.transform(starts, lambda start: F.substring(bound, start, most))

    whole = F.array(value)
    return F.when(F.length(value) > most, F.flatten(F.transform(whole, cut))).otherwise(whole)


def _kafka_topic(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    starting: str,
    *,
    most: int | None,
    skips_lost: bool,
    only_looks: bool,  # noqa: ARG001  a reader on Kafka leaves no traces
) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .options(**input_link(settings).spark_options())
        .option("kafka.bootstrap.servers", settings.input.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("failOnDataLoss", str(not skips_lost).lower())
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
        .option("kafka.max.poll.records", _POLL_RECORDS)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.default.api.timeout.ms", _ANSWER_MS)
        .option("kafka.request.timeout.ms", _ANSWER_MS)
        .option("fetchOffset.numRetries", _ATTEMPTS)
    )
    return (reader if most is None else reader.option("maxOffsetsPerTrigger", most)).load()


def starting_offsets(settings: Settings, begin: Begin) -> str:
    """Where a new query begins with the input, in the format of the source; control begins at its beginning."""
    if settings.input.is_pulsar:
        return str(max(0, begin) if isinstance(begin, int) else begin)
    topic = settings.topics.input
    return json.dumps({topic: first_offsets(input_link(settings), topic, begin)})


def _pulsar_topic(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    starting: str,
    *,
    most: int | None,
    skips_lost: bool,
    only_looks: bool,
) -> DataFrame:
    """A topic on Pulsar, with the columns that Kafka's source has."""
    from streaming.spark.pulsar_source import register  # noqa: PLC0415  brings the client

    register(spark)
    pulsar = settings.input.pulsar
    options = {
        "service_url": settings.input.url,
        "admin_url": pulsar.admin_url,
        "topics": pulsar.full_name(topic),
        "subscription": pulsar.subscription,
        "starting": starting,
        "max_entries_per_trigger": None if most is None else str(most),
        "fail_on_data_loss": str(not skips_lost).lower(),
        "moves_subscription": str(not only_looks).lower(),
        "token_file": pulsar.token_file,
        "ca_file": pulsar.ca_file,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return (
        spark.readStream.format("pulsar")
        .options(**given)
        .load()
        .select(
            "key",
            "value",
            "topic",
            F.greatest(F.col("partition"), F.lit(0)).alias("partition"),
            "offset",
            F.timestamp_millis("publish_ms").alias("timestamp"),
        )
    )
