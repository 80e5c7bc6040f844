"""Throttle settings of ours that somebody changed while they are needed: they are reported, and answered in the next round.

Entries and rates that are gone leave a move without a throttle, and are set again. A rate that somebody changed is the one
in force from then on: it is reported, kept for as long as the rules would keep such a rate, and raised by the same rules, so
that no rate stalls a move for ever. These are known to undo lists or rates of others: ``kafka-reassign-partitions``
(``--execute`` overwrites, ``--verify`` deletes), Cruise Control, operators that own topics.

The settings on the cluster are compared with those that were confirmed. A difference counts only while no decision of ours is
on its way, only for brokers that reported, and only once reports have shown that they contain such settings at all. It has to
show in two rounds in a row, because a sweep may have begun before our last change was there.
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
        return not (self.lost.leader or self.lost.follower or self.rates)


NO_DRIFT = Drift()


def observe_drift(memory: KafkaMemory, observation: Observation) -> tuple[Drift, Drift]:
    """The drift that the round shows, and the part of it that is certain. Takes rates that are in force into ``memory``."""
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
    """Confirmed rates of the brokers that reported; none as long as reports have not shown any rates."""
    if not memory.tells_rates:
        return {}
    return {
        role: rate for role, rate in memory.confirmed.rates().items() if role.broker in observation.brokers
    }


def _lost_entries(ours: ThrottledLists, there: ThrottledLists, moves: Moves) -> ThrottledLists:
    """Needed entries of ours that are gone. There are nearly never any, which is found without taking 100,000 entries apart."""
    if contains(there, ours):
        return ThrottledLists()
    needed = lists_of(moves)
    return ThrottledLists(
        leader=_lost_of(ours.leader, there.leader, needed.leader),
        follower=_lost_of(ours.follower, there.follower, needed.follower),
    )


def _lost_of(ours: Mapping[str, str], there: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, str]:
    """Lost entries by topic. A topic that needs no entry is not reported, so none of its entries counts as lost."""
    found = {}
    for topic, text in ours.items():
        now = there.get(topic, "").strip()
        if now not in (text, EVERYTHING) and topic in needed:
            gone = (entries_of(text) - entries_of(now)) & entries_of(needed[topic])
            if gone:
                found[topic] = text_of(gone)
    return found


def _take_over(memory: KafkaMemory, observation: Observation, drift: Drift) -> None:
    """Take the rates on the cluster as those in force. Progress at the rates before says nothing about them, so it is dropped."""
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
