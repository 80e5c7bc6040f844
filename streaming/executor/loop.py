"""The loop of every executor: it takes actions from their topic, deals with them, and reports the result of each.

The results of a batch are written, then the position is committed. So an action may be taken up again. After a crash the
executor must find the aim reached, and report the same result under the same id. The same process does not carry out again
an action that succeeded: it sends the same result. The executor of each kind of cluster defines how an order is read and
carried out.

A batch is worked on in a thread of its own, while this one stays in the consumer group. Any failure of the topics ends the
batch: actions that were not committed are forgotten here, come again from the topic to the executor that reads it then, and
are gated anew. A stop ends the batch, too: no further call is made, finished results are reported, and nothing of the batch
is committed.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic

import msgspec

from state.events import System
from streaming.contract.encode import encode_event
from streaming.contract.messages import ActionResultData, ActionResultMessage, type_of
from streaming.executor.memory import ControlView, control_of
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import (
    ActionKind,
    BadOrder,
    Held,
    Order,
    Readers,
    Skip,
    gate,
    read_order,
)
from streaming.process.serve import Check, Heartbeat, Sign
from streaming.settings import Settings
from streaming.systems import event_sink_of, output_side
from streaming.transport.errors import PublishError
from streaming.transport.side import ActionRecord, Actions, EventSink, PartitionEpochs

_LOG = logging.getLogger(__name__)
_POLL_S = 1.0
_RETRY_S = 5.0
"""Time between attempts to go on after the brokers failed."""
_TURN = Sign("loop", lambda age_s: f"last turned {age_s:.0f} s ago", within_s=120.0)
"""A turn of the loop polls for a second; the longest turn, without brokers, waits for a few timeouts of 20 s."""
_ANSWER = Sign("poll", lambda age_s: f"the brokers last answered {age_s:.0f} s ago", within_s=120.0)
"""A broker that is restarted is back well before."""
_TAKEN_UP = Sign("batch", lambda age_s: f"its newest action was taken up {age_s:.0f} s ago", within_s=900.0)
"""Longest time between two actions of a batch: each call has a timeout, and an action makes a few calls and waits for its effect."""
_NO_BATCH = Sign("batch", lambda _: "none")


class _Stopping(Exception):
    """A stop was requested: actions that are not done yet are left to the next executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """What an executor reads and writes besides its cluster."""

    actions: Actions
    control: ControlView
    results: EventSink
    epochs: PartitionEpochs


def open_topics(
    stack: ExitStack,
    settings: Settings,
    *,
    cluster: str,
    system: System,
    records_max: int,
) -> Topics:
    """Connect to the topics; ``stack`` closes them again. Raises ``PublishError`` or ``NoTopic``, each with its remedy."""
    results = stack.enter_context(closing(event_sink_of(settings)))
    control = stack.enter_context(control_of(settings, cluster=cluster, system=system))
    control.newest()
    epochs = PartitionEpochs()
    group = f"trimtab-execute-{cluster}"
    actions = stack.enter_context(
        output_side(settings).actions(
            settings.topics.actions, group=group, epochs=epochs, records_max=records_max
        )
    )
    return Topics(actions=actions, control=control, results=results, epochs=epochs)


class ActionLoop(ABC, Generic[ActionKind]):
    """Takes actions from their topic, has them carried out, and reports their results. ``run`` is for one thread."""

    _readers: Readers[ActionKind]
    """How the actions are read that it carries out."""

    def __init__(
        self,
        metrics: ExecutorMetrics,
        topics: Topics,
        *,
        cluster: str,
        clock_s: Callable[[], float],
    ) -> None:
        self.metrics = metrics
        self._cluster = cluster
        self._actions = topics.actions
        self._control = topics.control
        self._results = topics.results
        self._epochs = topics.epochs
        self._clock_s = clock_s
        self._stop = threading.Event()
        self._heartbeat = Heartbeat(_TURN, _ANSWER, _NO_BATCH)
        self._problem = ""
        """What went wrong last; empty after the next success."""
        metrics.show_poll(clock_s())
        self._gating = threading.Lock()
        self._lost: PublishError | None = None
        """Why this executor must not go on with the batch in progress."""
        self._succeeded: dict[str, bytes] = {}
        """Results of actions that are not committed yet, by action id: a bundle may be back at its broker when they come again."""
        self._orders_count = 0
        """Actions of this cluster that were read."""

    def run(self, *, once: bool = False) -> None:
        """Run until ``stop``; with ``once`` until all actions there are dealt with. Raises ``PublishError`` only with ``once``."""
        with ThreadPoolExecutor(1, thread_name_prefix="batch") as worker:
            while not self._stop.is_set():
                self._heartbeat.give(_TURN)
                try:
                    if self._run_round(worker, once=once):
                        if not self._orders_count:
                            _LOG.info("there is nothing to do: no new action for %s", self._cluster)
                        return
                except PublishError as error:
                    if once:
                        raise
                    self._drop(error)
                except _Stopping:
                    _LOG.info("stopping: the rest of the batch goes to the executor that reads actions next")
                else:
                    self._problem = ""

    def stop(self) -> None:
        """End ``run`` after the actions in progress: nothing further is begun. For signal handlers."""
        self._stop.set()

    def readiness(self) -> Sequence[Check]:
        """Whether the brokers answer when the loop polls for actions."""
        return [self._heartbeat.check("poll", remark=self._problem, ok=not self._problem)]

    def liveness(self) -> Sequence[Check]:
        """Whether the loop polls for actions at all, and a batch in progress moves on."""
        return [self._heartbeat.check("loop"), self._heartbeat.check("batch")]

    @abstractmethod
    def _deal_with(self, orders: Iterable[Order[ActionKind]]) -> None:
        """Call ``_carry_out`` for each, in any suitable order; ends only when none of them runs any more. Raises ``PublishError``."""

    @abstractmethod
    def _try(self, order: Order[ActionKind], recheck: Callable[[], None]) -> ActionResultData | Skip:
        """Carry an order out and return the result; a cluster that refuses it is a failed result, not an error.

        Calls ``recheck`` right before each call that changes the cluster: it raises ``Held`` if the call is not allowed any
        more, and the errors that end the batch. Raises ``PublishError``.
        """

    def _due(self) -> Callable[[], None] | None:
        """What to do while there is no action; it raises ``PublishError``. None: nothing now."""
        return None

    def _run_round(self, worker: Executor, *, once: bool) -> bool:
        """Poll for actions and deal with them; returns whether ``run`` is done. Raises ``PublishError``."""
        records = self._actions.poll(timeout_s=_POLL_S)
        self._note_poll()
        if records:
            self._stay_for(worker, lambda: self._take_up(records))
            self._actions.commit()
            self._succeeded.clear()
            return False
        due = self._due()
        if not (once or due) or not self._actions.is_at_end():
            return False
        if due:
            self._stay_for(worker, due)
        return once

    def _stay_for(self, worker: Executor, work: Callable[[], None]) -> None:
        """Have the work done and stay in the group meanwhile; the work is over when this returns or raises."""
        self._lost = None
        self._heartbeat.give(_TAKEN_UP)
        begun = worker.submit(work)
        while wait([begun], timeout=_POLL_S).not_done:
            self._heartbeat.give(_TURN)
            try:
                self._actions.keep_polled()
            except PublishError as error:
                self._lost = self._lost or error
            else:
                self._note_poll()
        self._heartbeat.give(_NO_BATCH)
        begun.result(timeout=0)
        if self._lost is not None:
            raise self._lost

    def _take_up(self, records: Sequence[ActionRecord]) -> None:
        try:
            self._deal_with(self._orders(records))
        except _Stopping:
            self._results.flush()
            raise
        self._results.flush()

    def _drop(self, error: PublishError) -> None:
        """Forget actions that were not committed, and wait a little before the next poll."""
        self._problem = str(error)
        self.metrics.count_dropped()
        _LOG.warning("%s", error)
        self._actions.drop()
        self._stop.wait(_RETRY_S)

    def _note_poll(self) -> None:
        self._heartbeat.give(_ANSWER)
        self.metrics.show_poll(self._clock_s())

    def _orders(self, records: Iterable[ActionRecord]) -> Iterable[Order[ActionKind]]:
        for record in records:
            try:
                order = read_order(record, self._epochs, cluster=self._cluster, readers=self._readers)
            except BadOrder as error:
                self.metrics.count_unreadable()
                _LOG.error("a record on the actions topic is no action: %s: %.200r", error, record.value)
            else:
                if order is not None:
                    self._orders_count += 1
                    yield order

    def _carry_out(self, order: Order[ActionKind]) -> None:
        """Gate an order, try it if that is allowed, and report the result; after an earlier success only report it again.

        Thread-safe. Raises ``PublishError``.
        """
        self._heartbeat.give(_TAKEN_UP)
        if order.id in self._succeeded:
            _LOG.info("%s had been done before", order)
            self._results.send(self._cluster, self._succeeded[order.id])
            return
        began_s = time.monotonic()
        try:
            self._gate(order)
        except Held as held:
            self._report_skip(order, held.skip, duration_s=None)
            return
        try:
            done = self._try(order, lambda: self._gate(order))
        except Held as held:
            done = held.skip
        duration_s = time.monotonic() - began_s
        if isinstance(done, Skip):
            self._report_skip(order, done, duration_s=duration_s)
        else:
            self._report_done(order, done, duration_s=duration_s)

    def _gate(self, order: Order[ActionKind]) -> None:
        """Raises ``Held`` if the order may not be tried now, and ``PublishError`` if that is not known or the batch is lost.

        Raises ``_Stopping`` if a stop was requested.
        """
        with self._gating:
            self._require_going_on()
            if self._lost is not None:
                raise self._lost
            try:
                control = self._control.newest()
            except PublishError as error:  # the batch's other actions need not wait for the topic, too
                self._lost = error
                raise
            skip = gate(order, control=control, now=self._read_clock())
        if skip is not None:
            raise Held(skip)

    def _read_clock(self) -> datetime:
        return datetime.fromtimestamp(self._clock_s(), UTC)

    def _require_going_on(self) -> None:
        if self._stop.is_set():
            raise _Stopping

    def _report_skip(self, order: Order[ActionKind], skip: Skip, *, duration_s: float | None) -> None:
        self.metrics.count_skipped(order.kind, skip.reason)
        _LOG.info("%s skipped: %s", order, skip)
        self._send_result(order, ActionResultData(outcome="skipped", reason=str(skip), duration_s=duration_s))

    def _report_done(self, order: Order[ActionKind], done: ActionResultData, *, duration_s: float) -> None:
        elsewhere = order.kind == "unload" and done.outcome == "succeeded" and done.reason is not None
        self.metrics.observe_attempt(
            order.kind, done.outcome, duration_s=duration_s, landed_elsewhere=elsewhere
        )
        how = "had been done before" if done.done_before else f"{done.outcome} in {duration_s:.1f} s"
        _LOG.info("%s %s%s", order, how, f": {done.reason}" if done.reason else "")
        self._send_result(order, msgspec.structs.replace(done, duration_s=duration_s))

    def _send_result(self, order: Order[ActionKind], data: ActionResultData) -> None:
        """Send a result. Its id follows from the action's, so readers recognize a result that is sent twice."""
        event = encode_event(
            type_=type_of(ActionResultMessage),
            id_=f"result/{order.id}",
            source=f"/trimtab/execute/{self._cluster}",
            subject=order.id,
            time_ms=int(1000 * self._clock_s()),
            cluster=self._cluster,
            data=msgspec.json.encode(data),
        )
        if data.outcome == "succeeded":
            self._succeeded[order.id] = event
        self._results.send(self._cluster, event)
