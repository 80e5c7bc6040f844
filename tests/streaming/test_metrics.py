"""The metrics an operator's alerts are written against: names, labels, and when a series begins."""

import math

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.docs import metrics_page
from state.outputs import BrokerTraffic, JudgedRow, PromiseRow, PromisesSummary, Section
from streaming.contract import families
from streaming.controller.metrics import KnownLabels, Metrics
from streaming.controller.published import Repeat
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
        split_outcomes=("acted", "one-topic", "namespace-full"),
        finding_kinds=("hot-partition",),
    )
    return Metrics(known, version="0.1.0", pyspark_version="4.2.0")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def events(cluster: str, *counts: EventCount, **rejected: int) -> EventObservation:
    reasons = {reason.replace("_", "-"): count for reason, count in rejected.items()}
    return EventObservation(cluster=cluster, counts=list(counts), rejected=reasons, action_results={})


def test_observations_survive_the_way_from_the_operator_to_the_driver() -> None:
    seen = events("east-1", EventCount(REPORT, "used", 3), not_json=1)
    assert decode_observation(encode_observation(seen)) == seen


def test_bytes_that_are_no_observation_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_observation(msgspec.msgpack.encode(["round", "east-1"]))


def test_every_rejection_reason_exists_from_the_first_scrape() -> None:
    metrics = new_metrics()
    assert value(metrics, "trimtab_rejected_total", reason="not-json") == 0
    assert value(metrics, "trimtab_rejected_total", reason="ahead-of-log") == 0
    assert value(metrics, "trimtab_query_restarts_total") == 0
    assert value(metrics, "trimtab_batches_skipped_total") == 0
    assert value(metrics, "trimtab_events_total", cluster="", type="unknown", result="rejected") == 0


def test_build_info_names_the_versions() -> None:
    text = generate_latest(new_metrics().registry).decode()
    assert 'trimtab_build_info{pyspark="4.2.0",python="3.' in text
    assert 'version="0.1.0"} 1.0' in text


def test_no_cluster_is_named_before_its_first_round_or_used_event() -> None:
    metrics = new_metrics()
    metrics.observe_events(events("east-1", EventCount(REPORT, "rejected", 1), not_json=1))
    assert "east-1" not in generate_latest(metrics.registry).decode()
    assert value(metrics, "trimtab_events_total", cluster="", type=REPORT, result="rejected") == 1


def test_a_cluster_has_all_its_series_from_its_first_round() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    assert value(metrics, "trimtab_rounds_total", cluster="east-1", outcome="decided") == 1
    assert value(metrics, "trimtab_rounds_total", cluster="east-1", outcome="no-quorum") == 0
    budget = {"cluster": "east-1", "policy": "avg-shedder", "outcome": "budget"}
    assert value(metrics, "trimtab_candidates_total", **budget) == 0
    split = {"cluster": "east-1", "kind": "split", "dry_run": "true"}
    assert value(metrics, "trimtab_actions_published_total", **split) == 0
    full = {"cluster": "east-1", "policy": "bundle-split", "outcome": "namespace-full"}
    assert value(metrics, "trimtab_candidates_total", **full) == 0
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=TICK, result="late") == 0


def test_a_round_counts_what_was_examined_considered_and_published() -> None:
    metrics = new_metrics()
    for _ in range(2):
        metrics.observe_round(published(ROUND), published_s=490.5)
    of = {"cluster": "east-1", "policy": "avg-shedder"}
    assert value(metrics, "trimtab_examined_total", **of, outcome="fired") == 2
    assert value(metrics, "trimtab_candidates_total", **of, outcome="cooldown") == 10
    unload = {"cluster": "east-1", "kind": "unload", "dry_run": "false"}
    assert value(metrics, "trimtab_actions_published_total", **unload) == 4
    split = {"cluster": "east-1", "kind": "split", "dry_run": "false"}
    assert value(metrics, "trimtab_actions_published_total", **split) == 2
    of_splits = {"cluster": "east-1", "policy": "bundle-split"}
    assert value(metrics, "trimtab_candidates_total", **of_splits, outcome="one-topic") == 6
    assert value(metrics, "trimtab_findings", cluster="east-1", kind="hot-partition") == 4
    assert value(metrics, "trimtab_decision_lag_seconds_sum") == 21.0
    assert value(metrics, "trimtab_decision_lag_seconds_count") == 2


def test_the_numbers_in_an_outcome_do_not_become_series() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    of = {"cluster": "east-1", "policy": "avg-shedder"}
    assert value(metrics, "trimtab_examined_total", **of, outcome="hit-count") == 1
    assert "3/8" not in generate_latest(metrics.registry).decode()


def test_gauges_show_the_last_round_and_nan_for_what_nobody_measured() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    usage = {"cluster": "east-1", "resource": "overall"}
    assert value(metrics, "trimtab_broker_usage_points", **usage, stat="max") == 80.0
    unmeasured = value(
        metrics, "trimtab_broker_usage_points", cluster="east-1", resource="messages", stat="mean"
    )
    assert unmeasured is not None
    assert math.isnan(unmeasured)
    assert value(metrics, "trimtab_brokers", cluster="east-1", state="missing") == 1
    assert value(metrics, "trimtab_oldest_report_age_seconds", cluster="east-1") == 12.5
    assert value(metrics, "trimtab_dry_run", cluster="east-1") == 0
    assert value(metrics, "trimtab_paused", cluster="east-1") == 0
    assert value(metrics, "trimtab_last_round_end_timestamp_seconds", cluster="east-1") == 480.0


def test_dry_run_actions_are_told_apart_from_real_ones() -> None:
    metrics = new_metrics()
    dry = msgspec.structs.replace(ROUND, mode="dry-run", paused=True)
    metrics.observe_round(published(dry), published_s=490.5)
    unload = {"cluster": "east-1", "kind": "unload"}
    assert value(metrics, "trimtab_actions_published_total", **unload, dry_run="true") == 2
    assert value(metrics, "trimtab_actions_published_total", **unload, dry_run="false") == 0
    assert value(metrics, "trimtab_dry_run", cluster="east-1") == 1
    assert value(metrics, "trimtab_paused", cluster="east-1") == 1


def test_a_cluster_that_is_held_because_its_actions_fail_is_shown() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    assert value(metrics, "trimtab_failing", cluster="east-1") == 0
    since = "1970-01-01T00:08:00.000Z"
    failing = msgspec.structs.replace(ROUND, splits_failing_since=since)
    metrics.observe_round(published(failing), published_s=490.5)
    assert value(metrics, "trimtab_failing", cluster="east-1") == 1


def test_events_are_counted_by_type_and_result_and_strangers_share_one_type() -> None:
    metrics = new_metrics()
    metrics.observe_events(events("east-1", EventCount(REPORT, "used", 3), EventCount(REPORT, "late", 1)))
    metrics.observe_events(events("east-1", EventCount("com.example.x", "rejected", 2), not_json=2))
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=REPORT, result="used") == 3
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=REPORT, result="late") == 1
    assert value(metrics, "trimtab_events_total", cluster="east-1", type="unknown", result="rejected") == 2
    assert value(metrics, "trimtab_rejected_total", reason="not-json") == 2


def test_batches_publishing_skips_and_restarts_are_measured() -> None:
    metrics = new_metrics()
    metrics.observe(families.BATCH_DURATION, 0.2)
    metrics.observe(families.PUBLISH_DURATION, 0.02)
    metrics.count(families.BATCHES_SKIPPED)
    metrics.count(families.QUERY_RESTARTS)
    assert value(metrics, "trimtab_batch_duration_seconds_sum") == 0.2
    assert value(metrics, "trimtab_publish_duration_seconds_bucket", le="0.025") == 1
    assert value(metrics, "trimtab_batches_skipped_total") == 1
    assert value(metrics, "trimtab_query_restarts_total") == 1


def test_every_name_has_the_prefix_and_help_and_two_applications_do_not_share_series() -> None:
    metrics = new_metrics()
    metrics.count(families.QUERY_RESTARTS)
    served = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    assert served
    assert all(family.name.startswith("trimtab_") and family.documentation for family in served)
    assert value(new_metrics(), "trimtab_query_restarts_total") == 0


def test_a_round_shows_how_far_the_cluster_is_from_firing() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    assert value(metrics, "trimtab_outliers", cluster="east-1") == 2, "all but those below the threshold"
    assert value(metrics, "trimtab_difference_points", cluster="east-1") == 52.0
    assert value(metrics, "trimtab_threshold_points", cluster="east-1") == 40.0
    assert value(metrics, "trimtab_hits", cluster="east-1") == 2
    assert value(metrics, "trimtab_hits_needed", cluster="east-1") == 2
    assert value(metrics, "trimtab_round_length_seconds", cluster="east-1") == 60


def test_a_round_without_a_decision_does_not_say_that_the_cluster_is_balanced() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    quiet = msgspec.structs.replace(ROUND, outcome="no-quorum", examined=section())
    metrics.observe_round(published(quiet), published_s=490.5)
    assert value(metrics, "trimtab_outliers", cluster="east-1") == 2
    fresh = new_metrics()
    fresh.observe_round(published(quiet), published_s=490.5)
    assert math.isnan(value(fresh, "trimtab_outliers", cluster="east-1") or 0)


def test_a_policy_that_counts_no_hits_shows_none() -> None:
    metrics = new_metrics()
    evidence = {"history_points": 72.0, "mean_points": 60.0, "threshold_points": 10.0}
    shown = msgspec.structs.replace(ROUND, policy="threshold-shedder", examined=examined(evidence, fired=1))
    metrics.observe_round(published(shown), published_s=490.5)
    assert value(metrics, "trimtab_difference_points", cluster="east-1") == 12.0
    assert math.isnan(value(metrics, "trimtab_hits", cluster="east-1") or 0)


def test_results_of_actions_are_counted_by_outcome() -> None:
    metrics = new_metrics()
    seen = events("east-1", EventCount(REPORT, "used", 1))
    metrics.observe_events(msgspec.structs.replace(seen, action_results={"failed": 2}))
    assert value(metrics, "trimtab_action_results_total", cluster="east-1", outcome="failed") == 2
    assert value(metrics, "trimtab_action_results_total", cluster="east-1", outcome="succeeded") == 0


def judged(
    source: str, *, before: float, expected: float, seen: float | None, outcome: str = "good"
) -> JudgedRow:
    loads = {"before": before, "expected": expected, "seen": seen}
    sides = {
        name: {} if rate is None else {"source": BrokerTraffic(messages_per_s=rate, bytes_per_s=100 * rate)}
        for name, rate in loads.items()
    }
    return JudgedRow(
        id="a", kind="unload", bundle="t/n/0x0_0x1", outcome=outcome, brokers={"source": source}, **sides
    )


def test_what_brokers_lost_is_compared_with_what_their_unloads_were_to_take() -> None:
    metrics = new_metrics()
    rows = [
        judged("b1", before=100.0, expected=70.0, seen=75.0),
        judged("b1", before=90.0, expected=70.0, seen=75.0),
        judged("b2", before=50.0, expected=40.0, seen=80.0, outcome="ineffective"),
        judged("b3", before=50.0, expected=0.0, seen=None),
    ]
    section = Section(count=4, outcomes={"good": 3, "ineffective": 1}, heaviest=rows)
    for shown in (section, None):  # a round that judges nothing leaves the figures as they are
        metrics.observe_round(published(msgspec.structs.replace(ROUND, judged=shown)), published_s=490.5)
        for name, factor in (("messages", 1), ("bytes", 100)):
            family = f"trimtab_unloaded_{name}_per_second"
            assert value(metrics, family, cluster="east-1", effect="expected") == 40.0 * factor
            assert value(metrics, family, cluster="east-1", effect="achieved") == -5.0 * factor


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


def test_whether_unloads_helped_is_counted_and_shown_until_it_is_an_hour_ago() -> None:
    metrics = new_metrics()
    rows = [promised("kept"), promised("kept"), promised("failed")]
    found = PromisesSummary(
        kept_count=5,
        failed_count=3,
        expected_gain_points=4.0,
        gain_points=3.0,
        error_points=1.5,
        checked=Section(count=3, outcomes={"kept": 2, "failed": 1}, heaviest=rows),
    )
    metrics.observe_round(published(ROUND), published_s=490.5)
    assert value(metrics, "trimtab_promises_total", cluster="east-1", outcome="failed") == 0
    assert math.isnan(value(metrics, "trimtab_unload_error_points", cluster="east-1") or 0)
    metrics.observe_round(published(msgspec.structs.replace(ROUND, promises=found)), published_s=490.5)
    assert value(metrics, "trimtab_promises_total", cluster="east-1", outcome="kept") == 2
    assert value(metrics, "trimtab_promises_total", cluster="east-1", outcome="failed") == 1
    assert value(metrics, "trimtab_unload_gain_points", cluster="east-1", effect="expected") == 4.0
    assert value(metrics, "trimtab_unload_gain_points", cluster="east-1", effect="achieved") == 3.0
    assert value(metrics, "trimtab_unload_error_points", cluster="east-1") == 1.5
    metrics.observe_round(published(ROUND), published_s=490.5)
    assert math.isnan(value(metrics, "trimtab_unload_error_points", cluster="east-1") or 0)
    assert value(metrics, "trimtab_promises_total", cluster="east-1", outcome="kept") == 2


def test_repeated_unloads_are_counted() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    repeated = {"cluster": "east-1", "source": "other"}
    assert value(metrics, "trimtab_repeated_unloads_total", **repeated) == 0
    metrics.count_repeat(Repeat(cluster="east-1", source="other"))
    assert value(metrics, "trimtab_repeated_unloads_total", **repeated) == 1


def test_what_spark_has_not_said_yet_is_not_zero() -> None:
    metrics = new_metrics()
    assert math.isnan(value(metrics, "trimtab_state_rows") or 0)
    metrics.show_progress(state_rows=3, state_memory_bytes=4096, input_behind_records=None)
    assert value(metrics, "trimtab_state_memory_bytes") == 4096
    assert math.isnan(value(metrics, "trimtab_input_behind_records") or 0)
    metrics.show(families.START, value=1.5)
    assert value(metrics, "trimtab_start_timestamp_seconds") == 1.5


def test_the_catalogue_of_families_is_what_is_served() -> None:
    served = {family.name for family in metrics_page._used_families().collect()}
    assert {family.name.removesuffix("_total") for family in families.FAMILIES} == served


def test_a_cluster_that_is_forgotten_leaves_no_series_and_begins_anew() -> None:
    metrics = new_metrics()
    used = EventCount(REPORT, "used", 2)
    metrics.observe_round(published(ROUND), published_s=490.5)
    metrics.observe_events(events("west-1", used))
    assert value(metrics, "trimtab_clusters") == 2
    metrics.count_repeat(Repeat(cluster="east-1", source="same"))
    metrics.forget("east-1")
    page = generate_latest(metrics.registry).decode()
    assert "east-1" not in page
    assert "west-1" in page
    assert value(metrics, "trimtab_clusters") == 1
    assert value(metrics, "trimtab_events_total", cluster="", type="unknown", result="rejected") == 0
    metrics.observe_events(events("east-1", used))
    assert value(metrics, "trimtab_events_total", cluster="east-1", type=REPORT, result="used") == 2
    assert value(metrics, "trimtab_clusters") == 2


def test_the_control_event_that_forgets_a_cluster_makes_no_series_of_it() -> None:
    metrics = new_metrics()
    metrics.observe_round(published(ROUND), published_s=490.5)
    used = EventCount("unknown", "used", 1)
    last = EventObservation(cluster="east-1", counts=[used], rejected={}, action_results={}, forgotten=True)
    assert decode_observation(encode_observation(last)) == last
    metrics.observe_events(last)
    assert "east-1" not in generate_latest(metrics.registry).decode()
    assert value(metrics, "trimtab_events_total", cluster="", type="unknown", result="used") == 1
