"""Kafka's rule as a fluid: in-sync followers take their share of a leader's quota first, replicas that are behind get the rest.

It goes second by second, without our formulas: a new replica gets the smaller of its share at the leader and at the follower;
one that has caught up is in sync, is never held back again, and goes on counting. What a replica cannot use is shared again.
Copies between the disks of a broker share its rate for that, and count no more once they are there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.policies.throttle.moving import Partition

SHARINGS = 4
"""How many times what one replica cannot use is offered to the others."""


@dataclass
class Copy:
    """One replica that is behind; between disks where leader and follower are the same broker."""

    leader: int
    follower: int
    writes: float
    old_followers: int
    left: float
    got: float = 0.0

    @property
    def is_in_sync(self) -> bool:
        return self.left <= 0

    @property
    def roles(self) -> dict[str, int]:
        """Its brokers' roles, and how many followers in sync use the rate of each."""
        if self.leader == self.follower:
            return {f"disk:{self.leader}": 0}
        return {
            f"leader:{self.leader}": self.old_followers + self.is_in_sync,
            f"follower:{self.follower}": int(self.is_in_sync),
        }


def copies_of(partitions: Sequence[Partition]) -> list[Copy]:
    """All replicas that are behind; the followers in sync of a partition are counted with its first one."""
    found = []
    for row in partitions:
        leader, size = row.replicas[0] if row.leader is None else row.leader, row.size or 0
        behind = sorted({*row.target, *row.recovering} - (set(row.replicas) - set(row.recovering)))
        for place, broker in enumerate(behind):
            followers = 0 if place else len(row.replicas) - len(row.recovering) - 1
            left = row.missing.get(broker, size)
            found.append(Copy(leader, broker, row.writes or 0, followers, left))
        found += [Copy(broker, broker, row.writes or 0, 0, size) for broker in row.between_disks]
    return found


def seconds(copies: list[Copy], rates: Mapping[str, float]) -> Iterator[None]:
    """Plays second after second until all have caught up; ``rates`` by role as in ``leader:101``."""
    while any(not copy.is_in_sync for copy in copies):
        left = dict(rates)
        for copy in copies:
            for role, followers in copy.roles.items():
                left[role] -= copy.writes * followers
            copy.got = 0.0
        for _ in range(SHARINGS):
            share_out([copy for copy in copies if not copy.is_in_sync], left)
        for copy in copies:
            if not copy.is_in_sync:
                copy.left += copy.writes - copy.got
        yield


def share_out(moving: Sequence[Copy], left: dict[str, float]) -> None:
    """Give each copy an equal share of what is left in each of its roles, the smallest of them."""
    sharers = Counter(role for copy in moving for role in copy.roles)
    takes = [max(min(left[role] / sharers[role] for role in copy.roles), 0.0) for copy in moving]
    for copy, take in zip(moving, takes, strict=True):
        copy.got += take
        for role in copy.roles:
            left[role] -= take
