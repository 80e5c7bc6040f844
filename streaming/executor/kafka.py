"""``trimtab execute kafka``: carries out the throttle actions of one cluster for as long as it runs.

Actions are taken one after another: a cluster has one throttle. At the start, and whenever there was nothing to do for a
while, it takes off what is left of its own throttle if nothing moves any more.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing

from streaming.contract.messages import ActionResultData
from streaming.executor.kafka_carry_out import Paced, ThrottleExecutor
from streaming.executor.kafka_orders import ThrottleOrder, read_throttle_order
from streaming.executor.loop import ActionLoop
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import Held, RecordEpoch, Skip
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import cluster_of
from streaming.settings import KafkaTarget, Settings
from streaming.systems import actions_of, control_of, event_sink_of, memory_of
from streaming.transport.executor import ControlView
from streaming.transport.side import ActionRecord, Actions, Epochs, EventSink

_LOG = logging.getLogger(__name__)
_SWEEP_INTERVAL_S = 300.0
"""Time between checks for leftovers; a controller takes off its own throttle long before."""
_RECORDS_MAX = 10


class ThrottleLoop(ActionLoop[ThrottleOrder, Paced]):
    """Carries out throttle actions one after another. For one thread."""

    def __init__(
        self,
        executor: ThrottleExecutor,
        metrics: ExecutorMetrics,
        *,
        cluster: str,
        target: KafkaTarget,
        actions: Actions,
        control: ControlView,
        results: EventSink,
        epochs: Epochs,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            metrics,
            cluster=cluster,
            actions=actions,
            control=control,
            results=results,
            epochs=epochs,
            clock_s=clock_s,
        )
        self._executor = executor
        self._target = target
        self._sweep_due_s = 0.0

    def _read(self, record: ActionRecord, record_epoch: RecordEpoch) -> ThrottleOrder | None:
        return read_throttle_order(record.value, record_epoch, cluster=self._cluster)

    def _deal_with(self, orders: Iterable[ThrottleOrder]) -> None:
        for order in orders:
            self._carry_out(order)

    def _due(self) -> Callable[[], None] | None:
        """While there is nothing else to do, leftovers are looked for."""
        return self._sweep if self._clock_s() >= self._sweep_due_s else None

    def _try(self, order: ThrottleOrder, still: Callable[[], None]) -> Paced | Skip:
        try:
            with cluster_of(self._target, cluster=self._cluster) as kafka:
                return self._executor.carry_out(kafka, order.action, still)
        except (ClusterError, ValueError) as error:
            return Paced(outcome="failed", reason=str(error) or repr(error))

    def _sweep(self) -> None:
        """Take leftovers off; not while the cluster is paused."""
        self._sweep_due_s = self._clock_s() + _SWEEP_INTERVAL_S
        try:
            self._require_unpaused()
            with cluster_of(self._target, cluster=self._cluster) as kafka:
                for line in self._executor.sweep(kafka, self._require_unpaused):
                    _LOG.info("leftovers on %s, where nothing moves: %s", self._cluster, line)
        except Held as held:
            _LOG.info("leftovers on %s stay for now: %s", self._cluster, held)
        except ClusterError as error:
            _LOG.warning("leftovers on %s could not be checked: %s", self._cluster, error)

    def _require_unpaused(self) -> None:
        self._require_going_on()
        control = self._control.newest()
        if control is not None and control.is_paused_at(self._read_clock()):
            raise Held(Skip("paused", "the cluster is paused"))

    def _report_done(self, order: ThrottleOrder, done: Paced, *, took_s: float) -> None:
        self.metrics.observe_attempt(order.kind, done.outcome, took_s=took_s, landed_elsewhere=False)
        _LOG.info("%s %s%s", order, done.outcome, f": {done.reason}" if done.reason else "")
        data = ActionResultData(
            outcome=done.outcome, reason=done.reason, was_done_before=done.was_done_before, took_s=took_s
        )
        self._send_result(order, data)


def start(
    stack: ExitStack,
    settings: Settings,
    metrics: ExecutorMetrics,
    *,
    cluster: str,
    target: KafkaTarget,
    dry_run: bool,
) -> ThrottleLoop:
    """Connect to everything; ``stack`` closes it again.

    Raises ``ClusterError``, ``PublishError`` or ``NoTopic``, each with its remedy.
    """
    with cluster_of(target, cluster=cluster) as kafka:
        kafka.require_answer()
    results = stack.enter_context(closing(event_sink_of(settings)))
    control = stack.enter_context(control_of(settings, cluster=cluster, system="kafka"))
    control.newest()
    memory = memory_of(settings, cluster=cluster)
    memory.read()
    epochs = Epochs()
    actions = actions_of(stack, settings, cluster=cluster, epochs=epochs, records_max=_RECORDS_MAX)
    return ThrottleLoop(
        ThrottleExecutor(memory, dry_run=dry_run),
        metrics,
        cluster=cluster,
        target=target,
        actions=actions,
        control=control,
        results=results,
        epochs=epochs,
    )
