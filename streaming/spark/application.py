"""``trimtab run``: everything is checked, then the query runs until it is told to stop, fenced, or found misconfigured.

The order at start is fixed: topics, Spark, taking over (``take_over``), query. A broker outage restarts the query with
back-off, unless another controller has taken over meanwhile; only fencing and configuration errors end the process. On
SIGTERM or SIGINT the batch in progress is finished before the query stops.
"""

import logging
import signal
import time
from collections.abc import Sequence
from importlib.metadata import version

import pyspark
from kafka.errors import KafkaError
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.exits import FencedOff, Refused, SparkEnded
from streaming.jars import JarError, JavaError
from streaming.known import KNOWN_LABELS
from streaming.metrics import Metrics
from streaming.serve import Check, HealthServer
from streaming.settings import Settings
from streaming.sinks import CheckpointMismatch, Fenced, PublishError
from streaming.sinks.publisher import Publisher, publisher_of
from streaming.spark import session, source
from streaming.spark.batches import BatchPublisher
from streaming.spark.checkpoint import CheckpointDirectory, CheckpointError
from streaming.spark.progress import show_progress
from streaming.spark.runs import Runs
from streaming.spark.take_over import take_over
from streaming.stopping import stopped_by_signals
from streaming.topics.both import validate_all
from streaming.topics.kafka import StartError

_LOG = logging.getLogger(__name__)

_LOOK_S = 1
"""How often the driver looks at its query; short, because a signal is only seen between looks."""
_DRAIN_S = 20.0
"""How long a batch in progress may take at a stop; the whole stop stays within 30 s."""
_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 1.0, 30.0
_HEALTHY_S = 60.0
"""A query that ran this long begins its next back-off anew."""
_INTERVALS_READY = 3
"""Trigger intervals after which a query that has not triggered is not ready."""

_FINAL_CAUSES = {
    "NewerStateError": "the checkpoint was written by a newer trimtab: run that version, or start over with --fresh",
    "OlderStateError": "the checkpoint was written by a trimtab from before 0.1.0: start over with --fresh",
    "RoundLengthError": "the rounds have another length than the checkpoint's: set length_s back, or use --fresh",
    "streaming.pulsar_log.positions.DataLoss": "the input no longer holds what the checkpoint has yet to read",
    "KAFKA_DATA_LOSS": "the input no longer holds what the checkpoint has yet to read (its retention is too short, or "
    "the topic was made anew): start over with --fresh, and raise the topic's retention",
    "Some data may have been lost": "the input no longer holds what the checkpoint has yet to read (its retention is "
    "too short, or the topic was made anew): start over with --fresh, and raise the topic's retention",
}
"""Failures that a restart cannot mend, by what Spark's message contains."""


class Application:
    """One controller process."""

    def __init__(self, settings: Settings, *, begin: source.Begin, fresh: bool, adopt: bool) -> None:
        self._settings = settings
        self._begin = begin
        self._fresh = fresh
        self._adopt = adopt
        self._metrics = Metrics(KNOWN_LABELS, version=version("trimtab"), pyspark_version=pyspark.__version__)
        self._metrics.show_start(at_s=time.time())
        self._stopping = False
        self._query: StreamingQuery | None = None
        self._batches: BatchPublisher | None = None
        self._last_trigger_s = time.monotonic()
        self._batches_seen = 0

    def run(self) -> None:
        """Run until stopped; raises ``exits.Refused`` or ``exits.FencedOff``."""
        self._check_topics()
        server = HealthServer(
            self._metrics.registry,
            self._readiness,
            host=self._settings.metrics.host,
            port=self._settings.metrics.port,
        )
        with stopped_by_signals(self._stop):
            _LOG.info("metrics and health at %s", self._serve(server))
            try:
                spark = self._spark()
                try:
                    self._run_on(spark)
                finally:
                    spark.stop()
            finally:
                server.stop()

    @staticmethod
    def _serve(server: HealthServer) -> str:
        try:
            return server.start()
        except OSError as error:
            raise Refused(str(error)) from error

    def _check_topics(self) -> None:
        try:
            for warning in validate_all(self._settings):
                _LOG.warning("%s", warning)
        except StartError as error:
            raise Refused(str(error)) from error

    def _spark(self) -> SparkSession:
        try:
            return session.connect(self._settings)
        except (JarError, JavaError) as error:
            raise Refused(str(error)) from error

    def _run_on(self, spark: SparkSession) -> None:
        settings = self._settings
        publisher = publisher_of(settings)
        try:
            checkpoint = CheckpointDirectory(spark, settings.spark.checkpoint)
            epoch = take_over(checkpoint, publisher, settings, fresh=self._fresh, adopt=self._adopt)
            if checkpoint.is_local:
                session.use_local_files(spark)
            _LOG.info(
                "controller %s has epoch %d, mode %s",
                settings.controller.name,
                epoch,
                settings.controller.mode,
            )
            batches = self._batches = BatchPublisher(publisher, self._metrics, settings.topics)
            runs = Runs(
                spark, settings, self._begin, checkpoint=checkpoint, publisher=publisher, batches=batches
            )
            self._keep_running(runs, publisher, checkpoint)
        except (CheckpointError, CheckpointMismatch, PublishError) as error:
            raise Refused(str(error)) from error
        except KafkaError as error:
            raise Refused(f"{settings.input.url}: the input cannot be read: {error!r}") from error
        except Fenced as error:
            raise FencedOff(str(error)) from error
        finally:
            publisher.close()

    def _keep_running(self, runs: Runs, publisher: Publisher, checkpoint: CheckpointDirectory) -> None:
        """Run the query again and again, waiting longer each time it fails at once."""
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping:
            started = time.monotonic()
            try:
                publisher.ensure_owner()
                self._run_query(runs, publisher, checkpoint)
            except Py4JNetworkError as error:
                raise SparkEnded(
                    "Spark's JVM has ended (killed, or out of memory: see spark.driver_memory); start trimtab again, "
                    "nothing is lost"
                ) from error
            except (StreamingQueryException, Py4JError, PublishError) as error:
                self._raise_if_final(error)
                if time.monotonic() - started > _HEALTHY_S:
                    backoff_s = _BACKOFF_FIRST_S
                _LOG.warning("the query failed and is restarted in %g s: %s", backoff_s, _first_lines(error))
                self._metrics.count_query_restart()
                self._wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MOST_S)

    def _run_query(self, runs: Runs, publisher: Publisher, checkpoint: CheckpointDirectory) -> None:
        batches = self._batches
        assert batches is not None, "the batch function is made before the query"
        query = runs.next().queryName(f"trimtab-{self._settings.controller.name}").start()
        self._query = query
        try:
            while not self._stopping and not query.awaitTermination(_LOOK_S):
                self._look(query, batches)
                show_progress(query, self._metrics)
                if batches.published_count:
                    checkpoint.drop_older()
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
        until = time.monotonic() + _DRAIN_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            query.awaitTermination(_LOOK_S)
        query.stop()
        self._query = None

    def _raise_if_final(self, error: Exception) -> None:
        cause = None if self._batches is None else self._batches.error
        if isinstance(cause, Fenced | CheckpointMismatch):
            raise cause from error
        text = str(error)
        for sign, remedy in _FINAL_CAUSES.items():
            if sign in text:
                raise Refused(f"{remedy}\n{_first_lines(error)}") from error

    def _readiness(self) -> Sequence[Check]:
        query, batches = self._query, self._batches
        if query is not None and batches is not None:
            self._look(query, batches)
        silent_s = time.monotonic() - self._last_trigger_s
        allowed_s = _INTERVALS_READY * max(self._settings.spark.trigger_interval_s, _LOOK_S)
        failed = None if batches is None else batches.error
        return [
            Check(name="query", ok=query is not None, detail="running" if query else "not running"),
            Check(
                name="trigger",
                ok=query is not None and silent_s <= allowed_s,
                detail=f"last seen {silent_s:.1f} s ago, {allowed_s:g} s are allowed",
            ),
            Check(name="publish", ok=failed is None, detail="ok" if failed is None else str(failed)[:500]),
        ]

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))

    def _stop(self, number: signal.Signals) -> None:
        _LOG.info("%s: finishing the batch in progress", number.name)
        self._stopping = True


def _first_lines(error: Exception, count: int = 12) -> str:
    lines = str(error).strip().splitlines()
    return "\n".join(lines[:count])
