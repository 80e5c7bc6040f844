"""An error in what is only reported about a batch is logged and counted, and does not fail the batch."""

import json
import logging
import time
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import generate_latest
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema

from streaming.controller.batches import BatchPublisher, BatchReports
from streaming.controller.metrics import KNOWN_LABELS, Metrics
from streaming.settings import TopicNames
from streaming.spark.query import Batch
from streaming.spark.rows import OBSERVED, OUTPUT_SCHEMA, ROUND, OutputRow, of_observation
from streaming.transport.intake import EventCount, EventObservation, encode_observation
from streaming.transport.publishing import BatchState
from tests.streaming.golden import folders, messages

SUMMARY = json.dumps(messages(folders()[-1])["trimtab.round.v1"]).encode()


class Frame:
    """What ``foreachBatch`` hands over, without Spark."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def toArrow(self) -> pa.Table:  # noqa: N802  Spark's name
        schema = to_arrow_schema(OUTPUT_SCHEMA)
        return pa.Table.from_pylist([row.asDict() for row in self._rows], schema=schema)

    sparkSession = type(  # noqa: N815  Spark's name
        "Session", (), {"sparkContext": type("Context", (), {"getLocalProperty": lambda *_: "query"})()}
    )()


class Published:
    """A publisher that takes everything."""

    batches: list[int]

    def __init__(self) -> None:
        self.batches = []

    def publish(self, batch_id: int, _query_id: str, _records: Any, **_noted: Any) -> BatchState:
        self.batches.append(batch_id)
        return BatchState.NEW


def round_row(value: bytes) -> Row:
    return Row(kind=ROUND, key="lab", round=1, place=0, value=value, topic=None, partition=None, offset=None)


def test_what_cannot_be_told_is_logged_and_counted_and_the_batch_counts_as_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    metrics, publisher = Metrics(KNOWN_LABELS, version="0", pyspark_version="0"), Published()
    batches = BatchPublisher(publisher, metrics, TopicNames())  # type: ignore[arg-type]
    rows = [
        round_row(b"not json"),
        of_observation("lab", b"not an observation"),
        round_row(SUMMARY),
        of_observation(
            "lab",
            encode_observation(
                EventObservation(cluster="", counts=[], rejected={"not-json": 3}, action_results={})
            ),
        ),
    ]
    assert rows[1].kind == OBSERVED
    batches.take(Batch(Frame(rows), 7))  # type: ignore[arg-type]
    assert publisher.batches == [7]
    assert batches.error is None
    assert batches.published_count == 1
    page = generate_latest(metrics.registry).decode()
    assert 'trimtab_telling_errors_total{part="metrics"} 2.0' in page
    for part in ("log", "follow-up", "progress"):
        assert f'trimtab_telling_errors_total{{part="{part}"}} 0.0' in page
    assert 'trimtab_rejected_total{reason="not-json"} 3.0' in page, "what can be told is told"
    assert any("lab, round" in record.getMessage() for record in caplog.records)
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def heard_of(cluster: str, *, forgotten: bool = False) -> OutputRow:
    used = [EventCount("trimtab.tick.v1", "used", 1)]
    seen = EventObservation(cluster=cluster, counts=used, rejected={}, action_results={}, forgotten=forgotten)
    return OutputRow(*of_observation(cluster, encode_observation(seen)))


def test_the_series_of_a_silent_cluster_go_by_the_drivers_own_clock_and_those_of_the_others_stay() -> None:
    metrics = Metrics(KNOWN_LABELS, version="0", pyspark_version="0")
    telling = BatchReports(metrics, forget_after_s={"gone": 100.0, "patient": 1e9}.__getitem__)
    telling.report([heard_of("gone"), heard_of("patient")])
    now_s = time.monotonic()
    telling.forget_silent(now_s + 50)
    assert 'cluster="gone"' in generate_latest(metrics.registry).decode()
    telling.forget_silent(now_s + 101)
    page = generate_latest(metrics.registry).decode()
    assert 'cluster="gone"' not in page
    assert 'cluster="patient"' in page
    telling.report([heard_of("gone")])
    assert 'cluster="gone"' in generate_latest(metrics.registry).decode()


def test_the_series_of_a_cluster_that_a_person_forgets_go_at_once() -> None:
    metrics = Metrics(KNOWN_LABELS, version="0", pyspark_version="0")
    telling = BatchReports(metrics)
    telling.report([heard_of("gone")])
    telling.report([heard_of("gone", forgotten=True)])
    assert 'cluster="gone"' not in generate_latest(metrics.registry).decode()
