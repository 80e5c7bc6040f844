"""Runs the query until it is told to stop: starts it again, with back-off, after every failure that may pass.

Fencing, configuration errors and damaged data (``streaming.spark.failures``) end it. Before each start of the query it
checks whether another controller has taken over and whether the topics and the checkpoint are what they were. After a failure it
probes brokers, store and disk, so that an outage is never taken for a damaged checkpoint. At a stop the batch in progress is finished
first.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count

from policies.wording import counted
from streaming.contract import families
from streaming.controller.batches import BatchPublisher
from streaming.controller.environment import Changed, EnvironmentMonitor, Unanswered, refuse_regrown
from streaming.controller.health import START_S, STOP_S, Health
from streaming.controller.metrics import Metrics
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused, words_of
from streaming.settings import Settings
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.failures import (
    Failure,
    Repeats,
    SparkError,
    SparkGone,
    explain,
    failure_of,
    final_remedy,
    repeated_remedy,
    spark_errors,
)
from streaming.spark.probes import damaged_files, probe_local, probe_store
from streaming.spark.query import Frames, Query, Runs
from streaming.systems import validate_all
from streaming.transport.checkpoint import is_full
from streaming.transport.errors import (
    CheckpointError,
    CheckpointMismatch,
    Fenced,
    NoAnswer,
    PublishError,
    StartError,
)
from streaming.transport.publisher import Publisher

_LOG = logging.getLogger(__name__)

_LOOK_S = 1.0
"""How often the driver looks at its query."""
_STOP_LOOKS = 5
"""How often between two looks it checks for a stop request: Spark's wait cannot be interrupted."""
_OWNER_LOOKS = 3
"""At one look in so many the markers are read, which show a successor; publishing would find it, too."""
_DRAIN_LOOK_S = 0.1
"""How often a stop looks whether the batch has ended: a standby waits for that."""
_DRAIN_S = 20.0
"""How long a batch in progress may take at a stop; the whole stop stays within 30 s."""
_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 1.0, 30.0
_NAMED_MOST = 5
_HEALTHY_S = 60.0
"""A query that ran this long begins its next back-off anew."""


@dataclass(slots=True, kw_only=True)
class QueryLoop:
    """Runs the query of one process. ``wait`` waits some seconds and returns whether to go on."""

    settings: Settings
    runs: Runs
    publisher: Publisher
    checkpoint: CheckpointDirectory
    watch: EnvironmentMonitor
    batches: BatchPublisher
    metrics: Metrics
    health: Health
    wait: Callable[[float], bool]
    is_stopping: Callable[[], bool]
    write_last_beat: Callable[[], None]
    tell_problem: Callable[[str], None]
    """Tells others why the query fails; empty once it works again."""
    metrics_url: str = ""
    _repeats: Repeats = field(init=False, default_factory=Repeats)
    _has_run: bool = field(init=False, default=False)
    _failed_count: int = field(init=False, default=0)
    """Failures since the query worked."""

    def run(self) -> None:
        """Run the query again and again, waiting longer each time it fails at once.

        Raises ``Fenced`` whenever there is a successor, else ``Refused``, ``Changed``, ``CheckpointMismatch``, ``NoAnswer``
        or ``SparkGone``.
        """
        backoff_s, failure = _BACKOFF_FIRST_S, None
        try:
            while not self.is_stopping():
                started = time.monotonic()
                failure = self._outcome(has_failed=failure is not None)
                if failure is not None:
                    if time.monotonic() - started > _HEALTHY_S:
                        backoff_s = _BACKOFF_FIRST_S
                    cause = self._cause(failure)
                    _LOG.warning(
                        "%s; the query failed and is restarted in %g s", cause.rstrip("."), backoff_s
                    )
                    _LOG.debug("the whole failure: %s", failure.text)
                    self._failed_count += 1
                    self.health.show(f"the query failed and is started again: {cause}")
                    self.tell_problem(f"its query fails and is started again: {cause}")
                    self.metrics.count(families.QUERY_RESTARTS)
                    self.wait(backoff_s)
                    backoff_s = min(2 * backoff_s, _BACKOFF_MOST_S)
        except (Refused, Changed, CheckpointMismatch, NoAnswer):
            self._raise_if_superseded()
            raise

    def _raise_if_superseded(self) -> None:
        """Raise ``Fenced`` if there is a successor, a likely cause: it deletes our checkpoint, and changes topics before it starts."""
        try:
            self.publisher.ensure_owner()
        except (PublishError, CheckpointMismatch) as error:
            _LOG.warning("it is unknown whether another controller has taken over: %s", error)

    def _outcome(self, *, has_failed: bool) -> Failure | None:
        """Run the query to its end; a failure that may pass is returned, any other one raised."""
        try:
            with spark_errors():
                if has_failed:
                    self._wait_until_unchanged()
                self.publisher.ensure_owner()
                self._run_query()
        except SparkGone:
            raise
        except (SparkError, PublishError, NoAnswer, CheckpointError) as error:
            if isinstance(error, NoAnswer) and not error.is_transient:
                raise
            self.health.show(f"the query failed: {error}")
            return self._passing_failure(error)
        return None

    def _wait_until_unchanged(self) -> None:
        """A query is only started again on the topics and the checkpoint it had. Raises ``Changed``."""
        while not self.is_stopping():
            try:
                self.watch.require_now()
                refuse_regrown(self.settings, self.checkpoint.planned_batch())
            except (Unanswered, NoAnswer) as error:
                self.health.show(f"the query waits for the brokers: {error}")
                _LOG.warning("%s; the query waits for the brokers", str(error).rstrip("."))
                self.wait(_LOOK_S)
            else:
                return

    def _passing_failure(self, error: Exception) -> Failure:
        """What went wrong; raised if no restart can mend it. Spark passes on only the text of the batch function's own error."""
        raised = self.batches.take_raised()
        if isinstance(raised, Fenced | CheckpointMismatch):
            raise raised from error
        failure, repeats = failure_of(raised or error), self._repeats
        remedy = final_remedy(failure)
        if remedy is not None:
            _LOG.debug("the whole failure: %s", failure.text)
            raise Refused(f"{remedy}: {explain(failure)}") from error
        if repeats.note(failure, batch_id=self.batches.newest_batch_id, is_sound=self._is_sound):
            location = self.settings.spark.checkpoint
            remedy = repeated_remedy(failure, repeats.count, location, self._find_damaged(location))
            raise Refused(f"{remedy}\n{failure.text}") from error
        return failure

    def _cause(self, failure: Failure) -> str:
        cause = explain(failure)
        location = self.settings.spark.checkpoint
        disk = f"the disk of the checkpoint {location}" if is_full(location) else "a disk"
        return cause.replace("a disk", disk, 1) if cause.startswith("a disk is full") else cause

    def _is_sound(self) -> bool:
        problem = failed_probe(self.runs.frames)
        if problem is not None:
            _LOG.warning(
                "a test of the brokers, the checkpoint's store and the disk failed as well: %s", problem
            )
        return problem is None

    def _find_damaged(self, location: str) -> list[str]:
        try:
            return damaged_files(self.runs.frames.spark, location)
        except SparkError as error:
            _LOG.warning("the files of the checkpoint %s could not be checked: %s", location, error)
            return []

    def _run_query(self) -> None:
        self.health.begin("starting the query", START_S)
        started = time.monotonic()
        query = self.runs.start_next(f"trimtab-{self.settings.controller.name}")
        self.health.runs(query, self.batches)
        if not self._has_run:
            self._has_run = True
            _LOG.info("%s", describe_run(self.settings, metrics_url=self.metrics_url))
        looks = count(1)
        try:
            while not self._is_over(query):
                self._check_query(query)
                self._note_recovery(query, ran_s=time.monotonic() - started)
                if self.runs.is_past_gaps:
                    break
                if next(looks) % _OWNER_LOOKS == 0 and self.publisher.is_superseded():
                    raise Fenced(
                        f"another controller called {self.settings.controller.name!r} has taken over"
                    )
        finally:
            self._drain(query)

    def _is_over(self, query: Query) -> bool:
        """Wait for the query's end until the next look; a stop request is seen sooner, because a standby waits for our goodbye."""
        looks = range(_STOP_LOOKS)
        return any(self.is_stopping() or query.has_ended_within(_LOOK_S / _STOP_LOOKS) for _ in looks)

    def _check_query(self, query: Query) -> None:
        """One look at a running query. Raises ``Changed``."""
        batches = self.batches
        self.health.note_triggers()
        progress = query.batch_progress()
        self.health.note_turn(None if progress is None else (batches.published_count, progress))
        batches.reports.attempt("progress", partial(self._show_last_batch, query))
        if batches.published_count:
            self.checkpoint.drop_older()
        batches.reports.forget_silent(time.monotonic())
        self.watch.require()

    def _note_recovery(self, query: Query, *, ran_s: float) -> None:
        """Say once that it works again: it has finished a batch, or has run for a while without one."""
        if self._failed_count and (query.finished_batch_id is not None or ran_s > _HEALTHY_S):
            _LOG.info("the query works again, after %s", counted(self._failed_count, "failure"))
            self._failed_count = 0
            self.tell_problem("")

    def _show_last_batch(self, query: Query) -> None:
        last = query.last_batch()
        if last is not None:
            self.metrics.show_progress(**asdict(last))

    def _drain(self, query: Query) -> None:
        """Let the batch in progress finish, then stop; a batch cut off here is published at the next start.

        If the input never ends, the next batch begins at once. So this waits for the end of the batch, not for a pause.
        """
        self.health.begin("stopping the query", STOP_S)
        deadline = Deadline(_DRAIN_S)
        try:
            finished = query.finished_batch_id if query.is_active else None
            while (
                query.is_active
                and query.is_in_batch
                and query.finished_batch_id == finished
                and not deadline.is_over
            ):
                query.has_ended_within(_DRAIN_LOOK_S)
            if self.is_stopping():
                self.write_last_beat()  # Spark takes seconds to stop, and a standby fences us anyway
            query.stop()
        finally:
            self.health.note_end()


def describe_run(settings: Settings, *, metrics_url: str) -> str:
    """The line about a controller that runs: what it reads and writes, which clusters its settings name, and how it is set to decide."""
    names, url, mode = settings.topics, settings.input.url, settings.controller.mode
    to = "" if settings.output_url == url else f" at {settings.output_url}"
    clusters = sorted({*settings.clusters, *settings.targets})
    shown = (
        f" ({', '.join(clusters[:_NAMED_MOST])}{', …' if clusters[_NAMED_MOST:] else ''})" if clusters else ""
    )
    known = f"{counted(len(clusters), 'cluster')} by name{shown}" if clusters else "no cluster by name"
    return (
        f"running, set to mode {mode} and, for Pulsar, the policy {settings.pulsar.shedding_policy} (a control event goes before that): reads "
        f"{names.input} and {names.control} at {url}, writes {names.actions} (in dry-run {names.actions_dry_run}) and "
        f"{names.audit}{to}; the settings know {known}, and any {'other ' if clusters else ''}that "
        f"reports is decided on{' as well' if clusters else ''}; metrics and health at {metrics_url}"
    )


def failed_probe(frames: Frames) -> str | None:
    """The first problem of brokers, store and local directories, as a sentence; None if all work. Raises ``SparkGone``."""
    try:
        validate_all(frames.settings)
        probe_store(frames.spark, frames.settings.spark.checkpoint)
        probe_local(frames.spark)
    except SparkGone:
        raise
    except (StartError, SparkError, OSError) as error:
        return words_of(str(error))
    return None
