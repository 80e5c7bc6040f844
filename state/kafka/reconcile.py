"""Reconciles a throttle: remembers what is wanted and what may be ours, and compares both with what the cluster shows.

A decision counts as carried out once its result says so, or the cluster shows it. One that was not carried out is not undone:
pacing goes on from our settings that are there. Where nothing moves any more, it goes on from all that may be there, so that it
is taken off. After each failure in a row the next attempt waits twice as long.
"""

from collections.abc import Mapping
from dataclasses import replace

from policies.throttle.lists import (
    EVERYTHING,
    ThrottledLists,
    common,
    contains,
    difference,
    entries_of,
    union,
    without,
)
from policies.throttle.pacing_round import PacingMemory, ThrottleDecision
from state.kafka.memory import Asked, KafkaMemory, ThrottleConfigs
from state.kafka.snapshot import Observation

RETRY_MS = 10_000
"""Wait before the second attempt."""
RETRY_MS_MAX = 600_000
"""Longest wait: ten minutes, so that a repaired executor is noticed soon."""
_DOUBLINGS_MAX = (RETRY_MS_MAX // RETRY_MS).bit_length()
_NOTHING = ThrottleConfigs()


def remember_asked(
    memory: KafkaMemory, decision: ThrottleDecision, after: PacingMemory, *, action_id: str, expires_ms: int
) -> None:
    """Remember a decision until its end is known; ``after`` is the memory that it leads to."""
    attempted = memory.attempted
    memory.attempted = ThrottleConfigs.of(
        union(attempted.lists, decision.add), {**attempted.rates(), **decision.set_rates}
    )
    memory.asked = Asked(action_id, expires_ms, ThrottleConfigs.of(after.added, after.rates()))


def remove_attempted(
    decision: ThrottleDecision, memory: KafkaMemory, after: PacingMemory
) -> ThrottleDecision:
    """The decision, which also takes off what earlier ones may have left and ``after`` does not want."""
    left = difference(memory.attempted.lists, after.added)
    wanted = {*after.rates(), *decision.clear_rates}
    return replace(
        decision,
        remove=union(decision.remove, left),
        clear_rates=(
            *decision.clear_rates,
            *(role for role in memory.attempted.rates() if role not in wanted),
        ),
    )


def apply_result(memory: KafkaMemory, action_id: str, outcome: str, *, at_ms: int) -> None:
    """Take the result of a decision."""
    asked = memory.asked
    if asked is None or asked.action_id != action_id:
        return
    if outcome == "succeeded":
        _confirm(memory, asked)
    else:
        _count_failure(memory, at_ms=at_ms)


def reconcile(memory: KafkaMemory, observation: Observation, *, end_ms: int, is_acting: bool) -> bool | None:
    """Bring the memory in line with what the round shows, before anything is decided.

    Returns whether a decision without a result had an effect; None where there is none, or that is not known.
    """
    had_effect = None
    memory.tells_rates = memory.tells_rates or bool(observation.rates_there)
    memory.tells_lists = memory.tells_lists or bool(observation.lists.leader or observation.lists.follower)
    if memory.asked is not None:
        had_effect = _settle(memory, memory.asked, observation, end_ms=end_ms)
    if memory.asked is None:
        memory.attempted = _may_be_there(memory, observation)
    was_shadow = memory.is_shadow
    memory.is_shadow = was_shadow and not is_acting
    has_failed = memory.asked is None and memory.failures_count > 0
    if not memory.is_shadow and (was_shadow or has_failed):
        memory.pacing = _in_force(memory, observation)
    return had_effect


def _settle(memory: KafkaMemory, asked: Asked, observation: Observation, *, end_ms: int) -> bool | None:
    """Without a result, the cluster shows whether a decision was carried out; what it shows at the expiry is final."""
    if _is_carried_out(memory, asked.wanted, observation):
        _confirm(memory, asked)
        return True
    if end_ms >= asked.expires_ms:
        _count_failure(memory, at_ms=end_ms)
        if _is_untouched(memory.attempted, observation):
            memory.attempted = _NOTHING
            return False
    return None


def _confirm(memory: KafkaMemory, asked: Asked) -> None:
    memory.confirmed, memory.attempted, memory.asked = asked.wanted, _NOTHING, None
    memory.failures_count, memory.retry_ms = 0, 0


def _count_failure(memory: KafkaMemory, *, at_ms: int) -> None:
    memory.asked = None
    memory.failures_count += 1
    doublings = min(memory.failures_count - 1, _DOUBLINGS_MAX)
    memory.retry_ms = at_ms + min(RETRY_MS * 2**doublings, RETRY_MS_MAX)


def _is_carried_out(memory: KafkaMemory, wanted: ThrottleConfigs, observation: Observation) -> bool:
    """Whether the cluster shows all of ``wanted`` that reports can show; a broker that did not report proves nothing."""
    if observation.moves is None or not observation.brokers:
        return False
    rates, there = wanted.rates(), observation.rates_there
    confirmed, attempted = memory.confirmed.rates(), memory.attempted.rates()
    cleared = [
        role
        for role in {**confirmed, **attempted}
        if role not in rates and role.broker in observation.brokers
    ]
    if any(role in there and there[role] in (confirmed.get(role), attempted.get(role)) for role in cleared):
        return False
    if not rates:
        return len(cleared) > 0
    visible = {role: rate for role, rate in rates.items() if role.broker in observation.brokers}
    if not visible or any(there.get(role) != rate for role, rate in visible.items()):
        return False
    added = difference(wanted.lists, memory.confirmed.lists)
    removed = difference(our_configs(memory).lists, wanted.lists)
    lists, moving = observation.lists, frozenset(observation.moves.topics)
    return (
        contains(lists, added)
        and _contain_none(lists.leader, removed.leader, moving)
        and _contain_none(lists.follower, removed.follower, moving)
    )


def _contain_none(there: Mapping[str, str], removed: Mapping[str, str], moving: frozenset[str]) -> bool:
    """Whether the lists have none of the entries ``removed``.

    The list of a topic that does not move is not reported, so only a result can show that it is shorter.
    """
    for topic, text in removed.items():
        found = there.get(topic, "").strip()
        if topic not in moving or (found != EVERYTHING and entries_of(text) & entries_of(found)):
            return False
    return True


def _is_untouched(attempted: ThrottleConfigs, observation: Observation) -> bool:
    """Whether no executor began to carry it out: reports came, and nothing of it is there."""
    if observation.moves is None or not observation.brokers:
        return False
    lists = common(attempted.lists, observation.lists)
    is_there = any(observation.rates_there.get(role) == rate for role, rate in attempted.rates().items())
    return not (lists.leader or lists.follower or is_there)


def _may_be_there(memory: KafkaMemory, observation: Observation) -> ThrottleConfigs:
    """What was attempted, less what is known not to be there, so that it does not grow while nothing is carried out.

    Reports contain the lists of topics that move. Once reports have shown that they contain lists at all, an entry that they
    do not have was not left behind; before that, entries of topics that do not move any more are dropped, because no report
    will show them. Where nothing moves at all, the lists stay, and are taken off.
    """
    attempted = memory.attempted
    if attempted.is_empty or observation.moves is None:
        return attempted
    lists = attempted.lists
    if len(observation.moves):
        moving = _of_topics(lists, frozenset(observation.moves.topics))
        resting = difference(lists, moving)
        lists = union(resting, common(moving, observation.lists)) if memory.tells_lists else moving
    rates = {
        role: rate
        for role, rate in attempted.rates().items()
        if not memory.tells_rates
        or role.broker not in observation.brokers
        or observation.rates_there.get(role) == rate
    }
    return ThrottleConfigs.of(lists, rates)


def _of_topics(lists: ThrottledLists, topics: frozenset[str]) -> ThrottledLists:
    return ThrottledLists(
        leader={topic: text for topic, text in lists.leader.items() if topic in topics},
        follower={topic: text for topic, text in lists.follower.items() if topic in topics},
    )


def _in_force(memory: KafkaMemory, observation: Observation) -> PacingMemory:
    """The memory that pacing goes on from if the cluster does not have what it wants; until something is confirmed, it has not begun."""
    pacing = memory.pacing
    is_over = observation.moves is not None and not len(observation.moves)
    there = our_configs(memory) if is_over else _known_to_be_there(memory, observation)
    if there.is_empty:
        return PacingMemory()
    begun_ms = observation.at_ms if pacing.begun_ms is None else pacing.begun_ms
    return replace(
        pacing,
        begun_ms=None if memory.confirmed.is_empty and not is_over else begun_ms,
        added=there.lists,
        leader_rates=there.leader_rates,
        follower_rates=there.follower_rates,
        is_fallback=pacing.is_fallback and there.rates() == pacing.rates(),
    )


def _known_to_be_there(memory: KafkaMemory, observation: Observation) -> ThrottleConfigs:
    """What was confirmed, and the part of what was attempted that the cluster shows."""
    confirmed, attempted, there = memory.confirmed, memory.attempted, observation.rates_there
    rates = {role: there.get(role, rate) for role, rate in confirmed.rates().items()}
    rates |= {role: rate for role, rate in attempted.rates().items() if there.get(role) == rate}
    return ThrottleConfigs.of(union(confirmed.lists, common(attempted.lists, observation.lists)), rates)


def our_configs(memory: KafkaMemory) -> ThrottleConfigs:
    """Everything that may be on the cluster because of us."""
    confirmed, attempted = memory.confirmed, memory.attempted
    if attempted.is_empty:
        return confirmed
    rates = {**confirmed.rates(), **attempted.rates()}
    return ThrottleConfigs.of(union(confirmed.lists, attempted.lists), rates)


def foreign_lists(observation: Observation, memory: KafkaMemory) -> ThrottledLists:
    """Lists on the cluster without what may be there because of us."""
    left = without(observation.lists, our_configs(memory).lists)
    return ThrottledLists(
        leader=_foreign_lists(observation.lists.leader, left.leader),
        follower=_foreign_lists(observation.lists.follower, left.follower),
    )


def _foreign_lists(there: Mapping[str, str], left: Mapping[str, str]) -> dict[str, str]:
    """What is ``left`` of the lists of topics on the cluster; ``left`` may also name topics that are not there."""
    return {topic: left.get(topic, text) for topic, text in there.items()}
