"""The steps from the lists that are there, with our entries, to the lists that are needed."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from policies.throttle.lists import ThrottledLists, difference, lists_of, merge, union, without
from policies.throttle.moves import Moves
from policies.throttle.rates import BrokerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSteps:
    """Our entries as they should be, and the steps that lead there."""

    wanted: ThrottledLists
    add: ThrottledLists
    joined: ThrottledLists
    """Entries to add that were never there."""
    remove: ThrottledLists
    leaders: tuple[int, ...]
    """Brokers that need a leader rate: every source, whoever leads."""
    followers: tuple[int, ...]
    down: Collection[int]
    """Brokers that are not alive: no rate can be set on them, and none be taken off."""

    @classmethod
    def of(
        cls,
        there: ThrottledLists,
        added: ThrottledLists,
        moves: Moves,
        *,
        lost: ThrottledLists,
        down: Collection[int],
    ) -> "ListSteps":
        """``there`` is on the cluster, whether or not our last change has arrived; ``added`` is what we had added.

        ``lost`` is the part of that which is needed and which somebody removed.
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
            down=down,
        )

    @property
    def is_joined(self) -> bool:
        """Whether something moves that is not throttled yet."""
        return bool(self.joined.leader or self.joined.follower)

    @property
    def is_left(self) -> bool:
        """Whether something is throttled that no longer moves."""
        return bool(self.remove.leader or self.remove.follower)

    def roles(self) -> Iterator[BrokerRole]:
        """Every role that needs a rate and can be given one."""
        yield from (BrokerRole("leader", broker) for broker in self.leaders if broker not in self.down)
        yield from (BrokerRole("follower", broker) for broker in self.followers if broker not in self.down)

    def waits(self, role: BrokerRole) -> bool:
        """Whether a role needs a rate and its broker is not alive: its rate stays as it is until the broker is back."""
        needing = self.leaders if role.role == "leader" else self.followers
        return role.broker in self.down and role.broker in needing
