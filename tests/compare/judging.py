"""What a run is judged by, from what was seen of the cluster while it ran."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
class Seen:
    """The cluster at each step of a run."""

    happened_s: float = 0.0
    """When it happened; a run is judged from then on."""
    times_s: list[float] = field(default_factory=list)
    usage_points: list[Mapping[int, float]] = field(default_factory=list)
    """By broker that runs."""
    messages_per_s: list[Mapping[int, float]] = field(default_factory=list)
    """By the owner of their bundle."""
    bundles_count: list[int] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    _owners: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Of each bundle, with the owner's process when it was last seen there."""

    def see_owner(
        self, bundle: str, owner: int | None, process_of: Callable[[int], int | None], time_s: float
    ) -> int | None:
        """Note who owns a bundle now (None: nobody, or no answer), and a move if that is somebody else. Returns the last known owner.

        Who owned it in an earlier life did not unload it: such a move is forced.
        """
        before, its_process = self._owners.get(bundle, (None, None))
        if owner is None:
            return before
        if before is not None and owner != before:
            self.moves.append(
                Move(
                    time_s=time_s,
                    bundle=bundle,
                    source=before,
                    destination=owner,
                    is_forced=its_process is None or process_of(before) != its_process,
                )
            )
        self._owners[bundle] = owner, process_of(owner)
        return owner

    def second(self, time_s: float) -> float:
        """Seconds from what happened to a time."""
        return round(time_s - self.happened_s, 1)


def judge(seen: Seen) -> dict[str, Any]:
    """The figures of a run, from what happened on."""
    seconds = [seen.second(time_s) for time_s in seen.times_s]
    first = next(place for place, second in enumerate(seconds) if second >= 0)
    smoothed = [
        _mean(seen.usage_points[max(first, place - SMOOTHED_STEPS + 1) : place + 1])
        for place in range(first, len(seconds))
    ]
    seconds = seconds[first:]
    spreads = [max(each.values()) - min(each.values()) for each in smoothed]
    by_rate = [_distance_ratio(each) for each in seen.messages_per_s[first:]]
    moves = [move for move in seen.moves if not move.is_forced and move.time_s > seen.happened_s]
    paths: dict[str, list[int]] = {}
    sent_back = twice = 0
    for move in moves:
        path = paths.setdefault(move.bundle, [move.source])
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
        "splits": seen.bundles_count[-1] - seen.bundles_count[first],
        "moved_while_calm": sum(not move.is_forced and move.time_s <= seen.happened_s for move in seen.moves),
    }


def series(seen: Seen) -> dict[str, Any]:
    """What the pictures show: seconds, usage by broker in whole points, and when bundles moved."""
    return {
        "seconds": [round(seen.second(time_s)) for time_s in seen.times_s],
        "usage_points": [
            [round(row[number]) if number in row else None for row in seen.usage_points]
            for number in sorted({number for row in seen.usage_points for number in row})
        ],
        "moves": [
            [round(seen.second(move.time_s)), move.source, move.destination, int(move.is_forced)]
            for move in seen.moves
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
