"""What was really published for a cluster; it is needed to rebuild the cluster's memory from events."""

from collections import deque
from collections.abc import Iterable

from state.outputs import Output


class Published:
    """Actions and proposals, read once, in step with the rounds that close."""

    def __init__(self, actions: Iterable[Output] = ()) -> None:
        self._left = deque(sorted(actions, key=lambda each: (each.time_ms, each.place)))

    def take_left(self) -> list[Output]:
        """The outputs of rounds that were never taken."""
        found = list(self._left)
        self._left.clear()
        return found

    def take(self, end_ms: int) -> list[Output]:
        """The outputs of the round with this end, and of earlier rounds that were not taken."""
        found = []
        while self._left and self._left[0].time_ms <= end_ms:
            found.append(self._left.popleft())
        return found
