"""What may be touched (masks, before the policy) and how much may happen (budgets, after it).

A mask only takes candidates away and a budget only removes actions; each says why with a typed reason.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Ints
from state.events import namespace_of
from state.memory import Header, PastAction
from state.settings import GuardSettings, to_ms

MASK_REASONS = ("", "in-flight", "cooldown", "excluded-namespace", "no-samples")
"""Why a bundle is not movable, by code; the empty one means it is."""
OPEN, IN_FLIGHT, COOLDOWN, EXCLUDED_NAMESPACE, NO_SAMPLES = range(len(MASK_REASONS))

HOUR_MS = 3_600_000

HoldReason = Literal["paused", "sole-bundle", "budget"]


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a wanted action does not happen."""

    reason: HoldReason
    detail: str


def mask(
    bundles: Sequence[str],
    samples: Ints,
    actions: dict[str, PastAction],
    guards: GuardSettings,
    *,
    end_ms: int,
) -> NDArray[np.int8]:
    """Code of ``MASK_REASONS`` for each bundle, (m,)."""
    codes = np.where(samples == 0, NO_SAMPLES, OPEN).astype(np.int8)
    if guards.excluded_namespaces:
        prefixes = tuple(f"{namespace}/0x" for namespace in guards.excluded_namespaces)
        codes[np.fromiter((name.startswith(prefixes) for name in bundles), dtype=np.bool_)] = (
            EXCLUDED_NAMESPACE
        )
    if actions and guards.bundle_cooldown_s:
        acted = np.fromiter(map(actions.__contains__, bundles), dtype=np.bool_, count=len(bundles))
        for row in np.flatnonzero(acted).tolist():
            codes[row] = _rest(actions[bundles[row]], guards, end_ms=end_ms) or codes[row]
    return codes


def _rest(action: PastAction, guards: GuardSettings, *, end_ms: int) -> int:
    if action.in_flight and end_ms < action.expires_ms:
        return IN_FLIGHT
    if not action.failed and end_ms < action.decided_ms + to_ms(guards.bundle_cooldown_s):
        return COOLDOWN
    return OPEN


def forget_old(header: Header, guards: GuardSettings, *, end_ms: int) -> None:
    """Drop decisions that mask nothing any more, and unloads older than an hour."""
    header.actions = {
        name: action
        for name, action in header.actions.items()
        if end_ms < action.expires_ms or end_ms < action.decided_ms + to_ms(guards.bundle_cooldown_s)
    }
    header.unloads = [past for past in header.unloads if past.ended_ms > end_ms - HOUR_MS]


def forget_dry_run(header: Header) -> None:
    """The mode becomes ``act``: what the dry-run decided never happened; what was done before it did."""
    header.actions = {name: action for name, action in header.actions.items() if not action.dry_run}
    header.unloads = [past for past in header.unloads if not past.dry_run]


@dataclass(slots=True)
class Budget:
    """Counts the actions of one round and says when it is enough; ``hour_count`` is what the last hour has seen."""

    guards: GuardSettings
    hour_count: int
    round_count: int = 0
    by_broker: Counter[str] = field(default_factory=Counter)
    by_namespace: Counter[str] = field(default_factory=Counter)

    def take(self, bundle: str, *, broker: str, owned_count: int) -> Hold | None:
        """Spend one unload of ``bundle`` from ``broker``, or say why not. Limits of 0 are off."""
        namespace = namespace_of(bundle)
        if self.guards.keep_sole_bundle and owned_count <= 1:
            return Hold("sole-bundle", f"{broker} owns no other bundle")
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
        return None


def hour_budget(header: Header, guards: GuardSettings, *, end_ms: int) -> Budget:
    """The budget at the start of a round that ends at ``end_ms``."""
    spent = sum(past.count for past in header.unloads if past.ended_ms > end_ms - HOUR_MS)
    return Budget(guards=guards, hour_count=spent)
