"""What was really published of a cluster, for who rebuilds its memory from the events that led to it."""

from collections import deque
from collections.abc import Iterable

from state.outputs import Output

__all__ = ["Published"]


class Published:
    """Actions and proposals, gone through once with the rounds that close."""

    def __init__(self, actions: Iterable[Output] = ()) -> None:
        self._left = deque(sorted(actions, key=lambda each: (each.time_ms, each.place)))

    def take_left(self) -> list[Output]:
        """Those of rounds that were not asked for."""
        found = list(self._left)
        self._left.clear()
        return found

    def take(self, end_ms: int) -> list[Output]:
        """Those of a round by its end, and of rounds before it that were not asked for."""
        found = []
        while self._left and self._left[0].time_ms <= end_ms:
            found.append(self._left.popleft())
        return found
