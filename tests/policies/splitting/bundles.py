"""Readable bundles: topics by name become the columns an algorithm sees, bundles by name those the criteria see."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.splitting.cut import BundleLimits, SplitQuestion, TopicLoads, children, topic_loads
from policies.splitting.plan import OUTCOMES, SplitMemory, SplitPlan, SplitSnapshot, TopicTable
from policies.splitting.ranges import FULL_UPPER, BundleRange

MIB = 1048576.0
SMALL = BundleRange(0, 0x200)
"""The range of the proposals' examples."""
FULL_RANGE = BundleRange(0, FULL_UPPER)


@dataclass(frozen=True, slots=True)
class Topic:
    """Where a topic is, what it carries, in + out, and how many producers and consumers of it are known."""

    position: int
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    sessions: int = 0


Topics = Mapping[str, Topic]


def at(*positions: int, messages_per_s: float = 0.0) -> dict[str, Topic]:
    """Topics t1, t2, … at these positions, equally loaded."""
    return {f"t{number}": Topic(where, messages_per_s) for number, where in enumerate(positions, 1)}


def by_rate(**rates: float) -> dict[str, Topic]:
    """Topics ten positions apart, from 10 on, in the order given."""
    return {name: Topic(10 * place, rate) for place, (name, rate) in enumerate(rates.items(), 1)}


def columns(topics: Topics) -> TopicLoads:
    """The columns of topics in any order."""
    return topic_loads(
        list(topics),
        positions=np.array([topic.position for topic in topics.values()], dtype=np.int64),
        messages_per_s=np.array([topic.messages_per_s for topic in topics.values()], dtype=np.float64),
        bytes_per_s=np.array([topic.bytes_per_s for topic in topics.values()], dtype=np.float64),
        sessions=np.array([topic.sessions for topic in topics.values()], dtype=np.int64),
    )


def question(
    topics: Topics,
    *,
    range_: BundleRange = SMALL,
    messages_per_s: float = 1000.0,
    bytes_per_s: float = 100 * MIB,
    **rest: object,
) -> SplitQuestion:
    """Where to cut these topics; limits as given."""
    limits = BundleLimits(messages_per_s=messages_per_s, bytes_per_s=bytes_per_s)
    return SplitQuestion(range=range_, topics=columns(topics), limits=limits, **rest)  # type: ignore[arg-type]


def parts(asked: SplitQuestion, boundaries: tuple[int, ...]) -> list[list[str]]:
    """Names of the topics in each child; checks that children cover the range and each topic is in one."""
    found = children(asked, boundaries)
    edges = [child.range.lower for child in found] + [found[-1].range.upper]
    assert edges == [asked.range.lower, *boundaries, asked.range.upper]
    rows = [asked.topics.take_range(child.range).names for child in found]
    assert [name for names in rows for name in names] == list(asked.topics.names)
    assert [child.topics_count for child in found] == [len(names) for names in rows]
    return [list(names) for names in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One bundle as its owner reports it, with its topics where they are known."""

    topics_count: int = 10
    sessions_count: int = 10
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    may_split: bool = True
    waits: bool = False
    topics: Topics | None = None


def evenly(messages_per_s: float, *, count: int = 10, bytes_per_s: float = 0.0, sessions: int = 10) -> Load:
    """A bundle with known topics of equal load in the lowest part of its range."""
    topics = {
        f"t{number:02d}": Topic(100 * number, messages_per_s / count, bytes_per_s / count, sessions // count)
        for number in range(count)
    }
    return Load(
        topics_count=count,
        sessions_count=sessions,
        messages_per_s=messages_per_s,
        bytes_per_s=bytes_per_s,
        topics=topics,
    )


@dataclass(slots=True)
class Cluster:
    """Bundles by name; the rest follows from it unless it is given."""

    bundles: Mapping[str, Load]
    namespace_counts: Mapping[str, int] = field(default_factory=dict)

    def snapshot(self) -> SplitSnapshot:
        """The columns."""
        names, loads = list(self.bundles), list(self.bundles.values())
        namespaces = [name.rpartition("/")[0] for name in names]
        known = sorted(set(namespaces))
        return SplitSnapshot(
            names=names,
            namespaces=np.array([known.index(name) for name in namespaces], dtype=np.int64),
            namespace_bundle_counts=np.array(
                [self.namespace_counts.get(name, namespaces.count(name)) for name in known], dtype=np.int64
            ),
            topic_counts=np.array([load.topics_count for load in loads], dtype=np.int64),
            session_counts=np.array([load.sessions_count for load in loads], dtype=np.int64),
            messages_per_s=np.array([load.messages_per_s for load in loads], dtype=np.float64),
            bytes_per_s=np.array([load.bytes_per_s for load in loads], dtype=np.float64),
            may_split=np.array([load.may_split for load in loads], dtype=np.bool_),
            waits=np.array([load.waits for load in loads], dtype=np.bool_),
            decided_count=0,
            has_topic_stats=np.array([load.topics is not None for load in loads], dtype=np.bool_),
            topic_table=_table(loads),
        )


def _table(loads: list[Load]) -> TopicTable:
    """Topics by their given position, which is used instead of the position that the name hashes to."""
    tables = [columns(load.topics or {}) for load in loads]
    edges = np.cumsum([0, *map(len, tables)]).astype(np.int64)
    return _Placed(
        names=[name for table in tables for name in table.names],
        messages_per_s=np.concatenate([np.zeros(0), *(table.messages_per_s for table in tables)]),
        bytes_per_s=np.concatenate([np.zeros(0), *(table.bytes_per_s for table in tables)]),
        sessions=np.concatenate([np.zeros(0, dtype=np.int64), *(table.sessions for table in tables)]),
        starts=edges[:-1],
        ends=edges[1:],
        tables=tables,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Placed(TopicTable):
    """Topics that are where the case says, not where their names hash to."""

    tables: list[TopicLoads]

    def topics_of(self, bundle: int) -> TopicLoads:
        return self.tables[bundle]


def no_hits(snapshot: SplitSnapshot) -> SplitMemory:
    """Nothing remembered."""
    return SplitMemory(hits=np.zeros(len(snapshot), dtype=np.int64))


def outcomes(snapshot: SplitSnapshot, plan: SplitPlan) -> dict[str, str]:
    """Outcome of every candidate by bundle name, in the order examined; fails if one has two."""
    names = [snapshot.names[row] for row in plan.examined.rows.tolist()]
    assert len(set(names)) == len(names)
    return dict(zip(names, (OUTCOMES[code] for code in plan.examined.outcome.tolist()), strict=True))


def cuts(snapshot: SplitSnapshot, plan: SplitPlan) -> dict[str, tuple[int, ...]]:
    """Boundaries by bundle name, in the order decided."""
    return {snapshot.names[decision.row]: decision.cut.boundaries for decision in plan.decisions}
