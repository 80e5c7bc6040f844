"""Waiting with a limit: for a moment, for a check that is repeated until then, or for a call whose client has no limit of its own."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar


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


Value = TypeVar("Value")


def within(timeout_s: float, call: Callable[[], Value], *, what: str) -> Value:
    """What ``call`` returns or raises; ``TimeoutError`` where it takes longer.

    The thread left behind by a timeout must hold nothing but a client that is closed next.
    """
    values: list[Value] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            values.append(call())
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failures:
        raise failures[0]
    if not values:
        raise TimeoutError(f"{what}: no answer within {timeout_s:g} s")
    return values[0]
