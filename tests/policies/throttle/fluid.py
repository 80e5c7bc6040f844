"""Kafka's rule as a fluid: in-sync followers take their share of a leader's quota first, new replicas get the rest.

It goes second by second, without our formulas: a new replica gets the smaller of its share at the leader and at the follower;
one that has caught up is in sync, is never held back again, and goes on counting. What a replica cannot use is shared again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.policies.throttle.moving import Partition

SHARINGS = 4
"""How many times what one replica cannot use is offered to the others."""


@dataclass
class Copy:
    """One added replica."""

    leader: int
    follower: int
    writes: float
    old_followers: int
    left: float
    got: float = 0.0

    @property
    def is_in_sync(self) -> bool:
        return self.left <= 0


def copies_of(partitions: Sequence[Partition]) -> list[Copy]:
    """All added replicas; the old followers of a partition are counted with its first one."""
    found = []
    for row in partitions:
        leader = row.replicas[0] if row.leader is None else row.leader
        for place, broker in enumerate(sorted(set(row.target) - set(row.replicas))):
            followers = 0 if place else len(row.replicas) - 1
            found.append(Copy(leader, broker, row.writes or 0, followers, row.size or 0))
    return found


def seconds(copies: list[Copy], rates: Mapping[str, float]) -> Iterator[None]:
    """Plays second after second until all have caught up; ``rates`` by role as in ``leader:101``."""
    while any(not copy.is_in_sync for copy in copies):
        left = dict(rates)
        for copy in copies:
            left[f"leader:{copy.leader}"] -= copy.writes * (copy.old_followers + copy.is_in_sync)
            left[f"follower:{copy.follower}"] -= copy.writes * copy.is_in_sync
            copy.got = 0.0
        for _ in range(SHARINGS):
            share_out([copy for copy in copies if not copy.is_in_sync], left)
        for copy in copies:
            if not copy.is_in_sync:
                copy.left += copy.writes - copy.got
        yield


def share_out(moving: Sequence[Copy], left: dict[str, float]) -> None:
    """Give each copy an equal share of what is left at its leader and at its follower, the smaller of both."""
    sharers: dict[str, int] = {}
    for copy in moving:
        for role in (f"leader:{copy.leader}", f"follower:{copy.follower}"):
            sharers[role] = sharers.get(role, 0) + 1
    takes = [
        max(
            min(
                left[role] / sharers[role] for role in (f"leader:{copy.leader}", f"follower:{copy.follower}")
            ),
            0.0,
        )
        for copy in moving
    ]
    for copy, take in zip(moving, takes, strict=True):
        copy.got += take
        left[f"leader:{copy.leader}"] -= take
        left[f"follower:{copy.follower}"] -= take
