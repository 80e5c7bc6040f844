"""Which actions the Kafka executor accepts as orders, and which it refuses."""

import json
from typing import Any

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.executor.orders import BadOrder, RecordEpoch, read_throttle_order

CLUSTER = "kafka-1"

VOICE = RecordEpoch(7, 7)


def order(*, type_: str = "trimtab.action.throttle.v1", cluster: str = CLUSTER, **data: Any) -> bytes:
    usual = {
        "precondition": {"reassignments": "running"},
        "expires_at": "2026-01-01T00:00:00.000Z",
        "dry_run": False,
        "add_leader_throttled_replicas": {"t": "0:1"},
        "add_follower_throttled_replicas": {"t": "0:3"},
        "remove_leader_throttled_replicas": {},
        "remove_follower_throttled_replicas": {},
        "leader_rate_bytes_per_s": {"1": 5},
        "follower_rate_bytes_per_s": {"3": 6},
        "clear_leader_rates": [2],
        "clear_follower_rates": [],
    }
    event = {"id": "a", "source": "/trimtab/x", "type": type_, "cluster": cluster, "data": usual | data}
    return json.dumps(event).encode()


def test_lists_rates_and_the_epoch_are_read() -> None:
    found = read_throttle_order(order(), VOICE, cluster=CLUSTER)
    assert found is not None
    assert (found.id, found.epoch, found.highest_epoch) == ("a", 7, 7)
    assert found.action.add == ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"})
    assert found.action.rates == {BrokerRole("leader", 1): 5, BrokerRole("follower", 3): 6}
    assert found.action.clear == (BrokerRole("leader", 2),)


@pytest.mark.parametrize("value", [order(cluster="other"), order(type_="trimtab.action.unload.v1")])
def test_what_is_another_clusters_or_of_another_kind_is_passed_over(value: bytes) -> None:
    assert read_throttle_order(value, VOICE, cluster=CLUSTER) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"leader_rate_bytes_per_s": {"1": 0}}, "Expected `int` >= 1"),
        ({"leader_rate_bytes_per_s": {"one": 5}}, "invalid literal"),
        ({"add_leader_throttled_replicas": {"t": "0-1"}}, "is no entry of a throttled replica list"),
        ({"expires_at": "tomorrow"}, "Invalid RFC3339"),
        ({"precondition": {"reassignments": "perhaps"}}, "Invalid enum value"),
    ],
)
def test_what_cannot_be_an_order_is_refused_by_name(data: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOrder, match=why):
        read_throttle_order(order(**data), VOICE, cluster=CLUSTER)
