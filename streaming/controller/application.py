"""``trimtab run``: everything is checked, then the query runs until it is told to stop, fenced, or found misconfigured.

The order at start is fixed: topics, Spark, taking over (``leadership``), query (``query_loop``); a standby waits between Spark
and taking over (``standby``). At the start the process waits for brokers that do not answer, and for the checkpoint's store.
Afterwards only fencing, configuration errors and damaged data end it; on SIGTERM or SIGINT the batch in progress is finished
before the query stops.
"""

import logging
import math
import signal
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from streaming.contract import families
from streaming.contract.beat import every_s
from streaming.controller.beats import Beats, ProcessState
from streaming.controller.health import Health
from streaming.controller.leadership import Leading, outage_of
from streaming.controller.metrics import KNOWN_LABELS, Metrics
from streaming.controller.rivals import find_leader, leader_text, refuse_company
from streaming.controller.standby import StandingBy
from streaming.process.deadline import Deadline
from streaming.process.exits import FencedOff, Refused, SparkEnded, raised_as
from streaming.process.outage import StoppedWaiting, wait_out
from streaming.process.serve import HealthServer
from streaming.process.stop_signals import stopped_by_signals
from streaming.settings import Settings
from streaming.spark import session
from streaming.spark.failures import SparkError, SparkGone, spark_errors
from streaming.spark.jars import JarError, JavaError
from streaming.spark.query import Frames
from streaming.spark.session import SparkLog
from streaming.systems import beat_sink_of, validate_all
from streaming.transport.checkpoint import place_of
from streaming.transport.errors import Fenced, StartError, StartWith
from streaming.transport.side import Begin

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")

_SUCCESSOR_S = 5.0
"""How long to wait for the first beat of a successor, which says who it is."""
_LOOK_S = 1
"""A stop request ends a wait within this time."""


class Application:
    """One controller process."""

    def __init__(
        self, settings: Settings, *, begin: Begin, start_with: StartWith, skip_lost: bool = False
    ) -> None:
        self._settings = settings
        self._begin = begin
        self._start_with = start_with
        self._skip_lost = skip_lost
        self._metrics = Metrics(
            KNOWN_LABELS, version=version("trimtab"), pyspark_version=session.SPARK_VERSION
        )
        self._metrics.show(families.START, value=time.time())
        self._metrics.show(families.LEADER, settings.controller.name, value=0)
        self._stopping = False
        self._metrics_url = ""
        self._start: session.Start | None = None
        """The start of Spark, while it is in progress."""
        self._health = Health(trigger_interval_s=settings.spark.trigger_interval_s)

    def run(self) -> None:
        """Run until stopped; raises ``exits.Refused``, ``exits.FencedOff`` or ``exits.NotReached``."""
        server = HealthServer(
            self._metrics.registry,
            self._health.readiness,
            liveness=self._health.liveness,
            host=self._settings.metrics.host,
            port=self._settings.metrics.port,
        )
        with stopped_by_signals(self._stop):
            with raised_as(Refused, OSError):
                self._metrics_url = server.start()
            _LOG.info("metrics and health at %s", self._metrics_url)
            try:
                self._run_checked()
            except StoppedWaiting:
                pass
            except SparkError as error:
                self._explain_spark(error)
            except (Refused, FencedOff) as error:
                self._stay_unready(error)
                raise
            finally:
                server.stop()

    def _run_checked(self) -> None:
        with raised_as(Refused, JavaError, StartError):
            session.require_java()
            for warning in self._wait_out(lambda: validate_all(self._settings)):
                _LOG.warning("%s", warning)
        if self._stopping:
            return
        self._health.show("starting Spark")
        with spark_errors():
            spark = self._spark()
            try:
                with SparkLog(spark.spark):
                    self._run_on(spark)
            finally:
                spark.stop()

    def _explain_spark(self, error: SparkError) -> None:
        """Raise the error, or ``SparkEnded`` if the JVM has ended. During a stop only log it: the JVM may have been stopped, too."""
        if self._stopping:
            _LOG.info(
                "stopped; Spark's JVM was stopped as well, and a batch in progress is done at the next start"
            )
            return
        if isinstance(error, SparkGone):
            raise SparkEnded(
                "Spark's JVM has ended (killed, or out of memory: see spark.driver_memory, and its lines above); start "
                "trimtab again, nothing is lost"
            ) from error
        raise error

    def _stay_unready(self, error: Refused | FencedOff) -> None:
        """Where a supervisor would restart the process at once: stay, unready and showing the reason, until a stop is requested."""
        if self._settings.controller.when_refused == "end" or self._stopping:
            return
        self._health.phase = error.message
        self._health.begin("staying after a refusal", math.inf)
        _LOG.error("staying, unready, because controller.when_refused is stay: %s", error.message)
        self._wait(math.inf)

    def _wait_out(self, step: Callable[[], Value]) -> Value:
        """What the step returns, once brokers and store answer; raises ``NotReached`` after ``start_wait_s``."""
        limit_s = self._settings.controller.start_wait_s
        found = wait_out(step, limit_s, outage_of=outage_of, pause=self._wait, show=self._health.show)
        self._health.show("starting")
        return found

    def _spark(self) -> session.Session:
        self._start = start = session.Start()
        if self._stopping:
            start.cancel()
        try:
            with raised_as(Refused, JarError, JavaError):
                return start.connect(self._settings)
        except Refused:
            raise
        except Exception as error:
            if self._stopping:  # the JVM was ended before it had begun anything
                raise StoppedWaiting from error
            raise
        finally:
            self._start = None

    def _run_on(self, spark: session.Session) -> None:
        controller = self._settings.controller
        duty = ProcessState(
            name=controller.name,
            session_s=controller.session_s,
            is_alive=self._health.is_alive,
            checkpoint=place_of(self._settings.spark.checkpoint),
        )
        sink = partial(beat_sink_of, self._settings)
        with Beats(sink, duty.beat, every_s=every_s(controller.session_s)) as beats:
            leading = Leading(
                settings=self._settings,
                begin=self._begin,
                start_with=self._start_with,
                spark=spark,
                frames=Frames(spark.spark, self._settings),
                metrics=self._metrics,
                health=self._health,
                duty=duty,
                beats=beats,
                wait=self._wait,
                is_stopping=lambda: self._stopping,
                metrics_url=self._metrics_url,
            )
            if controller.standby:
                self._health.has_standbys(lambda: beats.problem)
                StandingBy(leading=leading, wait_out=self._wait_out).run()
            else:
                self._lead(leading)

    def _lead(self, leading: Leading) -> None:
        """Lead without standing by: a successor ends this process."""
        epoch = 0
        try:
            refuse_company(self._settings)
            before = find_leader(self._settings)
            with leading.taken_over(self._wait_out) as begun:
                epoch = begun.epoch
                if before is not None:
                    name = self._settings.controller.name
                    _LOG.warning(
                        "controller %s takes over from the process that led: %s", name, leader_text(before)
                    )
                leading.lead(begun, self._wait_out, skip_lost=self._skip_lost)
        except Fenced as error:
            leading.duty.be_silent()
            successor = find_leader(self._settings, above=epoch, wait_s=_SUCCESSOR_S)
            who = "" if successor is None else f" It was {leader_text(successor)}"
            raise FencedOff(f"{str(error).rstrip('.')}.{who}") from error

    def _wait(self, seconds: float) -> bool:
        """Wait so many seconds; returns whether to go on, False at once when a stop is requested."""
        deadline = Deadline(seconds)
        while not self._stopping and not deadline.is_over:
            time.sleep(min(_LOOK_S, deadline.left_s))
        return not self._stopping

    def _stop(self, _: signal.Signals) -> None:
        self._stopping = True
        if (start := self._start) is not None:
            start.cancel()
