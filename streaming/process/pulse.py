"""The health of an executor: whether its loop turns (live), and whether the brokers answer it (ready).

An executor that waits for brokers is live: a restart would not bring them back.
"""

import time
from collections.abc import Callable, Sequence

from streaming.process.serve import Check

_TURN_AGE_S_MAX = 120.0
"""A turn of the loop polls for a second; the longest turn, without brokers, waits for a few timeouts of 20 s."""
_POLL_AGE_S_MAX = 120.0
"""If the last poll is older, the executor is not ready: a broker that is restarted is back well before."""
_PROGRESS_AGE_S_MAX = 900.0
"""Longest time between two actions of a batch: each call has a timeout, and an action makes a few calls and waits for its effect."""


class Pulse:
    """Written by the loop, read by the health checks. Its clock is monotonic, so that setting the system clock kills no executor."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._turned_s = self._polled_s = clock_s()
        self._progressed_s: float | None = None
        """None: no batch is in progress."""
        self.problem = ""
        """What went wrong last; empty after the next success."""

    def note_turn(self) -> None:
        """The loop is about to ask for actions, whether or not it gets an answer."""
        self._turned_s = self._clock_s()

    def note_poll(self) -> None:
        """The brokers answered when they were asked for actions."""
        self._polled_s = self._clock_s()

    def note_progress(self) -> None:
        """A batch, or the next action of it, is taken up."""
        self._progressed_s = self._clock_s()

    def note_end(self) -> None:
        """The batch is over."""
        self._progressed_s = None

    def readiness(self) -> Sequence[Check]:
        """Whether the brokers answer."""
        age_s = self._clock_s() - self._polled_s
        detail = f"the brokers last answered {age_s:.0f} s ago"
        is_ready = age_s < _POLL_AGE_S_MAX and not self.problem
        return [Check(name="poll", ok=is_ready, detail="; ".join(filter(None, (detail, self.problem))))]

    def liveness(self) -> Sequence[Check]:
        """Whether the loop turns, and the batch in progress moves on."""
        now_s, progressed_s = self._clock_s(), self._progressed_s
        turn_s = now_s - self._turned_s
        batch_s = 0.0 if progressed_s is None else now_s - progressed_s
        batch = "none" if progressed_s is None else f"its newest action was taken up {batch_s:.0f} s ago"
        return [
            Check(name="loop", ok=turn_s < _TURN_AGE_S_MAX, detail=f"last turned {turn_s:.0f} s ago"),
            Check(name="batch", ok=batch_s < _PROGRESS_AGE_S_MAX, detail=batch),
        ]
