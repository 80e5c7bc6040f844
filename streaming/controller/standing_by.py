"""A standby: it waits, warm, for its turn to lead, and stands by again when it is superseded.

While it waits it runs no query and fences no leader. Every ``KEEP_EVERY_S`` it keeps Spark warm, and checks whether it could go on
with the leader's checkpoint. A standby that could not shows why in its beats, its log and ``/readyz``, and does not try to lead.
"""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from streaming.contract.beat import Beat
from streaming.controller.election import Election
from streaming.controller.leading import Leading, WaitingOut, refuse_errors
from streaming.controller.listening import Listener
from streaming.controller.outages import outage_of
from streaming.controller.watchdog import START_S
from streaming.process.deadline import Deadline
from streaming.process.exits import NotReached, Refused
from streaming.settings import Settings
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.errors import spark_errors
from streaming.spark.warmth import KEEP_EVERY_S, keep_warm, warm_up
from streaming.systems import input_ids, output_reader, publisher_of
from streaming.transport.errors import Fenced, StartWith
from streaming.transport.side import Reader
from streaming.transport.topics import BEATS_RETENTION_MS

_LOG = logging.getLogger(__name__)

_TURN_S = 1.0
"""A stop request is seen within this time."""
_LOOK_AGAIN_S = 2.0
_SURE_COUNT = 2
"""So many looks in a row make a problem sure: at one look the checkpoint may just be changing hands."""

Value = TypeVar("Value")


@dataclass(slots=True, kw_only=True)
class StandingBy:
    """The turns of one process: stand by, lead, stand by."""

    settings: Settings
    leading: Leading
    wait_out: WaitingOut
    start_with: StartWith
    _problem: str = field(init=False, default="")
    """Why it could not lead; empty where it could."""
    _wrong_count: int = field(init=False, default=0)

    def run(self) -> None:
        """Run until a stop is requested. Raises ``Refused`` from leading, or ``SparkError``."""
        with spark_errors():
            self._show("warming up")
            warm_up(self.leading.spark, self.settings, self.leading.is_stopping)
            if self.start_with == "checkpoint":
                self.leading.frames.prepare_frame()  # made now, so that a take-over need not make it
            while not self.leading.is_stopping() and self._stand_by():
                self._lead()

    def _lead(self) -> None:
        """Lead for one turn, if possible; if another standby was faster, this one stands by again."""
        leading = self.leading
        with ExitStack() as stack:
            try:
                begun = stack.enter_context(leading.taken_over(_run_without_waiting, self.start_with))
            except Fenced as error:
                _LOG.warning(
                    "another process was faster, so this standby does not lead and stands by again: %s", error
                )
                return
            except NotReached as error:
                _LOG.warning("this standby cannot lead now and stands by again: %s", error.message)
                return
            except Refused as error:
                self._note(error.message, is_sure=True)
                return
            try:
                leading.lead(begun, self.wait_out)
            except Fenced as error:
                _LOG.warning("this process no longer leads and stands by again: %s", error)

    def _stand_by(self) -> bool:
        """Wait for a turn; False when a stop is requested."""
        leading, controller = self.leading, self.settings.controller
        leading.duty.stand_by(self._problem)
        leading.beats.beat_now()
        leading.metrics.forget_all()
        instance, session_s = leading.duty.instance, controller.session_s
        election = Election(name=controller.name, instance=instance, session_s=session_s)
        _LOG.info("standing by as %s of controller %s", instance, controller.name)
        # What was just refused is not tried again at once.
        next_look = Deadline(KEEP_EVERY_S if self._problem else 0.0)
        with Listener(self._reader, election, session_s=session_s) as listener:
            while not leading.is_stopping():
                problem = self._problem or listener.problem
                self._show(_describe_leader(listener.leader), problem)
                if next_look.is_over:
                    keep_warm(leading.spark)
                    self._check_takeover()
                    is_unsure = 0 < self._wrong_count < _SURE_COUNT
                    next_look = Deadline(_LOOK_AGAIN_S if is_unsure else KEEP_EVERY_S)
                elif problem:
                    leading.wait(_TURN_S)
                elif listener.reason is not None:
                    _LOG.warning("trying to lead: %s", listener.reason)
                    return True
                else:
                    listener.wait(_TURN_S)
        return False

    def _check_takeover(self) -> None:
        """Check whether it could go on where the leader is; if that cannot be known now, the last answer stays."""
        settings, spark = self.settings, self.leading.spark.spark
        try:
            with publisher_of(settings) as publisher, refuse_errors(settings):
                ids = _run_without_waiting(partial(input_ids, settings))
                location = settings.spark.checkpoint
                checkpoint = _run_without_waiting(lambda: CheckpointDirectory(spark, location, topic_ids=ids))
                look = partial(checkpoint.inspect, settings, self.start_with)
                _run_without_waiting(lambda: publisher.check(look, start_with=self.start_with))
        except Refused as error:
            self._note(error.message)
        except NotReached as error:
            _LOG.info("this standby cannot check now whether it could lead: %s", error.message)
        else:
            if self._problem:
                _LOG.info("this standby could take over again")
            self._problem, self._wrong_count = "", 0

    def _note(self, problem: str, *, is_sure: bool = False) -> None:
        self._wrong_count = _SURE_COUNT if is_sure else self._wrong_count + 1
        if self._wrong_count < _SURE_COUNT:
            return
        if problem != self._problem:
            _LOG.error("this standby could not take over: %s", problem)
        self._problem = problem

    def _show(self, text: str, problem: str = "") -> None:
        leading = self.leading
        leading.watchdog.begin(text, START_S)
        leading.readiness.stand_by(text, problem)
        leading.duty.stand_by(problem)

    def _reader(self) -> Reader:
        begin_ms = round(time.time() * 1000) - BEATS_RETENTION_MS
        return output_reader(self.settings, self.settings.topics.beats, begin=begin_ms)


def _run_without_waiting(step: Callable[[], Value]) -> Value:
    """What the step returns. Raises ``NotReached`` if brokers or store do not answer: the standby waits, not the step."""
    try:
        return step()
    except Exception as error:
        if outage_of(error) is None:
            raise
        raise NotReached(str(error)) from error


def _describe_leader(leader: Beat | None) -> str:
    return "standing by: " + ("no leader was heard" if leader is None else f"{leader.instance} leads")
