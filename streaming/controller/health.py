"""Whether the controller is alive (``/healthz``) and ready (``/readyz``).

It is alive while each step of the driver ends in the time that it may take, its loop turns, Spark answers, and a batch in progress moves
on. A controller that waits for brokers or input, or stays after a refusal, is alive. It is ready when its query runs, has triggered
within three intervals, and its last batch went out; a standby is ready when it could lead. The driver writes, other threads ask.
"""

import logging
import time
from collections.abc import Callable, Hashable, Sequence

from streaming.controller.batches import BatchPublisher
from streaming.process.serve import Check, Heartbeat, Sign
from streaming.spark.failures import explain_text
from streaming.spark.query import Query

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

_INTERVALS = 3
"""Trigger intervals after which a query that has not triggered is not ready."""
_INTERVAL_LEAST_S = 1
"""The loop of the driver turns no faster than that."""
_UNHEARD = "no beats are written, so standbys take over after each session: "


class Health:
    """The health of this process, from its start on."""

    def __init__(
        self,
        *,
        trigger_interval_s: float,
        batch_s: float = BATCH_S,
        turn_s: float = TURN_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        allowed_s = _INTERVALS * max(trigger_interval_s, _INTERVAL_LEAST_S)
        self._turn_s = turn_s
        self._moved = Sign(
            "batch", lambda age_s: f"has not moved on for {age_s:.0f} s, {batch_s:g} s are allowed", batch_s
        )
        self._no_batch = Sign("batch", lambda _: self._moved.detail(0.0))
        self._triggered = Sign(
            "trigger", lambda age_s: f"last seen {age_s:.1f} s ago, {allowed_s:g} s are allowed", allowed_s
        )
        self._heartbeat = Heartbeat(self._triggered, clock_s=clock_s)
        self._is_told = False
        self._progress: Hashable = None
        self._query: Query | None = None
        self._batches: BatchPublisher | None = None
        self._batches_seen = 0
        self._standby: Check | None = None
        self._beats_problem: Callable[[], str] | None = None
        self.show("starting")

    def show(self, phase: str) -> None:
        """The driver begins something without a query, which ``/readyz`` shows."""
        self.phase = phase
        self.begin(phase, START_S)

    def begin(self, step: str, allowed_s: float) -> None:
        """The driver begins a step that is over when the next one begins."""
        self._give_step(step, allowed_s)
        self._progress = None
        self._heartbeat.give(self._no_batch)

    def note_turn(self, progress: Hashable) -> None:
        """The loop of the query turned; ``progress`` is that of the batch under way, None where there is none.

        A call that Spark does not answer keeps the loop from turning. A batch moves on when anything in its progress changes.
        """
        self._give_step("watching the query", self._turn_s)
        if progress is None:
            self._heartbeat.give(self._no_batch)
        elif progress != self._progress:
            self._heartbeat.give(self._moved)
        self._progress = progress

    def _give_step(self, step: str, allowed_s: float) -> None:
        self._heartbeat.give(
            Sign("driver", lambda age_s: f"{step} for {age_s:.0f} s, {allowed_s:g} s are allowed", allowed_s)
        )

    def stand_by(self, text: str, problem: str) -> None:
        """No query is to run: this process waits for its turn to lead, which it is ready for unless there is a problem."""
        self.begin(text, START_S)
        self._query, self._batches = None, None
        self._standby = Check(name="standby", ok=not problem, detail=problem or text)

    def has_standbys(self, beats_problem: Callable[[], str]) -> None:
        """Standbys take over from a leader they do not hear; ``beats_problem`` returns why beats are not written, empty if they are."""
        self._beats_problem = beats_problem

    def lead(self) -> None:
        """From here on the query decides whether this process is ready; the query is about to be started."""
        self._standby = None

    def runs(self, query: Query, batches: BatchPublisher) -> None:
        """A query has been started."""
        self._query, self._batches = query, batches

    def note_end(self) -> None:
        """No query runs any more."""
        self._query = None

    def note_triggers(self) -> None:
        """Note that the query triggers: it waits for the next one, or has finished a batch since the last look.

        Idle triggers leave no other trace in Spark.
        """
        query, batches = self._query, self._batches
        if query is None or batches is None:
            return
        is_waiting = query.is_active and not query.is_in_batch
        if is_waiting or batches.published_count != self._batches_seen:
            self._heartbeat.give(self._triggered)
            self._batches_seen = batches.published_count

    def liveness(self) -> Sequence[Check]:
        """The checks for ``/healthz``; they do not call Spark. A failure is logged once each time, because a probe sees only the status."""
        checks = [self._heartbeat.check("driver"), self._heartbeat.check("batch")]
        failed = [f"{check.name}: {check.detail}" for check in checks if not check.ok]
        if failed and not self._is_told:
            _LOG.error("not alive: %s", "; ".join(failed))
        self._is_told = bool(failed)
        return checks

    def is_alive(self) -> bool:
        """Whether all these checks hold."""
        return all(check.ok for check in self.liveness())

    def readiness(self) -> Sequence[Check]:
        """The checks for ``/readyz``."""
        if (standby := self._standby) is not None:
            return [standby]
        self.note_triggers()
        is_running = self._query is not None
        failed = None if self._batches is None else self._batches.error
        checks = [Check(name="query", ok=is_running, detail="running" if is_running else self.phase)]
        if is_running:  # without a query nothing triggers, and nothing is published
            checks.append(self._heartbeat.check("trigger"))
        if is_running or failed is not None:
            detail = "ok" if failed is None else explain_text(failed)
            checks.append(Check(name="publish", ok=failed is None, detail=detail))
        if self._beats_problem is not None:
            problem = self._beats_problem()
            checks.append(Check(name="beats", ok=not problem, detail=_UNHEARD + problem if problem else "ok"))
        return checks
