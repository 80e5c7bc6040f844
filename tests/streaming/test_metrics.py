"""The metrics an operator's alerts are written against: names, labels, and when a series begins."""

import math
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from state.outputs import (
    BrokerLoad,
    BrokerTraffic,
    JudgedRow,
    KafkaBrokerLoad,
    PromiseRow,
    PromisesSummary,
    RoundSummary,
    Section,
)
from streaming.contract import families
from streaming.controller.metrics import KnownLabels, Metrics
from streaming.transport.intake import EventCount, EventObservation, decode_observation, encode_observation
from tests.streaming.summaries import ROUND, examined, published, section

REPORT = "trimtab.pulsar.load-report.v1"
TICK = "trimtab.tick.v1"


def new_metrics() -> Metrics:
    known = KnownLabels(
        rejected_reasons=("not-json", "ahead-of-log"),
        event_types=(REPORT, TICK),
        examined_outcomes=("fired", "hit-count", "below-threshold"),
        candidate_outcomes=("acted", "cooldown", "budget"),
        calm_outcomes=("below-threshold",),
        result_outcomes=("succeeded", "failed"),
        split_outcomes=("acted", "dominant-topic", "namespace-full"),
        finding_kinds=("hot-partition",),
    )
    return Metrics(known, version="0.1.0", pyspark_version="4.2.0")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def events(cluster: str, *counts: EventCount, **rejected: int) -> EventObservation:
    reasons = {reason.replace("_", "-"): count for reason, count in rejected.items()}
    return EventObservation(cluster=cluster, counts=list(counts), rejected=reasons, action_results={})


def test_observations_survive_the_way_from_the_operator_to_the_driver():
    seen = events("east-1", EventCount(REPORT, "used", 3), not_json=1)
    assert decode_observation(encode_observation(seen)) == seen


def test_bytes_that_are_no_observation_are_refused():
    with pytest.raises(msgspec.ValidationError):
        decode_observation(msgspec.msgpack.encode(["round", "east-1"]))


def test_every_rejection_reason_exists_from_the_first_scrape():
    metrics = new_metrics()
    assert value(metrics, "trimtab_rejected_total", reason="not-json") == 0
    assert value(metrics, "trimtab_rejected_total", reason="ahead-of-log") == 0
    assert value(metrics, "trimtab_query_restarts_total") == 0
    assert value(metrics, "trimtab_batches_skipped_total") == 0
    assert value(metrics, "trimtab_events_total", cluster="", type="unknown", outcome="rejected") == 0


def test_build_info_names_the_versions():
    text = generate_latest(new_metrics().registry).decode()
    assert 'trimtab_build_info{pyspark="4.2.0",python="3.' in text
    assert 'version="0.1.0"} 1.0' in text


def test_no_cluster_is_named_before_its_first_round_or_used_event():
    metrics = new_metrics()
    metrics.observe_events(events("east-1", EventCount(REPORT, "rejected", 1), not_json=1))
    assert "east-1" not in generate_latest(metrics.registry).decode()
    assert value(metrics, "trimtab_events_total", cluster="", type=REPORT, outcome="rejected") == 1


def after(*rounds: RoundSummary) -> Metrics:
    """Metrics after these rounds of one cluster."""
    metrics = new_metrics()
    for each in rounds:
        metrics.observe_round(published(each), published_s=490.5)
    return metrics


NAN = math.nan
FIRED = {"policy": "avg-shedder", "outcome": "fired"}
SPLITS = {"policy": "bundle-split"}
UNLOAD, SPLIT = {"kind": "unload"}, {"kind": "split"}


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("rounds_total", {"outcome": "decided"}, 1),
        ("rounds_total", {"outcome": "no-quorum"}, 0),
        ("examined_total", FIRED, 1),
        ("examined_total", FIRED | {"outcome": "hit-count"}, 1),
        ("candidates_total", FIRED | {"outcome": "cooldown"}, 5),
        ("candidates_total", FIRED | {"outcome": "budget"}, 0),
        ("candidates_total", SPLITS | {"outcome": "dominant-topic"}, 3),
        ("candidates_total", SPLITS | {"outcome": "namespace-full"}, 0),
        ("actions_published_total", UNLOAD | {"dry_run": "false"}, 2),
        ("actions_published_total", SPLIT | {"dry_run": "false"}, 1),
        ("actions_published_total", SPLIT | {"dry_run": "true"}, 0),
        ("findings", {"kind": "hot-partition"}, 4),
        ("events_total", {"type": TICK, "outcome": "late"}, 0),
        ("promises_total", {"outcome": "failed"}, 0),
        ("unloads_repeated_total", {"source": "other"}, 0),
        ("usage_points", {"resource": "overall", "stat": "max"}, 80.0),
        ("usage_points", {"resource": "messages", "stat": "mean"}, NAN),
        ("brokers", {"state": "missing"}, 1),
        ("oldest_report_age_seconds", {}, 12.5),
        ("dry_run", {}, 0),
        ("paused", {}, 0),
        ("failing", {}, 0),
        ("last_round_end_timestamp_seconds", {}, 480.0),
        ("outliers", {}, 2),  # all but those below the threshold
        ("difference_points", {}, 52.0),
        ("threshold_points", {}, 40.0),
        ("hits", {}, 2),
        ("hits_needed", {}, 2),
        ("round_length_seconds", {}, 60),
        ("unload_error_points", {}, NAN),
    ],
)
def test_a_cluster_has_all_its_series_from_its_first_round_with_nan_for_what_nobody_measured(
    name: str, labels: dict[str, str], expected: float
):
    found = value(after(ROUND), f"trimtab_{name}", cluster="east-1", **labels)
    assert found == pytest.approx(expected, nan_ok=True)


def busy(broker: str, usage_points: float, cpu: Any = 1.0) -> BrokerLoad:
    return BrokerLoad(
        broker=broker,
        usage_points=usage_points,
        resources={"cpu": cpu},
        messages_per_s=0.0,
        bytes_per_s=0.0,
        bundles_count=0,
        excluded=False,
        group=None,
    )


def usage_by_broker(metrics: Metrics) -> dict[str, float]:
    """The samples by broker."""
    name = "trimtab_broker_usage_points"
    page = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        each.labels["broker"]: each.value for family in page for each in family.samples if each.name == name
    }


def test_each_broker_of_the_last_round_has_its_usage_if_it_was_measured_and_no_other_has_a_series():
    first = msgspec.structs.replace(ROUND, brokers=[busy("b1", 60.0), busy("b2", 0.0, "not-measured")])
    assert usage_by_broker(after(first)) == {"b1": 60.0}
    assert usage_by_broker(after(first, msgspec.structs.replace(ROUND, brokers=[busy("b3", 5.0)]))) == {
        "b3": 5.0
    }
    rows = [KafkaBrokerLoad(broker="101", usage_points=40.0), KafkaBrokerLoad(broker="102")]
    kafka = msgspec.structs.replace(ROUND, system="kafka", kafka_brokers=rows)
    assert usage_by_broker(after(kafka)) == {"101": 40.0}
    assert not usage_by_broker(after(ROUND))


def test_counters_add_up_and_the_numbers_in_an_outcome_do_not_become_series():
    metrics = after(ROUND, ROUND)
    assert value(metrics, "trimtab_examined_total", cluster="east-1", **FIRED) == 2
    assert value(metrics, "trimtab_decision_lag_seconds_sum") == 21.0
    assert value(metrics, "trimtab_decision_lag_seconds_count") == 2
    assert "3/8" not in generate_latest(metrics.registry).decode()


def judged(
    source: str, *, before: float, expected: float, seen: float | None, outcome: str = "effective"
) -> JudgedRow:
    loads = {"before": before, "expected": expected, "seen": seen}
    sides = {
        name: {} if rate is None else {"source": BrokerTraffic(messages_per_s=rate, bytes_per_s=100 * rate)}
        for name, rate in loads.items()
    }
    return JudgedRow(
        id="a", kind="unload", bundle="t/n/0x0_0x1", outcome=outcome, brokers={"source": source}, **sides
    )


def promised(outcome: str) -> PromiseRow:
    points = {"source": 60.0, "destination": 40.0}
    return PromiseRow(
        id="a",
        bundle="t/n/0x0_0x1",
        brokers={"source": "b1", "destination": "b2"},
        before_points=points,
        expected_points=points,
        seen_points=points,
        outcome=outcome,
    )


def changed(**fields: Any) -> RoundSummary:
    return msgspec.structs.replace(ROUND, **fields)


DRY = changed(mode="dry-run", paused=True)
FAILING = changed(splits_failing_since="1970-01-01T00:08:00.000Z")
QUIET = changed(outcome="no-quorum", examined=section())
HITLESS = changed(
    policy="threshold-shedder",
    examined=examined({"history_points": 72.0, "mean_points": 60.0, "threshold_points": 10.0}, fired=1),
)
JUDGED = changed(
    judged=Section(
        count=4,
        outcomes={"effective": 3, "ineffective": 1},
        heaviest=[
            judged("b1", before=100.0, expected=70.0, seen=75.0),
            judged("b1", before=90.0, expected=70.0, seen=75.0),
            judged("b2", before=50.0, expected=40.0, seen=80.0, outcome="ineffective"),
            judged("b3", before=50.0, expected=0.0, seen=None),
        ],
    )
)
PROMISED = changed(
    promises=PromisesSummary(
        kept_count=5,
        failed_count=3,
        expected_gain_points=4.0,
        gain_points=3.0,
        error_points=1.5,
        checked=Section(
            count=3,
            outcomes={"kept": 2, "failed": 1},
            heaviest=[promised("kept"), promised("kept"), promised("failed")],
        ),
    )
)
EXPECTED, ACHIEVED = {"effect": "expected"}, {"effect": "achieved"}


@pytest.mark.parametrize(
    ("rounds", "name", "labels", "expected"),
    [
        pytest.param([DRY], "actions_published_total", UNLOAD | {"dry_run": "true"}, 2, id="dry-run actions"),
        pytest.param([DRY], "actions_published_total", UNLOAD | {"dry_run": "false"}, 0, id="no real ones"),
        pytest.param([DRY], "dry_run", {}, 1, id="dry-run"),
        pytest.param([DRY], "paused", {}, 1, id="paused"),
        pytest.param([ROUND, FAILING], "failing", {}, 1, id="held because its actions fail"),
        pytest.param([QUIET], "outliers", {}, NAN, id="without a decision nothing says it is balanced"),
        pytest.param([ROUND, QUIET], "outliers", {}, 2, id="nor after one with a decision"),
        pytest.param([HITLESS], "difference_points", {}, 12.0, id="a policy that counts no hits"),
        pytest.param([HITLESS], "hits", {}, NAN, id="shows none"),
        pytest.param(
            [JUDGED], "unloaded_messages_per_second", EXPECTED, 40.0, id="what unloads were to take"
        ),
        pytest.param([JUDGED], "unloaded_messages_per_second", ACHIEVED, -5.0, id="what brokers lost"),
        pytest.param([JUDGED], "unloaded_bytes_per_second", ACHIEVED, -500.0, id="what they lost in bytes"),
        pytest.param(
            [JUDGED, ROUND], "unloaded_bytes_per_second", EXPECTED, 4000.0, id="judged none: as before"
        ),
        pytest.param([ROUND, PROMISED], "promises_total", {"outcome": "kept"}, 2, id="kept promises"),
        pytest.param([ROUND, PROMISED], "promises_total", {"outcome": "failed"}, 1, id="broken promises"),
        pytest.param([PROMISED], "unload_gain_points", EXPECTED, 4.0, id="promised gain"),
        pytest.param([PROMISED], "unload_gain_points", ACHIEVED, 3.0, id="real gain"),
        pytest.param([PROMISED], "unload_error_points", {}, 1.5, id="error of an hour"),
        pytest.param([PROMISED, ROUND], "unload_error_points", {}, NAN, id="an hour later it is gone"),
        pytest.param([PROMISED, ROUND], "promises_total", {"outcome": "kept"}, 2, id="what is counted stays"),
    ],
)
def test_what_differs_in_a_round_is_shown(
    rounds: list[RoundSummary], name: str, labels: dict[str, str], expected: float
):
    found = value(after(*rounds), f"trimtab_{name}", cluster="east-1", **labels)
    assert found == pytest.approx(expected, nan_ok=True)


def test_events_are_counted_by_type_and_result_and_strangers_share_one_type():
    metrics = new_metrics()
    metrics.observe_events(events("east-1", EventCount(REPORT, "used", 3), EventCount(REPORT, "late", 1)))
    metrics.observe_events(events("east-1", EventCount("com.example.x", "rejected", 2), not_json=2))
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=REPORT, outcome="used") == 3
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=REPORT, outcome="late") == 1
    assert value(metrics, "trimtab_events_total", cluster="east-1", type="unknown", outcome="rejected") == 2
    assert value(metrics, "trimtab_rejected_total", reason="not-json") == 2


def test_batches_publishing_skips_and_restarts_are_measured():
    metrics = new_metrics()
    metrics.observe(families.BATCH_DURATION, 0.2)
    metrics.observe(families.PUBLISH_DURATION, 0.02)
    metrics.count(families.BATCHES_SKIPPED)
    metrics.count(families.QUERY_RESTARTS)
    assert value(metrics, "trimtab_batch_duration_seconds_sum") == 0.2
    assert value(metrics, "trimtab_publish_duration_seconds_bucket", le="0.025") == 1
    assert value(metrics, "trimtab_batches_skipped_total") == 1
    assert value(metrics, "trimtab_query_restarts_total") == 1


def test_every_name_has_the_prefix_and_help_and_two_applications_do_not_share_series():
    metrics = new_metrics()
    metrics.count(families.QUERY_RESTARTS)
    served = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    assert served
    assert all(family.name.startswith("trimtab_") and family.documentation for family in served)
    assert value(new_metrics(), "trimtab_query_restarts_total") == 0


def test_results_of_actions_are_counted_by_outcome():
    metrics = new_metrics()
    seen = events("east-1", EventCount(REPORT, "used", 1))
    metrics.observe_events(msgspec.structs.replace(seen, action_results={"failed": 2}))
    assert value(metrics, "trimtab_action_results_total", cluster="east-1", outcome="failed") == 2
    assert value(metrics, "trimtab_action_results_total", cluster="east-1", outcome="succeeded") == 0


def test_repeated_unloads_are_counted():
    metrics = after(ROUND)
    metrics.count_repeat("east-1", "other")
    assert value(metrics, "trimtab_unloads_repeated_total", cluster="east-1", source="other") == 1


def test_what_spark_has_not_said_yet_is_not_zero():
    metrics = new_metrics()
    assert math.isnan(value(metrics, "trimtab_state_rows") or 0)
    metrics.show_progress(state_rows=3, state_memory_bytes=4096, input_lag_records=None)
    assert value(metrics, "trimtab_state_memory_bytes") == 4096
    assert math.isnan(value(metrics, "trimtab_input_lag_records") or 0)
    metrics.show(families.START, value=1.5)
    assert value(metrics, "trimtab_start_timestamp_seconds") == 1.5


def test_a_cluster_that_is_forgotten_leaves_no_series_and_begins_anew():
    metrics = new_metrics()
    used = EventCount(REPORT, "used", 2)
    metrics.observe_round(published(ROUND), published_s=490.5)
    metrics.observe_events(events("west-1", used))
    assert value(metrics, "trimtab_clusters") == 2
    metrics.count_repeat("east-1", "same")
    metrics.forget("east-1")
    page = generate_latest(metrics.registry).decode()
    assert "east-1" not in page
    assert "west-1" in page
    assert value(metrics, "trimtab_clusters") == 1
    assert value(metrics, "trimtab_events_total", cluster="", type="unknown", outcome="rejected") == 0
    metrics.observe_events(events("east-1", used))
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=REPORT, outcome="used") == 2
    assert value(metrics, "trimtab_clusters") == 2


def test_the_control_event_that_forgets_a_cluster_makes_no_series_of_it():
    metrics = after(ROUND)
    used = EventCount("unknown", "used", 1)
    last = EventObservation(cluster="east-1", counts=[used], rejected={}, action_results={}, forgotten=True)
    assert decode_observation(encode_observation(last)) == last
    metrics.observe_events(last)
    assert "east-1" not in generate_latest(metrics.registry).decode()
    assert value(metrics, "trimtab_events_total", cluster="", type="unknown", outcome="used") == 1
