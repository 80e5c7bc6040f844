"""Records about Kafka clusters: what is read from them, and what is refused by name."""

from typing import Any

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import ReplicaSet
from state.events import ReplicaTable
from streaming.contract.decode import decode
from tests.streaming.events import KAFKA_LOAD_REPORT, REASSIGNMENT, event

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
    assert found.logs.replicas == ReplicaTable.of(["t"], [0], [10], [None])
    assert (found.logs.leader_rate_bytes_per_s, found.logs.follower_rate_bytes_per_s) == (5, None)
    assert (found.logs.in_bytes_per_s, found.logs.out_bytes_per_s) == (None, 7)


def test_moves_come_in_order_and_say_what_they_are_in_the_end():
    planned = MOVE | {"partition": 1, "replicas": [1, 2], "adding": [4], "removing": [2]}
    _, found, _ = decode(moves(planned, MOVE, leader={"t": "0:1"}))
    table = found.report.moves.read()
    assert (table.names(), table.leader.tolist()) == (["t-0", "t-1"], [1, 1])
    assert [brokers_of(each) for each in (table.sources, table.added, table.target, table.in_sync)] == [
        [(0, 1), (0, 2), (1, 1), (1, 2)],
        [(0, 3), (1, 4)],
        [(0, 2), (0, 3), (1, 1), (1, 4)],
        [(0, 1), (0, 2), (1, 1), (1, 2)],
    ]
    assert found.report.moves.is_running
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
