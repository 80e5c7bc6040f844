"""``trimtab execute kafka``: carries out the throttle actions of one cluster, and checks whether the throttle is there.

Actions are taken one after another: a cluster has one throttle. At the start, and whenever there was nothing to do for a
while, it takes off what is left of its own throttle if nothing is copied any more: no reassignment runs, no follower on its lists is
out of sync, and no broker that has its rate moves replicas between disks.

Idempotent: what is right already is not set again, and doing an action twice changes nothing. Entries of others are
kept. A rate that was there before ours comes back when ours is taken off; a rate that somebody set in place of ours
stays. Everything that is set is read back, because Kafka also accepts a key that it does not know.

A broker that is down takes no rate and needs none, so it is no failure. It keeps what it had. When it is back, the controller
decides the rates that it lacks and still needs, and the sweep takes off what it should not have any more.

Two executors may work at the same time for a while, if one was frozen and wakes up again. Each writes to the memory only what
follows from what it holds, and adds afterwards what it set, so that the executor that takes the throttle off knows all of it.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import msgspec

from policies.throttle.lists import (
    EVERYTHING,
    ThrottledLists,
    common,
    difference,
    entries_of,
    merge,
    union,
    without,
)
from policies.throttle.rates import BrokerRole
from policies.wording import counted
from streaming.contract.messages import ActionResultData
from streaming.executor.loop import ActionLoop, Topics, open_topics
from streaming.executor.memory import HeldMemory, Memory, Remembered, SetRate, memory_of
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import (
    KAFKA_ACTIONS,
    Held,
    Order,
    Skip,
    ThrottleAction,
)
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster, cluster_of
from streaming.kafka.throttles import Change, Throttle, changes_of, rate_key
from streaming.settings import KafkaTarget, Settings
from streaming.transport.errors import Taken

_LOG = logging.getLogger(__name__)
_SWEEP_INTERVAL_S = 300.0
"""Time between checks for leftovers; a controller takes off its own throttle long before."""
_RECORDS_MAX = 10
_STORE_ATTEMPTS = 5
"""Each attempt takes the memory from the other executor, which then does the same at most once for each action in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aim:
    """The entries and rates to change; everything not named stays."""

    add: ThrottledLists = field(default_factory=ThrottledLists)
    remove: ThrottledLists = field(default_factory=ThrottledLists)
    rates: Mapping[BrokerRole, int] = field(default_factory=dict)
    clear: Sequence[BrokerRole] = ()
    is_planned: bool = False


class ThrottleExecutor:
    """Carries out throttle actions on one cluster. For one thread."""

    def __init__(self, memory: Memory, *, dry_run: bool = False) -> None:
        self._memory = memory
        self._dry_run = dry_run

    def carry_out(
        self, kafka: KafkaCluster, action: ThrottleAction, recheck: Callable[[], None]
    ) -> ActionResultData | Skip:
        """Check the precondition, set the throttle, check that it is there.

        ``recheck`` is called right before the cluster is changed, and raises ``Held`` if that is not allowed now.

        Raises ``ClusterError`` if the cluster does not accept it,
        and ``PublishError`` if it cannot be remembered.
        """
        changed = self._check_precondition(kafka, action)
        if changed is not None:
            return changed
        if self._dry_run:
            aim = _aim(action, self._memory.read())
            detail = f"{counted(len(aim.rates), 'rate')} would be set and {len(aim.clear)} taken off"
            return Skip("executor-dry-run", detail)
        with self._memory.hold() as held:
            done = self._change_to(kafka, held, _aim(action, held.remembered), recheck)
        missing = [line for line in done if line.startswith("NOT")]
        later = [line for line in done if line.startswith("LATER")]
        return ActionResultData(
            outcome="failed" if missing else "succeeded",
            reason="; ".join([*missing, *later]) or None,
            done_before=len(later) == len(done),
        )

    def _check_precondition(self, kafka: KafkaCluster, action: ThrottleAction) -> Skip | None:
        """A skip if the action needs something that is copied and there is nothing, or the other way round; None otherwise."""
        expected = action.precondition.reassignments
        if expected == "running":
            lists = union(self._memory.read().added, action.add)
            if not _is_copying(kafka, lists, action.rates):
                return Skip(
                    "not-moving", "nothing is copied in the cluster any more, so nothing is throttled"
                )
        if expected == "none" and (running := kafka.reassignments()):
            return Skip(
                "still-moving", f"{counted(len(running), 'partition')} still moving, so the throttle stays"
            )
        if expected == "none" and _are_disks_copying(kafka, (*action.clear, *_roles(self._memory.read()))):
            return Skip("still-moving", "replicas still move between disks, so the throttle stays")
        return None

    def sweep(self, kafka: KafkaCluster, recheck: Callable[[], None]) -> list[str]:
        """Take off all that is ours, if nothing is copied any more; returns a line for each change. ``recheck``: see ``carry_out``."""
        if self._dry_run or self._memory.read().is_empty:
            return []
        with self._memory.hold() as held:
            remembered = held.remembered
            is_running = _is_copying(kafka, remembered.added, _roles(remembered))
            if is_running and remembered.is_planned:
                held.write(msgspec.structs.replace(remembered, is_planned=False))
            if is_running or remembered.is_planned:
                return []
            return self._change_to(
                kafka, held, _Aim(remove=remembered.added, clear=_roles(remembered)), recheck
            )

    def _change_to(
        self, kafka: KafkaCluster, held: HeldMemory, aim: "_Aim", recheck: Callable[[], None]
    ) -> list[str]:
        """Remember, set, read back, remember what is left; returns a line for each change and each broker that failed or is down."""
        remembered = held.remembered
        topics = {topic for lists in (aim.add, aim.remove) for topic in (*lists.leader, *lists.follower)}
        existing = {topic for topic, _ in kafka.partitions(topics)}  # those deleted meanwhile have no lists
        brokers = {role.broker for role in (*aim.rates, *aim.clear)}
        down = brokers - kafka.brokers().keys() if brokers else set()
        throttles = kafka.throttle(topics=existing, brokers=brokers - down)
        there, unread = throttles.throttle, {*throttles.failed, *down}
        lists, added = _lists(there.lists, remembered.added, aim.add, aim.remove, existing)
        wanted = {role: rate for role, rate in aim.rates.items() if role.broker not in unread}
        restored = _restore(there, remembered, [role for role in aim.clear if role.broker not in unread])
        changes = changes_of(there, lists, {**restored, **wanted})
        put_back = {(str(role.broker), rate_key(role.role)) for role in restored.keys() - wanted.keys()}
        ours = {str(role): _rate_to_remember(role, rate, remembered, there) for role, rate in wanted.items()}
        during = Remembered(
            added=union(remembered.added, added),
            rates={**remembered.rates, **ours},
            is_planned=aim.is_planned,
        )
        after = Remembered(
            added=difference(during.added, aim.remove),
            rates={
                name: msgspec.structs.replace(rate, earlier=None)
                for name, rate in during.rates.items()
                if name in ours or BrokerRole.parse(name) not in restored
            },
            is_planned=aim.is_planned,
        )
        if changes or during != remembered:
            held.write(during)
        self._carry_out_changes(kafka, held, changes, during, after, recheck)
        return [
            *(_describe(change, put_back) for change in changes),
            *(
                f"NOT set or taken off, broker {broker}: {why}"
                for broker, why in sorted(throttles.failed.items())
            ),
            *(f"LATER, broker {broker} is down: its rates stay as they are" for broker in sorted(down)),
        ]

    def _carry_out_changes(
        self,
        kafka: KafkaCluster,
        held: HeldMemory,
        changes: Sequence[Change],
        during: Remembered,
        after: Remembered,
        recheck: Callable[[], None],
    ) -> None:
        """Make the changes, then remember what is there; ``Held`` after the first one is a failure, because some were made."""
        settled = held.remembered
        try:
            for count, change in enumerate(changes):
                try:
                    recheck()
                except Held as why:
                    if count == 0:
                        raise
                    raise ClusterError(f"{count} of {len(changes)} settings made, then {why}") from why
                settled = during
                kafka.apply([change])
            settled = after
        finally:
            if changes or settled != during:
                self._settle(held, settled, during)

    def _settle(self, held: HeldMemory, settled: Remembered, during: Remembered) -> None:
        """Remember what is there now. If another executor took the memory meanwhile, add what we set without its knowledge."""
        try:
            held.write(settled)
        except Taken:
            for _ in range(_STORE_ATTEMPTS):
                with suppress(Taken), self._memory.hold() as again:
                    again.write(again.remembered.with_(during))
                    break
            else:
                _LOG.error("the settings made on the cluster could not be stored: %s", during)
            raise


def _aim(action: ThrottleAction, remembered: Remembered) -> _Aim:
    reassignments = action.precondition.reassignments
    remove, clear = action.remove, action.clear
    if reassignments == "none":
        remove, clear = remembered.added, (*clear, *_roles(remembered))
    return _Aim(
        add=action.add, remove=remove, rates=action.rates, clear=clear, is_planned=reassignments == "planned"
    )


def _is_copying(kafka: KafkaCluster, lists: ThrottledLists, roles: Iterable[BrokerRole]) -> bool:
    """Whether anything is reassigned, a follower on the lists is out of sync, or one of the brokers moves replicas between its disks.

    Raises ``ClusterError`` where a broker that may do so does not say.
    """
    if kafka.reassignments():
        return True
    followers = {topic: entries_of(text) for topic, text in lists.follower.items() if text != EVERYTHING}
    states = kafka.partitions(followers)
    listed = ((states.get((topic, at)), broker) for topic in followers for at, broker in followers[topic])
    if any(state and broker in state.replicas and broker not in state.in_sync for state, broker in listed):
        return True
    return _are_disks_copying(kafka, roles)


def _are_disks_copying(kafka: KafkaCluster, roles: Iterable[BrokerRole]) -> bool:
    disks = {role.broker for role in roles if role.is_disk}
    if not disks:
        return False
    found = kafka.log_sizes(None, disks & kafka.brokers().keys())
    if found.failed and not found.disk_lags:
        silent = "; ".join(f"broker {broker}: {why}" for broker, why in sorted(found.failed.items()))
        raise ClusterError(f"it is not known whether replicas still move between disks: {silent}")
    return bool(found.disk_lags)


def _lists(
    there: ThrottledLists,
    ours: ThrottledLists,
    add: ThrottledLists,
    remove: ThrottledLists,
    existing: set[str],
) -> tuple[ThrottledLists, ThrottledLists]:
    """The lists as they shall be, and the entries that this adds; only entries of ours are removed."""
    add, remove = add.of_topics(existing), common(remove, ours).of_topics(existing)
    more, added = merge(difference(there, remove), add)
    return without(there, remove) | more, added


def _restore(
    there: Throttle, remembered: Remembered, clear: Iterable[BrokerRole]
) -> dict[BrokerRole, int | None]:
    """The value that each rate to take off gets; a rate that somebody changed since stays as it is."""
    rates = {}
    for role in clear:
        ours = remembered.rates.get(str(role))
        now = there.rates_bytes_per_s.get(role)
        if ours is not None:
            rates[role] = ours.before if now is not None and now in (ours.ours, ours.earlier) else now
    return rates


def _describe(change: Change, put_back: Collection[tuple[str, str]]) -> str:
    """A change that was made; ``put_back`` are the settings of a broker that get the value that they had before ours."""
    if change.value is None:
        return f"taken off and read back: {change}"
    if (change.name, change.key) in put_back:
        return f"what was set before trimtab came is put back, and stays until whoever set it removes it: {change}"
    return f"set and read back: {change}"


def _rate_to_remember(role: BrokerRole, rate: int, remembered: Remembered, there: Throttle) -> SetRate:
    """Remembers the rate before our first one, and our last two: either may be there until the new one is seen.

    A rate that is kept because somebody set it in place of ours is not ours, and stays when ours are taken off.
    """
    known = remembered.rates.get(str(role))
    if known is None:
        return SetRate(rate, there.rates_bytes_per_s.get(role))
    is_others = there.rates_bytes_per_s.get(role) == rate != known.earlier
    if known.ours == rate or is_others:
        return known
    return SetRate(rate, known.before, earlier=known.ours)


def _roles(remembered: Remembered) -> tuple[BrokerRole, ...]:
    return tuple(map(BrokerRole.parse, remembered.rates))


class ThrottleLoop(ActionLoop[ThrottleAction]):
    """Carries out throttle actions one after another. For one thread."""

    _readers = KAFKA_ACTIONS

    def __init__(
        self,
        executor: ThrottleExecutor,
        metrics: ExecutorMetrics,
        topics: Topics,
        *,
        cluster: str,
        target: KafkaTarget,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(metrics, topics, cluster=cluster, clock_s=clock_s)
        self._executor = executor
        self._target = target
        self._sweep_due_s = 0.0

    def _deal_with(self, orders: Iterable[Order[ThrottleAction]]) -> None:
        for order in orders:
            self._carry_out(order)

    def _due(self) -> Callable[[], None] | None:
        """While there is nothing else to do, leftovers are looked for."""
        return self._sweep if self._clock_s() >= self._sweep_due_s else None

    def _try(self, order: Order[ThrottleAction], recheck: Callable[[], None]) -> ActionResultData | Skip:
        try:
            with cluster_of(self._target, cluster=self._cluster) as kafka:
                return self._executor.carry_out(kafka, order.action, recheck)
        except (ClusterError, ValueError) as error:
            return ActionResultData(outcome="failed", reason=str(error) or repr(error))

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
        except (ClusterError, ValueError) as error:
            _LOG.warning("leftovers on %s could not be checked: %s", self._cluster, error)

    def _require_unpaused(self) -> None:
        self._require_going_on()
        control = self._control.newest()
        if control is not None and control.is_paused_at(self._read_clock()):
            raise Held(Skip("paused", "the cluster is paused"))


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
    topics = open_topics(stack, settings, cluster=cluster, system="kafka", records_max=_RECORDS_MAX)
    memory = memory_of(settings, cluster=cluster)
    memory.read()
    executor = ThrottleExecutor(memory, dry_run=dry_run)
    return ThrottleLoop(executor, metrics, topics, cluster=cluster, target=target)
