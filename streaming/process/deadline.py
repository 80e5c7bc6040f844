"""The one way to wait with a limit: a moment by which something has to be done, and a check that is repeated until then."""

import time
from collections.abc import Callable


class Deadline:
    """A moment some seconds from now, by this process's own clock."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at_s = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 afterwards."""
        return max(0.0, self._at_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.left_s == 0.0


def poll(is_done: Callable[[], bool], *, timeout_s: float, pause_s: float) -> bool:
    """Whether it is done now or within the limit; ``is_done`` is called at least once."""
    deadline = Deadline(timeout_s)
    while not is_done():
        if deadline.is_over:
            return False
        time.sleep(min(pause_s, deadline.left_s))
    return True
