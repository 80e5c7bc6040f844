"""Throttled replica lists: the entries that copies need are merged into the lists, and exactly these are removed again.

A list is the value of a topic's ``leader.replication.throttled.replicas`` or ``follower.replication.throttled.replicas``:
``partition:broker,…``, or ``*`` for all of them. An entry ``p:b`` of the leader list means that b, when it leads p,
throttles *all* followers of p; it does not name a follower. Source: Kafka's ``ConfigHandler.parseThrottledPartitions``.
Kafka itself keeps the order of the text; here it is always numeric, so that equal lists are equal texts.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from policies.throttle.copies import DISK, Copies
from policies.throttle.replicas import ReplicaSet
from policies.throttle.roles import ROLES, BrokerRole

EVERYTHING = "*"
"""Stands for every replica of the topic; no matter who set it, such a list needs no entries of ours."""
_ENTRY = re.compile(r"(\d{1,10}):(\d{1,10})")

Entry = tuple[int, int]
"""Partition and broker."""


class BadList(ValueError):
    """The text is no throttled replica list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledLists:
    """Lists by topic; a topic without entries is not in it."""

    leader: Mapping[str, str] = field(default_factory=dict)
    follower: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def each_role(
        cls, function: Callable[..., Mapping[str, str]], *lists: "ThrottledLists"
    ) -> "ThrottledLists":
        """What ``function`` makes of the leaders' lists, and of the followers'."""
        return cls(
            leader=function(*(throttled.leader for throttled in lists)),
            follower=function(*(throttled.follower for throttled in lists)),
        )

    @property
    def is_empty(self) -> bool:
        """Whether no topic has a list."""
        return not (self.leader or self.follower)

    def __or__(self, other: "ThrottledLists") -> "ThrottledLists":
        """The lists of both; of a topic that both have, the other's."""
        return self.each_role(lambda mine, theirs: {**mine, **theirs}, self, other)

    def of_topics(self, topics: Collection[str]) -> "ThrottledLists":
        """Only the lists of some topics."""
        return self.each_role(
            lambda mine: {topic: text for topic, text in mine.items() if topic in topics}, self
        )


def lists_of(copies: Copies) -> ThrottledLists:
    """What copies between brokers need: the sources throttle as leaders, the destinations as followers.

    A partition under its minimum of in-sync replicas has no leaders on the list: they would hold back the replicas that it misses.
    """
    return ThrottledLists(leader=_texts(copies, _leading(copies)), follower=_texts(copies, _fetching(copies)))


def roles_of(copies: Copies) -> tuple[BrokerRole, ...]:
    """Every role that needs a rate, in the order of ``ROLES``, ids ascending: every source may lead, every destination follows."""
    by_role = (_leading(copies), _fetching(copies), copies.of_kind(DISK))
    return tuple(
        BrokerRole(role, broker)
        for role, replicas in zip(ROLES, by_role, strict=True)
        for broker in np.unique(replicas.brokers).tolist()
    )


def _leading(copies: Copies) -> ReplicaSet:
    return copies.sources.of_rows(copies.is_replicated() & ~copies.is_under_min_isr())


def _fetching(copies: Copies) -> ReplicaSet:
    return ReplicaSet(copies.destinations.keys[copies.is_between_brokers()])


def _texts(copies: Copies, replicas: ReplicaSet) -> dict[str, str]:
    rows = replicas.rows
    topic = copies.topic[rows]
    brokers = replicas.brokers.tolist()
    entries = [f"{at}:{broker}" for at, broker in zip(copies.partition[rows].tolist(), brokers, strict=True)]
    starts = np.flatnonzero(np.diff(topic, prepend=-1)).tolist()
    return {
        copies.topics[int(topic[start])]: ",".join(entries[start:end])
        for start, end in pairwise([*starts, len(entries)])
    }


def merge(there: ThrottledLists, ours: ThrottledLists) -> tuple[ThrottledLists, ThrottledLists]:
    """The lists of our topics with our entries in them, and the entries that this adds.

    ``*`` is left alone: it covers ours already, and nothing is added to it. An entry that was there before is never among
    the added ones, so removing the added ones restores the lists. Raises ``BadList``.
    """
    return _combine(_join, ours, there), difference(ours, there)


def without(there: ThrottledLists, added: ThrottledLists) -> ThrottledLists:
    """The lists of the topics of ``added`` without those entries; an empty text means: delete the setting.

    A ``*`` that was set meanwhile is left alone. Raises ``BadList``.
    """
    return added.each_role(lambda topics: dict.fromkeys(topics, ""), added) | foreign_entries_of(there, added)


def foreign_entries_of(there: ThrottledLists, ours: ThrottledLists) -> ThrottledLists:
    """Entries on the topics of ``ours`` that somebody else set; they are kept and reported. Raises ``BadList``."""
    return _combine(lambda text, now: _subtract(now, text), ours, there)


def union(one: ThrottledLists, other: ThrottledLists) -> ThrottledLists:
    """Entries of either. Raises ``BadList``."""
    return one | _combine(_join, other, one)


def contains(there: ThrottledLists, entries: ThrottledLists) -> bool:
    """Whether the lists have all these entries; ``*`` has every entry. Raises ``BadList``."""
    return not any(
        _subtract(text, theirs.get(topic, "").strip())
        for mine, theirs in ((entries.leader, there.leader), (entries.follower, there.follower))
        for topic, text in mine.items()
    )


def common(one: ThrottledLists, there: ThrottledLists) -> ThrottledLists:
    """Entries of ``one`` that are there; ``*`` has every entry. Raises ``BadList``."""
    return _combine(_intersect, one, there)


def difference(one: ThrottledLists, other: ThrottledLists) -> ThrottledLists:
    """Entries of ``one`` that are not in ``other``; a ``*`` of ``one`` stays. Raises ``BadList``."""
    return _combine(_subtract, one, other)


def _combine(
    operation: Callable[[str, str], str], one: ThrottledLists, other: ThrottledLists
) -> ThrottledLists:
    """The result for each text of ``one`` and that of the same topic in ``other``; an empty result is left out."""
    return one.each_role(
        lambda mine, theirs: {
            topic: result
            for topic, text in mine.items()
            if (result := operation(text.strip(), theirs.get(topic, "").strip()))
        },
        one,
        other,
    )


# The usual cases come first in each, without reading 100,000 entries.


def _join(text: str, now: str) -> str:
    if now in ("", text, EVERYTHING):
        return now or text
    return text_of(entries_of(now) | entries_of(text))


def _subtract(text: str, removed: str) -> str:
    if text in ("", EVERYTHING) or not removed:
        return text
    return "" if removed in (text, EVERYTHING) else text_of(entries_of(text) - entries_of(removed))


def _intersect(text: str, now: str) -> str:
    return text if now in (text, EVERYTHING) else text_of(entries_of(text) & entries_of(now))


def entries_of(text: str) -> set[Entry]:
    """Partition and broker of each entry. Raises ``BadList``; ``*`` is no entry, and empty ones, which Kafka allows, are none."""
    entries = set()
    for part in filter(None, map(str.strip, text.split(","))):
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise BadList(
                f"{part[:100]!r} is no entry of a throttled replica list; expected partition:broker"
            )
        entries.add((int(match[1]), int(match[2])))
    return entries


def text_of(entries: Iterable[Entry]) -> str:
    """The list in numeric order, each entry once."""
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(set(entries)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSteps:
    """Our entries as they should be, and the steps that lead there."""

    wanted: ThrottledLists
    add: ThrottledLists
    joined: ThrottledLists
    """Entries to add that were never there."""
    remove: ThrottledLists
    needing: tuple[BrokerRole, ...]
    """Every role that needs a rate (``roles_of``)."""
    down: Collection[int]
    """Brokers that are not alive: no rate can be set on them, and none be taken off."""

    @classmethod
    def from_lists(
        cls,
        there: ThrottledLists,
        added: ThrottledLists,
        copies: Copies,
        *,
        lost: ThrottledLists,
        down: Collection[int],
    ) -> "ListSteps":
        """``there`` is on the cluster, whether or not our last change has arrived; ``added`` is what we had added.

        ``lost`` is the part of that which is needed and which somebody removed.
        """
        _, wanted = merge(difference(there, added), lists_of(copies))
        joined = difference(wanted, added)
        return cls(
            wanted=wanted,
            add=union(joined, lost),
            joined=joined,
            remove=difference(added, wanted),
            needing=roles_of(copies),
            down=down,
        )

    @property
    def is_joined(self) -> bool:
        """Whether something moves that is not throttled yet."""
        return not self.joined.is_empty

    @property
    def is_left(self) -> bool:
        """Whether something is throttled that no longer moves."""
        return not self.remove.is_empty

    def roles(self) -> Iterator[BrokerRole]:
        """Every role that needs a rate and can be given one."""
        return (role for role in self.needing if role.broker not in self.down)

    def waits(self, role: BrokerRole) -> bool:
        """Whether a role needs a rate and its broker is not alive: its rate stays as it is until the broker is back."""
        return role.broker in self.down and role in self.needing
