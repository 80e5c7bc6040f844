"""Metrics of a Kafka cluster's rounds: what is unknown is NaN, and brokers are named only while something moves."""

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from state.outputs import ThrottleSummary
from streaming.controller.metrics import KNOWN_LABELS, Metrics
from tests.streaming.summaries import THROTTLE as MOVING
from tests.streaming.summaries import of_kafka, published

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


def page(*seen: ThrottleSummary) -> Page:
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
    found = page(MOVING)
    assert found.of("reassignment_left_bytes") == {("kafka-1",): 72_000}
    assert found.of("throttle_feasible") == {("kafka-1",): 0}
    assert found.of("reassignment_late") == {("kafka-1",): 1}
    assert found.of("reassignment_broken") == {("kafka-1",): 0}
    assert found.of("throttle_rate_bytes_per_second") == {
        ("101", "kafka-1", "leader"): 30,
        ("104", "kafka-1", "follower"): 40,
    }
    minimums = found.of("throttle_minimum_bytes_per_second")
    assert minimums["101", "kafka-1", "leader"] == 26
    assert math.isnan(minimums["104", "kafka-1", "follower"])
    assert math.isnan(found.of("reassignment_eta_seconds")[("kafka-1",)])
    assert found.of("actions_published_total")["kafka-1", "false", "throttle"] == 1


def test_brokers_are_named_only_while_something_moves():
    found = page(MOVING, DONE)
    assert found.of("throttle_rate_bytes_per_second") == {}
    assert found.of("throttle_minimum_bytes_per_second") == {}
    assert found.of("reassignment_left_bytes") == {("kafka-1",): 0}
    assert found.of("reassignment_eta_seconds") == {("kafka-1",): 0}


def test_what_others_changed_and_what_was_not_carried_out_is_counted_and_over_when_it_is_over():
    odd = msgspec.structs.replace(
        MOVING,
        changed_rates_bytes_per_s={"leader:101": 5},
        lost_leader_throttled_replicas={"t": "0:1"},
        failures_count=3,
    )
    assert (page(odd).of("throttle_changed"), page(odd).of("throttle_failures")) == (
        {("kafka-1",): 2},
        {("kafka-1",): 3},
    )
    assert (
        page(odd, MOVING).of("throttle_changed")
        == page(odd, MOVING).of("throttle_failures")
        == {("kafka-1",): 0}
    )


def test_the_bottleneck_is_one_role_and_none_once_it_is_unknown():
    source, target = (
        msgspec.structs.replace(MOVING, bottleneck=role) for role in ("leader:101", "follower:104")
    )
    assert page(target).of("reassignment_bottleneck") == {("104", "kafka-1", "follower"): 1}
    assert page(target, source).of("reassignment_bottleneck") == {("101", "kafka-1", "leader"): 1}
    assert page(target, MOVING).of("reassignment_bottleneck") == {}


@pytest.mark.parametrize("name", ["examined_total", "candidates_total"])
def test_a_kafka_cluster_has_no_series_of_bundles(name: str):
    assert page(MOVING).of(name) == {}
