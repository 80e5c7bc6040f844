"""Records and settings that once stopped or bloated the controller: each is now refused by name or computed safely within limits.

``tests/fuzz`` looks for more.
"""

import json
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from policies.splitting.criteria import MOST_BOUNDARIES
from state.closing import Identity
from state.controller import Controller
from state.events import MAX_DETAIL_CHARACTERS, Event
from state.ledger import Decision
from state.outputs import Output, rfc3339
from state.store import DictStore
from streaming.contract.decode import decode
from streaming.contract.encode import Origin, encode_refused
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from streaming.transport.intake import Intake, Record
from tests.state.traces import KAFKA, kafka_trace, load, settings_of, statistics
from tests.streaming import events
from tests.streaming.events import (
    CLUSTER,
    KAFKA_LOAD_REPORT,
    REASSIGNMENT,
    TOPIC_STATS,
    control,
    event,
    facts,
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
            intake = Intake(lambda _cluster, found=controller: found, max_record_bytes=2**20)
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
    assert desk.refusals == [
        ("bad-settings", f"{path}: expected at most 1,000,000,000 seconds, found {value!r}")
    ]
    assert [each["outcome"] for each in desk.summaries] == ["decided"]


@pytest.mark.parametrize("name", ["lateness_s", "max_report_age_s", "max_ahead_s"])
def test_a_file_with_seconds_that_leave_the_calendar_is_refused_at_the_start(name: str, tmp_path: Any):
    assert refusal(tmp_path, f"[pulsar.rounds]\n{name} = 1e306") == [
        f"trimtab.toml: pulsar.rounds.{name}: expected at most 1,000,000,000 seconds, found 1e+306"
    ]
    assert refusal(tmp_path, flags={"controller.action_ttl_s": "1e300"}) == [
        "--action-ttl-s: controller.action_ttl_s: expected at most 1,000,000,000 seconds, found 1e+300"
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


def reason_and_detail(value: bytes) -> tuple[str, str]:
    found: Any = decode(value)[1]
    return found.reason, found.detail


def peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opening", [(b'{"aaaaaaaaaa":', b"}"), (b"[", b"]")], ids=["objects", "arrays"])
def test_diagnosing_a_refused_record_takes_memory_in_proportion_to_its_size(opening: tuple[bytes, bytes]):
    depth = 900
    wide = b",".join([opening[0] * depth + b"1" + opening[1] * depth] * 50)
    value = report(data={"bundles": [{}], "news": "HERE"}).replace(b'"HERE"', b"[" + wide + b"]")
    assert reason_and_detail(value)[0] == "bad-data"
    assert peak_bytes(lambda: decode(value)) < 100 * len(value)


def test_the_path_of_a_number_that_is_none_is_still_named():
    value = report(data={"news": {"a": [1, {"b": "HERE"}]}}).replace(b'"HERE"', b"NaN")
    assert reason_and_detail(value) == ("not-finite", "data.news.a[1].b is nan, expected a finite number")


@pytest.mark.parametrize(
    "value",
    [
        overlay("pulsar", {f"unknown_{number}": 1 for number in range(20_000)}),
        overlay("pulsar.guards", {"x" * 1_000_000: 1}),
        overlay("pulsar.guards.quiet_hours", ["x" * 1_000_000]),
    ],
    ids=["20,000 unknown keys", "a key of a megabyte", "a value of a megabyte"],
)
def test_the_detail_of_a_refusal_is_short_whatever_the_record(value: bytes):
    ((reason, detail),) = Desk().take(value).refusals
    assert reason == "bad-settings"
    assert len(detail) <= MAX_DETAIL_CHARACTERS


LONG = "x" * 4_000_000


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (report(LONG, id="x"), "bad-data", "subject is 'xxx"),
        (report(id=LONG), "not-cloudevent", "id is 'xxx"),
        (report(bundles={f"t/{LONG}/0x0_0x1": traffic(1)}), "bad-bundle-name", "is no bundle"),
        (event(TOPIC_STATS, data={"t/n/0x0_0x1": {LONG: traffic(1)}}), "bad-data", "at most 2048 are taken"),
        (facts(time_s=1, isolation={LONG: (["t/n"], ["b1"])}), "bad-data", "at most 2048 are taken"),
        (facts(time_s=1, restricted=[LONG]), "bad-data", "broker 'xxx"),
        (facts(time_s=1, anti_affinity={LONG: ["t/n"]}), "bad-data", "anti-affinity group 'xxx"),
        (facts(time_s=1, trimtab_topics={LONG: {}}), "bad-data", "bundle 'xxx"),
    ],
    ids=["broker", "id", "bundle", "topic", "isolation policy", "configured broker", "group", "own bundle"],
)
def test_a_name_that_would_make_actions_too_large_is_refused_by_name(value: bytes, reason: str, message: str):
    found = reason_and_detail(value)
    assert found[0] == reason
    assert message in found[1]


def test_what_an_operator_writes_is_kept_as_far_as_a_summary_shows_it():
    found = decode(events.control(time_s=1, data={"who": LONG, "why": LONG}))[1]
    assert (len(found.data.who), len(found.data.why)) == (500, 500)


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(a+)+", "(.*a){12}"])
def test_the_pattern_of_an_isolation_policy_is_matched_in_linear_time(pattern: str):
    """A backtracking engine would practically never finish the first two."""
    names = [f"t/{'a' * 2000}!" for _ in range(3)]
    bundles = {f"{name}/0x00000000_0xffffffff": traffic(5) for name in names}
    desk = Desk().take(
        facts(time_s=5, isolation={"red": ([f"t/{pattern}"], ["b1"])}),
        *(report(time_s=at, bundles=bundles) for at in (6, 16, 26)),
    )
    assert (desk.refusals, [each["outcome"] for each in desk.summaries]) == ([], ["decided"] * 2)


@pytest.mark.parametrize("pattern", ["t/(?=x)", r"(t)/\1", "a{100000}", "(" * 100_000, "(a{1000}){1000}"])
def test_a_pattern_outside_the_linear_language_is_refused_when_it_comes(pattern: str):
    reason, detail = reason_and_detail(facts(time_s=1, isolation={"red": ([pattern], ["b1"])}))
    assert reason == "bad-data"
    assert "isolation policy 'red' has the regular expression" in detail


class Counted(str):
    """An action id that counts how often it is compared."""

    compared = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_results_of_unknown_actions_are_looked_up_rather_than_searched_for():
    """2,000 of them, each sent twice, beside 60 actions: one pass over the actions and one over the results."""
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=settings_of())
    controller.step(load("b1", 5))
    header = controller._header
    Counted.compared = 0
    header.ledger.decisions = [_decision(Counted(f"a{at}"), f"b{at}") for at in range(60)]
    for at in range(2000):
        controller.step(events_result(f"r{at}", at_ms=5000 + at % 1000))
        controller.step(events_result(f"r{at}", at_ms=5000 + at % 1000))
    results = header.rounds[0].results
    header.ledger.apply_results((each.action_id, each.outcome, each.time_ms) for each in results)
    assert len(header.rounds[0].results) == 2000
    assert Counted.compared < 1000


def _decision(id_: str, bundle: str) -> Decision:
    return Decision(
        id=id_,
        kind="unload",
        bundle=bundle,
        source="b1",
        destination="b2",
        children=[],
        decided_ms=1,
        expires_ms=10**9,
        until_ms=10**9,
        dry_run=False,
        is_watched=True,
        is_leaving=True,
    )


def events_result(action_id: str, *, at_ms: int) -> Event:
    found = decode(events.result(action_id, "failed", time_s=at_ms / 1000))[1]
    assert isinstance(found, Event)
    return found


def test_a_split_has_no_more_boundaries_than_fit_in_an_action():
    count, bundle = 12_000, "t/a/0x00000000_0xffffffff"
    eager = {"enabled": True, "hit_count": 0, "max_namespace_bundles_count": 0, "average_samples": 1}
    source = settings_of(rounds={"warmup_rounds": 0}, split=eager)
    controller = Controller(CLUSTER, DictStore(), identity=Identity(mode="act"), settings=source)
    topics = {f"persistent://t/a/{at}": 40_000.0 for at in range(count)}
    batch = [load("b1", 5, bundles={bundle: 1e6}, topics_count=count), statistics("b1", 5, {bundle: topics})]
    outputs = [each for event_ in (*batch, load("b1", 16)) for each in controller.step(event_).outputs]
    (split,) = (each for each in outputs if each.kind == "action")
    assert count / 4 < len(json.loads(split.data)["boundaries"]) <= MOST_BOUNDARIES
    assert len(split.data) < Identity().max_action_bytes


def test_a_throttle_that_the_output_would_refuse_is_held_by_name():
    store = DictStore()
    small = Controller(CLUSTER, store, identity=Identity(mode="act", max_action_bytes=200), settings=KAFKA)
    outputs = [each for event_ in kafka_trace(5) for each in small.step(event_).outputs]
    assert {each.kind for each in outputs} == {"round"}
    reasons = [json.loads(each.data)["reason"] for each in outputs]
    assert any("throttle held, too-large: the action takes " in each for each in reasons)
