"""Whether the controller is ready: its query runs, has triggered within three intervals, and its last batch went out.

The threads of the HTTP server call the checks; the driver sets what it does while no query runs.
"""

import time
from collections.abc import Callable, Sequence

from streaming.controller.batches import BatchPublisher
from streaming.process.serve import Check
from streaming.spark.query import Query

_INTERVALS = 3
"""Trigger intervals after which a query that has not triggered is not ready."""
_UNHEARD = "no beats are written, so standbys take over after each session: "
_INTERVAL_LEAST_S = 1
"""The loop of the driver turns no faster than that."""


class Readiness:
    """The readiness of this process, from its start on."""

    def __init__(self, *, trigger_interval_s: float) -> None:
        self._allowed_s = _INTERVALS * max(trigger_interval_s, _INTERVAL_LEAST_S)
        self.phase = "starting"
        """What the driver does while no query runs."""
        self._query: Query | None = None
        self._batches: BatchPublisher | None = None
        self._last_trigger_s = time.monotonic()
        self._batches_seen = 0
        self._standby: Check | None = None
        self._beats_problem: Callable[[], str] | None = None

    def stand_by(self, text: str, problem: str) -> None:
        """No query is to run: this process waits for its turn to lead, which it is ready for unless there is a problem."""
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
            self._last_trigger_s = time.monotonic()
            self._batches_seen = batches.published_count

    def checks(self) -> Sequence[Check]:
        """The checks for ``/readyz``."""
        if (standby := self._standby) is not None:
            return [standby]
        self.note_triggers()
        is_running = self._query is not None
        silent_s = time.monotonic() - self._last_trigger_s
        failed = None if self._batches is None else self._batches.error
        return [
            Check(name="query", ok=is_running, detail="running" if is_running else self.phase),
            Check(
                name="trigger",
                ok=is_running and silent_s <= self._allowed_s,
                detail=f"last seen {silent_s:.1f} s ago, {self._allowed_s:g} s are allowed",
            ),
            Check(name="publish", ok=failed is None, detail="ok" if failed is None else str(failed)),
            *self._beats(),
        ]

    def _beats(self) -> Sequence[Check]:
        if self._beats_problem is None:
            return []
        problem = self._beats_problem()
        return [Check(name="beats", ok=not problem, detail=_UNHEARD + problem if problem else "ok")]
