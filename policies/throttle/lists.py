"""Throttled replica lists: the entries that a move needs are merged into the lists, and exactly these are removed again.

A list is the value of a topic's ``leader.replication.throttled.replicas`` or ``follower.replication.throttled.replicas``:
``partition:broker,…``, or ``*`` for all of them. An entry ``p:b`` of the leader list means that b, when it leads p,
throttles *all* followers of p; it does not name a follower. Source: Kafka's ``ConfigHandler.parseThrottledPartitions``.
Kafka itself keeps the order of the text; here it is always numeric, so that equal lists are equal texts.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from policies.throttle.moves import Moves, ReplicaSet
from policies.throttle.rates import BrokerRole

EVERYTHING = "*"
"""Stands for every replica of the topic; no matter who set it, such a list needs no entries of ours."""
_ENTRY = re.compile(r"\s*(\d{1,10}):(\d{1,10})\s*")

Entry = tuple[int, int]
"""Partition and broker."""


class BadList(ValueError):
    """The text is no throttled replica list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledLists:
    """Lists by topic; a topic without entries is not in it."""

    leader: Mapping[str, str] = field(default_factory=dict)
    follower: Mapping[str, str] = field(default_factory=dict)


def lists_of(moves: Moves) -> ThrottledLists:
    """What a move needs: its sources throttle as leaders, the added replicas as followers."""
    return ThrottledLists(leader=_texts(moves, moves.sources), follower=_texts(moves, moves.added))


def _texts(moves: Moves, replicas: ReplicaSet) -> dict[str, str]:
    rows = replicas.rows
    topic = moves.topic[rows]
    brokers = replicas.brokers.tolist()
    entries = [f"{at}:{broker}" for at, broker in zip(moves.partition[rows].tolist(), brokers, strict=True)]
    starts = np.flatnonzero(np.diff(topic, prepend=-1)).tolist()
    return {
        moves.topics[int(topic[start])]: ",".join(entries[start:end])
        for start, end in pairwise([*starts, len(entries)])
    }


def merge(there: ThrottledLists, ours: ThrottledLists) -> tuple[ThrottledLists, ThrottledLists]:
    """The lists of our topics with our entries in them, and the entries that this adds.

    ``*`` is left alone: it covers ours already, and nothing is added to it. An entry that was there before is never among
    the added ones, so removing the added ones restores the lists. Raises ``BadList``.
    """
    leader, leader_added = _merge_all(there.leader, ours.leader)
    follower, follower_added = _merge_all(there.follower, ours.follower)
    return (
        ThrottledLists(leader=leader, follower=follower),
        ThrottledLists(leader=leader_added, follower=follower_added),
    )


def _merge_all(there: Mapping[str, str], ours: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    after, added = {}, {}
    for topic, text in ours.items():
        before = there.get(topic, "").strip()
        if before in ("", text):  # the usual cases, without reading 100,000 entries
            after[topic] = text
            new = text if before == "" else ""
        elif before == EVERYTHING:
            after[topic], new = EVERYTHING, ""
        else:
            found, wanted = entries_of(before), entries_of(text)
            after[topic], new = text_of(found | wanted), text_of(wanted - found)
        if new:
            added[topic] = new
    return after, added


def without(there: ThrottledLists, added: ThrottledLists) -> ThrottledLists:
    """The lists of the topics of ``added`` without those entries; an empty text means: delete the setting.

    A ``*`` that was set meanwhile is left alone. Raises ``BadList``.
    """
    return ThrottledLists(
        leader=_take_all(there.leader, added.leader), follower=_take_all(there.follower, added.follower)
    )


def _take_all(there: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    return {topic: _take(there.get(topic, "").strip(), text) for topic, text in added.items()}


def _take(before: str, added: str) -> str:
    if before in ("", EVERYTHING) or not added:
        return before
    return "" if before == added else text_of(entries_of(before) - entries_of(added))


def foreign_entries_of(there: ThrottledLists, ours: ThrottledLists) -> ThrottledLists:
    """Entries on the topics of ``ours`` that somebody else set; they are kept and reported. Raises ``BadList``."""
    return ThrottledLists(
        leader=_foreign_texts_of(there.leader, ours.leader),
        follower=_foreign_texts_of(there.follower, ours.follower),
    )


def _foreign_texts_of(there: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    left = {topic: _take(there.get(topic, "").strip(), text) for topic, text in ours.items()}
    return {topic: text for topic, text in left.items() if text}


def entries_of(text: str) -> set[Entry]:
    """Partition and broker of each entry. Raises ``BadList``; ``*`` is no entry."""
    found = set()
    for part in text.split(",") if text.strip() else ():
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise BadList(
                f"{part[:100]!r} is no entry of a throttled replica list; expected partition:broker"
            )
        found.add((int(match[1]), int(match[2])))
    return found


def text_of(entries: Iterable[Entry]) -> str:
    """The list in numeric order, each entry once."""
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(set(entries)))


def union(one: ThrottledLists, other: ThrottledLists) -> ThrottledLists:
    """Entries of either. Raises ``BadList``."""
    both, _ = merge(one, other)
    return ThrottledLists(leader={**one.leader, **both.leader}, follower={**one.follower, **both.follower})


def contains(there: ThrottledLists, entries: ThrottledLists) -> bool:
    """Whether the lists have all these entries; ``*`` has every entry. Raises ``BadList``."""
    return _contains(there.leader, entries.leader) and _contains(there.follower, entries.follower)


def _contains(there: Mapping[str, str], entries: Mapping[str, str]) -> bool:
    for topic, text in entries.items():
        now = there.get(topic, "").strip()
        if now not in (text, EVERYTHING) and not entries_of(text) <= entries_of(now):
            return False
    return True


def common(one: ThrottledLists, there: ThrottledLists) -> ThrottledLists:
    """Entries of ``one`` that are there; ``*`` has every entry. Raises ``BadList``."""
    return ThrottledLists(
        leader=_common(one.leader, there.leader), follower=_common(one.follower, there.follower)
    )


def _common(one: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for topic, text in one.items():
        now = there.get(topic, "").strip()
        both = text if now in (EVERYTHING, text) else text_of(entries_of(text) & entries_of(now))
        if both:
            found[topic] = both
    return found


def difference(one: ThrottledLists, other: ThrottledLists) -> ThrottledLists:
    """Entries of ``one`` that are not in ``other``; neither may have a ``*``."""
    return ThrottledLists(
        leader=_difference(one.leader, other.leader), follower=_difference(one.follower, other.follower)
    )


def _difference(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    left = {topic: _take(text, other.get(topic, "")) for topic, text in one.items()}
    return {topic: text for topic, text in left.items() if text}


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
