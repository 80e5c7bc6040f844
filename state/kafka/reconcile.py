"""Reconciles a throttle: remembers what is wanted and what may be ours, and compares both with what the cluster shows.

A decision counts as carried out once its result says so, or the cluster shows it. One that was not carried out is not undone:
pacing goes on from our settings that are there. Where nothing moves any more, it goes on from all that may be there, so that it
is taken off. After each failure in a row the next attempt waits twice as long.

Others may change settings of ours while they are needed: ``kafka-reassign-partitions`` (``--execute`` overwrites, ``--verify``
deletes), Cruise Control, and operators that own topics do. Entries and rates that are gone leave a move without a throttle, and
are set again. A rate that somebody changed is the one in force from then on: it is reported, kept for as long as the rules would
keep such a rate, and raised by the same rules, so that no rate stalls a move for ever. The settings on the cluster are compared
with those that were confirmed. A difference counts only while no decision of ours is on its way, only for brokers that reported,
and only once reports have shown that they contain such settings at all. It has to show in two rounds in a row, because a sweep
may have begun before our last change was there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.throttle.copies import Copies
from policies.throttle.lists import (
    EVERYTHING,
    ThrottledLists,
    common,
    contains,
    difference,
    entries_of,
    lists_of,
    union,
)
from policies.throttle.pacing_round import (
    PacingMemory,
    ThrottleDecision,
    are_in_force,
)
from policies.throttle.progress import Watch
from policies.throttle.rates import BrokerRole
from state.kafka.memory import Asked, KafkaMemory, ThrottleConfigs
from state.kafka.snapshot import Observation

_SURE_AFTER_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Settings of ours that are not as they were decided."""

    lost: ThrottledLists = field(default_factory=ThrottledLists)
    """Entries of ours that are needed and gone."""
    rates: Mapping[BrokerRole, int | None] = field(default_factory=dict)
    """The rate that is there in place of ours; None: there is none."""

    @property
    def is_rate_lost(self) -> bool:
        """Whether a rate of ours is gone."""
        return None in self.rates.values()

    @property
    def is_empty(self) -> bool:
        """Whether all settings are as decided."""
        return self.lost.is_empty and not self.rates


NO_DRIFT = Drift()


def observe_drift(memory: KafkaMemory, observation: Observation) -> tuple[Drift, Drift]:
    """The drift that the round shows, and the part of it that is certain. Takes rates that are in force into ``memory``."""
    is_settled = memory.asked is None and not memory.is_shadow and memory.failures_count == 0
    if not is_settled or not memory.pacing.is_active or observation.copies is None:
        memory.drift_rounds = 0
        return NO_DRIFT, NO_DRIFT
    drift = _find_drift(memory, observation, observation.copies)
    memory.drift_rounds = 0 if drift.is_empty else min(memory.drift_rounds + 1, _SURE_AFTER_ROUNDS)
    if 0 < memory.drift_rounds < _SURE_AFTER_ROUNDS:
        return drift, NO_DRIFT
    _take_over(memory, observation, drift)
    return drift, drift


def _find_drift(memory: KafkaMemory, observation: Observation, copies: Copies) -> Drift:
    confirmed, there = memory.confirmed, observation.rates_there
    return Drift(
        lost=_lost_entries(confirmed.lists, observation.lists, copies)
        if memory.tells_lists
        else ThrottledLists(),
        rates={
            role: there.get(role)
            for role, rate in _reported(memory, observation).items()
            if there.get(role) != rate
        },
    )


def _reported(memory: KafkaMemory, observation: Observation) -> dict[BrokerRole, int]:
    """Confirmed rates of the brokers that reported; none as long as reports have not shown any rates."""
    if not memory.tells_rates:
        return {}
    return {role: rate for role, rate in memory.confirmed.rates.items() if role.broker in observation.brokers}


def _lost_entries(ours: ThrottledLists, there: ThrottledLists, copies: Copies) -> ThrottledLists:
    """Needed entries of ours that are gone. A topic that needs no entry is not reported, so none of its entries counts as lost."""
    gone = difference(ours, there)
    return gone if gone.is_empty else common(gone, lists_of(copies))


def _take_over(memory: KafkaMemory, observation: Observation, drift: Drift) -> None:
    """Take the rates on the cluster as those in force. Progress at the rates before says nothing about them, so it is dropped."""
    changed = {role: rate for role, rate in drift.rates.items() if rate is not None}
    before = memory.pacing.rates
    in_force = {**before, **_reported(memory, observation), **changed}
    if in_force != before:
        memory.pacing = replace(memory.pacing, rates=in_force, watch=Watch())


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
    memory.attempted = ThrottleConfigs(
        union(attempted.lists, decision.add), {**attempted.rates, **decision.set_rates}
    )
    memory.asked = Asked(action_id, expires_ms, ThrottleConfigs(after.added, dict(after.rates)))


def remove_attempted(
    decision: ThrottleDecision, memory: KafkaMemory, after: PacingMemory
) -> ThrottleDecision:
    """The decision, which also takes off what earlier ones may have left and ``after`` does not want."""
    left = difference(memory.attempted.lists, after.added)
    wanted = {*after.rates, *decision.clear_rates}
    return replace(
        decision,
        remove=union(decision.remove, left),
        clear_rates=(
            *decision.clear_rates,
            *(role for role in memory.attempted.rates if role not in wanted),
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
    memory.tells_lists = memory.tells_lists or not observation.lists.is_empty
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
    """Take a decision as carried out. What was observed before says nothing of new rates, so progress is observed anew."""
    if not are_in_force(asked.wanted.rates, memory.confirmed.rates):
        memory.pacing = replace(memory.pacing, watch=Watch())
    memory.confirmed, memory.attempted, memory.asked = asked.wanted, _NOTHING, None
    memory.failures_count, memory.retry_ms = 0, 0


def _count_failure(memory: KafkaMemory, *, at_ms: int) -> None:
    memory.asked = None
    memory.failures_count += 1
    doublings = min(memory.failures_count - 1, _DOUBLINGS_MAX)
    memory.retry_ms = at_ms + min(RETRY_MS * 2**doublings, RETRY_MS_MAX)


def _is_carried_out(memory: KafkaMemory, wanted: ThrottleConfigs, observation: Observation) -> bool:
    """Whether the cluster shows all of ``wanted`` that reports can show; a broker that did not report proves nothing."""
    if observation.copies is None or not observation.brokers:
        return False
    rates, there = wanted.rates, observation.rates_there
    confirmed, attempted = memory.confirmed.rates, memory.attempted.rates
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
    lists, moving = observation.lists, frozenset(observation.copies.topics)
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
        present = there.get(topic, "").strip()
        if topic not in moving or (present != EVERYTHING and entries_of(text) & entries_of(present)):
            return False
    return True


def _is_untouched(attempted: ThrottleConfigs, observation: Observation) -> bool:
    """Whether no executor began to carry it out: reports came, and nothing of it is there."""
    if observation.copies is None or not observation.brokers:
        return False
    lists = common(attempted.lists, observation.lists)
    is_there = any(observation.rates_there.get(role) == rate for role, rate in attempted.rates.items())
    return lists.is_empty and not is_there


def _may_be_there(memory: KafkaMemory, observation: Observation) -> ThrottleConfigs:
    """What was attempted, less what is known not to be there, so that it does not grow while nothing is carried out.

    Reports contain the lists of topics that move. Once reports have shown that they contain lists at all, an entry that they
    do not have was not left behind; before that, entries of topics that do not move any more are dropped, because no report
    will show them. Where nothing moves at all, the lists stay, and are taken off.
    """
    attempted = memory.attempted
    if attempted.is_empty or observation.copies is None:
        return attempted
    lists = attempted.lists
    if len(observation.copies):
        moving = lists.of_topics(frozenset(observation.copies.topics))
        resting = difference(lists, moving)
        lists = union(resting, common(moving, observation.lists)) if memory.tells_lists else moving
    rates = {
        role: rate
        for role, rate in attempted.rates.items()
        if not memory.tells_rates
        or role.broker not in observation.brokers
        or observation.rates_there.get(role) == rate
    }
    return ThrottleConfigs(lists, rates)


def _in_force(memory: KafkaMemory, observation: Observation) -> PacingMemory:
    """The memory that pacing goes on from if the cluster does not have what it wants; until something is confirmed, it has not begun."""
    pacing = memory.pacing
    is_over = observation.copies is not None and not len(observation.copies)
    there = our_configs(memory) if is_over else _known_to_be_there(memory, observation)
    if there.is_empty:
        return PacingMemory()
    begun_ms = observation.at_ms if pacing.begun_ms is None else pacing.begun_ms
    return replace(
        pacing,
        begun_ms=None if memory.confirmed.is_empty and not is_over else begun_ms,
        added=there.lists,
        rates=there.rates,
        is_fallback=pacing.is_fallback and there.rates == pacing.rates,
    )


def _known_to_be_there(memory: KafkaMemory, observation: Observation) -> ThrottleConfigs:
    """What was confirmed, and the part of what was attempted that the cluster shows."""
    confirmed, attempted, there = memory.confirmed, memory.attempted, observation.rates_there
    rates = {role: there.get(role, rate) for role, rate in confirmed.rates.items()}
    rates |= {role: rate for role, rate in attempted.rates.items() if there.get(role) == rate}
    return ThrottleConfigs(union(confirmed.lists, common(attempted.lists, observation.lists)), rates)


def our_configs(memory: KafkaMemory) -> ThrottleConfigs:
    """Everything that may be on the cluster because of us."""
    confirmed, attempted = memory.confirmed, memory.attempted
    if attempted.is_empty:
        return confirmed
    rates = {**confirmed.rates, **attempted.rates}
    return ThrottleConfigs(union(confirmed.lists, attempted.lists), rates)


def rates_in_force(memory: KafkaMemory) -> dict[BrokerRole, int]:
    """Rates that hold copies back; those that a dry-run pretends, and new ones of a decision on its way, do not."""
    if memory.is_shadow:
        return {}
    return dict(memory.pacing.rates if memory.asked is None else memory.confirmed.rates)


def foreign_lists(observation: Observation, memory: KafkaMemory) -> ThrottledLists:
    """Lists on the cluster without what may be there because of us."""
    return difference(observation.lists, our_configs(memory).lists)
