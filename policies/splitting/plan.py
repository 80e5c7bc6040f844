"""What decides when bundles are split, and what is decided: settings, columns of bundles, decisions and outcomes.

Invariant: a bundle above a limit is a candidate, and every candidate has exactly one outcome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Gt, Le

from policies.bounds import Count, NotNegative, NotNegativeInt, OffAtZero, Positive, check_bounds
from policies.columns import Bools, Code, Codes, Findings, Floats, Ints
from policies.splitting import algorithms, balanced_flow_divide
from policies.splitting.algorithms import ALGORITHMS, UnknownAlgorithm
from policies.splitting.cut import (
    PULSAR_MAX_BYTES_PER_S,
    PULSAR_MAX_MESSAGES_PER_S,
    Boundary,
    BundleLimits,
    ChildLoad,
    Cut,
    TopicLoads,
    topic_loads,
)
from policies.splitting.ranges import positions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSettings:
    """Which bundles are split, where, and how many at once."""

    enabled: bool = False
    """Whether bundles are split. Off by default: a split cannot be undone. Pulsar: ``loadBalancerAutoBundleSplitEnabled``."""
    algorithm: str = balanced_flow_divide.BALANCED_FLOW_DIVIDE
    """Where to cut: ``balanced_flow_divide``, ``flow_or_qps_equally_divide``, ``range_equally_divide`` or
    ``topic_count_equally_divide``. Pulsar: ``defaultNamespaceBundleSplitAlgorithm``, which does not have
    ``balanced_flow_divide``; the boundaries of that one are carried out as ``specified_positions_divide``."""
    max_topics_count: NotNegativeInt = 1000
    """Topics above which a bundle is split; 0: no limit.
    Pulsar: ``loadBalancerNamespaceBundleMaxTopics``."""
    max_sessions_count: NotNegativeInt = 1000
    """Producers and consumers above which a bundle is split; 0: no limit.
    Pulsar: ``loadBalancerNamespaceBundleMaxSessions``."""
    max_messages_per_s: Positive = PULSAR_MAX_MESSAGES_PER_S
    """Message rate, in and out together, above which a bundle is split; must be above 0, loads are measured against it.
    Pulsar: ``loadBalancerNamespaceBundleMaxMsgRate``."""
    max_bytes_per_s: Positive = PULSAR_MAX_BYTES_PER_S
    """Throughput, in and out together, above which a bundle is split; must be above 0, loads are measured against it.
    Pulsar: ``loadBalancerNamespaceBundleMaxBandwidthMbytes`` (there in MiB/s)."""
    average_samples: Count = 1
    """Samples that rate and throughput are averaged over before they are judged: 1 is the present value, as in
    Pulsar's extensible load manager; 1000 is as in its modular one, where a burst counts only after a long time and is
    forgotten even later."""
    difference_threshold_percent: NotNegative = 10.0
    """By how much the bundle's total must exceed a limit before ``flow_or_qps_equally_divide`` cuts.
    Pulsar: ``flowOrQpsDifferenceThresholdPercentage``."""
    hit_count: NotNegativeInt = 3
    """Rounds in a row that a bundle is above a limit, or overloads its broker, before the round that splits it: with 3 the fourth
    round splits it. Where the shedding policy counts hits of its own, these do for an overloaded broker.
    Pulsar: ``loadBalancerNamespaceBundleSplitConditionHitCountThreshold``; its modular load manager has none (0)."""
    max_namespace_bundles_count: NotNegativeInt = 128
    """Bundles a namespace may have; 0: any number. Pulsar: ``loadBalancerNamespaceMaximumBundles``."""
    max_splits_per_round_count: NotNegativeInt = 10
    """Bundles split in one round; 0: any number. Pulsar: ``loadBalancerMaxNumberOfBundlesToSplitPerCycle``."""
    bundle_cooldown_s: OffAtZero = 1800.0
    """How long a bundle, its children included, is not split again: long enough for the children to be moved and
    measured. Not in Pulsar, where stale numbers can split the same range twice (#25031)."""
    max_child_ratio: Annotated[float, Gt(0), Le(1)] = 0.7
    """Share of the limits below which ``balanced_flow_divide`` brings every child: room to grow before the next split.
    Not in Pulsar."""
    flow_or_qps_boundary: Boundary = "shipped"
    """Where ``flow_or_qps_equally_divide`` cuts between two topics: ``shipped`` is Pulsar's middle + 1, ``proposal``
    the middle, as PIP-169 has it."""
    without_topic_stats: Literal["hold", "range"] = "hold"
    """What to do with a bundle above a limit of topics, sessions, rate or throughput where the statistics of its topics account for less than
    four fifths of it: ``hold`` it, or cut its ``range`` in the middle, once, and look at the parts."""
    hot_partition_bytes_per_s: NotNegative = 20_000_000.0
    """Throughput of one topic partition above which the summary advises more partitions: no split can help it.
    0: no advice. Not in Pulsar."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.algorithm not in ALGORITHMS:
            raise UnknownAlgorithm(self.algorithm)
        if self.algorithm == algorithms.SPECIFIED_POSITIONS_DIVIDE:
            raise ValueError(
                f"algorithm {self.algorithm!r} works only in `trimtab split plan`, where a person gives the positions; "
                f"choose another one"
            )

    def limits(self) -> BundleLimits:
        """What one bundle may carry."""
        return BundleLimits(messages_per_s=self.max_messages_per_s, bytes_per_s=self.max_bytes_per_s)


class Outcome(Code):
    """What became of a candidate. ``MASKED``: it may not be split now; the caller that masked it knows why."""

    ACTED = 0
    SOLE_TOPIC = 1
    HIT_COUNT = 2
    MASKED = 3
    BUDGET = 4
    RANGE_TOO_NARROW = 5
    NAMESPACE_FULL = 6
    NO_TOPIC_STATS = 7
    DOMINANT_TOPIC = 8
    NO_BOUNDARY = 9
    ANTI_AFFINITY = 10


OUTCOMES = Outcome.names()


TRIGGERS = ("topics", "sessions", "messages", "bytes", "broker-messages", "broker-bytes")
"""Why a bundle is a candidate, by code: the limit it is above, the first in Pulsar's order if there are several; or the
measure in which it puts its broker above average (``relief``)."""
MEASURES = ("topics", "sessions", "messages", "bytes", "messages", "bytes")
"""What is too much, by trigger."""
UNITS = ("topics", "producers and consumers", "messages/s", "bytes/s", "messages/s", "bytes/s")
"""How that is counted, by trigger."""


def evidence_name(trigger: str) -> str:
    """The name under which the evidence has what is too much."""
    measure = MEASURES[TRIGGERS.index(trigger)]
    return f"bundle_{measure}_{'count' if measure in {'topics', 'sessions'} else 'per_s'}"


BY_TOPICS, BY_SESSIONS, BY_MESSAGES, BY_BYTES, BY_BROKER_MESSAGES, BY_BROKER_BYTES = range(len(TRIGGERS))

NO_TOPIC = -1
"""Stands for no topic."""


class BlindCut(NamedTuple):
    """A bundle that was cut without knowing what its topics carry."""

    measure: str
    """What it had too much of: one of ``MEASURES``."""
    load: float
    """How much of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicTable:
    """Fresh topic statistics as they came, bundle by bundle; t rows. Positions are worked out for candidates only."""

    names: Sequence[str]
    messages_per_s: Floats
    """Message rate in + out, (t,)."""
    bytes_per_s: Floats
    """Throughput in + out, (t,)."""
    sessions: Ints
    """Producers and consumers that are known of, (t,): at most what there are."""
    starts: Ints
    """(m,): where the rows of each bundle begin."""
    ends: Ints
    """(m,): where the rows of each bundle end; for a bundle without statistics, before they begin."""

    def rows_of(self, bundle: int) -> slice:
        """Rows of one bundle."""
        start = int(self.starts[bundle])
        return slice(start, max(start, int(self.ends[bundle])))

    def topics_of(self, bundle: int) -> TopicLoads:
        """Topics of one bundle, each where its name hashes to."""
        rows = self.rows_of(bundle)
        names = self.names[rows]
        return topic_loads(
            names,
            positions=positions_of(names),
            messages_per_s=self.messages_per_s[rows],
            bytes_per_s=self.bytes_per_s[rows],
            sessions=self.sessions[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposals:
    """Bundles to split whatever their size, because each puts its broker above average and fits no other; p rows."""

    rows: Ints
    """Bundle rows, (p,)."""
    triggers: Codes
    """``BY_BROKER_MESSAGES`` or ``BY_BROKER_BYTES``, (p,)."""
    boundaries_counts: Ints
    """How many boundaries make parts that another broker can take, (p,)."""
    means_per_s: Floats
    """Mean load, in the trigger's measure, of the brokers it was compared with: those of its group, (p,)."""
    replaced_counts: Ints
    """How many moves of other bundles of its broker the split takes the place of, (p,): with its parts there, fewer are needed."""
    barred: Mapping[int, str] = field(default_factory=dict)
    """By bundle row, why anti-affinity keeps parts of it at their broker, so that a split would not relieve that."""
    has_counted: bool = False
    """Whether the policy behind them has counted hits of its own; else a bundle is to be proposed in ``hit_count`` rounds before."""


NO_PROPOSALS = Proposals(
    rows=np.zeros(0, dtype=np.int64),
    triggers=np.zeros(0, dtype=np.int8),
    boundaries_counts=np.zeros(0, dtype=np.int64),
    means_per_s=np.zeros(0),
    replaced_counts=np.zeros(0, dtype=np.int64),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitSnapshot:
    """Bundles of one cluster in one round, protected system bundles left out; m rows."""

    names: Sequence[str]
    """Full bundle names, each once, in any order."""
    namespaces: Ints
    """Row of each one's namespace in ``namespace_bundle_counts``, (m,)."""
    namespace_bundle_counts: Ints
    """How many bundles each namespace has or is about to have, those not in the snapshot included."""
    topic_counts: Ints
    """Topics, as the owner reports them now, (m,); 0 without statistics: not known."""
    session_counts: Ints
    """Producers and consumers, as the owner reports them now, (m,)."""
    messages_per_s: Floats
    """Message rate in + out, averaged over ``average_samples``, (m,)."""
    bytes_per_s: Floats
    """Throughput in + out, averaged likewise, (m,)."""
    may_split: Bools
    """Whether the bundle may be split now: not cooling, no action in flight, not excluded, (m,)."""
    waits: Bools
    """Whether a split of the bundle would be held until a person answers: it is decided, and spends no limit, (m,)."""
    decided_count: int
    """Splits of the round that are decided already; they spend its limit."""
    has_topic_stats: Bools
    """Whether ``topic_table`` knows the bundle's topics, (m,)."""
    topic_table: TopicTable

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitMemory:
    """How many rounds in a row each bundle was above a limit, or proposed, (m,), in the snapshot's rows.

    A count belongs to its bundle: a bundle that is not in the snapshot keeps its count in the stored memory.
    """

    hits: Ints
    blind_cuts: Mapping[str, BlindCut] = field(default_factory=dict)
    """By name, what bundles were cut from for which it was not known what their topics carry; the caller keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examined(Findings):
    """Candidates, the heaviest first (as a share of the limits), ties by name; c rows."""

    rows: Ints
    """Bundle rows, (c,)."""
    heaviest_topic: Ints
    """Row of the topic that carries the load of a ``dominant-topic`` or ``sole-topic``, (c,); NO_TOPIC where none is named."""
    reasons: Mapping[int, str]
    """By row of ``examined``: why there is no boundary for a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitDecision:
    """One bundle to cut."""

    row: int
    """Bundle row."""
    examined: int
    """Row of ``examined``."""
    algorithm: str
    """The algorithm that found the boundaries; not the configured one where topics are not known."""
    cut: Cut
    """Where to cut; at least one boundary."""
    children: tuple[ChildLoad, ...]
    """What each child takes over by the topic statistics."""
    known: frozenset[str]
    """Of ``MEASURES``, those of which it is known what the topics have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitPlan:
    """Decisions of one round with their explanation."""

    examined: Examined
    decisions: tuple[SplitDecision, ...]
    """In the order of ``examined``."""
