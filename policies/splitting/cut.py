"""The question that every algorithm gets, with the topics of its bundle as columns, and its answer.

Invariants of ``TopicLoads``: rows ascend by position, topics at the same position by name; a topic without statistics has no load.
Invariants of a ``Cut``: boundaries ascend, differ and lie strictly inside the range; no boundary means "do not split",
and ``reason`` says why. The children cover the parent exactly, and every topic is in one of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting.ranges import BundleRange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicLoads:
    """Topics of one bundle; n rows."""

    names: Sequence[str]
    positions: Ints
    """Hash positions, (n,), ascending."""
    messages_per_s: Floats
    """Message rate in + out, (n,)."""
    bytes_per_s: Floats
    """Throughput in + out, (n,)."""
    sessions: Ints
    """Producers and consumers that are known of, (n,): at most what there are."""

    def __len__(self) -> int:
        return len(self.names)

    def take_range(self, range_: BundleRange) -> "TopicLoads":
        """The topics whose position is in the range."""
        rows = slice(
            int(np.searchsorted(self.positions, range_.lower)),
            int(np.searchsorted(self.positions, range_.last, side="right")),
        )
        return TopicLoads(
            names=self.names[rows],
            positions=self.positions[rows],
            messages_per_s=self.messages_per_s[rows],
            bytes_per_s=self.bytes_per_s[rows],
            sessions=self.sessions[rows],
        )


def topic_loads(
    names: Sequence[str],
    *,
    positions: Ints,
    messages_per_s: Floats,
    bytes_per_s: Floats,
    sessions: Ints | None = None,
) -> TopicLoads:
    """The columns sorted by position, then name; all have the same length. Without ``sessions`` none are known of."""
    sessions = np.zeros(len(names), dtype=np.int64) if sessions is None else sessions
    order = np.argsort(positions, kind="stable")
    if (np.diff(positions[order]) == 0).any():
        where = positions.tolist()
        order = np.array(sorted(range(len(names)), key=lambda row: (where[row], names[row])), dtype=np.int64)
    return TopicLoads(
        names=[names[row] for row in order.tolist()],
        positions=positions[order],
        messages_per_s=messages_per_s[order],
        bytes_per_s=bytes_per_s[order],
        sessions=sessions[order],
    )


NO_TOPICS = topic_loads(
    (), positions=np.zeros(0, dtype=np.int64), messages_per_s=np.zeros(0), bytes_per_s=np.zeros(0)
)


Boundary = Literal["shipped", "proposal"]

MIB = 1048576
PULSAR_MAX_MESSAGES_PER_S = 30000.0
"""Pulsar: ``loadBalancerNamespaceBundleMaxMsgRate``."""
PULSAR_MAX_BYTES_PER_S = 100.0 * MIB
"""Pulsar: ``loadBalancerNamespaceBundleMaxBandwidthMbytes`` of 100."""

_SHOWN_RANGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """What one bundle may hold; loads are measured as shares of it."""

    messages_per_s: float = PULSAR_MAX_MESSAGES_PER_S
    """In and out together, above 0."""
    bytes_per_s: float = PULSAR_MAX_BYTES_PER_S
    """In and out together, above 0."""
    topics_count: float | None = None
    """Topics, above 0, where their number counts as load too (``balanced_flow_divide`` only); None: it does not count."""
    sessions_count: float | None = None
    """Producers and consumers, likewise."""

    def __post_init__(self) -> None:
        for name in ("messages_per_s", "bytes_per_s", "topics_count", "sessions_count"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"the limit {name} is {value}; it must be a number above 0")

    def ratio(self, messages_per_s: float, bytes_per_s: float) -> float:
        """Traffic as a share of the limits, 1.0 = a limit is reached: the larger of its parts."""
        return max(messages_per_s / self.messages_per_s, bytes_per_s / self.bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitQuestion:
    """Where to cut this bundle. An algorithm looks at what it needs and at nothing else."""

    range: BundleRange
    topics: TopicLoads = NO_TOPICS
    """All topics of the bundle, none outside it."""
    limits: BundleLimits = field(default_factory=BundleLimits)
    positions: tuple[int, ...] = ()
    """Wanted boundaries, for ``specified_positions_divide``."""
    difference_threshold_percent: float = 10.0
    """For ``flow_or_qps_equally_divide``."""
    boundary: Boundary = "shipped"
    """For ``flow_or_qps_equally_divide``."""
    boundaries_count: int | None = None
    """For ``balanced_flow_divide``: most boundaries to choose; None: as few as ``max_child_ratio`` needs."""
    max_boundaries_count: int | None = None
    """For ``balanced_flow_divide``: never more than this, because the namespace has no room for more; None: no limit."""
    max_child_ratio: float = 0.7
    """For ``balanced_flow_divide``: share of the limits below which every child is brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLoad:
    """What one child takes over."""

    range: BundleRange
    topics_count: int
    messages_per_s: float
    bytes_per_s: float
    sessions_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where to cut, and why there or why not."""

    boundaries: tuple[int, ...]
    reason: str
    """One sentence, without a full stop."""


def no_cut(reason: str) -> Cut:
    """The answer "do not split"."""
    return Cut(boundaries=(), reason=reason)


def cut_at(question: SplitQuestion, wanted: Sequence[int], reason: str) -> Cut:
    """The answer with the boundaries Pulsar would take: inside the range, each once. The reason names cuts that separate nothing."""
    range_ = question.range
    kept = tuple(sorted({at for at in wanted if range_.lower < at < range_.upper}))
    notes = [reason]
    if len(kept) < len(wanted):
        notes.append(f"{len(wanted) - len(kept)} left out as repeated or not strictly inside {range_}")
    if kept and len(question.topics):
        notes.extend(_separates_nothing(range_, kept, question.topics))
    return Cut(boundaries=kept, reason="; ".join(notes))


def _separates_nothing(range_: BundleRange, boundaries: Sequence[int], topics: TopicLoads) -> Iterable[str]:
    counts = np.diff(_edges(boundaries, topics))
    empty = [str(child) for child, count in zip(range_.cut(boundaries), counts, strict=True) if count == 0]
    if empty:
        shown = ", ".join(empty[:_SHOWN_RANGES]) + (", …" if len(empty) > _SHOWN_RANGES else "")
        yield f"a cut separates nothing: no topic is in {shown}"


def children(question: SplitQuestion, boundaries: Sequence[int]) -> tuple[ChildLoad, ...]:
    """What each child takes over, ascending; none without boundaries."""
    if not boundaries:
        return ()
    topics, edges = question.topics, _edges(boundaries, question.topics).tolist()
    return tuple(
        ChildLoad(
            range=child,
            topics_count=end - start,
            messages_per_s=float(topics.messages_per_s[start:end].sum()),
            bytes_per_s=float(topics.bytes_per_s[start:end].sum()),
            sessions_count=int(topics.sessions[start:end].sum()),
        )
        for child, start, end in zip(question.range.cut(boundaries), edges, edges[1:], strict=False)
    )


def _edges(boundaries: Sequence[int], topics: TopicLoads) -> Ints:
    """Rows of ``topics`` where each child begins, and the end, (children + 1,)."""
    inner = np.searchsorted(topics.positions, np.array(boundaries, dtype=np.int64))
    return np.concatenate([[0], inner, [len(topics)]]).astype(np.int64)
