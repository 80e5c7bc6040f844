"""The contract of a shedding policy: what it is given, what it gives back, and what it declares about itself.

A policy is pure: ``plan`` looks at a ``RoundView`` and returns a ``Proposal``; ``settle`` returns the policy's next memory
once it is known which of the unloads happen. One policy is one module; ``policies.shedding.registry`` lists them.

In a plan every examined row has exactly one outcome, and so has every bundle that was tried.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from policies.columns import Bools, Code, Codes, Findings, Floats, Ints
from policies.shedding.view import RoundView

FIRED = "fired"
"""The outcome of a row that wants unloads; every policy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeText:
    """One outcome in words. All texts are clauses without a full stop; they may have Markdown for code."""

    meaning: str
    advice: str = ""
    """What a person can do; empty: nothing."""
    remedy: str = ""
    """What would have to change for its bundles to move, about "its" broker or fleet; empty for ``fired``."""
    example: str = ""
    """How the summary shows it, where it adds numbers."""


COMMON: Mapping[str, OutcomeText] = {
    FIRED: OutcomeText(meaning="it sheds; the outcomes of its bundles say what"),
    "hit-count": OutcomeText(
        meaning="it stands out, but not for long enough yet",
        advice="wait",
        remedy="its broker has to stand out for more rounds in a row",
        example="hit-count 3/8",
    ),
    "below-threshold": OutcomeText(
        meaning="its usage is close enough to the rest",
        remedy="its broker has to be further above the others than the threshold of the policy",
    ),
    "below-min-traffic": OutcomeText(
        meaning="too little would move to be worth a reconnect",
        advice="lower `min_unload_…` on small clusters",
        remedy="more traffic has to need a move, or min_unload_messages_per_s and min_unload_bytes_per_s have to be lower",
    ),
    "sole-bundle": OutcomeText(
        meaning="the broker lists only one bundle",
        advice="allow splits: `[pulsar.split]`",
        remedy="its broker has to have another bundle, or keep_sole_bundle has to be off, or splits on",
    ),
    "sole-broker": OutcomeText(
        meaning="there is no other broker in the snapshot", remedy="another broker has to report"
    ),
    "cluster-idle": OutcomeText(meaning="no load at all", remedy="the cluster has to have load"),
}
"""Outcomes that several policies have; a policy may word one differently."""


class BundleOutcome(Code):
    """What became of a bundle that was tried. ``MASKED``: not movable; the caller that masked it knows why."""

    ACTED = 0
    NEED_MET = 1
    TOO_BIG = 2
    NO_TRAFFIC = 3
    MASKED = 4
    NO_DESTINATION = 5
    BUNDLE_LIMIT = 6
    BUDGET = 7
    ROUND_FULL = 8
    TOO_LITTLE_BENEFIT = 9
    LAST_PUBLISHED = 10


BUNDLE_OUTCOMES = BundleOutcome.names()


ADMITTED, REFUSED, POSTPONED = range(3)
"""What became of a wanted unload: it happens; it is refused for a reason of its own; or it has to wait because nothing, or
nothing more, may happen now."""

SettingsT = TypeVar("SettingsT")
MemoryT = TypeVar("MemoryT")
PendingT = TypeVar("PendingT")

Evidence = Mapping[str, float | int | str]
Sentence = Callable[[str, str | None, Evidence], str]
"""Says what was found, from the broker that sheds, the broker it is compared with (None: with none) and the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examined(Findings):
    """What the policy looked at, in its own order: pairs of brokers, single brokers, or the whole fleet; k rows."""

    high: Ints
    """Broker row that would shed, NOBODY for a row about the whole fleet, (k,)."""
    low: Ints
    """Broker row it is compared with, NOBODY where it is compared with none, (k,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SheddingPlan:
    """The unloads that a policy wants, and the outcome of everything it looked at."""

    examined: Examined
    unload_rows: Ints
    """Bundle rows to unload, in the policy's order, (u,)."""
    unload_destinations: Ints
    """Broker row each goes to; NOBODY where the placement chooses, (u,)."""
    unload_examined: Ints
    """Row of ``examined`` each comes from, (u,)."""
    unload_swap_group: Ints
    """The swap that each belongs to, as a bundle row, (u,): the bundle for which a swap makes room, else the unloaded bundle itself.
    Unloads of one group follow one another, and happen together or not at all."""
    unload_evidence: Mapping[str, Floats] = field(default_factory=dict)
    """Numbers of each unload beside those of its row of ``examined``, (u,) each, units in their names."""
    tried_rows: Ints
    """Bundle rows that were tried, in the order they were tried, (t,)."""
    tried_outcomes: Codes
    """Index into ``BUNDLE_OUTCOMES``, (t,)."""
    tried_examined: Ints
    """Row of ``examined`` each was tried for, (t,)."""
    too_heavy: frozenset[int] = frozenset()
    """Bundle rows that keep their brokers, which give others, farther above the rest than the policy aims for, whatever else they give."""
    barred: Mapping[int, int] = field(default_factory=dict)
    """By bundle row that would help its broker most and that rules keep there, the broker row that it would go to."""

    def waits(self, fates: Codes) -> Bools:
        """Whether a row of ``examined`` wants unloads, none of which happens and some of which may in a later round, (k,)."""
        happens, waits = (
            np.isin(np.arange(len(self.examined)), self.unload_examined[fates == fate])
            for fate in (ADMITTED, POSTPONED)
        )
        return waits & ~happens


@dataclass(frozen=True, slots=True, eq=False)
class Proposal(Generic[PendingT]):
    """A plan, and what its policy needs in order to settle it."""

    plan: SheddingPlan
    pending: PendingT


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMemory:
    """The memory of a policy that remembers nothing."""


def keep_pending(proposal: Proposal[MemoryT], fates: Codes) -> MemoryT:  # noqa: ARG001  the same for every fate
    """``settle`` of a policy whose memory does not depend on what happens: what is pending is its next memory."""
    return proposal.pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """How far something stands out, and what that is judged by."""

    difference_points: float
    threshold_points: float
    hit_count: float | None = None
    """None for a policy that counts no hits."""
    needed_hit_count: float | None = None


def stand_by(difference: str, threshold: str, *, counts_hits: bool = False) -> Callable[[Evidence], Stand]:
    """Reads the stand of a row from these two numbers of its evidence, and from its hits where the policy counts them."""

    def stand_of(evidence: Evidence) -> Stand:
        hits = (
            (float(evidence["hit_count"]), float(evidence["needed_hit_count"]))
            if counts_hits
            else (None, None)
        )
        return Stand(
            difference_points=float(evidence[difference]),
            threshold_points=float(evidence[threshold]),
            hit_count=hits[0],
            needed_hit_count=hits[1],
        )

    return stand_of


def count_hits(evidence: Evidence) -> str:
    """The outcome of a row that does not stand out for long enough, with its hits."""
    return f"hit-count {evidence['hit_count']}/{evidence['needed_hit_count']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The number that a policy shows on ``/metrics``."""

    meaning: str
    """What the number is; for a policy without one, the reason, as a clause that begins with "which"."""
    stand_of: Callable[[Evidence], Stand] | None = None
    """Makes the number from the evidence of an examined row; None for a policy without one."""


@dataclass(frozen=True, kw_only=True)
class SheddingPolicy(Generic[SettingsT, MemoryT, PendingT]):
    """Everything that defines one policy.

    Each field of ``memory`` has a default. A field that is a mapping belongs to (policy, group, broker): its keys are
    brokers. Any other field belongs to (policy, group). Values are numbers, texts, or lists of them.
    """

    name: str
    settings: type[SettingsT]
    memory: type[MemoryT]
    plan: Callable[[RoundView, MemoryT, SettingsT], Proposal[PendingT]]
    """Decide one round for one group."""
    settle: Callable[[Proposal[PendingT], Codes], MemoryT]
    """Returns the next memory; the codes, (u,), say for each unload of the plan whether it is ADMITTED, REFUSED or POSTPONED."""
    outcomes: tuple[str, ...]
    """Every outcome of an examined row; ``fired`` is one of them."""
    outcome_texts: Mapping[str, OutcomeText] = field(default_factory=dict)
    """In words, those of ``outcomes`` that are not in ``COMMON``."""
    calm_outcomes: tuple[str, ...]
    """Those of ``outcomes`` that say that a row does not stand out."""
    triggers: tuple[str, ...]
    """Every trigger of an examined row, the empty one included."""
    sentences: Mapping[str, Sentence]
    """By trigger, the sentence of an action about the finding that it comes from."""
    details: Mapping[str, Callable[[Evidence], str]] = field(default_factory=dict)
    """By outcome, the outcome with its numbers, where the summary shows more than the outcome."""
    headline: Headline
    reads_published: bool = False
    """Whether it decides by what brokers publish with Pulsar's extensible load manager."""
    plans_rounds: bool = False
    """Whether it plans a whole round against the fleet, as our own does and Pulsar's do not. Then its plan is judged as a whole:
    ``min_unload_benefit_points`` holds none of its moves, and unset budgets grow with the cluster. A bundle that is due for a split
    in the round in which it is to move is split where it is: its clients reconnect once, and its parts fit better. A
    bundle that its owner's report leaves out stays in its view, with its averages and not movable, until it is known to be gone. And
    a sample out of all proportion counts only if it lasts."""

    def __post_init__(self) -> None:
        if set(self.sentences) != set(self.triggers) - {""}:
            raise ValueError(
                f"{self.name} has sentences for {sorted(self.sentences)}, not for each of its triggers"
            )
        unknown = {*self.calm_outcomes, *self.details, FIRED} - set(self.outcomes)
        if unknown:
            raise ValueError(f"{self.name} uses outcomes that it does not declare: {sorted(unknown)}")
        mute = set(self.outcomes) - {*self.outcome_texts, *COMMON}
        if mute:
            raise ValueError(f"{self.name} has no words for its outcomes {sorted(mute)}")

    def text_of(self, outcome: str) -> OutcomeText:
        """An outcome in words."""
        return self.outcome_texts.get(outcome) or COMMON[outcome]

    @property
    def section(self) -> str:
        """Name of its settings section below ``[pulsar]``."""
        return self.name.replace("-", "_")

    @cached_property
    def broker_fields(self) -> tuple[str, ...]:
        """Fields of the memory that have a value for each broker."""
        return tuple(name for name, value in vars_of(self.memory()).items() if isinstance(value, Mapping))

    @cached_property
    def group_fields(self) -> tuple[str, ...]:
        """Fields of the memory that have one value for a group."""
        return tuple(name for name in vars_of(self.memory()) if name not in self.broker_fields)


def vars_of(memory: Any) -> dict[str, Any]:
    """The fields of a memory by name."""
    return {field.name: getattr(memory, field.name) for field in fields(memory)}
