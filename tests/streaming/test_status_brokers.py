"""Who carries what now: the table and the object that ``trimtab status --brokers`` makes of a cluster's newest summary."""

import json
from typing import Any

import msgspec
import pytest

from state.outputs import (
    BrokerLoad,
    DrainRow,
    KafkaBrokerLoad,
    MaintenanceRow,
    MaintenanceSummary,
    RoundSummary,
    ShadowSummary,
    UsageSummary,
)
from streaming.cli.cluster_status import ClusterStatus
from streaming.cli.output import render
from streaming.cli.rounds import about_text
from streaming.cli.status import brokers_text, brokers_tree, status_text
from tests.streaming.summaries import CONTROL, ROUND, THROTTLE, of_kafka, round_event, section

SHOWN: dict[str, Any] = {
    "brokers_reporting": ["b1", "b2"],
    "brokers_reporting_count": 2,
    "brokers_missing_count": 0,
}
BUSY = BrokerLoad(
    broker="b1",
    usage_points=62.14,
    resources={"cpu": 62.14, "bandwidth-in": 8.0, "bandwidth-out": 9.0, "direct-memory": "not-measured"},
    messages_per_s=3_600.0,
    bytes_per_s=1_234_567.0,
    in_messages_per_s=1_200.0,
    in_bytes_per_s=234_567.0,
    bundles_count=40,
    resting_count=11,
    excluded=False,
    group="east",
)
AWAY = BrokerLoad(
    broker="b2",
    usage_points=0.0,
    resources={"cpu": "not-measured"},
    messages_per_s=1.0,
    bytes_per_s=2.0,
    bundles_count=1,
    excluded=True,
    group=None,
    gives_none_reason="it is under maintenance",
    receives_none_reason="it is under maintenance",
)
ASKED: dict[str, Any] = {"since": "1970-01-01T00:00:00.000Z", "who": "ann", "why": "disk"}


def status(data: RoundSummary, *, after_s: float = 30) -> ClusterStatus:
    now_ms = round(480_000 + 1000 * after_s)
    return ClusterStatus(
        event=round_event(data), epoch=7, waiting=None, leaders=None, reports_come=False, now_ms=now_ms
    )


def of(*rows: BrokerLoad, **fields: Any) -> ClusterStatus:
    return status(
        msgspec.structs.replace(ROUND, **{**SHOWN, "brokers": list(rows), "reason": "why"} | fields)
    )


def test_a_table_shows_usage_bundles_traffic_and_why_a_broker_is_left_alone() -> None:
    assert (
        brokers_text(of(BUSY, AWAY))
        == """\
east-1 (pulsar): acts, round 7 ended 30 s ago
  why
  usage mean 60.0, max 80.0 points
  broker  usage    by resource                                    bundles      messages/s           bytes/s
  b1      62.1 %   cpu 62.1, bandwidth-out 9.0, bandwidth-in 8.0  40, 11 rest  1,200 in, 2,400 out  234,567 in, 1,000,000 out  group east
  b2      unknown  not measured                                   1            1 in + out           2 in + out                 gives and receives none: it is under maintenance
"""
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["b2"], " without b2, excluded from balancing"),
        (["b2", "b3", "b4", "b5"], " without b2, b3, b4 and 1 more, excluded from balancing"),
        ([], ""),
    ],
)
def test_mean_and_maximum_say_which_brokers_they_leave_out(names: list[str], said: str) -> None:
    found = of(BUSY, AWAY, brokers_excluded=names)
    line = f"usage mean 60.0, max 80.0 points{said}\n"
    assert f"\n  {line}" in brokers_text(found)
    assert line in status_text(found)


def test_where_the_dry_run_counts_bundles_elsewhere_the_table_is_said_to_be_measured() -> None:
    usage = UsageSummary(mean_points=50.0, max_points=60.0, stdev_points=1.0)
    text = brokers_text(of(BUSY, shadow=ShadowSummary(count=3, usage=usage, heaviest=[])))
    assert (
        "  the table is as measured; counted where the dry-run moved them: 3 bundles; usage mean 50.0, max 60.0"
        in text
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gives_none_reason": "x"}, "gives none: x"),
        ({"receives_none_reason": "y"}, "receives none: y"),
        ({"gives_none_reason": "x", "receives_none_reason": "y"}, "gives none: x; receives none: y"),
        ({"gives_none_reason": "x", "receives_none_reason": "x"}, "gives and receives none: x"),
    ],
)
def test_a_row_says_why_the_broker_gives_or_receives_none(changes: dict[str, str], said: str) -> None:
    row = msgspec.structs.replace(BUSY, group=None, **changes)
    assert brokers_text(of(row)).splitlines()[4].endswith(f"1,000,000 out  {said}")


def test_rounds_show_says_the_same_of_a_broker() -> None:
    data = msgspec.structs.replace(ROUND, brokers=[AWAY])
    assert "1 bundle; gives and receives none: it is under maintenance" in about_text([data])


def test_what_holds_the_whole_round_stands_above_the_table() -> None:
    text = brokers_text(of(BUSY, outcome="warm-up", paused=True, control=CONTROL))
    assert text.startswith("east-1 (pulsar): acts, PAUSED, round 7 ended 30 s ago\n  warm-up: why\n")
    assert "no newer round" in brokers_text(status(msgspec.structs.replace(ROUND, **SHOWN), after_s=3600))


def test_brokers_without_a_report_follow_with_the_reason_and_what_is_not_shown_is_counted() -> None:
    found = of(
        BUSY,
        brokers_reporting_count=103,
        brokers_missing=["b3", "b4"],
        brokers_missing_count=3,
        brokers_failed={"b3": "timed out"},
    )
    assert [" ".join(line.split()) for line in brokers_text(found).splitlines()[5:]] == [
        "b3 no report timed out",
        "b4 no report the reason is not known",
        "and 102 more that carry less",
        "and 1 more without a report",
    ]
    tree = brokers_tree(found)
    assert tree["silent"] == {"b3": "timed out", "b4": "the reason is not known"}
    assert (tree["brokers_more_count"], tree["silent_more_count"]) == (102, 1)


def test_a_silent_broker_that_is_drained_or_under_maintenance_is_named_where_all_that_reported_are() -> None:
    maintenance = MaintenanceSummary(
        brokers=[MaintenanceRow(name="b5", **ASKED), MaintenanceRow(name="b1", **ASKED)],
        namespaces=[],
        drains=[DrainRow(name="b6", state="silent", **ASKED)],
        bundles_left=section(),
    )
    away = {"b5": "it is under maintenance", "b6": "it is drained"}
    assert brokers_tree(of(BUSY, AWAY, maintenance=maintenance))["silent"] == away
    assert brokers_tree(of(BUSY, AWAY, maintenance=maintenance, brokers_reporting_count=3))["silent"] == {}


def test_a_round_without_a_report_says_so() -> None:
    assert brokers_text(of(brokers_reporting=[], brokers_reporting_count=0)).splitlines()[-1] == (
        "  no broker reported in this round"
    )


def test_a_program_gets_every_number_and_null_for_what_is_not_known() -> None:
    tree = brokers_tree(of(BUSY, AWAY))
    assert json.loads(render([tree], "json")) == [tree]
    assert (tree["cluster"], tree["age_s"], tree["is_late"], tree["reason"]) == ("east-1", 30, False, "why")
    busy, away = tree["brokers"]
    assert (busy["out_messages_per_s"], busy["out_bytes_per_s"], busy["resting_count"]) == (
        2_400,
        1_000_000,
        11,
    )
    assert (busy["gives_none_reason"], away["gives_none_reason"]) == (None, "it is under maintenance")
    assert (away["in_messages_per_s"], away["out_messages_per_s"], away["resting_count"]) == (None, None, 0)


def test_of_kafka_it_shows_the_network_what_moves_and_the_throttle() -> None:
    rows = [
        KafkaBrokerLoad(
            broker="101",
            usage_points=40.0,
            in_bytes_per_s=4_000,
            out_bytes_per_s=100,
            leading_count=2,
            gaining_count=0,
        ),
        KafkaBrokerLoad(broker="104", in_bytes_per_s=7, leading_count=0, gaining_count=1),
        KafkaBrokerLoad(broker="105"),
    ]
    fields: dict[str, Any] = {"kafka_brokers": rows, "brokers_reporting_count": 3, "brokers_missing_count": 0}
    kafka = msgspec.structs.replace(of_kafka(THROTTLE), reason="why", **fields)
    assert (
        brokers_text(status(kafka))
        == """\
kafka-1 (kafka): acts, round 1 ended 30 s ago
  why
  broker  usage    bytes/s            partitions that move
  101     40.0 %   4,000 in, 100 out  2 leading             leader throttle 30 B/s
  104     unknown  7 in, unknown out  1 gaining             follower throttle 40 B/s
  105     unknown  unknown            unknown
"""
    )
    assert [row["throttle_bytes_per_s"] for row in brokers_tree(status(kafka))["brokers"]] == [
        {"leader": 30},
        {"follower": 40},
        {},
    ]
    dry = brokers_text(status(msgspec.structs.replace(kafka, mode="dry-run")))
    assert "leader throttle would be 30 B/s" in dry
