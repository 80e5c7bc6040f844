"""What a cluster remembers of its own decisions: who rests, what is in flight, and what became of it.

Values of the header (``state.memory``); encoded as arrays, in the order of their fields (``state.layouts``).
"""

from typing import Literal

import msgspec

ActionKind = Literal["unload", "split"]
VerdictOutcome = Literal["good", "failed", "ineffective"]


class PastAction(msgspec.Struct, array_like=True):
    """A decision about one bundle: while it rests or is in flight, the bundle is masked."""

    action_id: str
    decided_ms: int
    """End of the round that decided it."""
    expires_ms: int
    dry_run: bool
    in_flight: bool = True
    failed: bool = False


class PastSplit(msgspec.Struct, frozen=True, array_like=True):
    """What a decided split leaves to each child, so that the children do not begin blind."""

    until_ms: int
    """Later they are no children of it."""
    children: list[tuple[str, float, float]]
    """Full name, and its share of the parent's message rate and of its throughput; none where topics were not known."""


class Departure(msgspec.Struct, frozen=True, array_like=True):
    """A decided unload of a bundle that its broker may still list."""

    action_id: str
    source: str
    """Broker it is to leave."""
    until_ms: int
    """Later nothing will be heard of the action."""
    dry_run: bool


class MembersChange(msgspec.Struct, frozen=True, array_like=True):
    """The newest change of the brokers that report."""

    round: int
    """The first that shows it."""
    joined: str
    """The first of the brokers that came, for a sentence; empty for none."""
    left: str
    """The same of those that went."""


class PastUnloads(msgspec.Struct, frozen=True, array_like=True):
    """How many unloads a round decided."""

    ended_ms: int
    count: int
    dry_run: bool


class Trial(msgspec.Struct, array_like=True):
    """A decided action, no dry-run, until it is known whether it had an effect."""

    kind: ActionKind
    bundle: str
    source: str
    """Owner of the bundle when it was decided."""
    destination: str | None
    children: list[str]
    """Bundles a split makes; none for an unload."""
    decided_ms: int
    """End of the round that decided it."""
    until_ms: int
    """No result is expected later."""
    succeeded_ms: int | None = None
    """Time of the result that said so; None before it: nothing to judge yet."""
    rounds_count: int = 0
    """Rounds since then that saw no effect."""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """How an action ended."""

    action_id: str
    kind: ActionKind
    outcome: VerdictOutcome
    judged_ms: int


class Ineffective(msgspec.Struct, frozen=True, array_like=True):
    """An action that was said to have succeeded and changed nothing; its bundle is left alone for a while."""

    kind: ActionKind
    broker: str
    """Owner of the bundle, before and after."""
    judged_ms: int
    rounds_count: int
    """Rounds that saw no effect."""
