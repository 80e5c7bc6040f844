"""What later decisions and rounds say about earlier unloads, read off what has been published.

Two questions that no single round answers: is a bundle unloaded again and again, and did the brokers that were to be
relieved lose the traffic they were to lose. Dry-run decisions are not followed, for nothing moves.

Invariants: nothing here influences a decision; memory is bounded (bundles of the last `WINDOW_S` of event time and
brokers of the last `SETTLE_ROUNDS` rounds, each at most `KEPT_COUNT` a cluster) and lost with the process, after which
the next answer is about what was published since. Not thread-safe.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from state.outputs import BrokerLoad, RoundSummary, Unload
from streaming.controller.published import Published

__all__ = ["Effect", "FollowUp", "Repeat", "Source"]

WINDOW_S = 6 * 3600
"""Far above the default cooldown of a bundle, 30 minutes, before which none is unloaded twice."""
SETTLE_ROUNDS = 3
"""Rounds after which an unload shows in the reports: 3 minutes at the default length, as long as an action is valid."""
KEPT_COUNT = 10_000
"""Bundles and brokers remembered of a cluster; the oldest go first. About 2 MB."""

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


@dataclass(slots=True)
class _Awaited:
    """A broker that is to lose traffic."""

    since_round: int
    messages_per_s: float = 0.0
    """To be lost, what comes in on the way taken off."""
    bytes_per_s: float = 0.0
    before: BrokerLoad | None = None
    """Its load in the round of the decision."""

    def add(self, unload: Unload, *, sign: int) -> None:
        self.messages_per_s += sign * float(unload.evidence["bundle_messages_per_s"])
        self.bytes_per_s += sign * float(unload.evidence["bundle_bytes_per_s"])


@dataclass(slots=True)
class _Cluster:
    unloaded: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Time of a bundle's last unload and the broker it was to leave; the oldest first."""
    awaited: dict[str, _Awaited] = field(default_factory=dict)
    """By broker; the oldest first."""


class FollowUp:
    """Takes what was published, event by event, those of a cluster in their order."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}

    def forget(self, cluster: str) -> None:
        """What was published of a cluster is followed up no more."""
        self._clusters.pop(cluster, None)

    def observe(self, event: Published) -> Iterator[Repeat | Effect]:
        """What an action or a round's summary shows."""
        data = event.data
        known = self._clusters.setdefault(data.cluster, _Cluster())
        if isinstance(data, Unload) and not data.dry_run:
            yield from _note_unload(known, data, event.time_s)
        elif isinstance(data, RoundSummary) and known.awaited:
            yield from _look_back(known, data)


def _note_unload(known: _Cluster, data: Unload, now_s: float) -> Iterator[Repeat]:
    before = known.unloaded.pop(data.bundle, None)
    if before is not None and now_s - before[0] <= WINDOW_S:
        yield Repeat(cluster=data.cluster, source="same" if before[1] == data.source_broker else "other")
    known.unloaded[data.bundle] = (now_s, data.source_broker)
    known.awaited.setdefault(data.source_broker, _Awaited(data.round)).add(data, sign=1)
    _forget(known, now_s)
    if data.destination_broker in known.awaited:
        known.awaited[data.destination_broker].add(data, sign=-1)


def _forget(known: _Cluster, now_s: float) -> None:
    """Drop from the front, where the oldest are; the unload just seen is never dropped."""
    while len(known.unloaded) > KEPT_COUNT or now_s - next(iter(known.unloaded.values()))[0] > WINDOW_S:
        del known.unloaded[next(iter(known.unloaded))]
    while len(known.awaited) > KEPT_COUNT:
        del known.awaited[next(iter(known.awaited))]


def _look_back(known: _Cluster, data: RoundSummary) -> Iterator[Effect]:
    """Look back on the brokers whose unloads are `SETTLE_ROUNDS` old; one no longer reported says nothing."""
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
            cluster=data.cluster,
            expected_messages_per_s=sum(awaited.messages_per_s for awaited, _, _ in settled),
            achieved_messages_per_s=sum(
                before.messages_per_s - after.messages_per_s for _, before, after in settled
            ),
            expected_bytes_per_s=sum(awaited.bytes_per_s for awaited, _, _ in settled),
            achieved_bytes_per_s=sum(before.bytes_per_s - after.bytes_per_s for _, before, after in settled),
        )
