"""Whether the controller is alive: its loop turns, Spark answers in time, and a batch in progress moves on.

Each step of the driver says how long it may take (``begin``), and reports nothing else until it is over. The loop of a running
query passes on at every turn what Spark reports (``note_turn``): a call that Spark does not answer keeps the loop from turning.
A batch moves on when anything in its progress changes. A controller that waits for brokers or input, or stays after a
refusal, is alive. Another thread than the driver's calls ``checks``; nothing here calls Spark.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from streaming.process.serve import Check

_LOG = logging.getLogger(__name__)

TURN_S = 90.0
"""A turn of the loop takes a second and some calls to Spark; a call that takes this long will not return. Generous, because a
machine without a free core may stop a JVM for many seconds."""
BATCH_S = 900.0
"""How long a batch may stand still. One task may decide for minutes on the largest records without a sign of it, and a
publisher waits for its brokers three times 20 s at most before it raises."""
START_S = 600.0
"""A start of Spark, the reading of the checkpoint and the take-over, each by itself: 10 to 20 s on an idle machine."""
STOP_S = 120.0
"""A stop of the query; the batch in progress has 20 s of it."""

_IDLE: Hashable = None


@dataclass(frozen=True, slots=True)
class _Step:
    """What the driver is doing, since when, and how long it may take."""

    name: str
    since_s: float
    allowed_s: float


class Watchdog:
    """Watches this process from its start on. Thread-safe."""

    def __init__(
        self, *, batch_s: float = BATCH_S, turn_s: float = TURN_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._batch_s = batch_s
        self._turn_s = turn_s
        self._clock = clock
        self._lock = threading.Lock()
        self._is_told = False
        self._progress = _IDLE
        self._moved_s = clock()
        self._step = _Step("starting", clock(), START_S)

    def begin(self, name: str, allowed_s: float) -> None:
        """The driver begins a step that is over when the next one begins."""
        with self._lock:
            self._step = _Step(name, self._clock(), allowed_s)
            self._progress, self._moved_s = _IDLE, self._clock()

    def note_turn(self, progress: Hashable) -> None:
        """The loop of the query turned; ``progress`` is that of the batch under way, None where there is none."""
        with self._lock:
            now_s = self._clock()
            self._step = _Step("watching the query", now_s, self._turn_s)
            if progress is None or progress != self._progress:
                self._progress, self._moved_s = progress, now_s

    def checks(self) -> Sequence[Check]:
        """The checks for ``/healthz``."""
        with self._lock:
            step, progress, now_s = self._step, self._progress, self._clock()
            still_s = 0.0 if progress is None else now_s - self._moved_s
        taken_s = now_s - step.since_s
        checks = [
            Check(
                name="driver",
                ok=taken_s <= step.allowed_s,
                detail=f"{step.name} for {taken_s:.0f} s, {step.allowed_s:g} s are allowed",
            ),
            Check(
                name="batch",
                ok=still_s <= self._batch_s,
                detail=f"has not moved on for {still_s:.0f} s, {self._batch_s:g} s are allowed",
            ),
        ]
        self._log_failed([check for check in checks if not check.ok])
        return checks

    def _log_failed(self, failed: Sequence[Check]) -> None:
        """Log it once each time, because a probe sees only the status."""
        if failed and not self._is_told:
            _LOG.error("not alive: %s", "; ".join(f"{check.name}: {check.detail}" for check in failed))
        self._is_told = bool(failed)
