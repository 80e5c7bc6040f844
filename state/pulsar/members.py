"""Brokers that come and go: for some rounds after such a change, balancing only moves bundles off overloaded brokers.

While brokers are restarted one after another, a move onto the one that has just come back is undone by the next restart.
A change is seen in the snapshots: a broker that reports and did not in the round before it, or the other way round; a
broker whose report is missing once counts as well. The first round of a cluster, and the first after a long silence,
shows no change: there is nothing to compare it with, and the warm-up waits already.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from state.engine.holds import Hold
from state.engine.memory import Header, MembersChange
from state.engine.summary import join_names
from state.pulsar.memory import Fleet
from state.settings import PulsarSettings


@dataclass(frozen=True, slots=True)
class Calm:
    """Why a broker gives no bundle away for now, unless it is overloaded."""

    hold: Hold | None = None
    overloaded_ratio: float = math.inf

    def hold_of(self, usage_ratio: float) -> Hold | None:
        """The hold of a source with this usage, if there is one."""
        return self.hold if usage_ratio < self.overloaded_ratio else None


def watch(
    header: Header,
    before: Fleet,
    reporting: Collection[str],
    *,
    number: int,
    restarted: bool,
    apart: Collection[str] = (),
) -> None:
    """Remember the change that a round's snapshot shows against the one before it; ``before`` is the fleet before the round.

    It is no change when brokers under maintenance, ``apart``, come or go.
    """
    if restarted or not before.brokers:
        header.members_change = None
        return
    rounds = before.broker_last_ms // header.length_ms
    last = np.flatnonzero(rounds == rounds.max()).tolist()
    known = {before.brokers[row] for row in last}
    joined, left = (
        sorted(set(these) - set(those) - set(apart))
        for these, those in ((reporting, known), (known, reporting))
    )
    if joined or left:
        header.members_change = MembersChange(number, join_names(joined), join_names(left))


def calm(header: Header, pulsar: PulsarSettings, *, number: int) -> Calm:
    """Whether a round is calm because brokers came or went lately."""
    change, rounds_count = header.members_change, pulsar.guards.calm_after_change_rounds
    until = 0 if change is None else change.round + rounds_count
    if change is None or number >= until:
        return Calm()
    what = " and ".join(
        f"{brokers} {verb}" for brokers, verb in ((change.joined, "joined"), (change.left, "left")) if brokers
    )
    return Calm(
        Hold("calm-after-change", f"{what} in round {change.round}: nothing moves before round {until}"),
        pulsar.overloaded_ratio,
    )
