"""Waiting with a limit: for a moment, for a check that is repeated until then, for a call whose client has no limit, or an outage.

An outage at the start is waited out: a step is tried again until it succeeds, the limit has passed, or a stop is asked for. The limit
of every start is ``controller.start_wait_s``.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from streaming.process.exits import NotReached

_LOG = logging.getLogger(__name__)

_PAUSE_FIRST_S, _PAUSE_MOST_S = 1.0, 15.0


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


class StoppedWaiting(Exception):
    """A stop was asked for while waiting for an answer."""


class OutageWait:
    """Waits as long as ``limit_s`` for each step; ``outage_of`` names what does not answer, and ``show`` gets a text about it.

    ``outage_of`` returns None for an error against which waiting does not help. ``pause`` waits some seconds and says whether to go on.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        outage_of: Callable[[Exception], str | None],
        pause: Callable[[float], bool],
        show: Callable[[str], None],
    ) -> None:
        self._limit_s = limit_s
        self._outage_of = outage_of
        self._pause = pause
        self._show = show

    def run(self, step: Callable[[], Value]) -> Value:
        """What the step returns. Raises its error where waiting is of no use, ``NotReached`` after the limit, or ``StoppedWaiting``."""
        deadline, pause_s = Deadline(self._limit_s), _PAUSE_FIRST_S
        while True:
            try:
                return step()
            except Exception as error:
                away = self._outage_of(error)
                if away is None:
                    raise
                if deadline.is_over:
                    waited = f"Waited for {self._limit_s:g} s (controller.start_wait_s)."
                    raise NotReached(f"{error}\n{waited}") from error
                _LOG.warning("waiting for %s, for %.0f s more at most: %s", away, deadline.left_s, error)
                self._show(f"waiting for {away}: {error}")
                if not self._pause(min(pause_s, deadline.left_s)):
                    raise StoppedWaiting from error
            pause_s = min(2 * pause_s, _PAUSE_MOST_S)
