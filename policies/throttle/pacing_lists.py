"""From the lists that are there and the entries of ours to those that are needed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.throttle.lists import ThrottledLists, difference, lists_of, merge, union, without
from policies.throttle.moves import Moves
from policies.throttle.rates import BrokerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSteps:
    """Entries of ours as they shall be, and the steps there."""

    wanted: ThrottledLists
    add: ThrottledLists
    joined: ThrottledLists
    """Those to add that were never there."""
    remove: ThrottledLists
    leaders: tuple[int, ...]
    """Brokers that need a leader rate: every source, whoever leads."""
    followers: tuple[int, ...]

    @classmethod
    def of(
        cls, there: ThrottledLists, added: ThrottledLists, moves: Moves, lost: ThrottledLists
    ) -> "ListSteps":
        """``there``: on the cluster, whether or not our last change has arrived; ``added``: what we had added.

        ``lost``: of that, what is needed and somebody took off.
        """
        ours = without(there, added)
        others = ThrottledLists(
            leader={**there.leader, **ours.leader}, follower={**there.follower, **ours.follower}
        )
        needed = lists_of(moves)
        _, wanted = merge(others, needed)
        joined = difference(wanted, added)
        return cls(
            wanted=wanted,
            add=union(joined, lost),
            joined=joined,
            remove=difference(added, wanted),
            leaders=tuple(np.unique(moves.sources.brokers).tolist()),
            followers=tuple(np.unique(moves.added.brokers).tolist()),
        )

    @property
    def is_joined(self) -> bool:
        """Whether something moves that is not throttled yet."""
        return bool(self.joined.leader or self.joined.follower)

    @property
    def is_left(self) -> bool:
        """Whether something is throttled that moves no more."""
        return bool(self.remove.leader or self.remove.follower)

    def roles(self) -> Iterator[BrokerRole]:
        """Everyone who needs a rate."""
        yield from (BrokerRole("leader", broker) for broker in self.leaders)
        yield from (BrokerRole("follower", broker) for broker in self.followers)
