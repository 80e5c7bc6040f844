"""`trimtab.pulsar.broker-load.v1`: what a broker with the extensible load manager publishes becomes a report, or is refused by name."""

import json
from typing import Any

import pytest

from state.events import BrokerLoad, Published
from streaming.contract.decode import decode

LIGHT, HEAVY, REST = (f"shop/orders/0x{each}0000000_0x{each + 1}0000000" for each in range(3))
HEARTBEAT = "pulsar/lab/b1:8080/0x00000000_0xffffffff"


def event(**data: Any) -> bytes:
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
    cluster, found, _ = decode(event(**data))
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
    _, found, _ = decode(event(**data))
    assert found.reason == reason
    assert said in found.detail
