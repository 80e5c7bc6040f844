"""The contract of a shedding policy: what it is given, what it gives back, and what it declares of itself.

A policy is pure: ``plan`` looks at a ``RoundView`` and returns a ``Proposal``; ``settle`` returns the policy's next memory
once it is known what of the proposal happens. One policy is one module; ``policies.shedding.registry`` lists them.

Invariants, checked where a view is built: brokers are sorted by name; bundles are grouped by their broker in broker
order and sorted by name within it, so a stable sort by traffic breaks ties by name. No value is NaN or infinite. A policy
never changes these arrays. In a plan every examined row has exactly one outcome, and so has every bundle that was tried.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from policies.columns import Bools, Codes, Floats, Ints
from policies.shedding.published import PublishedLoads
from policies.usage import UsageSettings

BUNDLE_OUTCOMES = (
    "acted",
    "need-met",
    "too-big",
    "no-traffic",
    "masked",
    "no-destination",
    "bundle-limit",
)
"""Outcomes of a bundle that was tried, by code. ``masked``: not movable; who masked it says why."""
ACTED, NEED_MET, TOO_BIG, NO_TRAFFIC, MASKED, NO_DESTINATION, BUNDLE_LIMIT = range(len(BUNDLE_OUTCOMES))

ADMITTED, REFUSED, POSTPONED = range(3)
"""What became of a wanted unload: it happens; it is refused for its own sake; or it has to wait because nothing, or no
more, may happen now."""

NOBODY = -1
"""No such broker."""

FIRED = "fired"
"""The outcome of an examined row that wants unloads; every policy has it."""

SettingsT = TypeVar("SettingsT")
MemoryT = TypeVar("MemoryT")
PendingT = TypeVar("PendingT")
TableT = TypeVar("TableT", "BrokerTable", "BundleTable")

Evidence = Mapping[str, float | int | str]
Sentence = Callable[[str, str | None, Evidence], str]
"""From the broker that sheds, the broker it is compared with (None: with none) and the evidence to what was found."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerTable:
    """Brokers that take part in the round; n rows."""

    names: tuple[str, ...]
    """Broker ids, ascending."""
    usage_ratio: Floats
    """Weighted maximum usage, (n,), 1.0 = 100 %; from ``policies.usage.weighted_maximum_ratio``."""
    percents: Floats
    """Percentage in use of each of ``policies.usage.RESOURCES``, (n, resources); 0 where it is not measured."""
    limits: Floats
    """Limit of each resource but the last, as the broker reports it, (n, resources - 1); 0 or less: not measured."""
    measured: Bools
    """Whether each resource was measured, (n, resources)."""
    is_measured: Bools
    """Whether a resource with a weight above 0 was measured, (n,)."""
    report_age_s: Floats
    """From the broker's report to the end of the round, (n,)."""
    messages_per_s: Floats
    """Message rate in + out as the broker reports it, (n,)."""
    bytes_per_s: Floats
    """Throughput in + out as the broker reports it, (n,)."""
    listed_bundle_counts: Ints
    """How many bundles the broker lists, heartbeat bundles included, (n,): Pulsar's own count."""
    may_receive: Bools
    """Whether a bundle may be moved to the broker, (n,)."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundleTable:
    """Bundles of those brokers, each at its owner only, protected system bundles left out; m rows."""

    names: Sequence[str]
    """Full bundle names, ascending within a broker."""
    starts: Ints
    """(n + 1,): rows ``starts[b]:starts[b + 1]`` belong to broker ``b``."""
    rates: Floats
    """Running averages, (m, 4): messages/s in and out, bytes/s in and out."""
    sampled: Bools
    """Whether the averages have a sample, (m,)."""
    messages_per_s: Floats
    """Running average of the message rate in + out, (m,)."""
    bytes_per_s: Floats
    """Running average of the throughput in + out, (m,)."""
    movable: Bools
    """Whether the bundle may be chosen, (m,)."""

    def rows_of(self, broker: int) -> slice:
        """Rows of one broker."""
        return slice(int(self.starts[broker]), int(self.starts[broker + 1]))

    def owners_of(self, rows: Ints) -> Ints:
        """Broker row that owns each of these bundle rows."""
        owners: Ints = np.searchsorted(self.starts, rows, side="right") - 1
        return owners

    def __len__(self) -> int:
        return len(self.messages_per_s)


class Traffic(NamedTuple):
    """Load of a bundle or broker, in + out."""

    messages_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class UnloadInFlight:
    """An unload that was decided and does not show in the reports yet: its bundle is not listed anywhere but at the source."""

    bundle: str
    source: str
    destination: str | None
    """None: Pulsar chooses it, or it is not known any more."""
    traffic: Traffic | None = None
    """Of the bundle when it was decided; for a bundle that neither side lists for the moment."""


Side = Literal["source", "destination"]
"""Which broker of an unload."""


SOURCE_FALLS, DESTINATION_RISES = "source_falls_points", "destination_rises_points"
"""Evidence of an unload by which a policy that predicts usage says what it promises: points of usage by which its source falls and
its destination rises."""

_KEPT_RATIO = 0.5
"""Share of what a promise says that has to be seen for it to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The usage of an unload's brokers before it, as it should be once the move has settled, and as it was then."""

    before_points: Mapping[Side, float]
    expected_points: Mapping[Side, float]
    seen_points: Mapping[Side, float]

    @property
    def is_kept(self) -> bool:
        """Whether the brokers came at least half as much closer as they should have."""
        return self._closer(self.seen_points) >= _KEPT_RATIO * self.expected_closer_points

    @property
    def expected_closer_points(self) -> float:
        """By how much its source should have fallen and its destination risen."""
        return self._closer(self.expected_points)

    @property
    def expected_gain_points(self) -> float:
        """By how much the more used of the two should have fallen."""
        return self._highest(self.before_points) - self._highest(self.expected_points)

    @property
    def gain_points(self) -> float:
        """By how much it fell; below 0 where it rose."""
        return self._highest(self.before_points) - self._highest(self.seen_points)

    @property
    def error_points(self) -> float:
        """How far the broker that was predicted worse is from what was expected of it."""
        return max(abs(self.seen_points[side] - points) for side, points in self.expected_points.items())

    def _closer(self, after: Mapping[Side, float]) -> float:
        closer = self.before_points["source"] - after["source"]
        if "destination" in after:
            closer += after["destination"] - self.before_points["destination"]
        return closer

    @staticmethod
    def _highest(points: Mapping[Side, float]) -> float:
        return max(points.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAction:
    """An action of ours whose effect is known."""

    kind: Literal["unload", "split"]
    outcome: Literal["good", "failed", "ineffective"]
    age_s: float
    """From the judgement to the end of the round."""
    brokers: Mapping[Side, str]
    """The brokers of an unload; no destination where Pulsar chooses. Empty for a split."""
    before: Mapping[Side, Traffic]
    """Load of these brokers when it was decided; so far as it is known."""
    expected: Mapping[Side, Traffic]
    """Load that they should have had at the judgement, by the unloads that were carried out until then."""
    seen: Mapping[Side, Traffic]
    """Load that they reported then; a broker without a report since the action's result is left out."""
    promise: Promise | None = None
    """What became of its promise; None as long as it is not checked, and an hour after it was."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundView:
    """What a policy sees: one cluster, or one group of it, in one round."""

    brokers: BrokerTable
    bundles: BundleTable
    usage_weights: Floats = field(default_factory=lambda: UsageSettings().weights())
    """Factor of each resource in a broker's usage, (resources,)."""
    present_rates: Callable[[Ints], Floats] | None = None
    """From bundle rows to their traffic in this round alone, (k, 4); None where only averages are known."""
    in_flight: Callable[[], Sequence[UnloadInFlight]] = tuple
    """Unloads of these brokers that are on their way; worked out when asked for."""
    judged: Callable[[], Sequence[JudgedAction]] = tuple
    """The last judged actions of the whole cluster, the oldest first; worked out when asked for."""
    published: PublishedLoads | None = None
    """What the brokers publish of themselves; None unless the extensible load manager runs at each of them."""
    missing: Sequence[str] = ()
    """Brokers of the whole cluster that take part, were asked and did not report in the round, ascending."""
    unloaded_ages_s: Callable[[], Mapping[str, float]] = dict
    """By broker, from the last round that decided an unload from it to the end of this one, without unloads that failed."""

    def part(self, rows: Ints) -> tuple["RoundView", Ints]:
        """The view of some brokers (ascending rows) and their bundles, with the rows of these bundles."""
        starts = self.bundles.starts
        taken = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows.tolist()])
        counts = starts[rows + 1] - starts[rows]
        brokers = _take_room(self.brokers, rows)
        bundles = _take_room(
            self.bundles, taken, starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        )
        names = frozenset(brokers.names)
        present = self.present_rates
        part = replace(
            self,
            brokers=brokers,
            bundles=bundles,
            present_rates=None if present is None else lambda rows: present(taken[rows]),
            published=self.published and self.published.part(rows, taken, bundles_count=len(self.bundles)),
            in_flight=lambda: [each for each in self.in_flight() if each.source in names],
        )
        return part, taken


def _take_room(table: TableT, rows: Ints, **given: Any) -> TableT:
    columns: dict[str, Any] = {each.name: getattr(table, each.name) for each in fields(table)}
    for name, column in columns.items():
        if name not in given:
            given[name] = (
                column[rows]
                if isinstance(column, np.ndarray)
                else tuple(column[row] for row in rows.tolist())
            )
    return replace(table, **given)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examined:
    """What the policy looked at, in its own order: pairs of brokers, single brokers, or the whole fleet; k rows."""

    high: Ints
    """Broker row that would shed, NOBODY for a row about the whole fleet, (k,)."""
    low: Ints
    """Broker row it is compared with, NOBODY where it is compared with none, (k,)."""
    outcome: Codes
    """Index into ``outcomes``, (k,)."""
    outcomes: tuple[str, ...]
    """Every outcome this policy knows."""
    trigger: Codes
    """Index into ``triggers``: what would make it fire, (k,)."""
    triggers: tuple[str, ...]
    """Every trigger this policy knows."""
    evidence: Mapping[str, Floats | Ints]
    """The numbers each row was judged on, (k,) each, units in their names."""

    def __len__(self) -> int:
        return len(self.high)

    def outcome_of(self, row: int) -> str:
        """Outcome in words."""
        return self.outcomes[int(self.outcome[row])]

    def trigger_of(self, row: int) -> str:
        """Trigger in words."""
        return self.triggers[int(self.trigger[row])]

    def evidence_of(self, row: int) -> dict[str, float | int]:
        """The numbers of one row."""
        return {name: column[row].item() for name, column in self.evidence.items()}

    def counts(self) -> dict[str, int]:
        """How many rows ended with each outcome that occurred."""
        return count_codes(self.outcome, self.outcomes)


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
    unload_evidence: Mapping[str, Floats] = field(default_factory=dict)
    """Numbers of each unload beside those of its row of ``examined``, (u,) each, units in their names."""
    tried_rows: Ints
    """Bundle rows that were tried, in the order they were tried, (t,)."""
    tried_outcomes: Codes
    """Index into ``BUNDLE_OUTCOMES``, (t,)."""
    tried_examined: Ints
    """Row of ``examined`` each was tried for, (t,)."""

    def waits(self, fates: Codes) -> Bools:
        """Rows of ``examined`` that want unloads of which none happens and some may happen in a later round, (k,)."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The number of a policy that stands on ``/metrics``."""

    meaning: str
    """What the number is; of a policy without one, why it has none, as a clause that begins with "which"."""
    stand_of: Callable[[Evidence], Stand] | None = None
    """From the evidence of an examined row to the number; None for a policy without one."""


@dataclass(frozen=True, kw_only=True)
class SheddingPolicy(Generic[SettingsT, MemoryT, PendingT]):
    """Everything there is of one policy.

    Each field of ``memory`` has a default. A field that is a mapping belongs to (policy, group, broker): its keys are
    brokers. Any other field belongs to (policy, group). Values are numbers, texts, or lists of them.
    """

    name: str
    settings: type[SettingsT]
    memory: type[MemoryT]
    plan: Callable[[RoundView, MemoryT, SettingsT], Proposal[PendingT]]
    """Decide one round for one group."""
    settle: Callable[[Proposal[PendingT], Codes], MemoryT]
    """The next memory; the codes say of each unload of the plan whether it is ADMITTED, REFUSED or POSTPONED, (u,)."""
    outcomes: tuple[str, ...]
    """Every outcome of an examined row; ``fired`` is one of them."""
    calm_outcomes: tuple[str, ...]
    """Those of ``outcomes`` that say that a row does not stand out."""
    triggers: tuple[str, ...]
    """Every trigger of an examined row, the empty one included."""
    evidence: tuple[str, ...]
    """Names of the numbers of an examined row."""
    sentences: Mapping[str, Sentence]
    """By trigger, what an action says of the finding it comes from."""
    details: Mapping[str, Callable[[Evidence], str]] = field(default_factory=dict)
    """By outcome, the outcome with its numbers, where the summary shows more than the outcome."""
    headline: Headline
    splits_first: bool = False
    """Whether a bundle that it wants to move, and that is due for a split in the same round, is split where it is: its clients
    reconnect once instead of twice, and its parts fit better. Pulsar's policies move it."""

    def __post_init__(self) -> None:
        if set(self.sentences) != set(self.triggers) - {""}:
            raise ValueError(
                f"{self.name} has sentences for {sorted(self.sentences)}, not for each of its triggers"
            )
        unknown = {*self.calm_outcomes, *self.details, FIRED} - set(self.outcomes)
        if unknown:
            raise ValueError(f"{self.name} uses outcomes that it does not declare: {sorted(unknown)}")

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
    return {each.name: getattr(memory, each.name) for each in fields(memory)}


def count_codes(codes: Codes, names: tuple[str, ...]) -> dict[str, int]:
    """How often each name occurs; names that do not occur are left out."""
    found = np.bincount(codes, minlength=len(names))
    return {name: int(count) for name, count in zip(names, found, strict=True) if count}
