"""What the driver tells of a batch: metrics of a Kafka cluster's rounds, repeated unloads, and errors that do not fail the batch."""

import json
import logging
import math
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema

from state.outputs import ThrottleSummary, Unload
from streaming.controller.batches import BatchPublisher, BatchReports
from streaming.controller.metrics import KNOWN_LABELS, Metrics
from streaming.controller.published import KEPT_COUNT, UNLOADS_WINDOW_S, FollowUp, Published, Source
from streaming.settings import TopicNames
from streaming.spark.query import Batch
from streaming.spark.rows import OBSERVED, OUTPUT_SCHEMA, ROUND, OutputRow, observation_row
from streaming.transport.errors import PublishError
from streaming.transport.intake import EventCount, EventObservation, encode_observation
from streaming.transport.publishing import BatchState
from tests.streaming.golden import folders, messages
from tests.streaming.summaries import THROTTLE as MOVING
from tests.streaming.summaries import of_kafka, published


def never(_cluster: str) -> float:
    """For clusters that are never forgotten."""
    return math.inf


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


class Publisher:
    """A publisher that takes everything."""

    batches: list[int]

    def __init__(self) -> None:
        self.batches = []

    def publish(self, batch_id: int, _query_id: str, _records: Any, **_noted: Any) -> BatchState:
        self.batches.append(batch_id)
        return BatchState.NEW


def round_row(value: bytes) -> Row:
    return Row(kind=ROUND, key="lab", round=1, place=0, value=value, topic=None, partition=None, offset=None)


def test_what_cannot_be_told_is_logged_and_counted_and_the_batch_is_published(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    metrics, publisher = Metrics(KNOWN_LABELS, version="0", pyspark_version="0"), Publisher()
    batches = BatchPublisher(publisher, metrics, TopicNames(), never)
    rows = [
        round_row(b"not json"),
        observation_row("lab", b"not an observation"),
        round_row(SUMMARY),
        observation_row(
            "lab",
            encode_observation(
                EventObservation(cluster="", counts=[], rejected={"not-json": 3}, action_results={})
            ),
        ),
    ]
    assert rows[1].kind == OBSERVED
    batches.take(Batch(Frame(rows), 7))
    assert publisher.batches == [7]
    assert batches.error is None
    assert batches.published_count == 1
    page = generate_latest(metrics.registry).decode()
    assert 'trimtab_reporting_errors_total{part="metrics"} 2.0' in page
    for part in ("log", "follow-up", "progress"):
        assert f'trimtab_reporting_errors_total{{part="{part}"}} 0.0' in page
    assert 'trimtab_rejected_total{reason="not-json"} 3.0' in page, "what can be told is told"
    assert any("lab, round" in record.getMessage() for record in caplog.records)
    assert sum(record.exc_info is not None for record in caplog.records) == 2


@pytest.mark.parametrize(
    ("raises", "said", "told"),
    [
        (True, "batch 7 was published, though the answer was lost", True),
        (False, "batch 7 was published before the restart: skipped", False),
    ],
    ids=["answer lost", "restarted"],
)
def test_a_batch_that_is_out_is_told_of_unless_another_process_told_of_it(
    caplog: pytest.LogCaptureFixture, *, raises: bool, said: str, told: bool
):
    caplog.set_level(logging.DEBUG)
    answers: list[BatchState | PublishError] = [PublishError("no answer")] if raises else []
    answers.append(BatchState.OUT)

    def publish(*_: object) -> BatchState:
        answer = answers.pop(0)
        if isinstance(answer, PublishError):
            raise answer
        return answer

    metrics = Metrics(KNOWN_LABELS, version="0", pyspark_version="0")
    batches = BatchPublisher(SimpleNamespace(publish=publish), metrics, TopicNames(), never)
    if raises:
        with pytest.raises(PublishError):
            batches.take(Batch(Frame([round_row(SUMMARY)]), 7))
    batches.take(Batch(Frame([round_row(SUMMARY)]), 7))
    assert said in caplog.text
    assert any("lab, round" in record.getMessage() for record in caplog.records) is told


def heard_of(cluster: str, *, forgotten: bool = False) -> OutputRow:
    used = [EventCount("trimtab.tick.v1", "used", 1)]
    seen = EventObservation(cluster=cluster, counts=used, rejected={}, action_results={}, forgotten=forgotten)
    return OutputRow(*observation_row(cluster, encode_observation(seen)))


def test_the_series_of_a_silent_cluster_alone_go_by_the_drivers_own_clock():
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


def test_the_series_of_a_cluster_that_a_person_forgets_go_at_once():
    metrics = Metrics(KNOWN_LABELS, version="0", pyspark_version="0")
    telling = BatchReports(metrics, never)
    telling.report([heard_of("gone")])
    telling.report([heard_of("gone", forgotten=True)])
    assert 'cluster="gone"' not in generate_latest(metrics.registry).decode()


ROUND_S = 60


def unload(
    number: int,
    bundle: str = "a",
    *,
    source: str = "b1",
    to: str | None = "b2",
    rate: float = 10.0,
    cluster: str = "east-1",
    dry_run: bool = False,
) -> Published:
    data = Unload(
        cluster=cluster,
        round=number,
        policy="avg-shedder",
        trigger="",
        reason="",
        evidence={"bundle_messages_per_s": rate, "bundle_bytes_per_s": 100 * rate},
        expected={},
        precondition={},
        expires_at="",
        dry_run=dry_run,
        bundle=bundle,
        source_broker=source,
        destination_broker=to,
    )
    return Published(id="", type="trimtab.action.unload.v1", time_s=float((number + 1) * ROUND_S), data=data)


def repeats(*published: Published) -> list[Source]:
    return observe(FollowUp(), *published)


def observe(follow: FollowUp, *published: Published) -> list[Source]:
    return [found for event in published if (found := follow.observe(event)) is not None]


ROUNDS = UNLOADS_WINDOW_S // ROUND_S


@pytest.mark.parametrize(
    ("unloads", "sources"),
    [
        pytest.param([unload(0, "a"), unload(1, "b"), unload(2, "c")], [], id="each bundle once"),
        pytest.param([unload(0, source="b1"), unload(40, source="b2")], ["other"], id="passed on"),
        pytest.param([unload(0, source="b1"), unload(40, source="b1")], ["same"], id="back where it was"),
        pytest.param([unload(0), unload(ROUNDS)], ["same"], id="at the end of the window"),
        pytest.param([unload(0), unload(ROUNDS + 1)], [], id="after the window"),
        pytest.param([unload(0), unload(40, cluster="west-1")], [], id="of another cluster"),
        pytest.param(
            [unload(0, dry_run=True), unload(40, dry_run=True)], [], id="nothing moves in a dry-run"
        ),
    ],
)
def test_an_unload_of_a_bundle_within_the_window_is_a_repeat(unloads: list[Published], sources: list[str]):
    assert repeats(*unloads) == sources


def test_what_is_remembered_is_bounded():
    follow = FollowUp()
    several = KEPT_COUNT + 500
    observe(follow, *(unload(0, f"bundle-{n}", source=f"b{n}") for n in range(several)))
    known = follow._unloaded["east-1"]
    assert len(known) == KEPT_COUNT
    assert f"bundle-{several - 1}" in known
    observe(follow, unload(10_000, "later"))
    assert list(known) == ["later"], "what is older than the window goes too"


def test_a_forgotten_cluster_is_followed_up_no_more():
    follow = FollowUp()
    assert observe(follow, unload(0)) == []
    follow.forget("east-1")
    follow.forget("never heard of")
    assert observe(follow, unload(40)) == []


DONE = msgspec.structs.replace(
    MOVING,
    outcome="nothing-moves",
    bytes_left=0,
    feasible=None,
    late=False,
    broken_count=0,
    rates_bytes_per_s={},
    min_bytes_per_s={},
)


@dataclass(frozen=True)
class Page:
    samples: dict[tuple[str, tuple[str, ...]], float]

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        return {
            labels: value for (found, labels), value in self.samples.items() if found == f"trimtab_{name}"
        }


def page_of(*seen: ThrottleSummary) -> Page:
    metrics = Metrics(KNOWN_LABELS, version="1", pyspark_version="4")
    for each in seen:
        metrics.observe_round(published(of_kafka(each), end_s=20.0), published_s=20.5)
    families: Any = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return Page(
        {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }
    )


def test_a_running_move_shows_what_is_left_and_the_rate_and_minimum_of_each_role():
    found = page_of(MOVING)
    assert found.of("copies_left_bytes") == {("kafka-1",): 72_000}
    assert found.of("throttle_feasible") == {("kafka-1",): 0}
    assert found.of("copies_late") == {("kafka-1",): 1}
    assert found.of("copies_broken") == {("kafka-1",): 0}
    assert found.of("throttle_rate_bytes_per_second") == {
        ("101", "kafka-1", "leader"): 30,
        ("104", "kafka-1", "follower"): 40,
    }
    minimums = found.of("throttle_minimum_bytes_per_second")
    assert minimums["101", "kafka-1", "leader"] == 26
    assert math.isnan(minimums["104", "kafka-1", "follower"])
    assert math.isnan(found.of("copies_eta_seconds")[("kafka-1",)])
    assert found.of("actions_published_total")["kafka-1", "false", "throttle"] == 1


def test_brokers_are_named_only_while_something_moves():
    found = page_of(MOVING, DONE)
    assert found.of("throttle_rate_bytes_per_second") == {}
    assert found.of("throttle_minimum_bytes_per_second") == {}
    assert found.of("copies_left_bytes") == {("kafka-1",): 0}
    assert found.of("copies_eta_seconds") == {("kafka-1",): 0}


def test_what_others_changed_and_what_was_not_carried_out_is_counted_and_over_when_it_is_over():
    odd = msgspec.structs.replace(
        MOVING,
        changed_rates_bytes_per_s={"leader:101": 5},
        lost_leader_throttled_replicas={"t": "0:1"},
        failures_count=3,
    )
    assert (page_of(odd).of("throttle_changed"), page_of(odd).of("throttle_failures")) == (
        {("kafka-1",): 2},
        {("kafka-1",): 3},
    )
    assert (
        page_of(odd, MOVING).of("throttle_changed")
        == page_of(odd, MOVING).of("throttle_failures")
        == {("kafka-1",): 0}
    )


def test_the_bottleneck_is_one_role_and_none_once_it_is_unknown():
    source, target = (
        msgspec.structs.replace(MOVING, bottleneck=role) for role in ("leader:101", "follower:104")
    )
    assert page_of(target).of("copies_bottleneck") == {("104", "kafka-1", "follower"): 1}
    assert page_of(target, source).of("copies_bottleneck") == {("101", "kafka-1", "leader"): 1}
    assert page_of(target, MOVING).of("copies_bottleneck") == {}


@pytest.mark.parametrize("name", ["examined_total", "candidates_total"])
def test_a_kafka_cluster_has_no_series_of_bundles(name: str):
    assert page_of(MOVING).of(name) == {}
