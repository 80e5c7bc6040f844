"""``trimtab execute kafka``: carries out the throttle actions of one cluster for as long as it runs.

Actions are taken one after another: a cluster has one throttle. The result of each is written, then the position is
committed; so an action may be taken up again after a crash, finds its aim reached, and gives the same result under the
same id. At the start, and whenever there was nothing to do for a while, what is left of its own is taken off if nothing
moves any more.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

import msgspec
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.execute.actions_topic import ActionRecord, ControlTopic
from streaming.execute.input_side import input_side
from streaming.execute.kafka_carry_out import Paced, ThrottleExecutor
from streaming.execute.kafka_orders import ThrottleOrder, read_throttle_order
from streaming.execute.metrics import ExecutorMetrics
from streaming.execute.orders import BadOrder, Epochs, Skip, gate
from streaming.execute.output_side import Actions, actions_of, memory_of
from streaming.kafka_admin.connection import ClusterError
from streaming.kafka_admin.target import admin_of
from streaming.serve import Check
from streaming.settings import KafkaTarget, Settings
from streaming.sinks import PublishError
from streaming.sinks.input_events import EventSink
from streaming.sinks.pulsar_events import PulsarControl
from streaming.wire.encode import encode_input
from streaming.wire.messages import ActionResultData, ActionResultMessage, type_of

__all__ = ["ThrottleLoop", "start"]

_LOG = logging.getLogger(__name__)
_KIND = "throttle"
_POLL_S = 1.0
_RETRY_S = 5.0
"""Between attempts to go on after the brokers failed."""
_POLL_AGE_S_MAX = 120.0
_SWEEP_INTERVAL_S = 300.0
"""Between looks for leftovers; a controller takes off its own throttle long before."""
_RECORDS_MAX = 10


class ThrottleLoop:
    """Takes actions from their topic, carries them out, tells their results. For one thread."""

    def __init__(
        self,
        executor: ThrottleExecutor,
        *,
        cluster: str,
        target: KafkaTarget,
        actions: Actions,
        control: ControlTopic | PulsarControl,
        results: EventSink,
        epochs: Epochs,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = ExecutorMetrics(cluster, kinds=(_KIND,))
        self._executor = executor
        self._cluster = cluster
        self._target = target
        self._actions = actions
        self._control = control
        self._results = results
        self._epochs = epochs
        self._clock_s = clock_s
        self._stop = threading.Event()
        self._polled_s = clock_s()
        self._sweep_due_s = 0.0
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
                elif self._actions.is_at_end():
                    self._sweep()
                    if once:
                        return
            except (PublishError, KafkaError) as error:
                if once:
                    raise
                self._problem = str(error)
                _LOG.warning("%s", error)
                self._stop.wait(_RETRY_S)
            else:
                self._problem = ""

    def take_up(self, records: Sequence[ActionRecord]) -> None:
        """Deal with a batch: results written, position committed. Raises ``PublishError``; then the batch may come again."""
        for order in self._orders(records):
            now = datetime.fromtimestamp(self._clock_s(), UTC)
            skip = gate(order, epochs=self._epochs, control=self._control.newest(), now=now)
            began_s = time.monotonic()
            done = skip or self._carry_out(order)
            self._tell(order, done, took_s=None if skip else time.monotonic() - began_s)
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

    def _orders(self, records: Sequence[ActionRecord]) -> Iterable[ThrottleOrder]:
        for record in records:
            try:
                order = read_throttle_order(
                    record.value, cluster=self._cluster, epoch_header=record.epoch_header
                )
            except BadOrder as error:
                self.metrics.count_unreadable()
                _LOG.error("a record on the actions topic is no action: %s: %.200r", error, record.value)
            else:
                if order is not None:
                    yield order

    def _carry_out(self, order: ThrottleOrder) -> Paced | Skip:
        try:
            with admin_of(self._target, cluster=self._cluster) as admin:
                return self._executor.carry_out(admin, order.action)
        except (ClusterError, KafkaError, ValueError) as error:
            return Paced(outcome="failed", reason=str(error) or repr(error))

    def _sweep(self) -> None:
        """Leftovers; not while the cluster is paused."""
        now_s = self._clock_s()
        if now_s < self._sweep_due_s:
            return
        self._sweep_due_s = now_s + _SWEEP_INTERVAL_S
        control = self._control.newest()
        if control is not None and control.paused:
            return
        try:
            with admin_of(self._target, cluster=self._cluster) as admin:
                for line in self._executor.sweep(admin):
                    _LOG.info("left over on %s, nothing moves: %s", self._cluster, line)
        except (ClusterError, KafkaError) as error:
            _LOG.warning("leftovers on %s could not be looked for: %s", self._cluster, error)

    def _tell(self, order: ThrottleOrder, done: Paced | Skip, *, took_s: float | None) -> None:
        """One id an action: what is told twice is known to be the same."""
        if isinstance(done, Skip):
            self.metrics.count_skipped(_KIND, done.reason)
            data = ActionResultData(outcome="skipped", reason=str(done), took_s=took_s)
        else:
            self.metrics.observe_tried(_KIND, done.outcome, took_s=took_s or 0.0, landed_elsewhere=False)
            data = ActionResultData(
                outcome=done.outcome,
                reason=done.reason,
                was_done_before=done.was_done_before,
                took_s=took_s,
            )
        _LOG.info("throttle %s %s%s", order.id, data.outcome, f": {data.reason}" if data.reason else "")
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


def start(
    stack: ExitStack, settings: Settings, *, cluster: str, target: KafkaTarget, dry_run: bool
) -> ThrottleLoop:
    """Connect to everything; ``stack`` closes it again.

    Raises ``ClusterError``, ``PublishError`` or ``NoInputTopic``, each with its remedy.
    """
    with admin_of(target, cluster=cluster) as admin:
        _require_answer(admin)
    results, control = input_side(stack, settings, cluster)
    control.newest()
    memory = memory_of(settings, cluster=cluster)
    memory.read()
    epochs = Epochs()
    actions = actions_of(stack, settings, cluster=cluster, epochs=epochs, records_max=_RECORDS_MAX)
    return ThrottleLoop(
        ThrottleExecutor(memory, dry_run=dry_run),
        cluster=cluster,
        target=target,
        actions=actions,
        control=control,
        results=results,
        epochs=epochs,
    )


def _require_answer(admin: KafkaAdminClient) -> None:
    admin.describe_cluster()
