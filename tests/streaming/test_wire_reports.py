"""What Kafka clusters and brokers with the extensible load manager report: what is read of it, and what is refused by name."""

import json
from typing import Any

import pytest

from policies.throttle.copies import UNKNOWN
from policies.throttle.lists import ThrottledLists
from policies.throttle.replicas import ReplicaSet
from state.events import BrokerLoad, PartitionTable, Published
from streaming.contract.decode import decode
from tests.streaming.events import KAFKA_LOAD_REPORT, REASSIGNMENT, event

LIGHT, HEAVY, REST = (f"shop/orders/0x{each}0000000_0x{each + 1}0000000" for each in range(3))
HEARTBEAT = "pulsar/lab/b1:8080/0x00000000_0xffffffff"


def load_event(**data: Any) -> bytes:
    given = {
        "weightedMaxEMA": 0.25,
        "msgThroughputEMA": 1500.0,
        "updatedAt": 1_763_700_000_000,
        "cpu": {"usage": 50.0, "limit": 200.0},
        "msgRateIn": 10.0,
        "msgRateOut": 20.0,
        "msgThroughputIn": 1000.0,
        "msgThroughputOut": 2000.0,
        "bundleCount": 4,
        "reportedAt": 1,
        "topBundlesLoadData": [
            {"bundleName": LIGHT, "stats": {"msgThroughputIn": 100.0, "msgRateIn": 1.0, "topics": 2}},
            {"bundleName": HEAVY, "stats": {"msgThroughputIn": 500.0, "msgThroughputOut": 400.0}},
        ],
        "bundles": [HEAVY, REST, HEARTBEAT, LIGHT],
    }
    return json.dumps(
        {
            "specversion": "1.0",
            "type": "trimtab.pulsar.broker-load.v1",
            "id": "b1/1",
            "source": "/trimtab/collect/east-1",
            "subject": "b1:8080",
            "time": "2025-11-21T04:40:30Z",
            "cluster": "east-1",
            "data": given | data,
        }
    ).encode()


def decoded(**data: Any) -> BrokerLoad:
    cluster, found, _ = decode(load_event(**data))
    assert cluster == "east-1"
    assert isinstance(found, BrokerLoad)
    return found


def published(**data: Any) -> Published:
    found = decoded(**data).report.published
    assert found is not None
    return found


def test_all_that_the_broker_owns_is_listed_and_only_the_published_bundles_have_traffic():
    report = decoded().report
    assert report.bundles == [LIGHT, HEAVY, REST]
    assert report.has_traffic.tolist() == [True, True, False]
    assert report.traffic[:2].tolist() == [[1.0, 0.0, 100.0, 0.0], [0.0, 0.0, 500.0, 400.0]]
    assert report.listed_count == 4
    assert report.counts[0].tolist() == [2, 0]
    assert (report.messages_per_s, report.bytes_per_s) == (30.0, 3000.0)
    assert report.resources[0].tolist() == [50.0, 200.0]


def test_a_usage_that_rounding_put_below_zero_is_zero_as_real_brokers_send_it():
    report = decoded(cpu={"usage": -5.568164866280304e-17, "limit": 200.0}).report
    assert report.resources[0].tolist() == [0.0, 200.0]


def test_what_the_broker_smooths_is_taken_as_it_is_and_its_bundles_stay_in_its_order():
    found = published()
    assert (found.usage_ratio, found.bytes_per_s, found.updated_ms) == (0.25, 1500.0, 1_763_700_000_000)
    assert found.top_bundles == [LIGHT, HEAVY]
    assert found.top_bytes_per_s.tolist() == [100.0, 900.0]


def test_bundles_summed_up_from_their_topics_have_traffic_too():
    report = decoded(otherBundles={REST: {"msgRateOut": 3.0, "topics": 5}}).report
    assert report.has_traffic.all()
    assert report.traffic[2].tolist() == [0.0, 3.0, 0.0, 0.0]
    assert report.counts[2].tolist() == [5, 0]


def test_without_a_list_of_bundles_those_with_traffic_are_all():
    assert decoded(bundles=None).report.bundles == [LIGHT, HEAVY]


def test_a_published_bundle_that_is_not_owned_any_more_is_no_bundle_of_the_broker():
    report = decoded(bundles=[HEAVY]).report
    assert report.bundles == [HEAVY]
    assert published(bundles=[HEAVY]).top_bundles == [LIGHT, HEAVY]


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        ({"weightedMaxEMA": -0.1}, "negative-usage", "weightedMaxEMA is -0.1"),
        ({"msgThroughputEMA": -1.0}, "negative-rate", "msgThroughputEMA is -1.0"),
        ({"msgThroughputEMA": 1e19}, "bad-data", "msgThroughputEMA is 1e+19"),
        ({"updatedAt": -1}, "bad-data", "updatedAt is -1"),
        ({"weightedMaxEMA": None}, "bad-data", "weightedMaxEMA"),
        ({"cpu": {"usage": -3.0, "limit": 100.0}}, "negative-usage", "cpu.usage is -3.0"),
        ({"bundles": ["orders"]}, "bad-bundle-name", "'orders' is no bundle"),
        ({"topBundlesLoadData": [{"bundleName": "x", "stats": {}}]}, "bad-bundle-name", "'x' is no bundle"),
        (
            {"topBundlesLoadData": [{"bundleName": LIGHT, "stats": {"msgRateIn": -1.0}}]},
            "negative-rate",
            LIGHT,
        ),
        ({"topBundlesLoadData": [{"bundleName": LIGHT, "stats": {}}] * 2}, "bad-data", f"{LIGHT!r} twice"),
    ],
)
def test_a_load_that_cannot_be_used_is_refused_by_name(data: Any, reason: str, said: str):
    _, found, _ = decode(load_event(**data))
    assert found.reason == reason
    assert said in found.detail


REPLICA = {"topic": "t", "partition": 0, "leader": True, "log_size_bytes": 10, "log_end_offset": None}
MOVE = {
    "topic": "t",
    "partition": 0,
    "replicas": [1, 2, 3],
    "adding": [3],
    "removing": [1],
    "leader": 1,
    "isr": [1, 2],
}


def logs(**data: Any) -> bytes:
    usual = {
        "broker": 101,
        "throttle": {"leader_bytes_per_s": 5, "follower_bytes_per_s": None},
        "network": {"in_bytes_per_s": None, "out_bytes_per_s": 7},
        "replicas": [REPLICA],
    }
    return event(KAFKA_LOAD_REPORT, data=usual | data, subject="101")


def moves(*rows: dict[str, Any], **lists: Any) -> bytes:
    data = {"moves": list(rows), "throttled": {"leader": {}, "follower": {}} | lists}
    return event(REASSIGNMENT, data=data, subject="reassignments")


def brokers_of(replicas: ReplicaSet) -> list[tuple[int, int]]:
    """Row and broker of each replica."""
    return list(zip(replicas.rows.tolist(), replicas.brokers.tolist(), strict=True))


def test_a_report_keeps_what_is_known_and_nothing_else():
    _, found, _ = decode(logs())
    assert found.logs.replicas == PartitionTable.of_rows(["t"], [0], [10], *[[UNKNOWN]] * 3)
    assert found.logs.rates == {"leader": 5}
    assert (found.logs.in_bytes_per_s, found.logs.out_bytes_per_s) == (None, 7)


def test_moves_come_in_order_and_say_what_they_are_in_the_end():
    planned = MOVE | {"partition": 1, "replicas": [1, 2], "adding": [4], "removing": [2]}
    _, found, _ = decode(moves(planned, MOVE, leader={"t": "0:1"}))
    table = found.report.copies
    assert (table.names(), table.leader.tolist()) == (["t-0", "t-1"], [1, 1])
    assert [
        brokers_of(each) for each in (table.sources, table.destinations, table.target, table.in_sync)
    ] == [
        [(0, 1), (0, 2), (1, 1), (1, 2)],
        [(0, 3), (1, 4)],
        [(0, 2), (0, 3), (1, 1), (1, 4)],
        [(0, 1), (0, 2), (1, 1), (1, 2)],
    ]
    assert found.report.is_running
    assert found.report.throttled == ThrottledLists(leader={"t": "0:1"}, follower={})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (logs(broker=102), "subject is '101', and data.broker is 102: they must be equal"),
        (logs(broker=-1), "Expected `int` >= 0"),
        (logs(replicas=[REPLICA, REPLICA]), "t-0 is reported twice"),
        (logs(replicas=[REPLICA | {"log_size_bytes": -1}]), "Expected `int` >= 0"),
        (logs(replicas=[REPLICA | {"log_size_bytes": 2**63}]), "Expected `int` <= 9223372036854775807"),
        (logs(replicas=[REPLICA | {"topic": "a b"}]), "Expected `str` matching regex"),
        (logs(throttle={"leader_bytes_per_s": 1.5}), "Expected `int | null`"),
        (moves(MOVE, MOVE), "t-0: given twice"),
        (moves(MOVE | {"replicas": []}), "t-0: "),
        (moves(MOVE | {"replicas": [1, 1, 3]}), "t-0: current_replicas is [1, 1, 3]; give each broker once"),
        (moves(MOVE | {"removing": [9]}), "t-0: removing has [9], which are not among replicas"),
        (moves(MOVE | {"leader": 9}), "t-0: leader is 9, which is not among current_replicas"),
        (moves(MOVE | {"adding": [1, 2, 3]}), "t-0: all of current_replicas [1, 2, 3] are being added"),
        (moves(leader={"t": "0:1,x"}), "throttled list of topic t: 'x' is no entry"),
    ],
)
def test_what_cannot_be_so_is_refused_by_name(value: bytes, why: str):
    cluster, found, _ = decode(value)
    assert (cluster, found.reason) == ("east-1", "bad-data")
    assert why in found.detail
