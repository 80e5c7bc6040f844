"""Why a wanted action of a round does not happen: for the whole round, for a broker, or for one unload; the policies go on counting.

A policy wants unloads, a person approves them, and a drain empties its broker. What holds the whole round comes first, then what
else is against the unload; the rules (``policies.shedding.rules``) say where it may go and, last, whether a budget is left for
it: it is spent as soon as nothing holds the unload. Masks are not asked here: they are painted before (``state.pulsar.masks``).

While brokers are restarted one after another, a move onto the one that has just come back is undone by the next restart. So for
some rounds after brokers come or go, bundles only leave overloaded brokers. A change is seen in the snapshots: a broker that
reports and did not in the round before it, or the other way round; a broker whose report is missing once counts as well. The
first round of a cluster, and the first after a long silence, shows no change: there is nothing to compare it with, and the
warm-up waits already. Another balancer at work holds the round, because two that do not know of each other undo each other's
moves.

While approval is required, an unload or split is proposed unless a standing approval covers it. A proposal spends nothing. While
it is open, nothing more is proposed for its source and destination: loads stay as they are, so the next rounds would propose one
bundle after another, until a broker's whole traffic is proposed. Proposals of one round are one plan, and may share their
brokers.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from policies.shedding.registry import AnyPolicy
from policies.shedding.rules import Forbidden, Rules
from policies.shedding.view import NOBODY, RoundView
from state.closing import Closing, Hold, failing_hold, quiet_hold
from state.events import namespace_of
from state.facts import SPLIT_ALGORITHM, Facts
from state.guard_settings import NO_ZONES, StandingApproval, Zones
from state.ledger import ActionKind
from state.memory import Header, MembersChange, ProposalRecord
from state.outputs import OtherBalancers, Split, Unload, rfc3339
from state.pulsar.memory import Fleet
from state.pulsar.view import Eligible
from state.settings import GuardSettings, Mode, PulsarSettings
from state.summary import join_names

Refusal = tuple[str, str]
"""Outcome and detail of a bundle that stays where it is."""


class Move(NamedTuple):
    """A bundle that is to leave its owner, by rows of the view; the destination is ``NOBODY`` where Pulsar chooses it."""

    row: int
    source: int
    destination: int


def name_of(view: RoundView, broker: int) -> str | None:
    """The name of a broker row; None for ``NOBODY``."""
    return None if broker == NOBODY else view.brokers.names[broker]


def share_of(view: RoundView, move: Move) -> float:
    """The bundle's share of its owner's traffic, by messages or bytes, whichever is more."""
    bundles, brokers = view.bundles, view.brokers
    return max(
        share_ratio(float(bundles.messages_per_s[move.row]), float(brokers.messages_per_s[move.source])),
        share_ratio(float(bundles.bytes_per_s[move.row]), float(brokers.bytes_per_s[move.source])),
    )


def share_ratio(part: float, whole: float) -> float:
    """A bundle's share of its broker's traffic, at most 1: averages lag behind, so the bundle may seem to have more than all of it."""
    return 1.0 if part >= whole > 0 else part / whole if whole > 0 else float(part > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """Why no action of a kind happens in a round; None where it may."""

    unload: Hold | None
    split: Hold | None


def holds_of(
    header: Header,
    guards: GuardSettings,
    *,
    is_paused: bool,
    mode: Mode,
    end_ms: int,
    zones: Zones = NO_ZONES,
) -> Holds:
    """The holds of a round, after the judgement of the actions before it."""

    def find(kind: ActionKind) -> Hold | None:
        if is_paused:
            return Hold("paused", "the cluster is paused")
        return (
            failing_hold(header, guards, kind)
            or (_hold_beside_balancer(header.facts, guards) if mode == "act" else None)
            or quiet_hold(guards, f"{kind}s", end_ms=end_ms, zones=zones)
        )

    return Holds(unload=find("unload"), split=find("split") or _hold_restricted_splits(header.facts))


def _hold_beside_balancer(facts: Facts | None, guards: GuardSettings) -> Hold | None:
    """Why nothing is done beside another balancer; a broker that could not be asked holds nothing."""
    found = balancer_at_work(facts) if guards.hold_beside_other_balancer else None
    return None if found is None else Hold("two-balancers", found)


def _hold_restricted_splits(facts: Facts | None) -> Hold | None:
    """Why Pulsar would refuse every split; a broker that could not be asked holds nothing."""
    if facts is None or not facts.restricted_brokers:
        return None
    return Hold(
        "restricted-split",
        f"{join_names(facts.restricted_brokers)} would refuse it: add {SPLIT_ALGORITHM} to "
        "supportedNamespaceBundleSplitAlgorithms at every broker",
    )


@dataclass(frozen=True, slots=True)
class Calm:
    """Why a broker gives no bundle away for now, unless it is overloaded."""

    hold: Hold | None = None
    overloaded_ratio: float = math.inf

    def hold_of(self, usage_ratio: float) -> Hold | None:
        """The hold of a source with this usage, if there is one."""
        return self.hold if usage_ratio < self.overloaded_ratio else None


def watch_members(
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


def find_calm(header: Header, pulsar: PulsarSettings, *, number: int) -> Calm:
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


def balancer_at_work(facts: Facts | None) -> str | None:
    """Which of Pulsar's own balancers is on, and how to switch it off; None where none is known to be."""
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


ActionT = TypeVar("ActionT", Unload, Split)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What decides, in a round with required approval, which actions are proposed."""

    rules: Mapping[str, StandingApproval]
    zones: Zones
    end_ms: int
    expires_ms: int
    """When its proposals expire."""
    waiting: dict[str, str]
    """By broker, the id of an open proposal that it takes part in."""
    acting: set[str] = field(default_factory=set)
    """Brokers of the actions that were approved and go out in this round."""

    @staticmethod
    def of(
        rules: Mapping[str, StandingApproval],
        zones: Zones,
        open_: Collection[ProposalRecord],
        *,
        end_ms: int,
        expires_ms: int,
    ) -> "Asking":
        """The state at the beginning of a round."""
        waiting = {
            broker: each.id
            for each in open_
            for broker in (each.source, each.destination)
            if broker is not None
        }
        return Asking(rules=rules, zones=zones, end_ms=end_ms, expires_ms=expires_ms, waiting=waiting)

    def needs(self, kind: str, bundle: str, *, messages_per_s: float, bytes_per_s: float) -> bool:
        """Whether an action of ``kind`` (``splits``, ``unloads``) waits for a person."""
        return not any(
            rule.approves(
                kind,
                namespace_of(bundle),
                messages_per_s=messages_per_s,
                bytes_per_s=bytes_per_s,
                end_ms=self.end_ms,
                zones=self.zones,
            )
            for rule in self.rules.values()
        )

    def hold(self, *brokers: str | None) -> Hold | None:
        """Why nothing more is proposed for these brokers, if so."""
        for broker in brokers:
            if broker in self.acting:
                detail = f"an approved action of {broker} goes out in this round"
                return Hold(
                    "proposed", detail, spends=self.acting.issuperset(each for each in brokers if each)
                )
        for broker in brokers:
            if broker is not None and broker in self.waiting:
                return Hold("proposed", f"proposal {self.waiting[broker]} of {broker} waits for approval")
        return None

    def propose(self, action: ActionT) -> ActionT:
        """The same action as a proposal."""
        return msgspec.structs.replace(
            action, dry_run=True, proposal=True, expires_at=rfc3339(self.expires_ms)
        )


PROPOSED = Hold("proposed", "it waits for approval")
"""The hold of an action that is proposed in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What every action of a round shares."""

    cluster: str
    number: int
    end_ms: int
    expires_ms: int
    policy: AnyPolicy
    dry_run: bool
    holds: Holds
    calm: Calm
    min_benefit_points: float = 0.0
    """``min_unload_benefit_points``."""
    asking: Asking | None = None
    """Set if actions have to be approved; None if they go out at once."""


def circumstances_of(closing: Closing, header: Header) -> Circumstances:
    """The circumstances of a round, after the judgement of the actions before it."""
    pulsar = closing.settings.pulsar
    return Circumstances(
        cluster=closing.cluster,
        number=closing.number,
        end_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        policy=pulsar.policy,
        dry_run=closing.is_dry_run,
        holds=holds_of(
            header,
            pulsar.guards,
            is_paused=closing.is_paused,
            mode=closing.mode,
            end_ms=closing.end_ms,
            zones=closing.settings.zones,
        ),
        calm=find_calm(header, pulsar, number=closing.number),
        min_benefit_points=0.0 if pulsar.policy.plans_rounds else pulsar.guards.min_unload_benefit_points,
        asking=_asking(closing, header),
    )


def _asking(closing: Closing, header: Header) -> Asking | None:
    """The ``Asking`` of a round whose actions have to be approved; None where they go out at once."""
    if closing.proposals_expire_ms is None:
        return None
    return Asking.of(
        closing.settings.pulsar.approval.standing,
        closing.settings.zones,
        header.proposals,
        end_ms=closing.end_ms,
        expires_ms=closing.proposals_expire_ms,
    )


def hold_unload(
    move: Move,
    table: Eligible,
    circumstances: Circumstances,
    rules: Rules,
    *,
    split_rows: Collection[int] = (),
    is_proposed: bool = False,
) -> Hold | None:
    """Why an unload does not happen; if it may, ``rules`` count it, and it is None. Bundles of ``split_rows`` are split instead."""
    view, asking = table.view, circumstances.asking
    hold = (
        circumstances.holds.unload
        or _overlapping(table, view.bundles.names[move.row])
        or _split_instead(split_rows, move.row, circumstances.policy)
        or circumstances.calm.hold_of(float(view.brokers.usage_ratio[move.source]))
        or _too_little(view, circumstances.min_benefit_points, move)
        or _hold_of(rules.bars(move.row, move.destination))
        or (
            asking.hold(view.brokers.names[move.source], name_of(view, move.destination))
            if asking is not None and is_proposed
            else None
        )
        or _hold_of(rules.keeps(move.row))
    )
    if hold is None:
        rules.take(move.row, move.destination)
    return hold


def hold_leaving(row: int, circumstances: Circumstances, rules: Rules) -> Hold | None:
    """Why a bundle does not leave a drained broker, wherever it would go; ``row`` is that of the rules."""
    return circumstances.holds.unload or _hold_of(rules.keeps(row))


def _hold_of(forbidden: Forbidden | None) -> Hold | None:
    return None if forbidden is None else Hold(forbidden.rule, forbidden.detail)


def _split_instead(split_rows: Collection[int], row: int, policy: AnyPolicy) -> Hold | None:
    if row not in split_rows:
        return None
    if policy.plans_rounds:
        return Hold("split-instead", "it is split in this round, and its parts may move in a later one")
    return Hold("split-instead", "it is too big for any other broker and is split in this round")


def _overlapping(table: Eligible, bundle: str) -> Hold | None:
    if bundle not in table.overlapping:
        return None
    return Hold("overlapping", "its range overlaps others of its namespace, see the finding")


def _too_little(view: RoundView, min_benefit_points: float, move: Move) -> Hold | None:
    """Why a move is not worth the reconnects: it lowers usage too little."""
    if not min_benefit_points:
        return None
    points = 100.0 * float(view.brokers.usage_ratio[move.source]) * share_of(view, move)
    if points >= min_benefit_points:
        return None
    return Hold(
        "too-little-benefit",
        f"it would lower {view.brokers.names[move.source]} by {points:.3g} points, min_unload_benefit_points is "
        f"{min_benefit_points:g}",
    )
