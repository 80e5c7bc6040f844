"""Which actions an executor takes up, which ones it refuses, and which control event it obeys: pure code that gets the time as an argument."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.overlay import ControlData, MaintenanceWindow
from state.settings import RoundSettings
from streaming.contract.encode import encode_leader
from streaming.contract.messages import PAUSED_REASON
from streaming.executor.memory import ControlView
from streaming.executor.orders import (
    KAFKA_ACTIONS,
    PULSAR_ACTIONS,
    BadOrder,
    Order,
    SplitAction,
    ThrottleAction,
    UnloadAction,
    gate,
    read_order,
)
from streaming.transport.side import ActionRecord, PartitionEpochs, TopicRecord
from tests.support.ports_suite import CLUSTER, control

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BUNDLE = "t/n/0x00000000_0x40000000"


def record(type_: str = UNLOAD_TYPE, *, cluster: str = "east-1", **data: object) -> bytes:
    data = {
        "bundle": BUNDLE,
        "precondition": {"owner": "b1:8080", "range": "0x00000000_0x40000000"},
        "expires_at": (NOW + timedelta(seconds=60)).isoformat(),
        "dry_run": False,
        "reason": "fields nobody reads are no trouble",
        **data,
    }
    event = {"id": "a1", "source": "/trimtab/c", "type": type_, "cluster": cluster, "data": data}
    return json.dumps(event).encode()


def read(
    value: bytes, epochs: PartitionEpochs | None = None, *, epoch: bytes | None = b"3"
) -> Order[UnloadAction | SplitAction] | None:
    return read_order(
        ActionRecord(value=value, epoch_header=epoch),
        PartitionEpochs() if epochs is None else epochs,
        cluster="east-1",
        readers=PULSAR_ACTIONS,
    )


def order(*, epoch: bytes | None = b"3", **data: object) -> Order[UnloadAction | SplitAction]:
    heard = PartitionEpochs()
    heard.begin(0, {"/trimtab/c": 3, "/trimtab/other": 9})
    found = read(record(**data), heard, epoch=epoch)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changed", "control", "reason"),
    [
        pytest.param({}, None, None, id="nothing against it"),
        pytest.param({}, ControlData(paused=False, mode="act"), None, id="asked to act"),
        pytest.param({"epoch": None}, None, "no-epoch", id="no epoch"),
        pytest.param({"epoch": b"2"}, None, "old-epoch", id="an older controller's"),
        pytest.param({"epoch": b"4"}, None, None, id="a newer controller's"),
        pytest.param({"dry_run": True}, None, "dry-run", id="only to be shown"),
        pytest.param({"expires_at": NOW.isoformat()}, None, "expired", id="expires now"),
        pytest.param({}, ControlData(paused=True, who="ann"), "paused", id="paused"),
        pytest.param({}, ControlData(paused=True, until=NOW), None, id="a pause that ends now"),
        pytest.param(
            {}, ControlData(paused=True, until=NOW + timedelta(seconds=1)), "paused", id="paused for a while"
        ),
        pytest.param({}, ControlData(mode="dry-run"), "paused", id="back in dry-run"),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(drained_brokers={"b2:8080": MaintenanceWindow(since=NOW)}),
            "maintenance",
            id="its destination is drained",
        ),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(maintenance_brokers={"b2:8080": MaintenanceWindow(since=NOW)}),
            "maintenance",
            id="its destination is under maintenance",
        ),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(maintenance_brokers={"b2:8080": MaintenanceWindow(since=NOW, until=NOW)}),
            None,
            id="a maintenance that ends now",
        ),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(drained_brokers={"b1:8080": MaintenanceWindow(since=NOW)}),
            None,
            id="its source is drained",
        ),
        pytest.param(
            {},
            ControlData(maintenance_brokers={"b1:8080": MaintenanceWindow(since=NOW)}),
            "maintenance",
            id="its source is under maintenance",
        ),
        pytest.param(
            {},
            ControlData(maintenance_namespaces={"t/n": MaintenanceWindow(since=NOW)}),
            "maintenance",
            id="its namespace is under maintenance",
        ),
    ],
)
def test_an_action_is_taken_up_only_when_nothing_is_against_it(
    changed: dict[str, object], control: ControlData | None, reason: str | None
):
    skip = gate(order(**changed), control=control, now=NOW)
    assert (skip and skip.reason) == reason


def test_a_pause_is_named_so_that_a_finding_can_tell_one_that_has_ended():
    skips = [
        gate(order(), control=control, now=NOW)
        for control in (ControlData(paused=True), ControlData(mode="dry-run"))
    ]
    assert [str(skip).startswith(PAUSED_REASON) for skip in skips] == [True, False]


def heard(epochs: PartitionEpochs, *records: tuple[int, str, int]) -> list[bool]:
    """Whether each record, of (partition, source, epoch), has the highest epoch there so far."""
    return [epochs.note(partition, source, epoch) == epoch for partition, source, epoch in records]


def test_the_highest_epoch_of_a_source_counts_for_what_follows_in_the_same_partition():
    epochs = PartitionEpochs()
    assert heard(epochs, (0, "a", 2), (0, "b", 1), (0, "a", 1), (1, "a", 1), (0, "a", 2)) == [
        True, True, False, True, True,
    ]  # fmt: skip
    assert epochs.epochs_of(0) == {"a": 2, "b": 1}
    assert epochs.epochs_of(1) == {"a": 1}
    assert epochs.epochs_of(2) == {}


def test_a_partition_that_is_read_again_begins_with_what_was_heard_before_that_place():
    epochs = PartitionEpochs()
    heard(epochs, (0, "a", 2), (1, "a", 2))
    epochs.begin(0, {"a": 1})
    assert heard(epochs, (0, "a", 1), (1, "a", 1)) == [True, False]
    epochs.forget()
    assert heard(epochs, (1, "a", 1)) == [True]


def test_a_new_leader_is_heard_whatever_the_type_and_cluster_of_its_first_record():
    epochs = PartitionEpochs()
    leader = encode_leader("c", epoch=5, time_ms=0)
    before = read(record(), epochs, epoch=b"4")
    assert read(leader, epochs, epoch=b"5") is None
    after = read(record(), epochs, epoch=b"4")
    assert read(record(cluster="west"), epochs, epoch=b"6") is None
    last = read(record(), epochs, epoch=b"4")
    assert [(each.epoch, each.highest_epoch) for each in (before, after, last) if each] == [
        (4, 4),
        (4, 5),
        (4, 6),
    ]


def test_what_is_for_somebody_else_is_left_alone():
    assert read(record(cluster="west")) is None
    assert read(record("trimtab.action.throttle.v1")) is None


@pytest.mark.parametrize(
    ("value", "header", "message"),
    [
        (b"junk", b"1", "malformed"),
        (record(bundle="t/n"), b"1", "is no bundle"),
        (record(bundle="t/n/0x0_0x1"), b"1", "disagree"),
        (record(expires_at="tomorrow"), b"1", "expires_at"),
        (record(SPLIT_TYPE), b"1", "boundaries"),
        (record(), b"x", "invalid literal"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_reason(value: bytes, header: bytes, message: str):
    with pytest.raises(BadOrder, match=message):
        read(value, epoch=header)


KAFKA_CLUSTER = "kafka-1"


def throttle_order(
    *, type_: str = "trimtab.action.throttle.v1", cluster: str = KAFKA_CLUSTER, **data: Any
) -> bytes:
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


def read_throttle(value: bytes) -> Order[ThrottleAction] | None:
    record = ActionRecord(value=value, epoch_header=b"7")
    return read_order(record, PartitionEpochs(), cluster=KAFKA_CLUSTER, readers=KAFKA_ACTIONS)


def test_lists_rates_and_the_epoch_are_read():
    found = read_throttle(throttle_order())
    assert (found.id, found.epoch, found.highest_epoch) == ("a", 7, 7)
    assert found.action.add == ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"})
    assert found.action.rates == {BrokerRole("leader", 1): 5, BrokerRole("follower", 3): 6}
    assert found.action.clear == (BrokerRole("leader", 2),)


@pytest.mark.parametrize(
    "value", [throttle_order(cluster="other"), throttle_order(type_="trimtab.action.unload.v1")]
)
def test_what_is_another_clusters_or_of_another_kind_is_passed_over(value: bytes):
    assert read_throttle(value) is None


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
def test_what_cannot_be_an_order_is_refused_by_name(data: dict[str, Any], why: str):
    with pytest.raises(BadOrder, match=why):
        read_throttle(throttle_order(**data))


DAY_MS = 86_400_000


@dataclass
class Log:
    """A control topic, and the side that it is on; its records were appended at a time of their own."""

    records: list[TopicRecord]

    def reader(self, *_: object, **__: object) -> Self:
        return self

    def full_name(self, topic: str) -> str:
        return topic

    def read_to_end(self) -> list[TopicRecord]:
        return self.records


def log(*records: tuple[bytes, int]) -> ControlView:
    """What an executor makes of a topic with these values and times, all under the key of the cluster."""
    made = [
        TopicRecord(
            key=CLUSTER.encode(), value=value, timestamp=at_ms, partition=0, offset=offset, headers=()
        )
        for offset, (value, at_ms) in enumerate(records)
    ]
    return ControlView(Log(made), "trimtab.control", cluster=CLUSTER, rounds=RoundSettings(max_ahead_s=10.0))


def event(time_ms: int, *, paused: bool, cluster: str = CLUSTER) -> bytes:
    return control(cluster, time_ms, paused=paused)[1]


def is_paused(view: ControlView) -> bool | None:
    found = view.newest()
    return None if found is None else found.paused


def test_the_newest_event_of_the_cluster_is_obeyed_wherever_it_stands():
    newest = event(DAY_MS + 2_000, paused=True)
    older = event(DAY_MS + 1_000, paused=False)
    other = event(DAY_MS + 9_000, paused=False, cluster="west-1")
    assert is_paused(log((newest, DAY_MS), (older, DAY_MS), (other, DAY_MS))) is True
    assert is_paused(log()) is None


@pytest.mark.parametrize("paused", [True, False])
def test_an_event_from_a_clock_that_is_ahead_is_obeyed_and_hides_no_later_one(*, paused: bool):
    ahead, later = event(2 * DAY_MS, paused=paused), event(DAY_MS + 1_000, paused=not paused)
    assert is_paused(log((ahead, DAY_MS))) is paused
    assert is_paused(log((ahead, DAY_MS), (later, DAY_MS + 1_000))) is not paused
    assert is_paused(log((later, DAY_MS + 1_000), (ahead, DAY_MS))) is not paused, "wherever it stands"


def test_within_what_the_settings_allow_the_time_of_the_event_counts():
    first, second = event(DAY_MS + 10_000, paused=True), event(DAY_MS + 9_000, paused=False)
    assert is_paused(log((first, DAY_MS), (second, DAY_MS + 5_000))) is True
    beyond = event(DAY_MS + 10_001, paused=True)
    assert is_paused(log((beyond, DAY_MS), (second, DAY_MS + 5_000))) is False


def test_settings_that_an_older_executor_does_not_know_hide_no_pause():
    message = json.loads(event(DAY_MS, paused=True))
    message["data"]["settings"] = {"pulsar": {"unheard_of": 1}}
    assert is_paused(log((json.dumps(message).encode(), DAY_MS))) is True
