"""A Kafka cluster's waiting reports that trimtab 0.1.0 stored are read by today's trimtab with the same meaning."""

from typing import Any

import msgspec
import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_plan import PacingMemory
from state.engine.layouts import unseal
from state.kafka.memory import Asked, ThrottleConfigs, decode_kafka, decode_logs, decode_moves
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


BEFORE = PacingMemory(begun_ms=1, added=ThrottledLists(leader={"t": "0:1"}), leader_rates={1: 5})
AFTER = PacingMemory(begun_ms=1, added=ThrottledLists(leader={"t": "0:1,0:2"}), leader_rates={1: 7, 2: 7})
SHOWN = PacingMemory(begun_ms=2, leader_rates={1: 9})
PENDING = ["a", 9, BEFORE, ThrottledLists(leader={"t": "0:2"}), {1: 7, 2: 7}, {3: 8}, [["leader", 4]]]
FAILED = ThrottledLists(follower={"u": "1:1"})
IN_FORCE, WANTED = (
    ThrottleConfigs(each.added, {**each.leader_rates}, {**each.follower_rates}) for each in (BEFORE, AFTER)
)
UNANSWERED = ThrottleConfigs(ThrottledLists(leader={"t": "0:2"}, follower={"u": "1:1"}), {1: 7, 2: 7}, {3: 8})


@pytest.mark.parametrize(
    ("pacing", "pending", "real", "asked", "confirmed", "attempted"),
    [
        (BEFORE, None, None, None, IN_FORCE, ThrottleConfigs(FAILED)),
        (AFTER, PENDING, None, Asked("a", 9, WANTED), IN_FORCE, UNANSWERED),
        (SHOWN, None, BEFORE, None, IN_FORCE, ThrottleConfigs(FAILED)),
        (SHOWN, PENDING, AFTER, Asked("a", 9, WANTED), IN_FORCE, UNANSWERED),
    ],
    ids=["in force", "on its way", "dry-run", "dry-run while one is on its way"],
)
def test_a_throttle_becomes_what_is_confirmed_and_what_was_attempted(
    pacing: PacingMemory,
    pending: list[Any] | None,
    real: PacingMemory | None,
    asked: Asked | None,
    confirmed: ThrottleConfigs,
    attempted: ThrottleConfigs,
) -> None:
    progress = [3, True, False, {"leader:1": 7}]
    body = [{"1": 5}, [], b"", pacing, pending, FAILED, True, 2, 80, real, *progress, ["t"], b""]
    found = decode_kafka(stored(body))
    assert (found.pacing, found.is_shadow, found.asked) == (pacing, real is not None, asked)
    assert (found.confirmed, found.attempted) == (confirmed, attempted)
    assert (found.is_running, found.failures_count, found.retry_ms) == (True, 2, 80)
    assert (found.drift_rounds, found.tells_rates, found.tells_lists) == (3, True, False)
    assert (found.last_ms, len(found.readings.columns), found.rates.topics) == ({"1": 5}, 0, ("t",))
