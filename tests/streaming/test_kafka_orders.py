"""Which actions the Kafka executor accepts as orders, and which it refuses."""

import json
from typing import Any

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.executor.orders import KAFKA_ACTIONS, BadOrder, Order, ThrottleAction, read_order
from streaming.transport.side import ActionRecord, Epochs

CLUSTER = "kafka-1"


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


def read(value: bytes) -> Order[ThrottleAction] | None:
    record = ActionRecord(value=value, epoch_header=b"7")
    return read_order(record, Epochs(), cluster=CLUSTER, readers=KAFKA_ACTIONS)


def test_lists_rates_and_the_epoch_are_read() -> None:
    found = read(order())
    assert found is not None
    assert (found.id, found.epoch, found.highest_epoch) == ("a", 7, 7)
    assert found.action.add == ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"})
    assert found.action.rates == {BrokerRole("leader", 1): 5, BrokerRole("follower", 3): 6}
    assert found.action.clear == (BrokerRole("leader", 2),)


@pytest.mark.parametrize("value", [order(cluster="other"), order(type_="trimtab.action.unload.v1")])
def test_what_is_another_clusters_or_of_another_kind_is_passed_over(value: bytes) -> None:
    assert read(value) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"leader_rate_bytes_per_s": {"1": 0}}, "Expected `int` >= 1"),
        ({"leader_rate_bytes_per_s": {"one": 5}}, "Expected `int`, got `str`"),
        ({"add_leader_throttled_replicas": {"t": "0-1"}}, "is no entry of a throttled replica list"),
        ({"expires_at": "tomorrow"}, "Invalid RFC3339"),
        ({"precondition": {"reassignments": "perhaps"}}, "Invalid enum value"),
    ],
)
def test_what_cannot_be_an_order_is_refused_by_name(data: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOrder, match=why):
        read(order(**data))
