"""Which actions an executor takes up: pure, with the time passed in."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from state.pulsar.rounds import SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.messages import PAUSED_REASON, ControlData, SpellData
from streaming.executor.orders import BadOrder, Order, gate, read_order
from streaming.ports.actions import Epochs

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


def order(*, epoch: bytes | None = b"3", **data: object) -> Order:
    found = read_order(record(**data), cluster="east-1", epoch_header=epoch)
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
            ControlData(drained_brokers={"b2:8080": SpellData(since=NOW)}),
            "maintenance",
            id="its destination is drained",
        ),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(maintenance_brokers={"b2:8080": SpellData(since=NOW)}),
            "maintenance",
            id="its destination is under maintenance",
        ),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(maintenance_brokers={"b2:8080": SpellData(since=NOW, until=NOW)}),
            None,
            id="a maintenance that ends now",
        ),
        pytest.param(
            {"destination_broker": "b2:8080"},
            ControlData(drained_brokers={"b1:8080": SpellData(since=NOW)}),
            None,
            id="its source is drained",
        ),
        pytest.param(
            {},
            ControlData(maintenance_brokers={"b1:8080": SpellData(since=NOW)}),
            "maintenance",
            id="its source is under maintenance",
        ),
        pytest.param(
            {},
            ControlData(maintenance_namespaces={"t/n": SpellData(since=NOW)}),
            "maintenance",
            id="its namespace is under maintenance",
        ),
    ],
)
def test_an_action_is_taken_up_only_when_nothing_is_against_it(
    changed: dict[str, object], control: ControlData | None, reason: str | None
) -> None:
    epochs = Epochs({"/trimtab/c": 3, "/trimtab/other": 9})
    skip = gate(order(**changed), epochs=epochs, control=control, now=NOW)  # type: ignore[arg-type]
    assert (skip and skip.reason) == reason


def test_a_pause_is_named_so_that_a_finding_can_tell_one_that_has_ended() -> None:
    skips = [
        gate(order(), epochs=Epochs(), control=control, now=NOW)
        for control in (ControlData(paused=True), ControlData(mode="dry-run"))
    ]
    assert [str(skip).startswith(PAUSED_REASON) for skip in skips] == [True, False]


def test_another_controllers_epochs_do_not_count_and_the_highest_is_kept() -> None:
    epochs = Epochs()
    assert [epochs.observe("a", 2), epochs.observe("b", 1), epochs.observe("a", 1), epochs.observe("a", 2)] == [
        True, True, False, True,
    ]  # fmt: skip
    epochs.merge({"a": 1, "b": 5})
    assert epochs.highest == {"a": 2, "b": 5}


def test_what_is_for_somebody_else_is_left_alone() -> None:
    assert read_order(record(cluster="west"), cluster="east-1", epoch_header=b"1") is None
    assert read_order(record("trimtab.action.throttle.v1"), cluster="east-1", epoch_header=b"1") is None


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
def test_what_cannot_be_read_is_said_with_the_reason(value: bytes, header: bytes, message: str) -> None:
    with pytest.raises(BadOrder, match=message):
        read_order(value, cluster="east-1", epoch_header=header)
