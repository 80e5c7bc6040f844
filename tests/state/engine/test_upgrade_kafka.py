"""What trimtab 0.1.0 stored of a Kafka cluster's waiting reports is read by today's as it was meant."""

import msgspec

from state.engine.layouts import unseal
from state.kafka.memory import decode_logs, decode_moves
from state.kafka_reports import MoveRow
from tests.state.kafka.reporting import Replica, moves_report, replica_table


def stored(body: object) -> bytes:
    """A value of version 2."""
    return bytes([2]) + msgspec.msgpack.encode(body)


def test_replicas_become_columns_and_an_unknown_end_offset_stays_unknown() -> None:
    rows = [["t", 0, True, 2**40, 17], ["u", 1, False, 0, None], ["t", 2, False, 5, 6]]
    found = decode_logs(stored([5, "l", [1, rows, 1000, None, 3, None, 5, None]]))
    assert (found.time_ms, found.id, found.logs.broker) == (5, "l", 1)
    assert found.logs.replicas == replica_table(
        Replica("t", 0, 2**40, 17), Replica("u", 1, 0), Replica("t", 2, 5, 6)
    )
    assert found.logs.leader_rate_bytes_per_s == 1000
    assert found.logs.follower_rate_bytes_per_s is None
    assert found.logs.leader_default_bytes_per_s == 5


def test_a_broker_without_replicas_has_none() -> None:
    assert len(decode_logs(stored([5, "l", [1, []]])).logs.replicas) == 0


def test_moves_become_columns_with_what_kafka_is_adding_already() -> None:
    running = ["t", 1, [1, 2, 3], [3], [1], 1, [1, 2]]
    planned = ["t", 0, [1, 2], [4], [2], -1, [1, 2]]
    lists = {"leader": {"t": "0:1"}, "follower": {}}
    found = decode_moves(stored([5, "m", [[running, planned], lists]])).report
    assert found.moves == moves_report(*(MoveRow(*row) for row in (running, planned))).moves
    assert found.moves.is_running
    assert found.throttled.leader == {"t": "0:1"}


def test_what_has_the_columns_already_is_not_touched() -> None:
    body = [5, "l", [1, [["t"], b""]]]
    assert unseal("logs", bytes([3]) + msgspec.msgpack.encode(body)) == msgspec.msgpack.encode(body)
