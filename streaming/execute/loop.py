"""The loop of every executor: take actions from their topic, deal with them, tell what became of each.

The results of a batch are written, then the position is committed. So an action may be taken up again after a crash; it
must then find its aim reached, and give the same result under the same id. How an order is read and carried out is said
by the executor of each kind of cluster.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec

from streaming.execute.actions_topic import ActionRecord
from streaming.execute.control import ControlView
from streaming.execute.metrics import ExecutorMetrics
from streaming.execute.orders import BadOrder, Epochs, Gated, Skip, gate
from streaming.execute.output_side import Actions
from streaming.serve import Check
from streaming.sinks import PublishError
from streaming.sinks.input_events import EventSink
from streaming.wire.encode import encode_input
from streaming.wire.messages import ActionResultData, ActionResultMessage, type_of

__all__ = ["ActionLoop"]

_LOG = logging.getLogger(__name__)
_POLL_S = 1.0
_RETRY_S = 5.0
"""Between attempts to go on after the brokers failed."""
_POLL_AGE_S_MAX = 120.0
"""Older, and the executor calls itself not ready: a batch is done within a few verify timeouts."""

OrderKind = TypeVar("OrderKind", bound=Gated)
DoneKind = TypeVar("DoneKind")


class ActionLoop(ABC, Generic[OrderKind, DoneKind]):
    """Takes actions from their topic, has them carried out, tells their results. ``run`` is for one thread."""

    def __init__(
        self,
        metrics: ExecutorMetrics,
        *,
        cluster: str,
        actions: Actions,
        control: ControlView,
        results: EventSink,
        epochs: Epochs,
        clock_s: Callable[[], float],
    ) -> None:
        self.metrics = metrics
        self._cluster = cluster
        self._actions = actions
        self._control = control
        self._results = results
        self._epochs = epochs
        self._clock_s = clock_s
        self._stop = threading.Event()
        self._polled_s = clock_s()
        self._problem = ""

    def run(self, *, once: bool = False) -> None:
        """Until ``stop``; with ``once`` until everything that is there has been dealt with. Raises ``PublishError`` then."""
        pending: list[ActionRecord] = []
        while not self._stop.is_set():
            try:
                pending = pending or self._actions.poll(timeout_s=_POLL_S)
                self._polled_s = self._clock_s()
                self.metrics.polled(self._polled_s)
                if pending:
                    self.take_up(pending)
                    pending = []
                elif self._is_done(once=once):
                    return
            except PublishError as error:
                if once:
                    raise
                self._problem = str(error)
                _LOG.warning("%s", error)
                self._stop.wait(_RETRY_S)
            else:
                self._problem = ""

    def take_up(self, records: Sequence[ActionRecord]) -> None:
        """Deal with a batch: results written, position committed. Raises ``PublishError``; then the batch may come again."""
        self._deal_with(self._orders(records))
        self._results.flush()
        self._actions.commit()

    def stop(self) -> None:
        """End ``run`` after the batch in progress; for signal handlers."""
        self._stop.set()

    def readiness(self) -> Sequence[Check]:
        """Whether actions are being asked for."""
        age_s = self._clock_s() - self._polled_s
        detail = f"actions were last asked for {age_s:.0f} s ago"
        is_ready = age_s < _POLL_AGE_S_MAX and not self._problem
        return [Check(name="poll", ok=is_ready, detail="; ".join(filter(None, (detail, self._problem))))]

    @abstractmethod
    def _read(self, record: ActionRecord) -> OrderKind | None:
        """The order in a record; None for another executor's. Raises ``BadOrder``."""

    @abstractmethod
    def _deal_with(self, orders: Iterable[OrderKind]) -> None:
        """``_gate`` each and ``_carry_out`` what may be tried, in the order that suits. Raises ``PublishError``."""

    @abstractmethod
    def _try(self, order: OrderKind) -> DoneKind | Skip:
        """What became of it; a cluster that does not take it is a failure, not an error. Raises ``PublishError``."""

    @abstractmethod
    def _tell_done(self, order: OrderKind, done: DoneKind, *, took_s: float) -> None:
        """Count, log and ``_tell`` it. Raises ``PublishError``."""

    def _is_done(self, *, once: bool) -> bool:
        """Whether to end, when there was nothing to do. Raises ``PublishError``."""
        return once and self._actions.is_at_end()

    def _orders(self, records: Iterable[ActionRecord]) -> Iterable[OrderKind]:
        for record in records:
            try:
                order = self._read(record)
            except BadOrder as error:
                self.metrics.count_unreadable()
                _LOG.error("a record on the actions topic is no action: %s: %.200r", error, record.value)
            else:
                if order is not None:
                    yield order

    def _gate(self, order: OrderKind) -> bool:
        """Whether it may be tried now; tells why where it may not."""
        now = datetime.fromtimestamp(self._clock_s(), UTC)
        skip = gate(order, epochs=self._epochs, control=self._control.newest(), now=now)
        if skip is not None:
            self._tell_skip(order, skip, took_s=None)
        return skip is None

    def _carry_out(self, order: OrderKind) -> None:
        began_s = time.monotonic()
        done = self._try(order)
        took_s = time.monotonic() - began_s
        if isinstance(done, Skip):
            self._tell_skip(order, done, took_s=took_s)
        else:
            self._tell_done(order, done, took_s=took_s)

    def _tell_skip(self, order: OrderKind, skip: Skip, *, took_s: float | None) -> None:
        self.metrics.count_skipped(order.kind, skip.reason)
        _LOG.info("%s skipped: %s", order, skip)
        self._tell(order, ActionResultData(outcome="skipped", reason=str(skip), took_s=took_s))

    def _tell(self, order: OrderKind, data: ActionResultData) -> None:
        """One id an action: what is told twice is known to be the same."""
        event = encode_input(
            type_=type_of(ActionResultMessage),
            id_=f"result/{order.id}",
            source=f"/trimtab/execute/{self._cluster}",
            subject=order.id,
            time_ms=int(1000 * self._clock_s()),
            cluster=self._cluster,
            data=msgspec.json.encode(data),
        )
        self._results.send(self._cluster, event)
