"""``trimtab run``: everything is checked, then the query runs until it is told to stop, fenced, or found misconfigured.

The order at start is fixed: topics, Spark, taking over (``take_over``), query. Brokers that do not answer are waited for at
the start, and later restart the query with back-off, unless another controller has taken over meanwhile; only fencing,
configuration errors and damaged data (``failing``) end the process. On SIGTERM or SIGINT the batch in progress is
finished before the query stops.
"""

import logging
import math
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import TypeVar

import pyspark
from kafka.errors import KafkaError
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.exits import FencedOff, NotReached, Refused, SparkEnded
from streaming.jars import JarError, JavaError
from streaming.known import KNOWN_LABELS
from streaming.metrics import Metrics
from streaming.serve import Check, HealthServer
from streaming.settings import ClusterSettingsSource, Settings
from streaming.sinks import CheckpointMismatch, Fenced, NotAllowed, PublishError
from streaming.sinks.publisher import Publisher, publisher_of
from streaming.spark import session, skipping, source
from streaming.spark.batches import BatchPublisher
from streaming.spark.checkpoint import CheckpointDirectory, CheckpointError
from streaming.spark.damage import damaged_files
from streaming.spark.failing import Failure, Repeats, final_remedy, repeated_remedy
from streaming.spark.java_errors import failure_of
from streaming.spark.probes import failed_probe
from streaming.spark.progress import batch_progress, show_progress
from streaming.spark.regrown import regrown
from streaming.spark.runs import Runs
from streaming.spark.spark_log import SparkLog
from streaming.spark.surroundings import Changed, Unanswered, Watch, look
from streaming.spark.take_over import take_over
from streaming.spark.watchdog import START_S, STOP_S, Watchdog
from streaming.stopping import stopped_by_signals
from streaming.topics.both import validate_all
from streaming.topics.identity import input_ids
from streaming.topics.kafka import StartError, Unreachable
from streaming.waiting import OutageWait, StoppedWaiting
from streaming.wire.skipped import SkippedRange

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")

_LOOK_S = 1
"""How often the driver looks at its query; short, because a signal is only seen between looks."""
_DRAIN_S = 20.0
"""How long a batch in progress may take at a stop; the whole stop stays within 30 s."""
_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 1.0, 30.0
_HEALTHY_S = 60.0
"""A query that ran this long begins its next back-off anew."""
_INTERVALS_READY = 3
"""Trigger intervals after which a query that has not triggered is not ready."""


class Application:
    """One controller process."""

    def __init__(
        self, settings: Settings, *, begin: source.Begin, fresh: bool, adopt: bool, skip_lost: bool = False
    ) -> None:
        self._settings = settings
        self._begin = begin
        self._fresh = fresh
        self._adopt = adopt
        self._skip_lost = skip_lost
        self._metrics = Metrics(KNOWN_LABELS, version=version("trimtab"), pyspark_version=pyspark.__version__)
        self._metrics.show_start(at_s=time.time())
        self._stopping = False
        self._watchdog = Watchdog()
        self._phase = "starting"
        """What it does while no query runs, for readiness."""
        self._query: StreamingQuery | None = None
        self._batches: BatchPublisher | None = None
        self._last_trigger_s = time.monotonic()
        self._batches_seen = 0

    def run(self) -> None:
        """Run until stopped; raises ``exits.Refused``, ``exits.FencedOff`` or ``exits.NotReached``."""
        server = HealthServer(
            self._metrics.registry,
            self._readiness,
            liveness=self._watchdog.checks,
            host=self._settings.metrics.host,
            port=self._settings.metrics.port,
        )
        with stopped_by_signals(self._stop):
            _LOG.info("metrics and health at %s", self._serve(server))
            try:
                self._run_checked()
            except StoppedWaiting:
                _LOG.info("stopped while waiting")
            except (Refused, FencedOff) as error:
                self._stay(error)
                raise
            finally:
                server.stop()

    def _run_checked(self) -> None:
        self._check_topics()
        self._show_phase("starting Spark")
        spark = self._spark()
        try:
            with SparkLog(spark):
                self._run_on(spark)
        finally:
            spark.stop()

    def _stay(self, error: Refused | FencedOff) -> None:
        """Where a supervisor would start it again at once: stay, unready and saying why, until a stop is asked for."""
        if self._settings.controller.when_refused == "end" or self._stopping:
            return
        self._phase = error.message
        self._watchdog.begin("staying after a refusal", math.inf)
        _LOG.error("staying, unready, because controller.when_refused is stay: %s", error.message)
        self._wait(math.inf)

    @staticmethod
    def _serve(server: HealthServer) -> str:
        try:
            return server.start()
        except OSError as error:
            raise Refused(str(error)) from error

    def _check_topics(self) -> None:
        try:
            for warning in self._waiting_out(lambda: validate_all(self._settings)):
                _LOG.warning("%s", warning)
        except StartError as error:
            raise Refused(str(error)) from error

    def _waiting_out(self, step: Callable[[], Value]) -> Value:
        """What the step returns, waiting for brokers that do not answer; raises ``NotReached`` after ``start_wait_s``."""
        limit_s = self._settings.controller.start_wait_s
        wait = OutageWait(limit_s, is_outage=_passes, pause=self._wait, show=self._show_phase)
        try:
            found = wait.through(step)
        except (StartError, PublishError, KafkaError) as error:
            if not _passes(error):
                raise
            raise NotReached(f"{error}\nWaited for {limit_s:g} s (controller.start_wait_s).") from error
        self._show_phase("starting")
        return found

    def _show_phase(self, text: str) -> None:
        self._watchdog.begin(text, START_S)
        self._phase = text

    def _spark(self) -> SparkSession:
        try:
            return session.connect(self._settings)
        except (JarError, JavaError) as error:
            raise Refused(str(error)) from error

    def _run_on(self, spark: SparkSession) -> None:
        settings = self._settings
        publisher = publisher_of(settings)
        try:
            ids = self._waiting_out(partial(input_ids, settings))
            checkpoint = CheckpointDirectory(spark, settings.spark.checkpoint, topic_ids=ids)
            if not self._fresh:
                self._waiting_out(lambda: self._refuse_regrown(checkpoint))
            epoch = self._waiting_out(
                lambda: take_over(checkpoint, publisher, settings, fresh=self._fresh, adopt=self._adopt)
            )
            if checkpoint.is_local:
                session.use_local_files(spark)
            _LOG.info(
                "controller %s has epoch %d, mode %s",
                settings.controller.name,
                epoch,
                settings.controller.mode,
            )
            batches = self._batches = BatchPublisher(
                publisher,
                self._metrics,
                settings.topics,
                forget_after_s=ClusterSettingsSource(settings).forget_after_s,
            )
            runs = Runs(
                spark, settings, self._begin, checkpoint=checkpoint, publisher=publisher, batches=batches
            )
            if self._skip_lost:
                runs.skip(self._waiting_out(lambda: self._said_gaps(checkpoint, epoch)))
            with Watch(lambda: look(settings, ids, checkpoint.is_there)) as watch:
                self._keep_running(runs, publisher, checkpoint, watch)
        except (CheckpointError, CheckpointMismatch, PublishError, Changed) as error:
            raise Refused(str(error)) from error
        except KafkaError as error:
            raise Refused(f"{settings.input.url}: the input cannot be read: {error!r}") from error
        except Fenced as error:
            raise FencedOff(str(error)) from error
        finally:
            publisher.close()

    def _refuse_regrown(self, checkpoint: CheckpointDirectory) -> None:
        said = regrown(self._settings, checkpoint.planned())
        if said is not None:
            raise Changed(said)

    def _said_gaps(self, checkpoint: CheckpointDirectory, epoch: int) -> list[SkippedRange]:
        """What the input has lost since the checkpoint, once the audit topic says so."""
        gaps = skipping.lost(self._settings, checkpoint.places())
        if gaps:
            skipping.say(self._settings, gaps, epoch=epoch)
        _LOG.warning("--skip-lost: %s", gaps or "nothing was lost")
        return gaps

    def _keep_running(
        self, runs: Runs, publisher: Publisher, checkpoint: CheckpointDirectory, watch: Watch
    ) -> None:
        """Run the query again and again, waiting longer each time it fails at once."""
        backoff_s, repeats = _BACKOFF_FIRST_S, Repeats()
        try:
            while not self._stopping:
                started = time.monotonic()
                failure = self._outcome(runs, publisher, checkpoint, watch, repeats)
                if failure is not None:
                    if time.monotonic() - started > _HEALTHY_S:
                        backoff_s = _BACKOFF_FIRST_S
                    self._tell_restart(failure, backoff_s)
                    self._wait(backoff_s)
                    self._wait_until_unchanged(watch, checkpoint)
                    backoff_s = min(2 * backoff_s, _BACKOFF_MOST_S)
        except Py4JNetworkError as error:
            raise SparkEnded(
                "Spark's JVM has ended (killed, or out of memory: see spark.driver_memory); start trimtab again, "
                "nothing is lost"
            ) from error

    def _wait_until_unchanged(self, watch: Watch, checkpoint: CheckpointDirectory) -> None:
        """A query is only started again on the topics and the checkpoint it had. Raises ``Changed``."""
        while not self._stopping:
            try:
                watch.require_now()
                self._refuse_regrown(checkpoint)
            except (Unanswered, KafkaError) as error:
                self._show_phase(f"the query waits for the brokers: {error}")
                _LOG.warning("the query waits for the brokers: %s", error)
                self._wait(_LOOK_S)
            else:
                return

    def _outcome(
        self,
        runs: Runs,
        publisher: Publisher,
        checkpoint: CheckpointDirectory,
        watch: Watch,
        repeats: Repeats,
    ) -> Failure | None:
        """Run the query to its end; a failure that may pass is returned, any other one raised."""
        try:
            publisher.ensure_owner()
            self._run_query(runs, publisher, checkpoint, watch)
        except Py4JNetworkError:
            raise
        except (PySparkException, Py4JError, PublishError, KafkaError, CheckpointError) as error:
            if isinstance(error, KafkaError) and not _passes(error):
                raise
            self._show_phase(f"the query failed: {error}")
            failure = self._failure(error)
            self._raise_if_final(failure, repeats, runs.spark, error)
            return failure
        return None

    def _tell_restart(self, failure: Failure, backoff_s: float) -> None:
        _LOG.warning("the query failed and is restarted in %g s: %s", backoff_s, failure.text)
        self._show_phase(f"the query failed and is started again: {failure.text}")
        self._metrics.count_query_restart()

    def _failure(self, error: Exception) -> Failure:
        """What went wrong. Of the batch function's own error Spark passes on no more than its text."""
        raised = None if self._batches is None else self._batches.take_raised()
        if isinstance(raised, Fenced | CheckpointMismatch):
            raise raised from error
        return failure_of(raised or error)

    def _raise_if_final(
        self, failure: Failure, repeats: Repeats, spark: SparkSession, error: Exception
    ) -> None:
        remedy = final_remedy(failure)
        batch_id = None if self._batches is None else self._batches.newest_batch_id
        if remedy is None and repeats.note(
            failure, batch_id=batch_id, is_sound=lambda: self._is_sound(spark)
        ):
            location = self._settings.spark.checkpoint
            remedy = repeated_remedy(failure, repeats.count, location, damaged_files(spark, location))
        if remedy is not None:
            raise Refused(f"{remedy}\n{failure.text}") from error

    def _is_sound(self, spark: SparkSession) -> bool:
        problem = failed_probe(spark, self._settings)
        if problem is not None:
            _LOG.warning("beside the query something else does not work: %s", problem)
        return problem is None

    def _run_query(
        self, runs: Runs, publisher: Publisher, checkpoint: CheckpointDirectory, watch: Watch
    ) -> None:
        batches = self._batches
        assert batches is not None, "the batch function is made before the query"
        self._watchdog.begin("starting the query", START_S)
        query = runs.next().queryName(f"trimtab-{self._settings.controller.name}").start()
        self._query = query
        try:
            while not self._stopping and not query.awaitTermination(_LOOK_S):
                self._look(query, batches)
                progress = batch_progress(runs.spark, query)
                self._watchdog.turn(None if progress is None else (batches.published_count, progress))
                batches.telling.attempt("progress", partial(show_progress, query, self._metrics))
                if batches.published_count:
                    checkpoint.drop_older()
                batches.telling.forget_silent(time.monotonic())
                watch.require()
                if runs.is_past_gaps:
                    break
                if publisher.is_superseded():
                    raise Fenced(
                        f"another controller called {self._settings.controller.name!r} has taken over"
                    )
        finally:
            self._drain(query)

    def _look(self, query: StreamingQuery, batches: BatchPublisher) -> None:
        """Note that the query triggers: it waits for the next one, or has finished a batch since the last look.

        Idle triggers leave no other trace in Spark.
        """
        is_waiting = query.isActive and not query.status["isTriggerActive"]
        if is_waiting or batches.published_count != self._batches_seen:
            self._last_trigger_s = time.monotonic()
            self._batches_seen = batches.published_count

    def _drain(self, query: StreamingQuery) -> None:
        """Let the batch in progress finish, then stop; a batch cut off here is published at the next start."""
        self._watchdog.begin("stopping the query", STOP_S)
        until = time.monotonic() + _DRAIN_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            query.awaitTermination(_LOOK_S)
        query.stop()
        self._query = None

    def _readiness(self) -> Sequence[Check]:
        query, batches = self._query, self._batches
        if query is not None and batches is not None:
            self._look(query, batches)
        silent_s = time.monotonic() - self._last_trigger_s
        allowed_s = _INTERVALS_READY * max(self._settings.spark.trigger_interval_s, _LOOK_S)
        failed = None if batches is None else batches.error
        return [
            Check(name="query", ok=query is not None, detail="running" if query else self._phase),
            Check(
                name="trigger",
                ok=query is not None and silent_s <= allowed_s,
                detail=f"last seen {silent_s:.1f} s ago, {allowed_s:g} s are allowed",
            ),
            Check(name="publish", ok=failed is None, detail="ok" if failed is None else str(failed)),
        ]

    def _wait(self, seconds: float) -> bool:
        """Whether to go on after so many seconds; False at once when a stop is asked for."""
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
        return not self._stopping

    def _stop(self, number: signal.Signals) -> None:
        _LOG.info("%s: finishing the batch in progress", number.name)
        self._stopping = True


def _passes(error: Exception) -> bool:
    """Whether brokers do not answer, which may be over the next time somebody asks."""
    if isinstance(error, KafkaError):
        return bool(error.retriable)
    return isinstance(error, Unreachable) or (
        isinstance(error, PublishError) and not isinstance(error, NotAllowed)
    )
