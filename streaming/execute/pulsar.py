"""``trimtab execute pulsar``: carries out the actions of one cluster for as long as it runs.

A batch of actions is taken up together, at most as many at a time as allowed, those of one namespace one after the other: a
split rewrites the bundles of its namespace, and lookups meanwhile are what brokers have blocked on (Pulsar #20189). The
results are written, then the position is committed. So an action may be taken up again after a crash; it then
finds its aim reached, and gives the same result under the same id.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime

import msgspec

from streaming.execute.actions_topic import ActionRecord, ControlTopic
from streaming.execute.carry_out import Done, Executor
from streaming.execute.input_side import input_side
from streaming.execute.metrics import ExecutorMetrics
from streaming.execute.orders import BadOrder, Epochs, Order, Skip, gate, read_order
from streaming.execute.output_side import Actions, actions_of
from streaming.pulsar_admin import AdminError, HttpClient, PulsarAdmin
from streaming.pulsar_admin.http import CredentialsError
from streaming.serve import Check
from streaming.settings import PulsarTarget, Settings
from streaming.sinks import PublishError
from streaming.sinks.input_events import EventSink
from streaming.sinks.pulsar_events import PulsarControl
from streaming.wire.encode import encode_input
from streaming.wire.messages import ActionResultData, ActionResultMessage, type_of

__all__ = ["ExecutorLoop", "start"]

_LOG = logging.getLogger(__name__)
_POLL_S = 1.0
_RETRY_S = 5.0
"""Between attempts to go on after the brokers failed."""
_POLL_AGE_S_MAX = 120.0
"""Older, and the executor calls itself not ready: a batch is done within a few verify timeouts."""


class ExecutorLoop:
    """Takes actions from their topic, carries them out, tells their results. ``run`` is for one thread."""

    def __init__(
        self,
        executor: Executor,
        *,
        cluster: str,
        actions: Actions,
        control: ControlTopic | PulsarControl,
        results: EventSink,
        epochs: Epochs,
        concurrent_count: int,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = ExecutorMetrics(cluster)
        self._executor = executor
        self._cluster = cluster
        self._actions = actions
        self._control = control
        self._results = results
        self._epochs = epochs
        self._clock_s = clock_s
        self._pool = ThreadPoolExecutor(concurrent_count, thread_name_prefix="action")
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
                elif once and self._actions.is_at_end():
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
        orders = list(self._orders(records))
        chains: dict[str, list[Order]] = defaultdict(list)
        for order in orders:
            skip = self._gate(order)
            if skip is None:
                chains[order.bundle.namespace].append(order)
            else:
                self._tell_skip(order, skip, took_s=None)
        for future in [self._pool.submit(self._carry_out_all, chain) for chain in chains.values()]:
            future.result()
        self._results.flush()
        self._actions.commit()

    def stop(self) -> None:
        """End ``run`` after the batch in progress; for signal handlers."""
        self._stop.set()

    def close(self) -> None:
        """Wait for the actions in progress."""
        self._pool.shutdown()

    def readiness(self) -> Sequence[Check]:
        """Whether actions are being asked for."""
        age_s = self._clock_s() - self._polled_s
        detail = f"actions were last asked for {age_s:.0f} s ago"
        return [
            Check(
                name="poll",
                ok=age_s < _POLL_AGE_S_MAX and not self._problem,
                detail="; ".join(filter(None, (detail, self._problem))),
            )
        ]

    def _orders(self, records: Sequence[ActionRecord]) -> Iterable[Order]:
        for record in records:
            try:
                order = read_order(record.value, cluster=self._cluster, epoch_header=record.epoch_header)
            except BadOrder as error:
                self.metrics.count_unreadable()
                _LOG.error("a record on the actions topic is no action: %s: %.200r", error, record.value)
            else:
                if order is not None:
                    yield order

    def _gate(self, order: Order) -> Skip | None:
        now = datetime.fromtimestamp(self._clock_s(), UTC)
        return gate(order, epochs=self._epochs, control=self._control.newest(), now=now)

    def _carry_out_all(self, chain: Sequence[Order]) -> None:
        for order in chain:
            self._carry_out(order)

    def _carry_out(self, order: Order) -> None:
        began_s = time.monotonic()
        try:
            done = self._executor.carry_out(order)
        except (AdminError, CredentialsError) as error:
            done = Done(outcome="failed", reason=str(error))
        took_s = time.monotonic() - began_s
        if isinstance(done, Skip):
            self._tell_skip(order, done, took_s=took_s)
        else:
            self._tell_done(order, done, took_s=took_s)

    def _tell_skip(self, order: Order, skip: Skip, *, took_s: float | None) -> None:
        self.metrics.count_skipped(order.kind, skip.reason)
        _LOG.info("%s of %s (%s) skipped: %s", order.kind, order.bundle, order.id, skip)
        self._tell(order, ActionResultData(outcome="skipped", reason=str(skip), took_s=took_s))

    def _tell_done(self, order: Order, done: Done, *, took_s: float) -> None:
        elsewhere = done.outcome == "succeeded" and done.reason is not None
        self.metrics.observe_tried(order.kind, done.outcome, took_s=took_s, landed_elsewhere=elsewhere)
        _LOG.info(
            "%s of %s (%s) %s in %.1f s%s",
            order.kind,
            order.bundle,
            order.id,
            done.outcome,
            took_s,
            f": {done.reason}" if done.reason else "",
        )
        data = ActionResultData(
            outcome=done.outcome,
            reason=done.reason,
            broker=done.broker,
            bundles=list(done.bundles),
            was_done_before=done.was_done_before,
            took_s=took_s,
        )
        self._tell(order, data)

    def _tell(self, order: Order, data: ActionResultData) -> None:
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


def start(
    stack: ExitStack, settings: Settings, *, cluster: str, target: PulsarTarget, dry_run: bool
) -> ExecutorLoop:
    """Connect to everything; ``stack`` closes it again.

    Raises ``AdminError``, ``CredentialsError``, ``PublishError`` or ``NoInputTopic``, each with its remedy.
    """
    http = stack.enter_context(HttpClient(target))
    admin = PulsarAdmin(http, target)
    pulsar_cluster = admin.configuration().cluster_name
    results, control = input_side(stack, settings, cluster)
    control.newest()
    epochs = Epochs()
    actions = actions_of(
        stack, settings, cluster=cluster, epochs=epochs, records_max=target.concurrent_actions_count
    )
    executor = Executor(
        admin,
        pulsar_cluster=pulsar_cluster,
        verify_timeout_s=target.verify_timeout_s,
        dry_run=dry_run,
    )
    loop = ExecutorLoop(
        executor,
        cluster=cluster,
        actions=actions,
        control=control,
        results=results,
        epochs=epochs,
        concurrent_count=target.concurrent_actions_count,
    )
    stack.callback(loop.close)
    return loop
