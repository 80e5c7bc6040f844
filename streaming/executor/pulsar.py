"""``trimtab execute pulsar``: carries out the actions of one cluster for as long as it runs.

A batch of actions is taken up together, at most as many at a time as allowed. Those of one bundle are carried out one after the
other, and all of a namespace while one of the batch is a split there: it rewrites the bundles of its namespace, and lookups meanwhile
have blocked brokers (Pulsar #20189).
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing

from streaming.contract.messages import ActionResultData
from streaming.executor.carry_out import Executor
from streaming.executor.loop import ActionLoop
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import Done, Order, RecordEpoch, Skip, read_order
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError, CredentialsError, HttpClient
from streaming.settings import PulsarTarget, Settings
from streaming.systems import actions_of, control_of, event_sink_of
from streaming.transport.executor import ControlView
from streaming.transport.side import ActionRecord, Actions, Epochs, EventSink

_LOG = logging.getLogger(__name__)
_BATCH = 4
"""Actions in a batch for each that is carried out at the same time: a batch waits for its slowest action, and the others go on."""


class ExecutorLoop(ActionLoop[Order, Done]):
    """Carries out unloads and splits, several at a time. ``run`` is for one thread."""

    def __init__(
        self,
        executor: Executor,
        metrics: ExecutorMetrics,
        *,
        cluster: str,
        actions: Actions,
        control: ControlView,
        results: EventSink,
        epochs: Epochs,
        concurrent_count: int,
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
        self._pool = ThreadPoolExecutor(concurrent_count, thread_name_prefix="action")

    def close(self) -> None:
        """Wait for the actions in progress."""
        self._pool.shutdown()

    def _read(self, record: ActionRecord, record_epoch: RecordEpoch) -> Order | None:
        return read_order(record.value, record_epoch, cluster=self._cluster)

    def _deal_with(self, orders: Iterable[Order]) -> None:
        """Carry the orders out; all that were begun have ended when this raises. The rest of the batch comes again."""
        batch = list(orders)
        cut = {order.bundle.namespace for order in batch if order.kind == "split"}
        chains: dict[str, list[Order]] = defaultdict(list)
        for order in batch:
            namespace = order.bundle.namespace
            chains[namespace if namespace in cut else str(order.bundle)].append(order)
        begun = [self._pool.submit(self._carry_out_all, chain) for chain in chains.values()]
        for future in wait(begun).done:
            future.result(timeout=0)

    def _carry_out_all(self, chain: Sequence[Order]) -> None:
        for order in chain:
            self._carry_out(order)

    def _try(self, order: Order, still: Callable[[], None]) -> Done | Skip:
        try:
            return self._executor.carry_out(order, still)
        except (AdminError, CredentialsError) as error:
            return Done(outcome="failed", reason=str(error))

    def _report_done(self, order: Order, done: Done, *, took_s: float) -> None:
        elsewhere = done.outcome == "succeeded" and done.reason is not None
        self.metrics.observe_attempt(order.kind, done.outcome, took_s=took_s, landed_elsewhere=elsewhere)
        why = f": {done.reason}" if done.reason else ""
        _LOG.info("%s %s in %.1f s%s", order, done.outcome, took_s, why)
        data = ActionResultData(
            outcome=done.outcome,
            reason=done.reason,
            broker=done.broker,
            bundles=list(done.bundles),
            was_done_before=done.was_done_before,
            took_s=took_s,
        )
        self._send_result(order, data)


def start(
    stack: ExitStack,
    settings: Settings,
    metrics: ExecutorMetrics,
    *,
    cluster: str,
    target: PulsarTarget,
    dry_run: bool,
) -> ExecutorLoop:
    """Connect to everything; ``stack`` closes it again.

    Raises ``AdminError``, ``CredentialsError``, ``PublishError`` or ``NoTopic``, each with its remedy.
    """
    http = stack.enter_context(HttpClient(target))
    admin = PulsarAdmin(http, target)
    pulsar_cluster = admin.configuration().cluster_name
    results = stack.enter_context(closing(event_sink_of(settings)))
    control = stack.enter_context(control_of(settings, cluster=cluster, system="pulsar"))
    control.newest()
    epochs = Epochs()
    actions = actions_of(
        stack, settings, cluster=cluster, epochs=epochs, records_max=_BATCH * target.concurrent_actions_count
    )
    executor = Executor(
        admin,
        pulsar_cluster=pulsar_cluster,
        verify_timeout_s=target.verify_timeout_s,
        dry_run=dry_run,
    )
    loop = ExecutorLoop(
        executor,
        metrics,
        cluster=cluster,
        actions=actions,
        control=control,
        results=results,
        epochs=epochs,
        concurrent_count=target.concurrent_actions_count,
    )
    stack.callback(loop.close)
    return loop
