"""Why a wanted action does not happen: for the whole round, or for one unload.

A hold on a whole round is for one kind of action, because failures of one kind do not hold the other: what keeps splits from
working says nothing about unloads. The policies go on counting meanwhile.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from state.engine.bulkhead import HELD_AFTER_ROUNDS
from state.engine.ledger import ActionKind
from state.engine.memory import Header
from state.outputs import rfc3339
from state.quiet_hours import NO_ZONES, QuietSpan, Zones
from state.settings import JUDGED_ACTIONS_COUNT, GuardSettings

GeneralReason = Literal["paused", "failing", "two-balancers", "quiet-hours"]
"""Why nothing of a kind is done in a round, whatever the bundle."""
SplitReason = Literal["restricted-split", "proposed"]
"""The same for splits only."""
UnloadReason = Literal[
    "proposed",
    "overlapping",
    "split-instead",
    "calm-after-change",
    "too-little-benefit",
    "other-group",
    "no-destination",
    "anti-affinity",
    "sole-bundle",
    "budget",
]
"""Why one wanted unload is not done."""
ThrottleReason = Literal["off", "retrying", "too-large"]
"""Why a throttle decision is not carried out, beside ``paused`` and ``failing``."""
HoldReason = GeneralReason | SplitReason | UnloadReason | ThrottleReason
_PASSING: frozenset[HoldReason] = frozenset(
    {"paused", "failing", "two-balancers", "quiet-hours", "proposed", "calm-after-change", "budget"}
)
"""Reasons that say nothing about the action itself: it may happen in a later round."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a wanted action does not happen."""

    reason: HoldReason
    detail: str
    spends: bool = False
    """Whether the policy settles as if it happened, so that its hits are spent: an approved action goes out on the same brokers."""

    @property
    def passes(self) -> bool:
        """Whether the same action may happen in a later round."""
        return self.reason in _PASSING


def failing_hold(header: Header, guards: GuardSettings, kind: ActionKind) -> Hold | None:
    """Why no action of a kind is done until a person resumes the cluster; None if nothing holds them."""
    if header.error_held_since_ms is not None:
        return error_hold(header)
    if not guards.failing_actions_count or kind not in header.ledger.failing_since_ms:
        return None
    return Hold(
        "failing",
        f"{guards.failing_actions_count} of the last {JUDGED_ACTIONS_COUNT} actions failed or had no effect: look at their "
        "results, mend the cause, then `trimtab resume`",
    )


def error_hold(header: Header) -> Hold | None:
    """Why nothing is done after rounds that ended in an error, until a person resumes the cluster; None if nothing holds it."""
    if header.error_held_since_ms is None:
        return None
    return Hold(
        "failing",
        f"{HELD_AFTER_ROUNDS} rounds in a row ended in an internal error ({header.error_place}): report it, run a "
        "version that mends it, look at what is decided, then `trimtab resume`",
    )


def failing_since(header: Header, guards: GuardSettings) -> dict[ActionKind, str]:
    """By kind, the time since which no action of it is done until a person resumes, in words."""
    found = dict(header.ledger.failing_since_ms) if guards.failing_actions_count else {}
    held_ms = header.error_held_since_ms
    if held_ms is not None:
        found = {kind: min(found.get(kind, held_ms), held_ms) for kind in get_args(ActionKind)}
    return {kind: rfc3339(since_ms) for kind, since_ms in found.items()}


def resume(header: Header, resumed_ms: int) -> None:
    """A person says that the cause is mended: failures and errors up to then hold nothing any more."""
    header.ledger.resume(resumed_ms)
    if header.error_held_since_ms is not None and header.error_held_since_ms <= resumed_ms:
        header.error_held_since_ms, header.error_place = None, ""


def quiet_hold(guards: GuardSettings, kind: str, *, end_ms: int, zones: Zones = NO_ZONES) -> Hold | None:
    """Why actions of a kind (``splits``, ``unloads``) rest at this time of the week; None if they do not."""
    for span in map(QuietSpan.parse, guards.quiet_hours):
        if span.holds(kind, end_ms, zones):
            return Hold("quiet-hours", f"quiet_hours {span.text}")
    return None
