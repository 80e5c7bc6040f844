"""Settings of ours that somebody changed while they are needed: seen, told, and answered in the round after.

Entries and rates that are gone leave a move without a throttle, and are set again. A rate that somebody changed is the one
in force from then on: it is named and kept for as long as the rules would keep such a rate, and raised by the same rules,
so that nobody's rate holds a move for ever. Known to undo lists or rates of others: ``kafka-reassign-partitions``
(``--execute`` overwrites, ``--verify`` deletes), Cruise Control, operators that own topics.

A difference counts only while no decision of ours is on its way, only for brokers that reported, and only once reports have
shown that they tell such settings at all. Two rounds in a row, because a sweep may have begun before our last change was there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.throttle.lists import EVERYTHING, ThrottledLists, entries_of, lists_of, text_of
from policies.throttle.moves import Moves
from policies.throttle.pacing_plan import ThrottleDecision
from policies.throttle.progress import Watch
from policies.throttle.rates import BrokerRole
from state.kafka.memory import KafkaMemory
from state.kafka.snapshot import Observation

_SURE_AFTER_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What is not as it was decided."""

    lost: ThrottledLists = field(default_factory=ThrottledLists)
    """Entries of ours that are needed and gone."""
    rates: Mapping[BrokerRole, int | None] = field(default_factory=dict)
    """What is there in place of a rate of ours; None: nothing."""

    @property
    def is_rate_lost(self) -> bool:
        """Whether a rate of ours is gone."""
        return None in self.rates.values()

    @property
    def is_empty(self) -> bool:
        """Whether all is as decided."""
        return not (self.lost.leader or self.lost.follower or self.rates)


NO_DRIFT = Drift()


def observe_drift(memory: KafkaMemory, observation: Observation) -> tuple[Drift, Drift]:
    """What is not as decided, and the part of it that is sure. Takes rates that are in force into ``memory``."""
    drift = _find_drift(memory, observation)
    memory.drift_rounds = 0 if drift.is_empty else min(memory.drift_rounds + 1, _SURE_AFTER_ROUNDS)
    if memory.drift_rounds < _SURE_AFTER_ROUNDS:
        return drift, NO_DRIFT
    changed = {role: rate for role, rate in drift.rates.items() if rate is not None}
    if changed:
        _take_over(memory, changed)
    return drift, drift


def changed_rates(memory: KafkaMemory, drift: Drift) -> dict[str, int | None]:
    """Every rate that is not as it was decided, by role as in ``leader:101``, in order."""
    found: dict[str, int | None] = dict(memory.changed_rates)
    found |= {str(role): rate for role, rate in drift.rates.items()}
    return dict(sorted(found.items()))


def forget_changed_rates(memory: KafkaMemory, decision: ThrottleDecision) -> None:
    """Rates that are decided anew, or taken off, are nobody else's any more."""
    kept = {str(role): rate for role, rate in decision.set_rates.items()}
    memory.changed_rates = {
        name: rate for name, rate in memory.changed_rates.items() if kept.get(name) == rate
    }


def _find_drift(memory: KafkaMemory, observation: Observation) -> Drift:
    pacing = memory.pacing
    is_settled = memory.pending is None and memory.real is None and memory.failures_count == 0
    if not is_settled or not pacing.is_active or observation.moves is None:
        return NO_DRIFT
    there = {
        role: observation.rates_there.get(role)
        for role in pacing.rates()
        if role.broker in observation.brokers
    }
    lost = _lost_entries(pacing.added, observation.lists, observation.moves)
    memory.tells_rates = memory.tells_rates or bool(observation.rates_there)
    memory.tells_lists = memory.tells_lists or bool(observation.lists.leader or observation.lists.follower)
    return Drift(
        lost=lost if memory.tells_lists else ThrottledLists(),
        rates={role: rate for role, rate in there.items() if rate != pacing.rates()[role]}
        if memory.tells_rates
        else {},
    )


def _lost_entries(ours: ThrottledLists, there: ThrottledLists, moves: Moves) -> ThrottledLists:
    """Nearly always nothing, which is found without taking 100,000 entries apart."""
    if _contain_all(ours.leader, there.leader) and _contain_all(ours.follower, there.follower):
        return ThrottledLists()
    needed = lists_of(moves)
    return ThrottledLists(
        leader=_lost_of(ours.leader, there.leader, needed.leader),
        follower=_lost_of(ours.follower, there.follower, needed.follower),
    )


def _contain_all(ours: Mapping[str, str], there: Mapping[str, str]) -> bool:
    return all(there.get(topic, "").strip() in (text, EVERYTHING) for topic, text in ours.items())


def _lost_of(ours: Mapping[str, str], there: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, str]:
    """A topic of which nothing is needed is not reported, so nothing of it is lost."""
    found = {}
    for topic, text in ours.items():
        now = there.get(topic, "").strip()
        if now not in (text, EVERYTHING) and topic in needed:
            gone = (entries_of(text) - entries_of(now)) & entries_of(needed[topic])
            if gone:
                found[topic] = text_of(gone)
    return found


def _take_over(memory: KafkaMemory, rates: Mapping[BrokerRole, int]) -> None:
    """What is there is what is in force; progress at other rates says nothing of it."""
    in_force = {**memory.pacing.rates(), **rates}
    memory.changed_rates = {**memory.changed_rates, **{str(role): rate for role, rate in rates.items()}}
    memory.pacing = replace(
        memory.pacing,
        leader_rates={role.broker: rate for role, rate in in_force.items() if role.role == "leader"},
        follower_rates={role.broker: rate for role, rate in in_force.items() if role.role == "follower"},
        watch=Watch(),
    )
