"""What happens in the cluster while it runs: usage of each card, the owner of each bundle, and from both what a run is judged by."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from policies.splitting.ranges import Bundle, position_of
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError
from tests.compare.network import Network
from tests.compare.scenarios import CARD_BYTES_PER_S, NAMESPACE

STEP_S = 5.0
SMOOTHED_STEPS = 6
"""Usage is a mean over half a minute, so that the swing of single topics does not count."""
SPREAD_POINTS = 15.0
SPREAD_RATIO = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A bundle that changed its owner."""

    time_s: float
    bundle: str
    source: int
    destination: int
    is_forced: bool
    """Whether its source does not run."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """Looks at the cluster every few seconds, in a thread of its own; a context manager that ends it."""

    network: Network
    admin: PulsarAdmin
    numbers: Mapping[str, int]
    """Of the brokers, by id."""
    running: Callable[[int], bool]
    messages_per_s: Mapping[str, float]
    """By topic, after what happens."""
    happened_s: float = 0.0
    """When it happened; a run is judged from then on."""
    usage_points: list[dict[int, float]] = field(default_factory=list)
    """By broker that runs, at every step."""
    rates: list[dict[int, float]] = field(default_factory=list)
    """Messages/s by the owner of their bundle, at every step."""
    times_s: list[float] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    bundles_count: list[int] = field(default_factory=list)
    _owners: dict[str, int] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def second(self, time_s: float) -> float:
        """Seconds from what happened to a time."""
        return round(time_s - self.happened_s, 1)

    def _run(self) -> None:
        before = {number: self.network.bytes_of(number) for number in self.numbers.values()}
        before_s = time.monotonic()
        while not self._over.wait(STEP_S):
            now_s, now = time.monotonic(), {}
            usage = {}
            for number in self.numbers.values():
                now[number] = self.network.bytes_of(number)
                used = max(
                    after - earlier for after, earlier in zip(now[number], before[number], strict=True)
                )
                if self.running(number):
                    usage[number] = 100 * used / (now_s - before_s) / CARD_BYTES_PER_S
            before, before_s = now, now_s
            self._look_at_owners()
            self.usage_points.append(usage)
            self.times_s.append(time.time())

    def _look_at_owners(self) -> None:
        carried = {number: 0.0 for number in self.numbers.values() if self.running(number)}
        try:
            bundles = self.admin.bundles(NAMESPACE)
        except AdminError:  # its brokers are being restarted
            bundles = []
        self.bundles_count.append(len(bundles) or (self.bundles_count[-1] if self.bundles_count else 0))
        for bundle, topics in topics_of(bundles, list(self.messages_per_s)).items():
            if not topics:
                continue
            owner = self._owner(topics[0])
            before = self._owners.get(str(bundle))
            if owner is None:
                owner = before
            elif before is not None and owner != before:
                self.moves.append(
                    Move(
                        time_s=time.time(),
                        bundle=str(bundle),
                        source=before,
                        destination=owner,
                        is_forced=not self.running(before),
                    )
                )
            if owner is not None:
                self._owners[str(bundle)] = owner
                if owner in carried:
                    carried[owner] += sum(self.messages_per_s[topic] for topic in topics)
        self.rates.append(carried)

    def _owner(self, topic: str) -> int | None:
        try:
            address = self.admin.lookup(topic)
        except AdminError:  # it is being unloaded
            return None
        return self.numbers.get(address or "")


def topics_of(bundles: Sequence[Bundle], topics: Sequence[str]) -> dict[Bundle, list[str]]:
    """The topics in each bundle."""
    found: dict[Bundle, list[str]] = {bundle: [] for bundle in bundles}
    for topic in topics:
        position = position_of(topic)
        for bundle in bundles:
            if bundle.range.contains(position):
                found[bundle].append(topic)
    return found


def judge(watch: Watch) -> dict[str, Any]:
    """The figures of a run, from what happened on."""
    seconds = [watch.second(time_s) for time_s in watch.times_s]
    first = next(place for place, second in enumerate(seconds) if second >= 0)
    smoothed = [
        _mean(watch.usage_points[max(first, place - SMOOTHED_STEPS + 1) : place + 1])
        for place in range(first, len(seconds))
    ]
    seconds = seconds[first:]
    spreads = [max(each.values()) - min(each.values()) for each in smoothed]
    by_rate = [_distance_ratio(each) for each in watch.rates[first:]]
    moves = [move for move in watch.moves if not move.is_forced and move.time_s > watch.happened_s]
    seen: dict[str, list[int]] = {}
    sent_back = twice = 0
    for move in moves:
        path = seen.setdefault(move.bundle, [move.source])
        twice += len(path) > 1
        sent_back += move.destination in path
        path.append(move.destination)
    return {
        "unbalanced_ratio": round(_share(spreads, SPREAD_POINTS), 3),
        "balanced_after_s": _settled_s(seconds, spreads, SPREAD_POINTS),
        "rates_unbalanced_ratio": round(_share(by_rate, SPREAD_RATIO), 3),
        "rates_balanced_after_s": _settled_s(seconds, by_rate, SPREAD_RATIO),
        "unloads": len(moves),
        "sent_back": sent_back,
        "moved_twice": twice,
        "splits": watch.bundles_count[-1] - watch.bundles_count[first],
        "moved_while_calm": sum(
            not move.is_forced and move.time_s <= watch.happened_s for move in watch.moves
        ),
    }


def series(watch: Watch) -> dict[str, Any]:
    """What the pictures show: seconds, usage by broker in whole points, and when bundles moved."""
    return {
        "seconds": [round(watch.second(time_s)) for time_s in watch.times_s],
        "usage_points": [
            [round(row[number]) if number in row else None for row in watch.usage_points]
            for number in sorted(watch.numbers.values())
        ],
        "moves": [
            [round(watch.second(move.time_s)), move.source, move.destination, int(move.is_forced)]
            for move in watch.moves
        ],
    }


def _mean(rows: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Of the brokers that run at the end."""
    return {
        number: sum(values) / len(values)
        for number in rows[-1]
        if (values := [row[number] for row in rows if number in row])
    }


def _distance_ratio(rates: Mapping[int, float]) -> float:
    """The farthest broker's distance from the mean, of the mean."""
    mean = sum(rates.values()) / len(rates)
    return max(abs(rate - mean) for rate in rates.values()) / mean


def _share(values: Sequence[float], limit: float) -> float:
    return sum(value > limit for value in values) / len(values)


def _settled_s(seconds: Sequence[float], values: Sequence[float], limit: float) -> int | None:
    """When it is within the limit and stays there for the last half minute at least; None: never."""
    above = [place for place, value in enumerate(values) if value > limit]
    if not above:
        return 0
    after = above[-1] + 1
    return round(seconds[after]) if after + SMOOTHED_STEPS <= len(values) else None
