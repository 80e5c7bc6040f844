"""``trimtab execute pulsar``: carries out the actions of one cluster, and checks whether each really happened.

A batch of actions is taken up together, at most as many at a time as allowed. Those of one bundle are carried out one after the
other, and all of a namespace while one of the batch is a split there: it rewrites the bundles of its namespace, and lookups meanwhile
have blocked brokers (Pulsar #20189).

Pulsar's 204 proves little: an unload without owner does nothing, boundaries outside a range are ignored, a one-shot
hint for the destination can be lost, a split with ``unload=false`` may fail after the answer. So only what is seen
afterwards counts: which broker owns the bundle, and which bundles there are. For the same reason this is also checked
after a call that failed or was never answered.

Idempotent: an action whose aim is already reached before the call is a success without a call.

Unloads of one range wait for each other, whatever their namespaces: before apache/pulsar#25518 the modular load manager
keeps the destination by the range alone, so two unloads may swap destinations. A bundle that its broker takes back
(apache/pulsar#24884: the destination is a hint for one lookup, and a client's lookup may come first) is unloaded again.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import TypeVar

from policies.splitting.ranges import Bundle, BundleRange, position_of
from state.facts import Isolation
from state.pulsar.groups import Groups
from streaming.contract.messages import ActionResultData
from streaming.executor.loop import ActionLoop, Topics, open_topics
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import (
    PULSAR_ACTIONS,
    Held,
    Order,
    Skip,
    SplitAction,
    UnloadAction,
)
from streaming.process.deadline import Deadline
from streaming.pulsar.admin import EXTENSIBLE, PulsarAdmin
from streaming.pulsar.http import AdminError, CredentialsError, HttpClient
from streaming.settings import PulsarTarget, Settings

_LOG = logging.getLogger(__name__)
_BATCH = 4
"""Actions in a batch for each that is carried out at the same time: a batch waits for its slowest action, and the others go on."""
_POLL_S = 0.2
_PROBE_TOPICS_MAX = 100_000
"""Names tried until one falls into a bundle: a bundle of a thousandth of the hashes needs about a thousand."""
_PASSING = ("broker-failed", "conflict", "busy")
"""Failures that often pass: a bundle just unloaded or split is not served for a second or two, and a broker that just lost the
race for one answers 500 even when it is asked which bundles it owns."""
_ATTEMPTS_MAX = 4
_LOCKS = 64
"""More than there are unloads at a time; ranges that share one only wait for each other."""
_NOT_CUT = "Pulsar reported success but split nothing, as it does for a bundle with fewer than two topics loaded at its owner"

PulsarAction = UnloadAction | SplitAction
Value = TypeVar("Value")


class Executor:
    """Carries out actions on one cluster; thread-safe. ``pulsar_cluster`` is Pulsar's own name of it."""

    def __init__(
        self,
        admin: PulsarAdmin,
        *,
        pulsar_cluster: str,
        verify_timeout_s: float,
        dry_run: bool = False,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._admin = admin
        self._pulsar_cluster = pulsar_cluster
        self._verify_timeout_s = verify_timeout_s
        self._dry_run = dry_run
        self._pause = pause
        self._ranges = [threading.Lock() for _ in range(_LOCKS)]

    def carry_out(self, order: Order[PulsarAction], recheck: Callable[[], None]) -> ActionResultData | Skip:
        """Check the precondition, carry the order out, check the effect.

        Raises ``AdminError`` when the cluster cannot be asked beforehand. If the namespace is deleted meanwhile, that is a
        skip, too: neither a failure nor worth waiting for.

        ``recheck`` is called right before each call that changes anything, and raises ``Held`` if it is not allowed now.
        """
        action = order.action
        try:
            if isinstance(action, SplitAction):
                return self._split(action, recheck)
            with self._ranges[position_of(str(action.bundle.range)) % _LOCKS]:
                return self._unload(action, recheck)
        except AdminError as error:
            gone = self._skip_if_gone(action.bundle, error)
            if gone is None:
                raise
            return gone

    def _unload(self, action: UnloadAction, recheck: Callable[[], None]) -> ActionResultData | Skip:
        bundle, destination = action.bundle, action.destination_broker
        edges = self._boundaries(bundle)
        if isinstance(edges, Skip):
            return edges
        owner = self._retry(lambda: self._owner(bundle))
        if destination is not None and owner == destination:
            return ActionResultData(outcome="succeeded", broker=owner, done_before=True)
        if destination is None and owner != action.precondition.owner and _has(edges, [bundle]):
            return self._finish_left(action, owner, recheck)
        skip = self._check_precondition(action, edges, owner) or self._skip_if_unreachable(destination)
        if skip is not None:
            return skip
        if self._dry_run:
            return Skip(
                "executor-dry-run", f"{bundle} would be moved from {owner} to {destination or 'another'}"
            )
        topic = self._topic_of(bundle)
        failure = self._retry_change(lambda: self._admin.unload(bundle, destination=destination), recheck)
        return self._wait_until_landed(action, recheck, topic=topic, failure=failure)

    def _finish_left(
        self, action: UnloadAction, owner: str | None, recheck: Callable[[], None]
    ) -> ActionResultData | Skip:
        """Finish an unload without destination whose bundle has left its broker, perhaps by this action before a crash."""
        if owner is not None:
            return ActionResultData(outcome="succeeded", broker=owner, done_before=True)
        if self._dry_run:
            return Skip("executor-dry-run", f"{action.bundle} has no owner and would be looked up")
        return self._wait_until_landed(action, recheck, topic=self._topic_of(action.bundle), failure=None)

    def _topic_of(self, bundle: Bundle) -> str | None:
        return next(iter(self._retry(lambda: self._admin.topics(bundle))), None)

    def _split(self, action: SplitAction, recheck: Callable[[], None]) -> ActionResultData | Skip:
        bundle, boundaries = action.bundle, sorted(set(action.boundaries))
        if not boundaries or not all(
            bundle.range.lower < boundary < bundle.range.upper for boundary in boundaries
        ):
            return Skip("bad-boundaries", f"{action.boundaries} are not all strictly inside {bundle.range}")
        edges, children = self._boundaries(bundle), bundle.cut(boundaries)
        if isinstance(edges, Skip):
            return edges
        if _has(edges, children):
            return ActionResultData(outcome="succeeded", bundles=list(map(str, children)), done_before=True)
        owner = self._retry(lambda: self._owner(bundle))
        skip = self._check_precondition(action, edges, owner)
        if skip is not None:
            return skip
        if self._dry_run:
            return Skip(
                "executor-dry-run",
                f"{bundle} would be cut into {', '.join(str(child.range) for child in children)}",
            )
        if len(boundaries) > 1 and self._cuts_one_by_one(action.precondition.owner):
            failure = self._split_one_by_one(bundle, boundaries, recheck)
        else:
            failure = self._retry_change(lambda: self._admin.split(bundle, boundaries), recheck)
        return self._cut(bundle, children, failure=failure)

    def _cuts_one_by_one(self, owner: str) -> bool:
        """Whether the owner's load manager refuses several boundaries at once, as Pulsar's extensible one does (apache/pulsar#22254)."""
        return self._retry(lambda: self._admin.configuration(owner)).load_manager == EXTENSIBLE

    def _split_one_by_one(
        self, bundle: Bundle, boundaries: Sequence[int], recheck: Callable[[], None]
    ) -> AdminError | None:
        """Split at one boundary after the other: once a cut is seen, the next one is made in the bundle above it."""
        rest = bundle
        for boundary in boundaries:
            try:
                failure = self._cut_off(rest, boundary, recheck)
            except Held as held:
                if rest is bundle:
                    raise
                failure = AdminError("conflict", call=f"split {rest}", answer=str(held.skip))
            if failure is not None:
                return failure
            rest = Bundle(bundle.namespace, BundleRange(boundary, bundle.range.upper))
        return None

    def _cut_off(self, bundle: Bundle, boundary: int, recheck: Callable[[], None]) -> AdminError | None:
        """Split at one boundary and wait until that is seen. Raises ``Held`` only if no call was made."""
        failure = self._retry_change(lambda: self._admin.split(bundle, [boundary]), recheck)
        deadline = Deadline(self._verify_timeout_s)
        while failure is None or failure.failure == "no-answer":
            if boundary in self._retry(lambda: self._admin.boundaries(bundle.namespace)):
                return None
            if deadline.is_over:
                return failure or AdminError("no-answer", call=f"split {bundle}", answer=_NOT_CUT)
            self._pause(_POLL_S)
        return failure

    def _boundaries(self, bundle: Bundle) -> list[int] | Skip:
        """Boundaries of the bundle's namespace; a skip if the namespace is gone."""
        try:
            return self._retry(lambda: self._admin.boundaries(bundle.namespace))
        except AdminError as error:
            if error.failure != "not-found":
                raise
            return Skip("namespace-gone", f"Pulsar knows no namespace {bundle.namespace}: {error.answer}")

    def _skip_if_gone(self, bundle: Bundle, error: AdminError) -> Skip | None:
        """A skip if ``error`` is "not found" because the bundle's namespace was deleted meanwhile: nothing is left to do."""
        if error.failure != "not-found":
            return None
        with suppress(AdminError):
            edges = self._boundaries(bundle)
            return edges if isinstance(edges, Skip) else None
        return None

    def _check_precondition(
        self, action: PulsarAction, boundaries: list[int], owner: str | None
    ) -> Skip | None:
        """A skip unless range and owner are still those the action was decided on."""
        bundle, expected = action.bundle, action.precondition.owner
        if not _has(boundaries, [bundle]):
            answer = f"{bundle} is no bundle of {bundle.namespace} any more: it was split or made anew"
            return Skip("bundle-gone", answer)
        if owner != expected:
            return Skip("owner-changed", f"{owner or 'no broker'} owns it, not {expected}")
        return None

    def _skip_if_unreachable(self, destination: str | None) -> Skip | None:
        if destination is None:
            return None
        if destination in self._retry(lambda: self._admin.brokers(self._pulsar_cluster)):
            return None
        return Skip("destination-gone", f"broker {destination} is not alive")

    def _owner(self, bundle: Bundle) -> str | None:
        """The broker that owns a bundle. None: no broker."""
        return self._admin.owner(bundle, self._admin.brokers(self._pulsar_cluster))

    def _retry(self, call: Callable[[], Value]) -> Value:
        """Call, and repeat a few times after a failure that often passes. Raises ``AdminError``."""
        for attempt in range(1, _ATTEMPTS_MAX):
            try:
                return call()
            except AdminError as error:
                if error.failure not in _PASSING:
                    raise
                self._pause(_POLL_S * 2**attempt)
        return call()

    def _retry_change(self, call: Callable[[], None], recheck: Callable[[], None]) -> AdminError | None:
        """Call as ``_retry`` does and return the error. It is not the result yet: what is seen afterwards counts.

        Raises ``Held`` only if no call was made: a call that failed may have had its effect.
        """
        failure: AdminError | None = None

        def attempt() -> None:
            nonlocal failure
            recheck()
            try:
                call()
            except AdminError as error:
                failure = error
                raise

        try:
            self._retry(attempt)
        except AdminError as error:
            return error
        except Held:
            if failure is None:
                raise
            return failure
        return None

    def _wait_until_landed(
        self,
        action: UnloadAction,
        recheck: Callable[[], None],
        *,
        topic: str | None,
        failure: AdminError | None,
    ) -> ActionResultData | Skip:
        """Find out where a bundle went; looking a topic of it up has it assigned: no broker owns it until then.

        An error of these requests is not the result: they are made again.
        """
        source, destination = action.precondition.owner, action.destination_broker
        deadline, unloads_count = Deadline(self._verify_timeout_s), 1
        owner: str | None = None
        while True:
            blind: AdminError | None = None
            try:
                self._assign(action.bundle, topic)
                owner = self._owner(action.bundle)
            except AdminError as error:
                blind, gone = error, self._skip_if_gone(action.bundle, error)
                if gone is not None:
                    return gone
            if owner is not None and owner != source:
                return self._judge_landing(action.bundle, owner, destination)
            is_back = (
                owner == source and blind is None and (failure is None or failure.failure != "no-answer")
            )
            will_not = is_back and (failure is not None or unloads_count == _ATTEMPTS_MAX)
            if will_not or deadline.is_over:
                return self._fail_unmoved(owner, failure or blind, unloads_count)
            if is_back:
                unloads_count += 1
                try:
                    failure = self._retry_change(
                        lambda: self._admin.unload(action.bundle, destination=destination), recheck
                    )
                except Held as held:
                    return ActionResultData(
                        outcome="failed", reason=f"{source} took it back; {held.skip}", broker=source
                    )
            self._pause(_POLL_S * 2 ** (unloads_count - 1))

    def _fail_unmoved(
        self, owner: str | None, failure: AdminError | None, unloads_count: int
    ) -> ActionResultData:
        why = str(failure) if failure else f"not seen elsewhere within {self._verify_timeout_s:g} s"
        if unloads_count == _ATTEMPTS_MAX and failure is None:
            why = f"the broker took it back after each of {unloads_count} unloads"
        where = f"still on {owner}" if owner else "no broker that answers owns it"
        return ActionResultData(outcome="failed", reason=f"{where}: {why}", broker=owner)

    def _judge_landing(self, bundle: Bundle, owner: str, destination: str | None) -> ActionResultData:
        """The result for a bundle that left its broker. If it missed its destination, that is reported, but it is not moved again."""
        if destination is None or owner == destination:
            return ActionResultData(outcome="succeeded", broker=owner)
        reason = f"it landed on {owner}, not on {destination}"
        if self._is_foreign(bundle, owner):
            reason += f", and {owner} is of another isolation group than {bundle.namespace}"
            return ActionResultData(outcome="failed", reason=reason, broker=owner)
        return ActionResultData(outcome="succeeded", reason=reason, broker=owner)

    def _is_foreign(self, bundle: Bundle, broker: str) -> bool:
        """Whether a broker is of another isolation group than a bundle's namespace."""
        try:
            policies = self._retry(lambda: self._admin.isolation_policies(self._pulsar_cluster))
            groups = Groups(
                tuple(
                    Isolation(name, policy.namespaces, policy.primary)
                    for name, policy in sorted(policies.items())
                )
            )
            return bool(groups.of_brokers([broker])[0] != groups.of_namespaces([bundle.namespace])[0])
        except Exception as error:  # noqa: BLE001  it moved all the same; a pattern may be Java's only
            _LOG.warning(
                "the isolation groups cannot be read, so %s counts as a right broker for %s: %s",
                broker,
                bundle,
                error,
            )
            return False

    def _assign(self, bundle: Bundle, topic: str | None) -> None:
        """Look the bundle up; without topics, by a name that would be in it, which some clusters do not answer."""
        try:
            self._admin.lookup(topic or _probe(bundle))
        except AdminError as error:
            if topic is not None or error.failure != "not-found" or self._skip_if_gone(bundle, error):
                raise

    def _cut(
        self, bundle: Bundle, children: Sequence[Bundle], *, failure: AdminError | None
    ) -> ActionResultData | Skip:
        wanted = {edge for child in children for edge in (child.range.lower, child.range.upper)}
        deadline = Deadline(self._verify_timeout_s)
        while True:
            edges: list[int] = []
            blind: AdminError | None = None
            try:
                edges = self._admin.boundaries(bundle.namespace)
            except AdminError as error:
                blind, gone = error, self._skip_if_gone(bundle, error)
                if gone is not None:
                    return gone
            if wanted <= set(edges):
                return ActionResultData(outcome="succeeded", bundles=list(map(str, children)))
            refused = blind is None and failure is not None and failure.failure != "no-answer"
            if refused or deadline.is_over:
                why = str(failure or blind or _NOT_CUT)
                made = len(wanted & set(edges) - {bundle.range.lower, bundle.range.upper})
                there = (
                    f"only {made} of {len(children) - 1} cuts were made"
                    if made
                    else "the bundles are as before"
                )
                return ActionResultData(outcome="failed", reason=f"{there}: {why}")
            self._pause(_POLL_S)


def _has(boundaries: list[int], bundles: Sequence[Bundle]) -> bool:
    """Whether each of the bundles is exactly one range between neighbouring boundaries."""
    ranges = set(pairwise(boundaries))
    return all((bundle.range.lower, bundle.range.upper) in ranges for bundle in bundles)


def _probe(bundle: Bundle) -> str:
    """A topic that does not exist and would be in the bundle; looking it up does not make it."""
    for number in range(_PROBE_TOPICS_MAX):
        topic = f"persistent://{bundle.namespace}/trimtab-probe-{number}"
        if bundle.range.contains(position_of(topic)):
            return topic
    raise AdminError(
        "refused", call=f"look {bundle} up", answer="no topic name was found for such a narrow range"
    )


class ExecutorLoop(ActionLoop[PulsarAction]):
    """Carries out unloads and splits, several at a time. ``run`` is for one thread."""

    _readers = PULSAR_ACTIONS

    def __init__(
        self,
        executor: Executor,
        metrics: ExecutorMetrics,
        topics: Topics,
        *,
        cluster: str,
        concurrent_count: int,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(metrics, topics, cluster=cluster, clock_s=clock_s)
        self._executor = executor
        self._pool = ThreadPoolExecutor(concurrent_count, thread_name_prefix="action")

    def close(self) -> None:
        """Wait for the actions in progress."""
        self._pool.shutdown()

    def _deal_with(self, orders: Iterable[Order[PulsarAction]]) -> None:
        """Carry the orders out; all that were begun have ended when this raises. The rest of the batch comes again."""
        batch = list(orders)
        cut = {order.action.bundle.namespace for order in batch if order.kind == "split"}
        chains: dict[str, list[Order[PulsarAction]]] = defaultdict(list)
        for order in batch:
            namespace = order.action.bundle.namespace
            chains[namespace if namespace in cut else str(order.action.bundle)].append(order)
        begun = [self._pool.submit(self._carry_out_all, chain) for chain in chains.values()]
        for future in wait(begun).done:
            future.result(timeout=0)

    def _carry_out_all(self, chain: Sequence[Order[PulsarAction]]) -> None:
        for order in chain:
            self._carry_out(order)

    def _try(self, order: Order[PulsarAction], recheck: Callable[[], None]) -> ActionResultData | Skip:
        try:
            return self._executor.carry_out(order, recheck)
        except (AdminError, CredentialsError) as error:
            return ActionResultData(outcome="failed", reason=str(error))


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
    concurrent_count = target.concurrent_actions_count
    topics = open_topics(
        stack, settings, cluster=cluster, system="pulsar", records_max=_BATCH * concurrent_count
    )
    executor = Executor(
        admin, pulsar_cluster=pulsar_cluster, verify_timeout_s=target.verify_timeout_s, dry_run=dry_run
    )
    loop = ExecutorLoop(executor, metrics, topics, cluster=cluster, concurrent_count=concurrent_count)
    stack.callback(loop.close)
    return loop
