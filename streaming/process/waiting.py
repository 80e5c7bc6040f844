"""Waiting out an outage at the start: a step is tried again until it succeeds, the limit has passed, or a stop is asked for.

The limit of every start is ``controller.start_wait_s``.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from streaming.process.exits import NotReached

__all__ = ["OutageWait", "StoppedWaiting"]

_LOG = logging.getLogger(__name__)

_PAUSE_FIRST_S, _PAUSE_MOST_S = 1.0, 15.0

Value = TypeVar("Value")


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._outage_of = outage_of
        self._pause = pause
        self._show = show
        self._clock = clock

    def through(self, step: Callable[[], Value]) -> Value:
        """What the step returns. Raises its error where waiting is of no use, ``NotReached`` after the limit, or ``StoppedWaiting``."""
        began_s, pause_s = self._clock(), _PAUSE_FIRST_S
        while True:
            try:
                return step()
            except Exception as error:
                away = self._outage_of(error)
                if away is None:
                    raise
                left_s = began_s + self._limit_s - self._clock()
                if left_s <= 0:
                    waited = f"Waited for {self._limit_s:g} s (controller.start_wait_s)."
                    raise NotReached(f"{error}\n{waited}") from error
                _LOG.warning("waiting for %s, for %.0f s more at most: %s", away, left_s, error)
                self._show(f"waiting for {away}: {error}")
                if not self._pause(min(pause_s, left_s)):
                    raise StoppedWaiting from error
            pause_s = min(2 * pause_s, _PAUSE_MOST_S)
