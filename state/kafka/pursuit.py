"""What became of a throttle decision: it holds once its result says so or the cluster shows it; else it is decided again.

A failed or skipped decision, and one that expired without effect, is taken back: the policy then decides from where it
was. What such a decision added may be on the cluster all the same; it is remembered as ours. After each failure in a row
the next attempt waits twice as long.
"""

from collections.abc import Mapping

from policies.throttle.lists import EVERYTHING, ThrottledLists, entries_of, text_of, union, without
from policies.throttle.pacing_plan import ThrottleDecision
from policies.throttle.rates import BrokerRole, Role
from state.kafka.memory import KafkaMemory, Pending
from state.kafka.snapshot import Observation

RETRY_MS = 10_000
"""Before the second attempt."""
RETRY_MS_MAX = 600_000
"""Once in ten minutes, so that a mended executor is soon heard of."""
_DOUBLINGS_MAX = (RETRY_MS_MAX // RETRY_MS).bit_length()


def remember_pending(
    memory: KafkaMemory, decision: ThrottleDecision, *, action_id: str, expires_ms: int
) -> None:
    """Remember a decision, made on ``memory.pacing``, until its end is known.

    While an earlier one is unknown, what both replace is what there is to go back to.
    """
    earlier = memory.pending
    added = decision.add if earlier is None else union(earlier.added, decision.add)
    memory.pending = Pending(
        action_id=action_id,
        expires_ms=expires_ms,
        before=memory.pacing if earlier is None else earlier.before,
        added=added,
        leader_rates=_of_role(decision, "leader"),
        follower_rates=_of_role(decision, "follower"),
        cleared=[(role.role, role.broker) for role in decision.clear_rates],
    )


def _of_role(decision: ThrottleDecision, kind: Role) -> dict[int, int]:
    return {role.broker: rate for role, rate in decision.set_rates.items() if role.role == kind}


def apply_result(memory: KafkaMemory, action_id: str, outcome: str, *, at_ms: int) -> None:
    """The result of a decision came."""
    pending = memory.pending
    if pending is None or pending.action_id != action_id:
        return
    if outcome == "succeeded":
        _confirm(memory)
    else:
        _take_back(memory, pending, at_ms=at_ms)


def settle_pending(memory: KafkaMemory, observation: Observation, *, end_ms: int) -> None:
    """Without a result the cluster itself says whether a decision was carried out; at its expiry that is the last word."""
    pending = memory.pending
    if pending is not None and _is_carried_out(pending, observation):
        _confirm(memory)
    elif pending is not None and end_ms >= pending.expires_ms:
        _take_back(memory, pending, at_ms=end_ms)
    if memory.pending is None:
        _forget_absent(memory, observation)


def _forget_absent(memory: KafkaMemory, observation: Observation) -> None:
    """Keep of what was attempted only what may be on the cluster, so that it does not grow while nobody carries anything out.

    Lists are reported of the topics that move. Once reports have shown that they tell lists, an entry that is not there was
    not left behind; before that, entries of topics that do not move any more are dropped, because nothing will be seen of them.
    """
    memory.tells_lists = memory.tells_lists or bool(observation.lists.leader or observation.lists.follower)
    attempted = memory.attempted
    if observation.moves is None or not (attempted.leader or attempted.follower):
        return
    topics = frozenset(observation.moves.topics)
    memory.attempted = ThrottledLists(
        leader=_present(attempted.leader, observation.lists.leader, topics, tells_lists=memory.tells_lists),
        follower=_present(
            attempted.follower, observation.lists.follower, topics, tells_lists=memory.tells_lists
        ),
    )


def _present(
    attempted: Mapping[str, str], there: Mapping[str, str], moving: frozenset[str], *, tells_lists: bool
) -> dict[str, str]:
    found = {}
    for topic, text in attempted.items():
        now = there.get(topic, "").strip()
        if topic not in moving:
            kept = text if tells_lists else ""
        elif not tells_lists or EVERYTHING in (now, text):
            kept = text
        else:
            kept = text_of(entries_of(text) & entries_of(now))
        if kept:
            found[topic] = kept
    return found


def _confirm(memory: KafkaMemory) -> None:
    memory.pending, memory.failures_count, memory.retry_ms = None, 0, 0
    if not (memory.real or memory.pacing).is_active:
        memory.attempted = ThrottledLists()


def _take_back(memory: KafkaMemory, pending: Pending, *, at_ms: int) -> None:
    memory.pending = None
    if memory.real is None:
        memory.pacing = pending.before
    else:
        memory.real = pending.before
    memory.attempted = union(memory.attempted, pending.added)
    memory.failures_count += 1
    doublings = min(memory.failures_count - 1, _DOUBLINGS_MAX)
    memory.retry_ms = at_ms + min(RETRY_MS * 2**doublings, RETRY_MS_MAX)


def _is_carried_out(pending: Pending, observation: Observation) -> bool:
    """Whether the cluster shows all of it, as far as anything of it can be seen; what nobody reports says nothing."""
    if observation.moves is None or not observation.brokers:
        return False
    expected = {
        **{BrokerRole("leader", broker): rate for broker, rate in pending.leader_rates.items()},
        **{BrokerRole("follower", broker): rate for broker, rate in pending.follower_rates.items()},
    }
    before = pending.before.rates()
    cleared = [BrokerRole(role, broker) for role, broker in pending.cleared if broker in observation.brokers]
    if any(role in before and observation.rates_there.get(role) == before[role] for role in cleared):
        return False
    if not expected:
        return len(cleared) > 0
    return (
        _are_rates_there(expected, observation)
        and _contain_added(observation.lists.leader, pending.added.leader)
        and _contain_added(observation.lists.follower, pending.added.follower)
    )


def _are_rates_there(expected: Mapping[BrokerRole, int], observation: Observation) -> bool:
    visible = {role: rate for role, rate in expected.items() if role.broker in observation.brokers}
    return bool(visible) and all(observation.rates_there.get(role) == rate for role, rate in visible.items())


def _contain_added(there: Mapping[str, str], added: Mapping[str, str]) -> bool:
    for topic, text in added.items():
        found = there.get(topic, "").strip()
        if found != "*" and not entries_of(text) <= entries_of(found):
            return False
    return True


def foreign_lists(observation: Observation, memory: KafkaMemory) -> ThrottledLists:
    """Lists on the cluster without what decisions of ours may have left there beside ``memory.pacing.added``."""
    left_over = memory.attempted
    if memory.pending is not None:
        left_over = union(left_over, memory.pending.before.added)
    if memory.real is not None:
        left_over = union(left_over, memory.real.added)
    left = without(observation.lists, left_over)
    return ThrottledLists(
        leader=_foreign_lists(observation.lists.leader, left.leader),
        follower=_foreign_lists(observation.lists.follower, left.follower),
    )


def _foreign_lists(there: Mapping[str, str], left: Mapping[str, str]) -> dict[str, str]:
    """``left`` may name topics that are not there."""
    return {topic: left.get(topic, text) for topic, text in there.items()}


def own_rates(memory: KafkaMemory) -> dict[BrokerRole, int]:
    """Rates that may be on the cluster because of us."""
    before = {} if memory.pending is None else memory.pending.before.rates()
    real = {} if memory.real is None else memory.real.rates()
    return {**before, **real, **memory.pacing.rates()}
