"""Records and settings that once stopped or bloated the controller: each is now refused by name or computed safely.

Every input here was found to do so; ``tests/fuzz`` looks for more.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from state.closing import Identity
from state.controller import Controller
from state.outputs import Output, rfc3339
from state.store import DictStore
from streaming.contract.encode import Origin, encode_refused
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from streaming.transport.intake import Intake, Record
from tests.streaming.events import (
    CLUSTER,
    KAFKA_LOAD_REPORT,
    REASSIGNMENT,
    control,
    event,
    report,
    tick,
    traffic,
)
from tests.streaming.settings.given import refusal

ROUNDS = {"length_s": 10.0, "lateness_s": 5.0, "warmup_rounds": 0}
SETTINGS = ClusterSettingsSource(compose({"pulsar": {"rounds": ROUNDS}, "kafka": {"rounds": ROUNDS}}))


class Desk:
    """Takes one cluster's records as if from a file; the controller's state is committed and loaded again after each record."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.outputs: list[Output] = []
        self.refusals: list[tuple[str, str]] = []
        self._offset = 0

    def take(self, *values: bytes, appended_ms: int | None = None) -> "Desk":
        for value in values:
            controller = Controller(CLUSTER, self.store, identity=Identity(mode="act"), settings=SETTINGS)
            intake = Intake(lambda _cluster, found=controller: found, max_record_bytes=2**20)  # type: ignore[misc]
            self._offset += 1
            origin = Origin(topic="in", partition=0, offset=self._offset)
            outputs, refused = intake.take(Record(value=value, origin=origin, appended_ms=appended_ms))
            self.outputs += outputs
            if refused is not None:
                json.loads(encode_refused(refused, "/trimtab/t"))
                self.refusals.append((refused.rejection.reason, refused.rejection.detail))
            controller.commit()
        return self

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [json.loads(each.data) for each in self.outputs if each.kind == "round"]


@pytest.mark.parametrize("name", ["time", "recordedtime"])
def test_a_time_with_a_lone_surrogate_is_refused_as_bad_time(name: str):
    desk = Desk().take(tick(time_s=5, **{name: "2026-11-21T13:21:25.206Z\ud800"}))
    expected = "expected RFC 3339 with an offset, such as 2026-11-21T13:21:25.206Z"
    assert desk.refusals == [("bad-time", rf"{name} is '2026-11-21T13:21:25.206Z\ud800', {expected}")]


@pytest.mark.parametrize("resumed_at", ["0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59Z"])
def test_resumed_at_before_the_calendar_is_refused_rather_than_failing_every_later_round(resumed_at: str):
    desk = Desk().take(
        control(time_s=5, data={"resumed_at": resumed_at}), report(time_s=45), report(time_s=65)
    )
    assert [reason for reason, _ in desk.refusals] == ["bad-data"]
    assert "resumed_at" in desk.refusals[0][1]
    assert [each["outcome"] for each in desk.summaries] == ["decided"]


def test_a_recordedtime_before_the_calendar_is_refused_and_can_be_published():
    desk = Desk().take(tick(time_s=5, recordedtime="0001-01-01T00:00:00+23:59"))
    assert desk.refusals == [
        ("bad-time", "recordedtime 0001-01-01T00:00:00+23:59 is not between 1970 and 9000")
    ]


@pytest.mark.parametrize("appended_ms", [-(2**63), 2**63 - 1])
def test_an_append_time_outside_the_calendar_ends_nothing(appended_ms: int):
    desk = Desk().take(b"nonsense", appended_ms=appended_ms)
    assert [reason for reason, _ in desk.refusals] == ["not-json"]


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (-(2**63), "0001-01-01T00:00:00.000Z"),
        (2**63, "9999-12-31T00:00:00.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_every_moment_can_be_written(time_ms: int, text: str):
    assert rfc3339(time_ms) == text


def overlay(path: str, value: object) -> bytes:
    tree: object = value
    for name in reversed(path.split(".")):
        tree = {name: tree}
    assert isinstance(tree, Mapping)
    return control(time_s=0, data={"settings": tree})


SECONDS = [
    "pulsar.guards.bundle_cooldown_s",
    "pulsar.guards.ineffective_rest_s",
    "pulsar.split.bundle_cooldown_s",
    "kafka.throttle.deadline_s",
    "kafka.throttle.min_change_interval_s",
]


@pytest.mark.parametrize("value", [1e306, 1.7e308, 1.1e9])
@pytest.mark.parametrize("path", SECONDS)
def test_seconds_that_leave_the_calendar_are_refused_when_they_come(path: str, value: float):
    desk = Desk().take(overlay(path, value), report(time_s=45), report(time_s=65))
    assert desk.refusals == [("bad-settings", f"{path}: expected at most 1e+09 seconds, found {value!r}")]
    assert [each["outcome"] for each in desk.summaries] == ["decided"]


@pytest.mark.parametrize("name", ["lateness_s", "max_report_age_s", "max_ahead_s"])
def test_a_file_with_seconds_that_leave_the_calendar_is_refused_at_the_start(name: str, tmp_path: Any):
    assert refusal(tmp_path, f"[pulsar.rounds]\n{name} = 1e306") == [
        f"trimtab.toml: pulsar.rounds.{name}: expected at most 1e+09 seconds, found 1e+306"
    ]
    assert refusal(tmp_path, flags={"controller.action_ttl_s": "1e300"}) == [
        "--action-ttl-s: controller.action_ttl_s: expected at most 1e+09 seconds, found 1e+300"
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pulsar.avg_shedder.high_threshold_points", 1e305),
        ("pulsar.threshold_shedder.threshold_points", 1e305),
        ("pulsar.overload_shedder.threshold_points", 1e305),
        ("pulsar.uniform_load_shedder.throughput_multiple", 1e305),
        ("pulsar.usage.cpu_weight", 1e305),
        ("pulsar.capacity.messages_per_s", 1e-310),
        ("pulsar.capacity.bytes_per_s", 5e-324),
    ],
)
def test_thresholds_and_limits_that_make_a_summary_infinite_are_refused(path: str, value: float):
    desk = Desk().take(overlay(path, value))
    assert [reason for reason, _ in desk.refusals] == ["bad-settings"]
    assert f"{path}: expected" in desk.refusals[0][1]


@pytest.mark.parametrize(
    "settings",
    [
        {"capacity": {"messages_per_s": 0.001, "bytes_per_s": 0.001}, "usage": {"capacity_weight": 1e6}},
        {"threshold_shedder": {"threshold_points": 1e18}, "shedding_policy": "threshold-shedder"},
        {"uniform_load_shedder": {"min_unload_messages_per_s": 0}, "shedding_policy": "uniform-load-shedder"},
        {"overload_shedder": {}, "shedding_policy": "overload-shedder", "usage": {"cpu_weight": 1e6}},
    ],
)
def test_the_most_extreme_settings_and_rates_taken_give_finite_summaries(settings: Mapping[str, object]):
    most = {"msgRateIn": 1e18, "msgRateOut": 1e18, "msgThroughputIn": 1e18, "msgThroughputOut": 1e18}
    loads = [
        report(
            broker,
            time_s=time_s,
            cpu=(usage, 1e-18),
            bundles={f"t/n/0x{at}0000000_0x{at}fffffff": traffic(1e18, 1e18) for at in range(3)}
            if usage
            else {},
            data=most if usage else {},
        )
        for time_s in (45, 55, 65, 75)
        for broker, usage in (("b1", 1e18), ("b2", 0.0))
    ]
    desk = Desk().take(control(time_s=0, data={"settings": {"pulsar": settings}}), *loads)
    assert desk.refusals == []
    assert [each["outcome"] for each in desk.summaries] == ["decided"] * 3
    for summary in desk.summaries:
        assert None not in summary["usage"].values()
        for row in (
            *summary["brokers"],
            *summary["examined"]["heaviest"],
            *summary["candidates"]["heaviest"],
        ):
            assert None not in (row.get("usage_points", 0), *row.get("evidence", {}).values())


LARGEST = 2**63 - 1
PARTITIONS = 12


def moving(time_s: float, *, size: int, leader: int | None = None) -> list[bytes]:
    """Partitions of the largest size that move from brokers 1 and 2 to 3 and 4."""
    moves = [
        {"topic": "t", "partition": at, "replicas": [1, 2, 3, 4], "leader": leader or 1 + at % 2}
        | {"adding": [3, 4], "removing": [1], "isr": [1, 2]}
        for at in range(PARTITIONS)
    ]
    brokers = []
    for broker in (1, 2, 3, 4):
        replicas = [
            {"topic": "t", "partition": at, "leader": broker == 1 + at % 2, "log_size_bytes": size}
            for at in range(PARTITIONS)
            if broker <= 2 or leader
        ]
        data = {"broker": broker, "replicas": replicas, "network": {"in_bytes_per_s": LARGEST}}
        brokers.append(event(KAFKA_LOAD_REPORT, time_s=time_s, subject=str(broker), data=data))
    shown = event(REASSIGNMENT, time_s=time_s, subject="reassignments", data={"moves": moves})
    return [*brokers, shown]


def test_kafka_sizes_that_overflow_64_bits_in_a_sum_are_as_good_as_endless():
    desk = Desk()
    for number in range(6):
        size = 0 if number == 0 else LARGEST
        desk.take(*moving(10 * number + 5, size=size))
    assert desk.refusals == []
    assert {each["outcome"] for each in desk.summaries} == {"decided"}
    shown = [each["throttle"] for each in desk.summaries]
    assert shown[-1]["bytes_left"] == LARGEST
    assert max(least for each in shown for least in each["min_bytes_per_s"].values() if least) == LARGEST


@pytest.mark.parametrize("name", ["deadline_s", "headroom_ratio"])
def test_a_rate_is_never_above_what_kafka_takes(name: str):
    value = {"deadline_s": 1e-18, "headroom_ratio": 100.0}[name]
    desk = Desk().take(control(time_s=0, data={"settings": {"kafka": {"throttle": {name: value}}}}))
    for number in range(6):
        size = 0 if number == 0 else LARGEST // 100
        desk.take(*moving(10 * number + 25, size=size))
    assert desk.refusals == []
    assert {each["outcome"] for each in desk.summaries} == {"decided"}
    rates = [rate for each in desk.summaries for rate in each["throttle"]["rates_bytes_per_s"].values()]
    assert all(rate <= LARGEST for rate in rates)


def test_a_partition_that_is_led_by_a_replica_it_gains_is_paced_on():
    """The leader is on no list of throttled leaders, so nothing slows it; the code looked up its rate all the same."""
    desk = Desk()
    for number in range(8):
        desk.take(*moving(10 * number + 5, size=10**6 * number, leader=3 if number > 3 else None))
    assert desk.refusals == []
    assert {each["outcome"] for each in desk.summaries} == {"decided"}
    assert desk.summaries[-1]["throttle"]["partitions_moving_count"] == PARTITIONS
