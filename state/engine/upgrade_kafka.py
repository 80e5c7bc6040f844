"""Upgrade of the layout of a Kafka cluster from version 2, which trimtab 0.1.0 wrote, to version 3.

Rows of waiting reports become columns. For the throttle, version 2 kept what was in force before a decision without a result,
or before a dry-run; version 3 keeps what was confirmed and what was attempted.
"""

from typing import Any

from policies.throttle.lists import ThrottledLists, union
from state.kafka_reports import MoveRow, MoveTable, ReplicaTable


def with_replica_table(body: Any) -> Any:
    """A broker's waiting report; a row was topic, partition, whether it leads, log size, end offset."""
    time_ms, id_, (broker, rows, *rest) = body
    topics, partitions, _, sizes, offsets = zip(*rows, strict=True) if rows else ((),) * 5
    return [time_ms, id_, [broker, ReplicaTable.of(topics, partitions, sizes, offsets), *rest]]


def with_move_table(body: Any) -> Any:
    """The waiting report on reassignments."""
    time_ms, id_, (rows, *rest) = body
    return [time_ms, id_, [MoveTable.of_rows([MoveRow(*row) for row in rows]), *rest]]


def with_throttle_configs(body: Any) -> Any:
    """A cluster's memory. Rates that somebody changed are in force, and count as confirmed."""
    last_ms, topics, readings, pacing, pending, attempted, is_running, failures_count, retry_ms, real = body[
        :10
    ]
    drift_rounds, tells_rates, tells_lists, _changed_rates, rated_topics, rates = body[10:]
    in_force = pacing if real is None else real
    asked, confirmed, attempted = None, _configs_of(in_force), [attempted, {}, {}]
    if pending is not None:
        action_id, expires_ms, before, added, leader_rates, follower_rates, _cleared = pending
        asked = [action_id, expires_ms, _configs_of(in_force)]
        confirmed = _configs_of(before)
        both = union(ThrottledLists(**attempted[0]), ThrottledLists(**added))
        attempted = [both, leader_rates, follower_rates]
    throttle = [pacing, real is not None, asked, confirmed, attempted]
    progress = [is_running, failures_count, retry_ms, drift_rounds, tells_rates, tells_lists, {}, False]
    return [last_ms, topics, readings, rated_topics, rates, *throttle, *progress]


def _configs_of(pacing: dict[str, Any]) -> list[Any]:
    return [pacing["added"], pacing["leader_rates"], pacing["follower_rates"]]
