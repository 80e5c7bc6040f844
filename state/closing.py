"""A round at its close: what both systems know of it, the outputs that are made of it, and what holds all of its actions.

A hold is for one kind of action, because failures of one kind do not hold the other: what keeps splits from working says nothing
about unloads. The policies go on counting meanwhile.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from state.events import Control
from state.guard_settings import JUDGED_ACTIONS_COUNT, NO_ZONES, Approval, GuardSettings, QuietSpan, Zones
from state.ledger import ActionKind
from state.memory import Header, OpenRound
from state.outputs import Configured, Identified, Output, RoundSummary, output, rfc3339
from state.outputs.actions import ROUND_TYPE
from state.overlay import ControlData
from state.settings import ClusterSettings, Mode, RoundSettings

MAX_ACTION_BYTES = 8_000_000
"""Just below the largest record that the action topics on Kafka take, the envelope included."""
HELD_AFTER_ROUNDS = 3
"""Rounds in a row that end in an error before nothing is done any more: a single record may cause one, but not three."""

Outcome = Literal["decided", "warm-up", "no-quorum", "internal-error"]


class MemoryStart(msgspec.Struct, frozen=True):
    """When a controller's memory began: on Pulsar nothing is done in rounds before it. ``UNBOUNDED`` lies before every round."""

    at_ms: int = 0
    is_fresh: bool = False
    """Whether it began with ``--fresh`` after a controller of the same name, whose last moves are not remembered."""


UNBOUNDED = MemoryStart()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a controller is started with."""

    mode: Mode = "dry-run"
    action_ttl_s: float = 180.0
    max_action_bytes: int = MAX_ACTION_BYTES
    """A throttle action with more data is held: the output would refuse the record, and its batch would fail for ever."""
    approval: Approval = "none"
    """Whether unloads and splits wait for a person."""
    proposal_ttl_s: float = 3600.0
    """How long a proposal waits."""
    memory_start: MemoryStart = UNBOUNDED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closing:
    """A closing round; it is handed from step to step, and no step changes it."""

    cluster: str
    number: int
    start_ms: int
    end_ms: int
    expires_ms: int
    """When its actions are no longer to be carried out."""
    open_round: OpenRound
    settings: ClusterSettings
    control: Control | None
    """The control event in force."""
    overlay: ControlData
    """What that event sets for this round."""
    settings_problem: str | None
    """Why the event's settings are not in force; None if they are."""
    mode: Mode
    configured: Configured
    """What the controller is configured with."""
    gap_rounds: int
    """Number of rounds without a summary between the last one with a summary and this one."""
    restarted: bool
    """Whether the cluster was silent for so long that the policies begin anew."""
    max_action_bytes: int
    memory_start: MemoryStart
    proposals_expire_ms: int | None = None
    """When the round's proposals expire; None where unloads and splits need no approval."""

    @property
    def is_dry_run(self) -> bool:
        """Whether actions are only shown."""
        return self.mode == "dry-run"

    @property
    def expires_at(self) -> str:
        """``expires_ms`` in words."""
        return rfc3339(self.expires_ms)

    def action(self, type_: str, subject: str, data: Identified, *, place: int = 0) -> Output:
        """An action of the round; ``place`` is its place in it."""
        return self._output(type_, subject, data, place=place, dry_run=self.is_dry_run)

    def proposal(self, type_: str, subject: str, data: Identified, *, place: int) -> Output:
        """A proposal of the round: no executor carries it out."""
        return self._output(type_, subject, data, place=place, dry_run=True)

    def summary(self, summary_: RoundSummary, *, actions_count: int) -> Output:
        """The summary of the round, behind its actions and proposals."""
        return self._output(ROUND_TYPE, "round", summary_, place=actions_count, dry_run=self.is_dry_run)

    def _output(self, type_: str, subject: str, data: Identified, *, place: int, dry_run: bool) -> Output:
        return output(
            type_=type_,
            subject=subject,
            cluster=self.cluster,
            number=self.number,
            place=place,
            time_ms=self.end_ms,
            data=data,
            dry_run=dry_run,
        )


def obstacle(
    header: Header, rounds: RoundSettings, reporting: Collection[str], *, live_count: int
) -> tuple[Literal["warm-up", "no-quorum"], str] | None:
    """Outcome and reason of a round whose policies do not run."""
    if header.rounds_since_start < rounds.warmup_rounds:
        if rounds.warmup_rounds == 1:
            return "warm-up", "the first round only looks"
        return (
            "warm-up",
            f"round {header.rounds_since_start + 1} of the {rounds.warmup_rounds} that only look",
        )
    if live_count and len(reporting) / live_count < rounds.quorum_ratio:
        share = f"{len(reporting)} of {live_count} live brokers reported"
        return "no-quorum", f"{share}, {rounds.quorum_ratio:g} of them are needed"
    return None


GeneralReason = Literal["paused", "starting", "failing", "two-balancers", "quiet-hours"]
"""Why nothing of a kind is done in a round, whatever the bundle."""
SplitReason = Literal["restricted-split", "proposed"]
"""The same for splits only."""
UnloadReason = Literal[
    "proposed",
    "overlapping",
    "split-first",
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
    {
        "paused",
        "starting",
        "failing",
        "two-balancers",
        "quiet-hours",
        "proposed",
        "split-first",
        "calm-after-change",
        "budget",
    }
)
"""Reasons that say nothing about the action itself: it may happen in a later round."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a wanted action does not happen."""

    reason: HoldReason
    detail: str
    spends: bool = False
    """Whether the policy settles as if it happened, so that its hits are spent: an approved action goes out on the same brokers."""
    limit: str = ""
    """The setting whose budget is spent; empty where none is."""

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
    times_ms = dict(header.ledger.failing_since_ms) if guards.failing_actions_count else {}
    held_ms = header.error_held_since_ms
    if held_ms is not None:
        times_ms = {kind: min(times_ms.get(kind, held_ms), held_ms) for kind in get_args(ActionKind)}
    return {kind: rfc3339(since_ms) for kind, since_ms in times_ms.items()}


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
