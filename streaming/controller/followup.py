"""Which unloads concern a bundle that was unloaded before, read off what has been published.

No single round knows it for longer than a cooldown. Dry-run decisions are not followed, for nothing moves.

Invariants: nothing here influences a decision; memory is bounded (bundles of the last `WINDOW_S` of event time, at most
`KEPT_COUNT` a cluster) and lost with the process, after which the next answer is about what was published since. Not
thread-safe.
"""

from dataclasses import dataclass
from typing import Literal

from state.outputs import Unload
from streaming.controller.published import Published

WINDOW_S = 6 * 3600
"""Far above the default cooldown of a bundle, 30 minutes, before which none is unloaded twice."""
KEPT_COUNT = 10_000
"""Bundles remembered for each cluster; the oldest are dropped first. About 2 MB."""

Source = Literal["same", "other"]
"""Whether a bundle that is unloaded again is at the broker it was to leave before, or at another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A bundle was unloaded that had been unloaded within `WINDOW_S` before."""

    cluster: str
    source: Source


class FollowUp:
    """Takes what was published, event by event, those of a cluster in their order."""

    def __init__(self) -> None:
        self._unloaded: dict[str, dict[str, tuple[float, str]]] = {}
        """By cluster and bundle, time of the last unload and the broker it was to leave; the oldest first."""

    def forget(self, cluster: str) -> None:
        """Forget the unloads of a cluster: they are not followed up any more."""
        self._unloaded.pop(cluster, None)

    def observe(self, event: Published) -> Repeat | None:
        """The repeat, if the published event is one; else None."""
        data, now_s = event.data, event.time_s
        if not isinstance(data, Unload) or data.dry_run:
            return None
        unloaded = self._unloaded.setdefault(data.cluster, {})
        before = unloaded.pop(data.bundle, None)
        unloaded[data.bundle] = (now_s, data.source_broker)
        _forget_oldest(unloaded, now_s)
        if before is None or now_s - before[0] > WINDOW_S:
            return None
        return Repeat(cluster=data.cluster, source="same" if before[1] == data.source_broker else "other")


def _forget_oldest(unloaded: dict[str, tuple[float, str]], now_s: float) -> None:
    """Drop from the front, where the oldest are; the unload just noted is never dropped."""
    while len(unloaded) > KEPT_COUNT or now_s - next(iter(unloaded.values()))[0] > WINDOW_S:
        del unloaded[next(iter(unloaded))]
