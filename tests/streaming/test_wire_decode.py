"""What is accepted: every shape that a report may have, which parts of it a cluster's controller gets, and the names kept for the next one."""

import time
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from policies.usage import percent
from state.events import (
    BrokerReport,
    Event,
    LoadReport,
)
from state.facts import Facts, Isolation
from state.overlay import moment_at
from streaming.contract import pulsar
from streaming.contract.bundles import BadBundleName, KnownBundles
from streaming.contract.decode import decode
from tests.streaming.events import (
    CLUSTER,
    TOPIC_STATS,
    control,
    event,
    facts,
    report,
    result,
    tick,
    traffic,
)

LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
HEARTBEAT = "pulsar/lab/b1:8080/0x00000000_0xffffffff"


def taken(value: bytes, *, key: str | None = CLUSTER) -> Event:
    cluster, found, _ = decode(value, key=key)
    assert isinstance(found, Event), found
    assert cluster == CLUSTER
    return found


def seen(data: Mapping[str, object]) -> BrokerReport:
    found = taken(report(data=data))
    return found.report


def test_a_full_report_is_read_into_columns():
    found = seen(
        {
            "cpu": {"usage": 150.0, "limit": 200.0},
            "bandwidthIn": {"usage": 1, "limit": 4},
            "bandwidthOut": {"usage": 2, "limit": 4},
            "directMemory": {"usage": 16, "limit": 256},
            "memory": {"usage": 70.2, "limit": 247.5},
            "msgRateIn": 10,
            "msgRateOut": 20,
            "msgThroughputIn": 300,
            "msgThroughputOut": 400,
            "bundles": [HIGH, HEARTBEAT, LOW],
            "lastStats": {
                LOW: {"msgRateIn": 1, "msgRateOut": 2, "msgThroughputIn": 3, "msgThroughputOut": 4},
                HIGH: {"msgRateIn": 5, "msgRateOut": 6, "msgThroughputIn": 7, "msgThroughputOut": 8},
                HEARTBEAT: traffic(9),
            },
        }
    )
    assert found.resources.tolist() == [[150, 200], [1, 4], [2, 4], [16, 256]]
    assert (found.messages_per_s, found.bytes_per_s) == (30, 700)
    assert found.bundles == [LOW, HIGH]
    assert found.traffic.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert found.has_traffic.tolist() == [True, True]
    assert found.listed_count == 3, "Pulsar's own count has the heartbeat bundle in it"
    assert found.unlisted_messages_per_s == 7, "of its 30, the bundles have 14 and the heartbeat 9"


def test_bundles_of_pulsars_own_that_serve_the_cluster_count_where_they_have_traffic():
    busy, idle, silent = (f"pulsar/system/0x{at}0000000_0x{at + 1}0000000" for at in range(3))
    stats = {busy: traffic(5), idle: traffic(0), HEARTBEAT: traffic(1), LOW: traffic(2)}
    assert seen({"lastStats": stats, "systemBundles": [silent]}).busy_system_count == 1


IDLE = {"msgRateIn": 0}


def test_a_report_with_a_single_rate_is_taken_and_nothing_else_of_it_is_measured():
    found = seen(IDLE)
    assert found.resources.tolist() == [[-1, -1]] * 4
    assert (found.messages_per_s, found.bytes_per_s, found.listed_count, found.bundles) == (0, 0, 0, [])
    assert found.traffic.shape == (0, 4)


NULLS = dict.fromkeys(
    [
        *("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"),
        *("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut", "lastStats", "bundles"),
    ]
)


def test_null_is_as_good_as_absent():
    nothing, nulls = seen(IDLE), seen(NULLS | IDLE)
    assert nulls.resources.tolist() == nothing.resources.tolist()
    assert (nulls.messages_per_s, nulls.bundles) == (nothing.messages_per_s, nothing.bundles)


UNMEASURED = [
    {},
    {"limit": 100},
    {"usage": None, "limit": 100},
    {"usage": -1, "limit": -1},
    {"usage": -1},
    None,
]
UNLIMITED = [{"usage": 50, "limit": limit} for limit in (0, -1, -100, None)]


@pytest.mark.parametrize("resource", [*UNMEASURED, *UNLIMITED])
def test_a_resource_that_was_not_measured_or_has_no_limit_is_zero_percent(resource: object):
    measured = seen({"cpu": resource} | IDLE).resources[0]
    assert percent(measured[:1], measured[1:]).tolist() == [0]


@pytest.mark.parametrize(
    "data", [{"cpu": {"usage": 5, "limit": 100}}, {"cpu": {"usage": -1, "limit": -1}}, {"bundles": [LOW]}]
)
def test_a_broker_without_bundles_or_without_a_measurement_is_no_less_a_broker(data: dict[str, object]):
    assert seen(data).messages_per_s == 0


def test_an_absent_broker_rate_is_the_sum_over_its_bundles_heartbeats_and_all():
    found = seen(
        {"msgRateOut": 5, "lastStats": {LOW: traffic(1, 10), HIGH: traffic(2, 20), HEARTBEAT: traffic(0.5)}}
    )
    assert (found.messages_per_s, found.bytes_per_s) == (8.5, 30)


def test_a_bundle_listed_without_statistics_has_no_traffic():
    found = seen({"bundles": [LOW, HIGH], "lastStats": {HIGH: traffic(3)}})
    assert found.has_traffic.tolist() == [False, True]
    assert found.traffic[:, 0].tolist() == [0, 3]


def test_topics_and_clients_of_a_bundle_are_counted_absent_and_null_ones_as_none():
    counts = {
        HIGH: {"topics": 7, "producerCount": 3, "consumerCount": 4},
        LOW: {"topics": None, "consumerCount": 2, "cacheSize": 9},
        "t/n/0x1_0x2": {},
    }
    assert seen({"lastStats": counts}).counts.tolist() == [[0, 2], [0, 0], [7, 7]]
    assert seen({"lastStats": counts, "bundles": [LOW, "t/m/0x1_0x2"]}).counts.tolist() == [[0, 0], [0, 2]]


def test_statistics_of_topics_become_columns_bundle_by_bundle():
    data = {HIGH: {"persistent://t/n/a": traffic(1, 10) | {"msgRateOut": 2}, "b": {}}, LOW: {}}
    found = taken(event(TOPIC_STATS, data=data))
    assert found.traffic.bundles == [HIGH, LOW]
    assert found.traffic.counts.tolist() == [2, 0]
    assert found.traffic.topics == ["persistent://t/n/a", "b"]
    assert found.traffic.messages_per_s.tolist() == [3, 0]
    assert found.traffic.bytes_per_s.tolist() == [10, 0]


@pytest.mark.parametrize(
    ("clients", "sessions"),
    [
        ({"producers": 2, "consumers": 40000}, 40002),
        ({"producers": 0, "consumers": 0}, 0),
        ({"consumers": 3}, 3),
        ({"producers": 3, "consumers": None}, 3),
        ({}, 0),
    ],
)
def test_clients_of_topics_are_added_up_as_far_as_known(clients: dict[str, int | None], sessions: int):
    """What is missing shows where they are compared with the number that the bundle's owner reports."""
    found = taken(event(TOPIC_STATS, data={HIGH: {"a": traffic(1) | clients, "b": traffic(2)}}))
    assert found.traffic.sessions.tolist() == [sessions, 0]
    assert found.traffic.messages_per_s.tolist() == [1, 2]


OLD_STYLE = ["t/c/n/0x00000000_0xffffffff", "prop/use/ns.with.dots-1/0x0_0x1"]
NAMES = [*OLD_STYLE, "t/n/0x0_0xFFFFFFFF", "ü/ñ/0xAb_0xcD", "a:b/c%d/0x0_0x1"]
SYSTEM = "pulsar/system/0x00000000_0x40000000"
PULSARS_OWN = [
    *("pulsar/b1:8080/0x00000000_0xffffffff", "sla-monitor/b1:8080/0x00000000_0xffffffff"),
    *("sla-monitor/lab/b1.example:8080/0x00000000_0xffffffff", HEARTBEAT, SYSTEM),
]


@pytest.mark.parametrize(
    ("data", "bundles", "own", "listed_count"),
    [
        pytest.param({"lastStats": {HIGH: {}, LOW: {}}}, [LOW, HIGH], [], 2, id="without a list: statistics"),
        pytest.param({"bundles": [LOW], "lastStats": {LOW: {}, HIGH: {}}}, [LOW], [], 1, id="not listed"),
        pytest.param({"bundles": [LOW, LOW], "lastStats": {LOW: {}}}, [LOW], [], 1, id="listed twice"),
        *(pytest.param({"bundles": [name]}, [name], [], 1, id=name) for name in NAMES),
        *(
            pytest.param({"lastStats": {name: {}, LOW: {}}}, [LOW], [name], 2, id=name)
            for name in PULSARS_OWN
        ),
        pytest.param(
            {"bundles": [HEARTBEAT, LOW], "systemBundles": [SYSTEM, LOW]},
            [LOW],
            [HEARTBEAT, SYSTEM],
            2,
            id="owned without being listed",
        ),
    ],
)
def test_a_brokers_bundles_are_named_and_system_bundles_apart_from_them(
    data: dict[str, object], bundles: list[str], own: list[str], listed_count: int
):
    found = seen(data)
    assert (found.bundles, found.system_bundles, found.listed_count) == (bundles, own, listed_count)


def test_absent_and_null_rates_of_a_bundle_are_zero():
    found = seen({"lastStats": {LOW: {"msgRateIn": None, "msgThroughputOut": 4}, HIGH: {}}})
    assert found.traffic.tolist() == [[0, 0, 0, 4], [0, 0, 0, 0]]


def test_a_heartbeat_stays_unseen_when_the_memory_of_names_starts_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pulsar, "_known_bundles", KnownBundles(max_names=3))
    for bundles in ([HEARTBEAT, LOW], [HEARTBEAT, HIGH, "t/n/0x1_0x2"], [HEARTBEAT, LOW]):
        assert HEARTBEAT not in seen({"bundles": bundles}).bundles
        assert HEARTBEAT not in seen({"lastStats": dict.fromkeys(bundles, traffic(1))}).bundles


@pytest.mark.parametrize(
    "attributes",
    [
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"dataschema": "https://example.org/schema", "sequence": 7, "nested": {"a": [1, {"b": None}]}},
        {"datacontenttype": None},
        {"datacontenttype": "application/json; charset=utf-8"},
        {"recordedtime": None},
    ],
)
def test_attributes_of_others_are_let_through(attributes: dict[str, object]):
    assert isinstance(taken(report(**attributes)), LoadReport)


def test_unknown_fields_of_pulsar_are_let_through():
    assert seen({"topBundles": {"x": [1, 2, {"y": None}]}, "maxResourceUsage": 0.5} | IDLE).bundles == []


@pytest.mark.parametrize(
    ("time_", "time_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:01:00.123456Z", 60_123),
        ("1970-01-01T00:01:00.999999Z", 60_999),
        ("1970-01-01T02:00:00+01:30", 1_800_000),
        ("1970-01-01t00:00:01z", 1_000),
        ("1970-01-01 00:00:01Z", 1_000),
        ("8999-12-31T23:59:59.999Z", 221_845_391_999_999),
    ],
)
def test_time_is_taken_to_the_millisecond_in_any_offset(time_: str, time_ms: int):
    assert taken(report(time=time_)).time_ms == time_ms


def test_a_record_in_a_file_may_say_when_it_was_appended():
    value = report(recordedtime="1970-01-01T00:00:05Z")
    assert [decode(each, key=CLUSTER)[2] for each in (value, report())] == [5_000, None]


def test_a_file_has_no_key_to_compare():
    assert isinstance(taken(report(), key=None), LoadReport)


FIVE, SIX = "1970-01-01T00:00:05Z", "1970-01-01T00:00:06Z"
MANY = [f"b{number:03d}" for number in range(120)]


@pytest.mark.parametrize(
    ("data", "named", "count"),
    [
        ({}, [], 0),
        ({"unowned": {HIGH: FIVE, LOW: SIX}}, [LOW, HIGH], 2),
        ({"unowned": {LOW: FIVE}, "unowned_count": 7}, [LOW], 7),
        ({"unowned": dict.fromkeys(MANY, FIVE)}, MANY[:100], 120),
    ],
    ids=["none", "two", "more than are named", "too many names"],
)
def test_bundles_without_an_owner_come_with_the_tick(data: dict[str, object], named: list[str], count: int):
    found = taken(event("trimtab.tick.v1", subject="tick", data={"asked": ["b1"], **data}))
    assert ([name for name, _ in found.unowned], found.unowned_count) == (named, count)
    assert {since for _, since in found.unowned} <= {5000, 6000}


def test_the_other_events_are_read_too():
    sweep = taken(tick(time_s=9, asked=["b2", "b1"], failed={"b3": "timeout", "b2": "refused"}))
    assert (sweep.time_ms, sweep.asked) == (9_000, ("b1", "b2"))
    assert sweep.failed == (("b2", "refused"), ("b3", "timeout"))

    ended = taken(result("abc", "failed", time_s=1))
    assert (ended.action_id, ended.outcome) == ("abc", "failed")

    overlay = taken(control(time_s=1, data={"settings": {"b": 1, "a": {"d": 2, "c": 3}}, "who": "ann"})).data
    assert (overlay.paused, overlay.mode, overlay.who, overlay.why) == (False, None, "ann", "")
    assert msgspec.json.encode(overlay.settings) == b'{"a":{"c":3,"d":2},"b":1}'

    assert overlay.resumed_at is None
    resumed = taken(control(time_s=2, data={"resumed_at": "1970-01-01T01:00:01.5+01:00"}))
    assert resumed.data.resumed_at == moment_at(1500)

    known = taken(
        facts(
            time_s=1,
            shedding=["b2", "b1"],
            splitting=["b4"],
            calm=["b3"],
            unknown=["b5"],
            isolation={"y": [["t/a", "t/b.*"], ["h1"]], "x": [[], []]},
            anti_affinity={"g": ["t/b", "t/a"]},
        )
    )
    assert known.facts == Facts(
        shedding_brokers=["b1", "b2"],
        splitting_brokers=["b4"],
        unknown_brokers=["b5"],
        isolation=[Isolation("x", [], []), Isolation("y", ["t/a", "t/b.*"], ["h1"])],
        anti_affinity={"g": ["t/a", "t/b"]},
    )

    statistics = taken(event(TOPIC_STATS, data={LOW: {"persistent://t/n/a": traffic(1)}}))
    assert statistics.broker == "b1"


def test_a_broker_may_have_any_name_that_is_neither_empty_nor_endless():
    names = ["b1:8080", "ü", " ", "a\nb", "\x00", "x" * 2048, "\U0001f4a5"]
    found = [taken(report(name, id="1")) for name in names]
    assert [each.broker for each in found if isinstance(each, LoadReport)] == names


def test_a_hundred_thousand_bundles_fit_into_one_report():
    stats = {f"tenant/namespace-{i % 100}/0x{i:08x}_0x{i + 1:08x}": traffic(i) for i in range(100_000)}
    value = report(data={"bundles": list(stats), "lastStats": stats})
    started_s = time.process_time()
    found = taken(value)
    assert time.process_time() - started_s < 5
    assert found.report.listed_count == len(found.report.bundles) == 100_000
    assert found.report.bundles == sorted(stats)
    assert found.report.messages_per_s == sum(range(100_000))
    assert np.array_equal(found.report.traffic[:, 0], [stats[name]["msgRateIn"] for name in sorted(stats)])


A, B, C = (f"t/n/0x{start:08x}_0x{start + 1:08x}" for start in (1, 2, 3))
BROKER = ("lab", "b1")


def test_the_same_names_again_are_the_same_listing():
    known = KnownBundles()
    assert known.listing(BROKER, [B, A], [A, B]) is known.listing(BROKER, [B, A], [A, B])


@pytest.mark.parametrize(
    ("stats", "listed"), [([A, B], [A, B]), ([B, A], [B, A]), ([B], [A, B]), ([B, A], [A]), ([B, A], None)]
)
def test_other_names_or_another_order_are_read_anew(stats: list[str], listed: list[str] | None):
    known = KnownBundles()
    known.listing(BROKER, [B, A], [A, B])
    after, fresh = known.listing(BROKER, stats, listed), KnownBundles().listing(BROKER, stats, listed)
    assert (after.bundles, after.stats_rows.tolist(), after.listed_count) == (
        fresh.bundles,
        fresh.stats_rows.tolist(),
        fresh.listed_count,
    )
    assert [stats[row] if row >= 0 else None for row in after.stats_rows.tolist()] == [
        name if name in stats else None for name in after.bundles
    ]


def test_a_wrong_name_is_refused_however_often_it_comes():
    known = KnownBundles()
    for _ in range(2):
        with pytest.raises(BadBundleName, match="'no-bundle' is no bundle"):
            known.listing(BROKER, [A, "no-bundle"], None)


def test_however_many_names_and_brokers_come_little_is_kept_and_every_listing_is_right():
    known = KnownBundles(max_names=4)
    for turn in range(20):
        names = [A, HEARTBEAT, B, C][turn % 3 :]
        found = known.listing(("lab", f"b{turn % 7}"), names, None)
        assert found.bundles == sorted(set(names) - {HEARTBEAT})
        assert found.listed_count == len(names)
        assert len(known._names) <= 4
        assert sum(kept.size for kept in known._listings.values()) <= 4
