"""The heartbeat of a program: whether it is alive (``/healthz``) and ready (``/readyz``), by what it last did.

A program's loop gives signs: it turns, its brokers answer, a batch moves on. A check fails when the next sign of its name does not come
in time. A program that waits for brokers goes on giving signs, because a restart would not bring them back.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from streaming.process.serve import Check


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that a healthy program does again and again."""

    name: str
    """Name of its check; a sign replaces the one before of the same name."""
    detail: Callable[[float], str]
    """What the check says, so many seconds after the sign."""
    within_s: float = math.inf
    """The next one has to come within this time; below 0: the check fails until then."""


class Heartbeat:
    """Written by the loop, read by the threads of the HTTP server. Its clock is monotonic: setting the system clock kills nothing."""

    def __init__(self, *first: Sign, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._newest: dict[str, tuple[Sign, float]] = {}
        for sign in first:
            self.give(sign)

    def give(self, sign: Sign) -> None:
        """A sign, now."""
        self._newest[sign.name] = sign, self._clock_s()

    def check(self, name: str, *, remark: str = "", ok: bool = True) -> Check:
        """Whether the newest sign of this name is young enough, if nothing else is wrong (``ok``); the remark is added to what it says."""
        sign, given_s = self._newest[name]
        age_s = self._clock_s() - given_s
        detail = "; ".join(filter(None, (sign.detail(age_s), remark)))
        return Check(name=name, ok=ok and age_s <= sign.within_s, detail=detail)
