"""A standby: it waits, warm, for its turn to lead, and stands by again when it is superseded.

While it waits it runs no query and fences no leader. Every ``KEEP_EVERY_S`` it keeps Spark warm, and checks whether it could go on
with the leader's checkpoint. A standby that could not shows why in its beats, its log and ``/readyz``, and does not try to lead.

``Election`` says when to try, by the beats that a thread hears. It counts silence only between two reads in a row that reached the end
of the topic. Brokers that do not answer do not make the leader silent: after a failed read the count begins anew, because the leader
has to find its brokers again, too. Beats only decide which standby tries to lead; the publisher decides which one leads.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from streaming.contract import beat as beats
from streaming.contract.beat import Beat, Unreadable
from streaming.controller.leadership import Leading, WaitingOut, outage_of, refuse_errors
from streaming.controller.rivals import refuse_company
from streaming.process.closeable import Closeable
from streaming.process.deadline import Deadline
from streaming.process.exits import NotReached, Refused
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.failures import spark_errors
from streaming.spark.warmth import KEEP_EVERY_S, keep_warm, warm_up
from streaming.systems import input_ids, output_side, publisher_of
from streaming.transport.errors import Fenced
from streaming.transport.side import Reader
from streaming.transport.topics import BEATS_RETENTION_MS

_LOG = logging.getLogger(__name__)

_TURN_S = 1.0
"""A stop request is seen within this time."""
_LOOK_AGAIN_S = 2.0
_SURE_COUNT = 2
"""So many looks in a row make a problem sure: at one look the checkpoint may just be changing hands."""
_MOST_BETWEEN_READS_S = 0.5
"""A goodbye is heard within this time."""
_READS_A_SESSION = 20
_AGAIN_S = 1.0
"""Seconds between attempts to read a topic that could not be read."""

Value = TypeVar("Value")


class Election:
    """What one standby has heard. ``session_s`` is its own ``controller.session_s``."""

    def __init__(self, *, name: str, instance: str, session_s: float) -> None:
        self._name, self._instance, self._session_s = name, instance, session_s
        self._leader: Beat | None = None
        self._counted_s = 0.0
        """Time that counts: between reads in a row that reached the end."""
        self._leader_at_s = 0.0
        """When the leader was last heard, in counted time."""
        self._others: dict[str, float] = {}
        """Other standbys that could lead: when each was last heard, in counted time."""
        self._read_s: float | None = None
        """When the last read began, if it reached the end."""
        self._has_read = False

    @property
    def leader(self) -> Beat | None:
        """The newest beat of the leader with the highest epoch; None if there was none in the hour that the topic keeps."""
        return self._leader

    def receive(self, value: bytes | None) -> None:
        """Take a record of the topic. One that is no beat, or another controller's, is ignored."""
        try:
            beat = beats.decode(value or b"")
        except Unreadable:
            return
        if beat.name != self._name:
            return
        if beat.role == "leader":
            self._note_leader(beat)
        elif beat.instance != self._instance:
            self._note_standby(beat)

    def note_read(self, began_s: float) -> None:
        """Note that a read that began at ``began_s`` has reached the end, and that all its records were heard.

        A step longer than half a session counts as half a session: a standby that was frozen that long hears the others first.
        """
        if self._read_s is not None:
            self._counted_s += min(began_s - self._read_s, self._session_s / 2)
        self._read_s = began_s
        self._has_read = True

    def note_failure(self) -> None:
        """Note that a read did not reach the end."""
        self._read_s = None
        self._leader_at_s = self._counted_s

    def reason(self) -> str | None:
        """Why this standby may try to lead now; None where it may not."""
        if not self._has_read:
            return None
        leader = self._leader
        silent_s = self._counted_s - self._leader_at_s
        # The first in line may need a session until it is heard as the leader; the next one waits that long.
        session_s = max(self._session_s, 0.0 if leader is None else leader.session_s)
        patience_s = session_s * self._place()
        if leader is not None and leader.is_leaving and silent_s >= patience_s:
            return f"the leader {leader.instance} has said goodbye"
        if silent_s < session_s + patience_s:
            return None
        if leader is None:
            return f"no leader was heard for {silent_s:.1f} s"
        return f"the leader {leader.instance} was not heard for {silent_s:.1f} s"

    def _note_leader(self, beat: Beat) -> None:
        if self._leader is None or beat.epoch >= self._leader.epoch:
            self._leader = beat
            self._leader_at_s = self._counted_s
            self._others.pop(beat.instance, None)

    def _note_standby(self, beat: Beat) -> None:
        if beat.is_leaving or beat.problem:
            self._others.pop(beat.instance, None)
        else:
            self._others[beat.instance] = self._counted_s

    def _place(self) -> int:
        """How many standbys come before this one: those heard within a session whose names sort before its own."""
        since_s = self._counted_s - self._session_s
        return sum(1 for other, at_s in self._others.items() if other < self._instance and at_s > since_s)


class Listener(Closeable):
    """Reads the topic of beats to its end again and again, and asks the election after each read."""

    def __init__(self, connect: Callable[[], Reader], election: Election, *, session_s: float) -> None:
        self._connect, self._election = connect, election
        self._every_s = min(_MOST_BETWEEN_READS_S, session_s / _READS_A_SESSION)
        self._reader: Reader | None = None
        self.reason: str | None = None
        """Why this standby may try to lead now; None where it may not."""
        self.problem = ""
        """Why the topic cannot be read; empty where it can."""
        self._closed = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    @property
    def leader(self) -> Beat | None:
        """See ``Election.leader``."""
        return self._election.leader

    def wait(self, seconds: float) -> None:
        """Wait at most so long; less once there is a reason to try to lead."""
        self._changed.wait(seconds)

    def close(self) -> None:
        """Stop hearing; a read in progress is not waited for."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            is_read = self._read()
            self.reason = self._election.reason()
            if self.reason is not None:
                self._changed.set()
            else:
                self._changed.clear()
            self._closed.wait(self._every_s if is_read else _AGAIN_S)
        self._disconnect()

    def _read(self) -> bool:
        began_s = time.monotonic()
        try:
            if self._reader is None:
                self._reader = self._connect()
            for record in self._reader.read_to_end():
                self._election.receive(record.value)
        except Refused as error:
            self._note_failure(error.message)
            return False
        except Exception as error:  # noqa: BLE001  logged with its traceback; the next read may go well
            _LOG.exception("the beats could not be read")
            self._note_failure(repr(error))
            return False
        if self.problem:
            _LOG.info("beats are read again")
        self.problem = ""
        self._election.note_read(began_s)
        return True

    def _note_failure(self, problem: str) -> None:
        if not self.problem:
            _LOG.warning("the beats of the leader cannot be read: %s", problem)
        self.problem = problem
        self._election.note_failure()
        self._disconnect()

    def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


@dataclass(slots=True, kw_only=True)
class StandingBy:
    """The turns of one process: stand by, lead, stand by."""

    leading: Leading
    wait_out: WaitingOut
    _problem: str = field(init=False, default="")
    """Why it could not lead; empty where it could."""
    _wrong_count: int = field(init=False, default=0)

    def run(self) -> None:
        """Run until a stop is requested. Raises ``Refused`` from leading, or ``SparkError``."""
        with spark_errors():
            self.leading.health.show("warming up")
            warm_up(self.leading.spark, self.leading.settings, self.leading.is_stopping)
            self._check_takeover()
            while not self.leading.is_stopping() and self._stand_by():
                self._lead()

    def _lead(self) -> None:
        """Lead for one turn, if possible; if another standby was faster, this one stands by again."""
        leading = self.leading
        with ExitStack() as stack:
            try:
                begun = stack.enter_context(leading.taken_over(_run_without_waiting))
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
        leading, controller = self.leading, self.leading.settings.controller
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
                leader = listener.leader
                who_leads = "no leader was heard" if leader is None else f"{leader.instance} leads"
                self._show(f"standing by: {who_leads}", problem)
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
        settings, spark = self.leading.settings, self.leading.spark.spark
        try:
            refuse_company(settings)
            with publisher_of(settings) as publisher, refuse_errors(settings):
                ids = _run_without_waiting(partial(input_ids, settings))
                location = settings.spark.checkpoint
                checkpoint = _run_without_waiting(lambda: CheckpointDirectory(spark, location, topic_ids=ids))
                look = partial(checkpoint.inspect, settings, self.leading.start_with)
                _run_without_waiting(lambda: publisher.check(look, start_with=self.leading.start_with))
                memory_start = _run_without_waiting(checkpoint.memory_start)
        except Refused as error:
            self._note(error.message)
        except NotReached as error:
            _LOG.info("this standby cannot check now whether it could lead: %s", error.message)
        else:
            if self._problem:
                _LOG.info("this standby could take over again")
            self._problem, self._wrong_count = "", 0
            if memory_start is not None and self.leading.start_with == "checkpoint":
                self.leading.frames.prepare_frame(
                    memory_start
                )  # made now, so that a take-over need not make it

    def _note(self, problem: str, *, is_sure: bool = False) -> None:
        self._wrong_count = _SURE_COUNT if is_sure else self._wrong_count + 1
        if self._wrong_count < _SURE_COUNT:
            return
        if problem != self._problem:
            _LOG.error("this standby could not take over: %s", problem)
        self._problem = problem

    def _show(self, text: str, problem: str = "") -> None:
        leading = self.leading
        leading.health.stand_by(text, problem)
        leading.duty.stand_by(problem)

    def _reader(self) -> Reader:
        settings = self.leading.settings
        begin_ms = round(time.time() * 1000) - BEATS_RETENTION_MS
        return output_side(settings).reader(settings.topics.beats, begin=begin_ms)


def _run_without_waiting(step: Callable[[], Value]) -> Value:
    """What the step returns. Raises ``NotReached`` if brokers or store do not answer: the standby waits, not the step."""
    try:
        return step()
    except Exception as error:
        if outage_of(error) is None:
            raise
        raise NotReached(str(error)) from error
