"""Throttle actions as an executor reads them: everything that a test does not give is empty."""

from typing import Any

from policies.throttle.rates import BrokerRole
from streaming.executor.orders import ThrottleAction
from streaming.executor.orders import ThrottlePrecondition as Precondition

L1, L2, F3 = BrokerRole("leader", 1), BrokerRole("leader", 2), BrokerRole("follower", 3)


def action(precondition: str = "unknown", **data: Any) -> ThrottleAction:
    tables = ("add_leader", "add_follower", "remove_leader", "remove_follower")
    usual: dict[str, Any] = {
        "precondition": Precondition(reassignments=precondition),
        "expires_at": "2026-01-01T00:00:00Z",
        "dry_run": False,
        **{f"{name}_throttled_replicas": {} for name in tables},
        "leader_rate_bytes_per_s": {},
        "follower_rate_bytes_per_s": {},
        "clear_leader_rates": [],
        "clear_follower_rates": [],
    }
    return ThrottleAction(**usual | data)


def first(topic: str) -> ThrottleAction:
    """The first action for a move of partition 0 from brokers 1 and 2 to broker 3."""
    return action(
        add_leader_throttled_replicas={topic: "0:1,0:2"},
        add_follower_throttled_replicas={topic: "0:3"},
        leader_rate_bytes_per_s={1: 2_000_000, 2: 2_000_000},
        follower_rate_bytes_per_s={3: 2_000_000},
    )


def nothing_against_it() -> None:
    """A check that finds no pause and no expiry."""
