"""What holds every action of a kind in a round, or every bundle of a broker; the policies go on counting.

While brokers are restarted one after another, a move onto the one that has just come back is undone by the next restart. So for some
rounds after brokers come or go, bundles only leave overloaded brokers. A change is seen in the snapshots: a broker that reports and did
not in the round before it, or the other way round; a broker whose report is missing once counts as well. The first round of a cluster,
and the first after a long silence, shows no change: there is nothing to compare it with, and the warm-up waits already.

Another balancer at work holds the round, too, because two that do not know of each other undo each other's moves.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from state.closing import Closing, Hold, MemoryStart, failing_hold, quiet_hold
from state.facts import SPLIT_ALGORITHM, Facts
from state.ledger import ActionKind
from state.memory import Header, MembersChange
from state.outputs import OtherBalancers, rfc3339
from state.pulsar.memory import Fleet
from state.pulsar.view import RoundContext
from state.settings import PulsarSettings, to_ms
from state.summary import join_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """Why no action of a kind happens in a round; None where it may."""

    unload: Hold | None
    split: Hold | None


def holds_of(context: RoundContext) -> Holds:
    """The holds of a round, after the judgement of the actions before it."""
    closing, guards, facts = context.closing, context.guards, context.facts
    balancer = balancer_at_work(facts) if closing.mode == "act" and guards.hold_with_other_balancer else None

    def find(kind: ActionKind) -> Hold | None:
        if closing.overlay.paused:
            return Hold("paused", "the cluster is paused")
        return (
            starting_hold(context)
            or failing_hold(context.header, guards, kind)
            or (None if balancer is None else Hold("two-balancers", balancer))
            or quiet_hold(guards, f"{kind}s", end_ms=closing.end_ms, zones=closing.settings.zones)
        )

    return Holds(unload=find("unload"), split=find("split") or _hold_restricted_splits(facts))


def starting_hold(context: RoundContext) -> Hold | None:
    """Why a controller without memory does nothing yet; None once it may act."""
    start = context.closing.memory_start
    until_ms = acts_after_ms(start, context.pulsar)
    if context.closing.end_ms > until_ms:
        return None
    return Hold(
        "starting",
        f"the memory of earlier rounds began at {rfc3339(start.at_ms)}: the first round that acts ends after {rfc3339(until_ms)}",
    )


def acts_after_ms(start: MemoryStart, pulsar: PulsarSettings) -> int:
    """The first round that acts ends after this time.

    Rounds that ended before its memory began are over: their actions would come too late. After ``--fresh`` it does not know which
    bundles its predecessor has just moved, so it waits until the cooldown of each is over.
    """
    guards, split = pulsar.guards, pulsar.split
    cooldown_s = max(guards.bundle_cooldown_s, split.bundle_cooldown_s if split.enabled else 0)
    return start.at_ms + (to_ms(cooldown_s) if start.is_fresh else 0)


def balancer_at_work(facts: Facts | None) -> str | None:
    """Which of Pulsar's own balancers is on, and how to switch it off; None where none is known to be.

    A broker that could not be asked is not known to balance.
    """
    if facts is None:
        return None
    for brokers, what, key in (
        (facts.shedding_brokers, "shedding", "loadBalancerSheddingEnabled"),
        (facts.splitting_brokers, "splitting", "loadBalancerAutoBundleSplitEnabled"),
    ):
        if brokers:
            return f"Pulsar's own {what} is on at {join_names(brokers)}: set {key}=false at every broker"
    return None


def other_balancers(facts: Facts | None) -> OtherBalancers | None:
    """The other balancers for the summary; None where no collector has looked."""
    if facts is None:
        return None
    return OtherBalancers(
        shedding_brokers=facts.shedding_brokers,
        splitting_brokers=facts.splitting_brokers,
        unknown_brokers=facts.unknown_brokers,
    )


def _hold_restricted_splits(facts: Facts | None) -> Hold | None:
    """Why Pulsar would refuse every split; a broker that could not be asked holds nothing."""
    if facts is None or not facts.restricted_brokers:
        return None
    return Hold(
        "restricted-split",
        f"{join_names(facts.restricted_brokers)} would refuse it: add {SPLIT_ALGORITHM} to "
        "supportedNamespaceBundleSplitAlgorithms at every broker",
    )


def watch_members(header: Header, before: Fleet, reporting: Collection[str], closing: Closing) -> None:
    """Remember the change that a round's snapshot shows against the one before it; ``before`` is the fleet before the round.

    It is no change when brokers that are under maintenance or drained come or go.
    """
    if closing.restarted or not before.brokers:
        header.members_change = None
        return
    rounds = before.broker_last_ms // header.length_ms
    last = np.flatnonzero(rounds == rounds.max()).tolist()
    known = {before.brokers[row] for row in last}
    joined, left = (
        sorted(set(these) - set(those) - closing.overlay.apart)
        for these, those in ((reporting, known), (known, reporting))
    )
    if joined or left:
        header.members_change = MembersChange(closing.number, join_names(joined), join_names(left))


@dataclass(frozen=True, slots=True)
class Calm:
    """Why a broker gives no bundle away for now, unless it is overloaded."""

    hold: Hold | None = None
    overloaded_ratio: float = math.inf

    def hold_of(self, usage_ratio: float) -> Hold | None:
        """The hold of a source with this usage, if there is one."""
        return self.hold if usage_ratio < self.overloaded_ratio else None


def find_calm(context: RoundContext) -> Calm:
    """Whether a round is calm because brokers came or went lately."""
    change = context.header.members_change
    until = 0 if change is None else change.round + context.guards.calm_after_change_rounds
    if change is None or context.number >= until:
        return Calm()
    what = " and ".join(
        f"{brokers} {verb}" for brokers, verb in ((change.joined, "joined"), (change.left, "left")) if brokers
    )
    return Calm(
        Hold("calm-after-change", f"{what} in round {change.round}: nothing moves before round {until}"),
        context.pulsar.overloaded_ratio,
    )
