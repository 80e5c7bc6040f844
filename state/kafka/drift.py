"""Settings of ours that somebody changed while they are needed: seen, told, and answered in the round after.

Entries and rates that are gone leave a move without a throttle, and are set again. A rate that somebody changed is the one
in force from then on: it is named and kept for as long as the rules would keep such a rate, and raised by the same rules,
so that nobody's rate holds a move for ever. Known to undo lists or rates of others: ``kafka-reassign-partitions``
(``--execute`` overwrites, ``--verify`` deletes), Cruise Control, operators that own topics.

What is there is compared with what was confirmed. A difference counts only while no decision of ours is on its way, only for
brokers that reported, and only once reports have shown that they tell such settings at all. Two rounds in a row, because a
sweep may have begun before our last change was there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.throttle.lists import EVERYTHING, ThrottledLists, contains, entries_of, lists_of, text_of
from policies.throttle.moves import Moves
from policies.throttle.progress import Watch
from policies.throttle.rates import BrokerRole
from state.kafka.memory import KafkaMemory, ThrottleConfigs
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
    is_settled = memory.asked is None and not memory.is_shadow and memory.failures_count == 0
    if not is_settled or not memory.pacing.is_active or observation.moves is None:
        memory.drift_rounds = 0
        return NO_DRIFT, NO_DRIFT
    drift = _find_drift(memory, observation, observation.moves)
    memory.drift_rounds = 0 if drift.is_empty else min(memory.drift_rounds + 1, _SURE_AFTER_ROUNDS)
    if 0 < memory.drift_rounds < _SURE_AFTER_ROUNDS:
        return drift, NO_DRIFT
    _take_over(memory, observation, drift)
    return drift, drift


def _find_drift(memory: KafkaMemory, observation: Observation, moves: Moves) -> Drift:
    confirmed, there = memory.confirmed, observation.rates_there
    return Drift(
        lost=_lost_entries(confirmed.lists, observation.lists, moves)
        if memory.tells_lists
        else ThrottledLists(),
        rates={
            role: there.get(role)
            for role, rate in _reported(memory, observation).items()
            if there.get(role) != rate
        },
    )


def _reported(memory: KafkaMemory, observation: Observation) -> dict[BrokerRole, int]:
    """Rates that were confirmed, of brokers whose reports tell rates."""
    if not memory.tells_rates:
        return {}
    return {
        role: rate for role, rate in memory.confirmed.rates().items() if role.broker in observation.brokers
    }


def _lost_entries(ours: ThrottledLists, there: ThrottledLists, moves: Moves) -> ThrottledLists:
    """Nearly always nothing, which is found without taking 100,000 entries apart."""
    if contains(there, ours):
        return ThrottledLists()
    needed = lists_of(moves)
    return ThrottledLists(
        leader=_lost_of(ours.leader, there.leader, needed.leader),
        follower=_lost_of(ours.follower, there.follower, needed.follower),
    )


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


def _take_over(memory: KafkaMemory, observation: Observation, drift: Drift) -> None:
    """What is there is what is in force; progress at other rates says nothing of it."""
    changed = {role: rate for role, rate in drift.rates.items() if rate is not None}
    before = memory.pacing.rates()
    in_force = {**before, **_reported(memory, observation), **changed}
    if in_force != before:
        configs = ThrottleConfigs.of(memory.pacing.added, in_force)
        memory.pacing = replace(
            memory.pacing,
            leader_rates=configs.leader_rates,
            follower_rates=configs.follower_rates,
            watch=Watch(),
        )
