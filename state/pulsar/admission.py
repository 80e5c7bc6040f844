"""The one admission of unloads: what holds one, what it spends, what it leaves at the brokers, and the action that it becomes.

A policy wants unloads, a person approves them, and a drain empties its broker; all of them come here, one after the other. What holds
the whole round comes first, then what else is against the unload; the rules (``policies.shedding.rules``) say where it may go and,
last, whether a budget is left for it: it is spent as soon as nothing holds the unload. Masks are not asked here: they are painted
before (``state.pulsar.masks``).

While approval is required, an unload or split is proposed unless a standing approval covers it. A proposal spends nothing. While it is
open, nothing more is proposed for its source and destination: loads stay as they are, so the next rounds would propose one bundle after
another, until a broker's whole traffic is proposed. Proposals of one round are one plan, and may share their brokers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from policies.columns import Codes
from policies.shedding.rules import Forbidden, Rules
from policies.shedding.view import NOBODY, RoundView, Traffic
from policies.wording import digits
from state.closing import Hold
from state.events import namespace_of
from state.guard_settings import StandingApproval, Zones
from state.outputs import Split, Unload, rfc3339
from state.pulsar import masks
from state.pulsar.holds import find_calm, holds_of
from state.pulsar.loads import Loads, mean_points
from state.pulsar.overlaps import members_of
from state.pulsar.view import PolicyView, RoundContext

Refusal = tuple[str, str]
"""Outcome and detail of a bundle that stays where it is."""
Evidence = dict[str, float | int | str]
"""The numbers that an action was decided on."""


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


def bundle_traffic(messages_per_s: float, bytes_per_s: float) -> Evidence:
    """The evidence of every unload about its bundle."""
    return {"bundle_messages_per_s": float(messages_per_s), "bundle_bytes_per_s": float(bytes_per_s)}


def traffic_in(evidence: Evidence) -> Traffic:
    """Load of the bundle of an unload with this evidence."""
    return Traffic(float(evidence["bundle_messages_per_s"]), float(evidence["bundle_bytes_per_s"]))


ActionT = TypeVar("ActionT", Unload, Split)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGate:
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
    def from_context(context: RoundContext) -> "ApprovalGate | None":
        """The state at the beginning of a round; None where its actions need no approval."""
        closing = context.closing
        if closing.proposals_expire_ms is None:
            return None
        return ApprovalGate(
            rules=context.pulsar.approval.standing,
            zones=closing.settings.zones,
            end_ms=closing.end_ms,
            expires_ms=closing.proposals_expire_ms,
            waiting={
                broker: proposal.id
                for proposal in context.header.proposals
                for broker in (proposal.source, proposal.destination)
                if broker is not None
            },
        )

    def needs(self, kind: str, view: RoundView, row: int) -> bool:
        """Whether an action of ``kind`` (``splits``, ``unloads``) on a bundle row waits for a person."""
        bundles = view.bundles
        return not any(
            rule.approves(
                kind,
                namespace_of(bundles.names[row]),
                messages_per_s=float(bundles.messages_per_s[row]),
                bytes_per_s=float(bundles.bytes_per_s[row]),
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
                    "proposed", detail, spends=self.acting.issuperset(broker for broker in brokers if broker)
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


class After:
    """Traffic of each broker that reported, after the round's actions so far."""

    def __init__(self, loads: Loads) -> None:
        rates = zip(loads.messages_per_s.tolist(), loads.bytes_per_s.tolist(), strict=True)
        self._loads: dict[str, tuple[float, float]] = dict(zip(loads.names, rates, strict=True))

    def move(self, source: str, destination: str | None, traffic: Traffic) -> dict[str, dict[str, float]]:
        """Move a bundle with this traffic; returns the load of both brokers after that, in the form that actions have."""
        expected = {"source": self._add(source, -traffic.messages_per_s, -traffic.bytes_per_s)}
        if destination is not None:
            expected["destination"] = self._add(destination, *traffic)
        return expected

    def _add(self, broker: str, messages_per_s: float, bytes_per_s: float) -> dict[str, float]:
        messages, volume = self._loads[broker]
        messages, volume = max(0.0, messages + messages_per_s), max(0.0, volume + bytes_per_s)
        self._loads[broker] = (messages, volume)
        return {"messages_per_s": messages, "bytes_per_s": volume}


class Admission:
    """Lets the actions of a round happen one after the other; ``rules`` and ``after`` count what moves."""

    def __init__(self, context: RoundContext, table: PolicyView, rules: Rules) -> None:
        self.context, self.table, self.rules = context, table, rules
        self.after = After(table.loads)
        self.holds, self.calm = holds_of(context), find_calm(context)
        self.asking = ApprovalGate.from_context(context)
        """None if actions go out at once."""
        plans_rounds = context.pulsar.policy.plans_rounds
        self._min_benefit_points = 0.0 if plans_rounds else context.guards.min_unload_benefit_points
        self._overlapping = members_of(context.advanced.overlaps)
        self._compared: dict[int, Evidence] = {}

    @cached_property
    def split_codes(self) -> Codes:
        """Codes of ``SPLIT_MASK_REASONS`` for a split of each of the fleet's leading rows; painted when first needed."""
        return masks.split_mask(self.context)

    def needs_approval(self, kind: str, row: int) -> bool:
        """Whether an action of ``kind`` (``splits``, ``unloads``) on a bundle row waits for a person."""
        return self.asking is not None and self.asking.needs(kind, self.table.view, row)

    def hold(
        self,
        move: Move,
        *,
        split_rows: Collection[int] = (),
        is_proposed: bool = False,
        rules: Rules | None = None,
    ) -> Hold | None:
        """Why an unload does not happen; if it may, ``rules`` count it, and it is None. Bundles of ``split_rows`` are split instead."""
        view, asking, rules = self.table.view, self.asking, rules or self.rules
        source, destination = view.brokers.names[move.source], name_of(view, move.destination)
        hold = (
            self.holds.unload
            or self._hold_overlapping(view.bundles.names[move.row])
            or (self._split_instead() if move.row in split_rows else None)
            or self.calm.hold_of(float(view.brokers.usage_ratio[move.source]))
            or self._hold_too_little(move, source)
            or _hold_forbidden(rules.bars(move.row, move.destination))
            or (asking.hold(source, destination) if asking is not None and is_proposed else None)
            or _hold_forbidden(rules.keeps(move.row))
        )
        if hold is None:
            rules.take(move.row, move.destination)
        return hold

    def hold_leaving(self, row: int) -> Hold | None:
        """Why a bundle does not leave a drained broker, wherever it would go; ``row`` is that of the rules."""
        return self.holds.unload or _hold_forbidden(self.rules.keeps(row))

    def _hold_overlapping(self, bundle: str) -> Hold | None:
        if bundle not in self._overlapping:
            return None
        return Hold("overlapping", "its range overlaps others of its namespace, see the finding")

    def _split_instead(self) -> Hold:
        if self.context.pulsar.policy.plans_rounds:
            return Hold("split-instead", "it is split, and its parts may move in a later round")
        return Hold("split-instead", "it is too big for any other broker, and is split")

    def _hold_too_little(self, move: Move, source: str) -> Hold | None:
        """Why a move is not worth the reconnects: it lowers usage too little."""
        least, view = self._min_benefit_points, self.table.view
        if not least:
            return None
        points = 100.0 * float(view.brokers.usage_ratio[move.source]) * share_of(view, move)
        if points >= least:
            return None
        detail = f"it would lower {source} by {digits(points, 3)} points, min_unload_benefit_points is {digits(least)}"
        return Hold("too-little-benefit", detail)

    def compared(self, broker: int) -> Evidence:
        """Evidence about the brokers that a broker row is compared with, those of its group."""
        group = int(self.table.broker_groups[broker])
        if group not in self._compared:
            alike = self.table.broker_groups == group
            self._compared[group] = {
                "brokers_count": int(alike.sum()),
                "mean_usage_points": mean_points(100.0 * self.table.view.brokers.usage_ratio[alike]),
            }
        return self._compared[group]

    def unload(
        self,
        bundle: str,
        *,
        source: str,
        destination: str | None,
        policy: str,
        trigger: str,
        reason: str,
        evidence: Evidence,
        proposal_id: str | msgspec.UnsetType = msgspec.UNSET,
        after: After | None = None,
    ) -> Unload:
        """The action of an unload that nothing holds; ``after`` counts what it moves."""
        closing = self.context.closing
        return Unload(
            cluster=closing.cluster,
            round=closing.number,
            policy=policy,
            trigger=trigger,
            reason=reason,
            evidence=evidence,
            expected=(after or self.after).move(source, destination, traffic_in(evidence)),
            precondition={"owner": source, "range": bundle.rpartition("/")[2]},
            expires_at=closing.expires_at,
            dry_run=closing.is_dry_run,
            bundle=bundle,
            source_broker=source,
            destination_broker=destination,
            proposal_id=proposal_id,
        )


def _hold_forbidden(forbidden: Forbidden | None) -> Hold | None:
    return None if forbidden is None else Hold(forbidden.rule, forbidden.detail, limit=forbidden.limit)
