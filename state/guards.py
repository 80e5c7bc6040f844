"""What may be touched (masks, before the policy) and how much may happen (budgets, after it).

A mask only takes candidates away and a budget only removes actions; each says why with a typed reason.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from policies.columns import Codes, Ints
from state.events import namespace_of
from state.leaving import Leaving
from state.memory import Fleet, Header
from state.past import PastAction
from state.settings import GuardSettings, PulsarSettings, QuietSpan, to_ms

MASK_REASONS = (
    "",
    "in-flight",
    "cooldown",
    "excluded-namespace",
    "no-samples",
    "ineffective",
    "other-group",
    "unsettled-broker",
    "own-topics",
)
"""Why a bundle is not movable, by code; the empty one means it is."""
OPEN, IN_FLIGHT, COOLDOWN, EXCLUDED_NAMESPACE, NO_SAMPLES, INEFFECTIVE, OTHER_GROUP, UNSETTLED, OWN_TOPICS = (
    range(len(MASK_REASONS))
)


HOUR_MS = 3_600_000

GeneralReason = Literal["paused", "failing", "two-balancers", "quiet-hours"]
"""Why nothing of a kind is done in a round, whatever the bundle."""
SplitReason = Literal["restricted-split"]
"""The same for splits only."""
UnloadReason = Literal[
    "split-instead",
    "calm-after-change",
    "too-little-benefit",
    "anti-affinity",
    "sole-bundle",
    "budget",
]
"""Why one wanted unload is not done."""
HoldReason = GeneralReason | SplitReason | UnloadReason
_PASSING: frozenset[HoldReason] = frozenset(
    {"paused", "failing", "two-balancers", "quiet-hours", "calm-after-change", "budget"}
)
"""Reasons that say nothing of the action itself: it may happen in a later round."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a wanted action does not happen."""

    reason: HoldReason
    detail: str

    @property
    def passes(self) -> bool:
        """Whether the same action may happen in a later round."""
        return self.reason in _PASSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """Why no action of a kind happens in a round; None where it may."""

    unload: Hold | None
    split: Hold | None


def mask(fleet: Fleet, count: int, header: Header, pulsar: PulsarSettings, *, end_ms: int) -> Codes:
    """Code of ``MASK_REASONS`` for an unload of each of the fleet's leading ``count`` bundles, (count,).

    A bundle rests after an unload of its own, while a split of it is in flight, and after an action without effect.
    """
    own = _Past(header.actions, to_ms(pulsar.guards.bundle_cooldown_s), end_ms)
    other = _Past(header.splits, to_ms(pulsar.split.bundle_cooldown_s), end_ms)
    resting = _resting(header, pulsar.guards, end_ms=end_ms)
    return _masked(fleet, fleet.samples[:count], pulsar.guards, own, other, resting)


def split_mask(fleet: Fleet, count: int, header: Header, pulsar: PulsarSettings, *, end_ms: int) -> Codes:
    """The same for a split: a bundle rests after a split of its own, and while an unload of it is in flight."""
    own = _Past(header.splits, to_ms(pulsar.split.bundle_cooldown_s), end_ms)
    other = _Past(header.actions, to_ms(pulsar.guards.bundle_cooldown_s), end_ms)
    resting = _resting(header, pulsar.guards, end_ms=end_ms)
    return _masked(fleet, fleet.split_samples[:count], pulsar.guards, own, other, resting)


def _resting(header: Header, guards: GuardSettings, *, end_ms: int) -> set[str]:
    """Bundles left alone because an action of theirs had no effect."""
    rest_ms = to_ms(guards.ineffective_rest_s)
    return {name for name, found in header.ineffective.items() if end_ms < found.judged_ms + rest_ms}


@dataclass(frozen=True, slots=True)
class _Past:
    """Decisions of one kind by bundle; a cooldown of 0 switches them off."""

    actions: dict[str, PastAction]
    cooldown_ms: int
    end_ms: int

    def names(self) -> set[str]:
        return set(self.actions) if self.cooldown_ms else set()

    def is_in_flight(self, name: str) -> bool:
        action = self.actions.get(name)
        return (
            bool(self.cooldown_ms)
            and action is not None
            and action.in_flight
            and self.end_ms < action.expires_ms
        )

    def is_cooling(self, name: str) -> bool:
        action = self.actions.get(name)
        return action is not None and not action.failed and self.end_ms < action.decided_ms + self.cooldown_ms


def _masked(
    fleet: Fleet, samples: Ints, guards: GuardSettings, own: _Past, other: _Past, resting: set[str]
) -> Codes:
    codes = np.where(samples == 0, NO_SAMPLES, OPEN).astype(np.int8)
    if guards.excluded_namespaces:
        excluded = np.array([name in guards.excluded_namespaces for name in fleet.namespaces], dtype=np.bool_)
        codes[excluded[fleet.namespace[: len(samples)]]] = EXCLUDED_NAMESPACE
    names = own.names() | other.names() | resting
    if names:
        bundles = fleet.bundles[: len(samples)]
        acted = np.fromiter(map(names.__contains__, bundles), dtype=np.bool_, count=len(bundles))
        for row in np.flatnonzero(acted).tolist():
            if own.is_in_flight(bundles[row]) or other.is_in_flight(bundles[row]):
                codes[row] = IN_FLIGHT
            elif bundles[row] in resting:
                codes[row] = INEFFECTIVE
            elif own.is_cooling(bundles[row]):
                codes[row] = COOLDOWN
    return codes


def quiet(guards: GuardSettings, kind: str, *, end_ms: int) -> Hold | None:
    """Why actions of a kind (``splits``, ``unloads``) rest at this time of day, if they do."""
    for span in map(QuietSpan.parse, guards.quiet_hours):
        if span.holds(kind, end_ms):
            return Hold("quiet-hours", f"quiet_hours {span.text}")
    return None


def forget_old(header: Header, pulsar: PulsarSettings, *, end_ms: int) -> None:
    """Drop decisions that mask nothing any more, children that never came, and unloads older than an hour."""
    resting = _resting(header, pulsar.guards, end_ms=end_ms)
    header.ineffective = {name: found for name, found in header.ineffective.items() if name in resting}
    header.actions = _still_masking(header.actions, to_ms(pulsar.guards.bundle_cooldown_s), end_ms=end_ms)
    header.splits = _still_masking(header.splits, to_ms(pulsar.split.bundle_cooldown_s), end_ms=end_ms)
    header.inheritances = {
        name: split for name, split in header.inheritances.items() if end_ms < split.until_ms
    }
    header.unloads = [past for past in header.unloads if past.ended_ms > end_ms - HOUR_MS]


def _still_masking(actions: dict[str, PastAction], cooldown_ms: int, *, end_ms: int) -> dict[str, PastAction]:
    return {
        name: action
        for name, action in actions.items()
        if end_ms < action.expires_ms or end_ms < action.decided_ms + cooldown_ms
    }


def forget_dry_run(header: Header) -> None:
    """The mode becomes ``act``: what the dry-run decided never happened; what was done before it did."""
    header.actions = {name: action for name, action in header.actions.items() if not action.dry_run}
    header.splits = {name: action for name, action in header.splits.items() if not action.dry_run}
    header.unloads = [past for past in header.unloads if not past.dry_run]
    header.leaving = {name: each for name, each in header.leaving.items() if not each.dry_run}


@dataclass(slots=True)
class Budget:
    """Counts the actions of one round and says when it is enough; ``hour_count`` is what the last hour has seen."""

    guards: GuardSettings
    hour_count: int
    round_count: int = 0
    by_broker: Counter[str] = field(default_factory=Counter)
    by_namespace: Counter[str] = field(default_factory=Counter)
    leaving: Leaving = field(default_factory=dict)
    """Bundles that were told to leave their broker before, and in this round; ``take`` adds to it."""

    def take(self, bundle: str, *, broker: str, owned_count: int) -> Hold | None:
        """Spend one unload of ``bundle`` from ``broker``, or say why not. Limits of 0 are off."""
        namespace = namespace_of(bundle)
        others = self.leaving.get(broker, set()) - {bundle}
        if self.guards.keep_sole_bundle and owned_count - len(others) <= 1:
            more = f" that stays: {len(others)} were told to leave" if others else ""
            return Hold("sole-bundle", f"{broker} owns no other bundle{more}")
        for name, spent in (
            ("max_unloads_per_round_count", self.round_count),
            ("max_unloads_per_hour_count", self.hour_count),
            ("max_unloads_per_broker_count", self.by_broker[broker]),
            ("max_unloads_per_namespace_count", self.by_namespace[namespace]),
        ):
            limit = getattr(self.guards, name)
            if limit and spent >= limit:
                return Hold("budget", f"{name} {limit} is spent")
        self.round_count += 1
        self.hour_count += 1
        self.by_broker[broker] += 1
        self.by_namespace[namespace] += 1
        self.leaving.setdefault(broker, set()).add(bundle)
        return None


def hour_budget(header: Header, guards: GuardSettings, leaving: Leaving) -> Budget:
    """The budget at the start of a round; ``forget_old`` has dropped what is older than an hour."""
    return Budget(guards=guards, hour_count=sum(past.count for past in header.unloads), leaving=leaving)
