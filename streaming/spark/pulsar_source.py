"""The Pulsar source: a Python Data Source named ``pulsar`` for Structured Streaming.

Offsets are exact: with ``{"persistent://t/n/x-partition-0": "ledger:entry"}`` everything up to that entry has been read. A batch
that is planned again has the same rows again. A durable subscription keeps what is unread from being trimmed; it follows the
checkpoint and is never removed. Lost data is refused unless allowed.

Options: ``service_url``, ``admin_url``, ``topics`` (full names, comma-separated), ``subscription`` (fixed: another one
protects nothing), ``starting`` (``earliest``, ``latest``, milliseconds, or offsets; first start only), ``max_entries_per_trigger``,
``fail_on_data_loss``, ``moves_subscription`` (``false``: neither makes nor moves it, for a reader that only looks), ``token_file``,
``ca_file``.

WARNING: with producers that batch, an entry is several rows, so ``max_entries_per_trigger`` bounds entries, not rows.
The long-lived planner is one process and ``read`` runs in others: nothing here connects before it is used.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import shared_client
from streaming.pulsar.http import HttpClient
from streaming.pulsar.log import Acknowledger, PartitionLogs, PartitionReader
from streaming.pulsar.positions import Position, pack, partition_index
from streaming.settings import PulsarTarget

SCHEMA = StructType(
    [
        StructField("key", StringType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("publish_ms", LongType(), nullable=False),
    ]
)
"""``topic`` is without the partition, which is -1 for a topic without partitions; ``offset`` rises along a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The source's options, checked."""

    service_url: str
    admin_url: str
    topics: tuple[str, ...]
    subscription: str
    starting: str
    max_entries_per_trigger: int | None
    fail_on_data_loss: bool
    moves_subscription: bool
    token_file: str | None
    ca_file: str | None

    @property
    def connection(self) -> tuple[str, str | None, str | None]:
        """What a client is made with: service URL, token file and CA file."""
        return self.service_url, self.token_file, self.ca_file

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "Options":
        """Check options. Raises ValueError naming the option that is missing or wrong."""
        missing = [
            name for name in ("service_url", "admin_url", "topics", "subscription") if not options.get(name)
        ]
        if missing:
            raise ValueError(f"the pulsar source needs the option {missing[0]}")
        starting = options.get("starting", "earliest")
        if starting not in {"earliest", "latest"} and not starting.isdigit() and not starting.startswith("{"):
            raise ValueError(
                f"starting is {starting!r}; expected earliest, latest, milliseconds, or the JSON of offsets"
            )
        most = options.get("max_entries_per_trigger")
        return cls(
            service_url=options["service_url"],
            admin_url=options["admin_url"],
            topics=tuple(topic.strip() for topic in options["topics"].split(",")),
            subscription=options["subscription"],
            starting=starting,
            max_entries_per_trigger=None if most is None else int(most),
            fail_on_data_loss=options.get("fail_on_data_loss", "true") != "false",
            moves_subscription=options.get("moves_subscription", "true") != "false",
            token_file=options.get("token_file"),
            ca_file=options.get("ca_file"),
        )


@dataclass
class Range(InputPartition):
    """What one task reads of a partition."""

    partition: str
    start: str
    end: str


class PulsarSource(DataSource):
    """``spark.readStream.format("pulsar")`` after ``register``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pulsar"

    def schema(self) -> StructType:
        """Always the same."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> "PulsarReader":  # noqa: N802  Spark's name
        """Makes the reader; connects to nothing."""
        del schema
        return PulsarReader(Options.parse(self.options))


class PulsarReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the planner's process and reads them in the workers'."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._frozen: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  Spark's names, here and below
        """Where a query without a checkpoint begins."""
        begin = {}
        for partition in self._partitions():
            _protect_once(self._options, partition)
            begin[partition] = str(self._begin(partition))
        return begin

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a batch: Spark calls it rows, here it counts entries."""
        most = self._options.max_entries_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """The end of the next batch: each partition gets an equal part of the limit. New partitions are read from their beginning."""
        partitions = list(self._frozen or self._partitions())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        share = None if most is None else max(1, most // len(partitions))
        return {
            **start,
            **{partition: self._end(partition, start.get(partition), share) for partition in partitions},
        }

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802
        """How far the logs go, for progress reports."""
        return {partition: str(self._logs.log(partition).last) for partition in self._partitions()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop at what is there now."""
        self._frozen = self.reportLatestOffset()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[Range]:
        """One task for each partition with something new."""
        ranges = []
        for partition, until in end.items():
            since = start.get(partition) or str(self._logs.log(partition).first)
            if Position.parse(since) < Position.parse(until):
                ranges.append(Range(partition, since, until))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a range."""
        assert isinstance(partition, Range)
        number = partition_index(partition.partition)
        topic = partition.partition.removesuffix(f"-partition-{number}")
        for message in _reader(self._options, partition.partition).read(
            Position.parse(partition.start),
            Position.parse(partition.end),
            fail_on_data_loss=self._options.fail_on_data_loss,
        ):
            offset = pack(message.position, message.batch_index)
            yield message.key, message.value, topic, number, offset, message.publish_ms

    def commit(self, end: dict[str, str]) -> None:
        """A batch is in the checkpoint: what it read may be trimmed."""
        if not self._options.moves_subscription:
            return
        for partition, done in end.items():
            _acknowledger(self._options, partition).release(Position.parse(done))

    def stop(self) -> None:
        """The subscription stays: it protects what a restart has yet to read."""

    @property
    def _logs(self) -> PartitionLogs:
        return _logs(self._options)

    def _partitions(self) -> list[str]:
        """All partitions of the topics."""
        return [partition for topic in self._options.topics for partition in self._logs.partitions(topic)]

    def _begin(self, partition: str) -> Position:
        log, starting = self._logs.log(partition), self._options.starting
        if starting == "earliest":
            return log.first
        if starting == "latest":
            return log.last
        if starting.startswith("{"):
            at = json.loads(starting).get(partition)
            return log.first if at is None else Position.parse(at)
        return self._logs.before(partition, int(starting))

    def _end(self, partition: str, since: str | None, share: int | None) -> str:
        """Where a partition ends in the next batch. Looks at the subscription before making it again: if it was gone, data may be lost."""
        if since is None:
            _protect_once(self._options, partition)
        log = self._logs.log(partition)
        start = log.first if since is None else Position.parse(since)
        if self._options.fail_on_data_loss:
            log.require(start, partition)
        else:
            start = log.nearest(start)
        _protect_once(self._options, partition)
        end = log.advance(start, share)
        if self._frozen is not None:
            end = max(start, min(end, Position.parse(self._frozen[partition])))
        return str(end)


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(PulsarSource)


@cache
def _logs(options: Options) -> PartitionLogs:
    target = PulsarTarget(admin_url=options.admin_url, token_file=options.token_file, ca_file=options.ca_file)
    return PartitionLogs(PulsarAdmin(HttpClient(target), target), subscription=options.subscription)


@cache
def _protect_once(options: Options, partition: str) -> None:
    if options.moves_subscription:
        _logs(options).protect(partition)


@cache
def _reader(options: Options, partition: str) -> PartitionReader:
    """One reader per process, like the client: a worker reads the same partitions again and again."""
    return PartitionReader(shared_client(*options.connection), partition)


@cache
def _acknowledger(options: Options, partition: str) -> Acknowledger:
    return Acknowledger(shared_client(*options.connection), partition, subscription=options.subscription)
