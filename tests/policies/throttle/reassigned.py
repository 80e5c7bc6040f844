"""A cluster that is reassigned round by round, and carries out each decision at once."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgspec

from policies.throttle.copies import Copies, broken_copies
from policies.throttle.lists import ThrottledLists, merge, without
from policies.throttle.needs import Needs
from policies.throttle.pacing import decide
from policies.throttle.pacing_round import PacingExplanation, PacingMemory, PacingSnapshot, ThrottleDecision
from policies.throttle.progress import Eta
from policies.throttle.rates import NO_CAPS, Caps, RatePlan, ThrottleSettings
from tests.policies.throttle.moving import GB, MB, Partition, copies_of

ROUND_MS = 10_000
MOVE = Partition("t-0", [1, 2], [2, 3], 4 * MB, 10 * GB)
"""Leader 1 needs 8 MB/s, follower 3 needs 4; recommended is 9.6 MB/s."""
OTHER = Partition("t-1", [1, 2], [2, 4], 1 * MB, 1 * GB)
NOTHING = ThrottledLists()


@dataclass
class Cluster:
    """Plays rounds; the lists on the cluster follow the decisions at once."""

    settings: ThrottleSettings = field(default_factory=ThrottleSettings)
    memory: PacingMemory = field(default_factory=PacingMemory)
    lists: ThrottledLists = NOTHING
    now_ms: int = 0
    explanation: PacingExplanation = field(init=False)

    def round(
        self,
        *rows: Partition,
        reported: bool = True,
        caps: Caps = NO_CAPS,
        room: Caps = NO_CAPS,
        down: Collection[int] = (),
        unheard: Collection[int] = (),
        begun: bool = True,
    ) -> ThrottleDecision | None:
        """Play a round; all that is added is reported, and new, unless a row says more or its broker is ``unheard`` or ``down``."""
        self.now_ms += ROUND_MS
        silent = {*down, *unheard}
        heard = (
            replace(
                row, present={each: row.present.get(each, 0) for each in row.target if each not in silent}
            )
            for row in rows
        )
        copies: Copies | None = copies_of(*heard) if reported else None
        snapshot = PacingSnapshot(
            now_ms=self.now_ms,
            copies=copies,
            lists=self.lists,
            caps=caps,
            room=room,
            down=frozenset(down),
            is_planned=not begun,
            is_pressed=copies is not None and bool(copies.is_under_min_isr().any()),
            broken=frozenset()
            if copies is None
            else frozenset(chain.from_iterable(broken_copies(copies, down).values())),
        )
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(self.memory), type=PacingMemory)
        assert stored == self.memory
        decision, self.memory, self.explanation = decide(snapshot, stored, self.settings)
        if decision is not None:
            assert all(rate >= 1 for rate in decision.set_rates.values())
            self.lists = after(self.lists, decision)
        return decision

    def decided(self, *rows: Partition, **given: Any) -> ThrottleDecision:
        """Play a round that decides something."""
        decision = self.round(*rows, **given)
        assert decision is not None
        return decision

    @property
    def outcome(self) -> str:
        return self.explanation.outcome

    @property
    def plan(self) -> RatePlan:
        assert self.explanation.plan is not None
        return self.explanation.plan

    @property
    def needs(self) -> Needs:
        assert self.explanation.needs is not None
        return self.explanation.needs

    @property
    def eta(self) -> Eta:
        assert self.explanation.eta is not None
        return self.explanation.eta


def after(lists: ThrottledLists, decision: ThrottleDecision) -> ThrottledLists:
    """The lists once a decision is carried out."""
    added, _ = merge(lists, decision.add)
    lists = overlaid(lists, added)
    return overlaid(lists, without(lists, decision.remove))


def overlaid(lists: ThrottledLists, changed: ThrottledLists) -> ThrottledLists:
    return ThrottledLists(
        leader={topic: text for topic, text in {**lists.leader, **changed.leader}.items() if text},
        follower={topic: text for topic, text in {**lists.follower, **changed.follower}.items() if text},
    )


def rates(decision: ThrottleDecision | None) -> dict[str, int]:
    assert decision is not None
    return {str(role): rate for role, rate in decision.set_rates.items()}


def started(settings: ThrottleSettings | None = None) -> Cluster:
    cluster = Cluster(settings=settings or ThrottleSettings())
    assert cluster.round(MOVE) is not None
    return cluster
