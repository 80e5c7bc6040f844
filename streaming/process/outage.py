"""Waiting out an outage at the start: a step is tried again until it succeeds, the limit has passed, or a stop is asked for.

The limit of every start is ``controller.start_wait_s``.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from policies.wording import digits
from streaming.process.deadline import Deadline
from streaming.process.exits import NotReached, words_of

_LOG = logging.getLogger(__name__)

_PAUSE_FIRST_S, _PAUSE_MOST_S = 1.0, 15.0

Value = TypeVar("Value")


class StoppedWaiting(Exception):
    """A stop was asked for while waiting for an answer."""


def wait_out(
    step: Callable[[], Value],
    limit_s: float,
    *,
    outage_of: Callable[[Exception], str | None],
    pause: Callable[[float], bool],
    show: Callable[[str], None],
) -> Value:
    """What the step returns. ``outage_of`` names what does not answer, and ``show`` gets a text about it.

    ``outage_of`` returns None for an error against which waiting does not help. ``pause`` waits some seconds and says whether to go on.
    Raises the step's error where waiting is of no use, ``NotReached`` after ``limit_s``, or ``StoppedWaiting``.
    """
    deadline, pause_s = Deadline(limit_s), _PAUSE_FIRST_S
    while True:
        try:
            return step()
        except Exception as error:
            away = outage_of(error)
            if away is None:
                raise
            said = words_of(str(error))
            if deadline.is_over:
                waited = f"Waited for {digits(limit_s)} s (controller.start_wait_s)."
                raise NotReached(f"{said}\n{waited}") from error
            wait_s = min(pause_s, deadline.left_s)
            show(f"waiting for {away}: {said}")
            _LOG.warning(
                "%s; waiting for %s, for %.0f s at most; trying again in %.2g s",
                said.rstrip("."),
                away,
                deadline.left_s,
                wait_s,
            )
            _LOG.debug("the stack of this failure", exc_info=error)
            if not pause(wait_s):
                raise StoppedWaiting from error
        pause_s = min(2 * pause_s, _PAUSE_MOST_S)
