"""The source, on Kafka or Pulsar: input and control topics as the operator's input rows.

Records stay bytes: the key alone decides the cluster, and JSON is decoded once, in the operator. A record above
``max_record_bytes`` is cut to its head, with its size and hash, so that one record cannot exhaust a worker. A key is text in
the worker, so bytes in it that are not UTF-8 are replaced: otherwise Python could not read the row, and the query would fail
for ever.

Invariant: a batch holds every control record that exists when it is planned, also when the input is too long for one batch.
Otherwise a pause would come after the rounds it is meant for, and how late would depend on the size of a batch.
"""

import json
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.streaming.readwriter import DataStreamReader

from streaming.contract.encode import MAX_QUOTED_BYTES
from streaming.contract.messages import CLUSTER_PATTERN
from streaming.kafka.link import input_link
from streaming.kafka.reading import first_offsets
from streaming.settings import Settings
from streaming.spark.pulsar_records import pulsar_records
from streaming.spark.rows import INPUT_SCHEMA
from streaming.transport.side import Begin, Progress

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


class Starting(NamedTuple):
    """Where a new query begins, in the format of the source: for Kafka ``earliest`` or the JSON of the first offsets."""

    input: str
    control: str


def peek_records(spark: SparkSession, settings: Settings) -> DataFrame:
    """Like ``records``, from the beginning, for a reader that only looks: it skips what is lost, and moves no subscription."""
    beginning = Starting("earliest", "earliest")
    return records(spark, settings, beginning, skips_lost=True, only_looks=True)


def records(
    spark: SparkSession,
    settings: Settings,
    starting: Starting,
    *,
    skips_lost: bool = False,
    only_looks: bool = False,
) -> DataFrame:
    """A streaming frame with the columns of ``INPUT_SCHEMA``; ``starting`` counts at a first start only.

    With ``skips_lost`` it goes on where the logs begin now; otherwise the query ends if records are gone that it has not read.
    """
    topics = settings.topics
    if settings.input.is_pulsar:
        frame = pulsar_records(spark, settings, starting, skips_lost=skips_lost, only_looks=only_looks)
        control = settings.input.pulsar.full_name(topics.control)
    else:
        frame = _kafka_records(spark, settings, starting, skips_lost=skips_lost)
        control = topics.control
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


def _kafka_records(
    spark: SparkSession, settings: Settings, starting: Starting, *, skips_lost: bool
) -> DataFrame:
    topics, most = settings.topics, settings.spark.max_records_per_trigger_count
    loads = _topic(spark, settings, topics.input, starting.input).option("maxOffsetsPerTrigger", most)
    control = _topic(spark, settings, topics.control, starting.control)
    fails = str(not skips_lost).lower()
    loads, control = (each.option("failOnDataLoss", fails) for each in (loads, control))
    return loads.load().union(control.load())


def _topic(spark: SparkSession, settings: Settings, topic: str, starting_offsets: str) -> DataStreamReader:
    return (
        spark.readStream.format("kafka")
        .options(**input_link(settings).spark_options())
        .option("kafka.bootstrap.servers", settings.input.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", starting_offsets)
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
        .option("kafka.max.poll.records", _POLL_RECORDS)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.default.api.timeout.ms", _ANSWER_MS)
        .option("kafka.request.timeout.ms", _ANSWER_MS)
        .option("fetchOffset.numRetries", _ATTEMPTS)
    )


def starting_offsets(settings: Settings, begin: Begin | Progress) -> Starting:
    """Where input and control begin: after places that were read, or the input at ``begin`` and control at its beginning."""
    topics = settings.topics
    if isinstance(begin, Progress):
        return Starting(*(_offsets_after(settings, topic, begin) for topic in (topics.input, topics.control)))
    if settings.input.is_pulsar:
        return Starting(str(max(0, begin) if isinstance(begin, int) else begin), "earliest")
    found = first_offsets(input_link(settings), topics.input, begin)
    return Starting(json.dumps({topics.input: found}), "earliest")


def _offsets_after(settings: Settings, topic: str, read: Progress) -> str:
    """Where a topic goes on; a new partition is read from its beginning."""
    if settings.input.is_pulsar:
        name = settings.input.pulsar.full_name(topic)
        return json.dumps({place.log: place.at for place in read.places if place.topic == name})
    places = {str(place.partition): int(place.at) for place in read.places if place.topic == topic}
    return json.dumps({topic: first_offsets(input_link(settings), topic, "earliest") | places})
