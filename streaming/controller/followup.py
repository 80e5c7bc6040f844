"""What later decisions and rounds say about earlier unloads, read off what has been published.

Two questions that no single round answers: is a bundle unloaded again and again, and did the brokers that were to be
relieved lose the traffic they were to lose. Dry-run decisions are not followed, for nothing moves.

Invariants: nothing here influences a decision; memory is bounded (bundles of the last `WINDOW_S` of event time and
brokers of the last `SETTLE_ROUNDS` rounds, each at most `KEPT_COUNT` a cluster) and lost with the process, after which
the next answer is about what was published since. Not thread-safe.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec

__all__ = ["Effect", "FollowUp", "Repeat", "Source"]

WINDOW_S = 6 * 3600
"""Far above the default cooldown of a bundle, 30 minutes, before which none is unloaded twice."""
SETTLE_ROUNDS = 3
"""Rounds after which an unload shows in the reports: 3 minutes at the default length, as long as an action is valid."""
KEPT_COUNT = 10_000
"""Bundles and brokers remembered of a cluster; the oldest go first. About 2 MB."""

_UNLOAD_TYPE = "trimtab.action.unload.v1"
_ROUND_TYPE = "trimtab.round.v1"

Source = Literal["same", "other"]
"""Whether a bundle that is unloaded again is at the broker it was to leave before, or at another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A bundle was unloaded that had been unloaded within `WINDOW_S` before."""

    cluster: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What the brokers of a round's unloads, and of those in the rounds until now, were to lose and did lose."""

    cluster: str
    expected_messages_per_s: float
    achieved_messages_per_s: float
    expected_bytes_per_s: float
    achieved_bytes_per_s: float


class _Load(msgspec.Struct, frozen=True):
    broker: str
    messages_per_s: float
    bytes_per_s: float


class _Evidence(msgspec.Struct, frozen=True):
    bundle_messages_per_s: float
    bundle_bytes_per_s: float


class _Unload(msgspec.Struct, frozen=True):
    """The few fields that are needed; all others are skipped unread."""

    round: int
    bundle: str
    source_broker: str
    destination_broker: str | None
    evidence: _Evidence


class _Round(msgspec.Struct, frozen=True):
    round: int
    brokers: tuple[_Load, ...]


class _Event(msgspec.Struct, frozen=True):
    type: str
    cluster: str
    time: datetime
    data: msgspec.Raw


@dataclass(slots=True)
class _Awaited:
    """A broker that is to lose traffic."""

    since_round: int
    messages_per_s: float = 0.0
    """To be lost, what comes in on the way taken off."""
    bytes_per_s: float = 0.0
    before: _Load | None = None
    """Its load in the round of the decision."""

    def add(self, evidence: _Evidence, *, sign: int) -> None:
        self.messages_per_s += sign * evidence.bundle_messages_per_s
        self.bytes_per_s += sign * evidence.bundle_bytes_per_s


@dataclass(slots=True)
class _Cluster:
    unloaded: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Time of a bundle's last unload and the broker it was to leave; the oldest first."""
    awaited: dict[str, _Awaited] = field(default_factory=dict)
    """By broker; the oldest first."""


_EVENTS = msgspec.json.Decoder(_Event)
_UNLOADS = msgspec.json.Decoder(_Unload)
_ROUNDS = msgspec.json.Decoder(_Round)


class FollowUp:
    """Takes what was published, batch by batch."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}

    def forget(self, cluster: str) -> None:
        """What was published of a cluster is followed up no more."""
        self._clusters.pop(cluster, None)

    def see(self, published: Iterable[bytes]) -> Iterator[Repeat | Effect]:
        """Actions and round summaries as published, those of a cluster in their order; yields what they show."""
        for value in published:
            event = _EVENTS.decode(value)
            known = self._clusters.setdefault(event.cluster, _Cluster())
            if event.type == _UNLOAD_TYPE:
                yield from _unloaded(known, event)
            elif event.type == _ROUND_TYPE and known.awaited:
                yield from _closed(known, event)


def _unloaded(known: _Cluster, event: _Event) -> Iterator[Repeat]:
    data, now_s = _UNLOADS.decode(event.data), event.time.timestamp()
    before = known.unloaded.pop(data.bundle, None)
    if before is not None and now_s - before[0] <= WINDOW_S:
        yield Repeat(cluster=event.cluster, source="same" if before[1] == data.source_broker else "other")
    known.unloaded[data.bundle] = (now_s, data.source_broker)
    known.awaited.setdefault(data.source_broker, _Awaited(data.round)).add(data.evidence, sign=1)
    _forget(known, now_s)
    if data.destination_broker in known.awaited:
        known.awaited[data.destination_broker].add(data.evidence, sign=-1)


def _forget(known: _Cluster, now_s: float) -> None:
    """Drop from the front, where the oldest are; the unload just seen is never dropped."""
    while len(known.unloaded) > KEPT_COUNT or now_s - next(iter(known.unloaded.values()))[0] > WINDOW_S:
        del known.unloaded[next(iter(known.unloaded))]
    while len(known.awaited) > KEPT_COUNT:
        del known.awaited[next(iter(known.awaited))]


def _closed(known: _Cluster, event: _Event) -> Iterator[Effect]:
    """Look back on the brokers whose unloads are `SETTLE_ROUNDS` old; one no longer reported says nothing."""
    data = _ROUNDS.decode(event.data)
    loads = {load.broker: load for load in data.brokers}
    settled = []
    for broker, awaited in list(known.awaited.items()):
        if awaited.before is None:
            awaited.before = loads.get(broker)
        if data.round - awaited.since_round < SETTLE_ROUNDS:
            continue
        del known.awaited[broker]
        if awaited.before is not None and broker in loads:
            settled.append((awaited, awaited.before, loads[broker]))
    if settled:
        yield Effect(
            cluster=event.cluster,
            expected_messages_per_s=sum(awaited.messages_per_s for awaited, _, _ in settled),
            achieved_messages_per_s=sum(
                before.messages_per_s - after.messages_per_s for _, before, after in settled
            ),
            expected_bytes_per_s=sum(awaited.bytes_per_s for awaited, _, _ in settled),
            achieved_bytes_per_s=sum(before.bytes_per_s - after.bytes_per_s for _, before, after in settled),
        )
