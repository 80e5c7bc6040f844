"""When to split: which bundles are above a limit for long enough, and which of them a split can help.

From Pulsar: ``DefaultNamespaceBundleSplitStrategyImpl`` (present values, hit count) and ``BundleSplitterTask`` (averages);
``average_samples`` chooses between them. A bundle must be strictly above a limit; limits are checked in Pulsar's order: topics,
sessions, rate, throughput. A hit count belongs to the bundle: it rises in each round above a limit, is reset by a round below all
limits and by a split, and does not change while the bundle has fewer than two topics.

Where ours differs: the heaviest candidates come first, ties by name; a split that cannot help is not made, and the topic
that carries the load is named; a cut may have several boundaries, so the namespace's cap counts each of them; a bundle whose
topics are not known is held, not cut by a guess, unless the setting allows a guess.
Known to do badly: sessions are not known by topic and are taken to be spread evenly over the topics.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from policies.columns import Bools, Codes, Floats, Ints
from policies.splitting import balanced_flow_divide, range_equally_divide
from policies.splitting.algorithms import divide
from policies.splitting.cut import BundleLimits, SplitQuestion, children
from policies.splitting.plan import (
    ACTED,
    BUDGET,
    BY_BROKER_BYTES,
    BY_BYTES,
    BY_MESSAGES,
    BY_SESSIONS,
    BY_TOPICS,
    HIT_COUNT,
    MASKED,
    NAMESPACE_FULL,
    NO_BOUNDARY,
    NO_PROPOSALS,
    NO_TOPIC,
    NO_TOPIC_STATS,
    ONE_TOPIC,
    RANGE_TOO_NARROW,
    SOLE_TOPIC,
    TRIGGERS,
    Examined,
    Proposals,
    SplitDecision,
    SplitMemory,
    SplitPlan,
    SplitSnapshot,
    TopicTable,
)
from policies.splitting.ranges import BadRange, Bundle, BundleRange
from policies.splitting.settings import SplitSettings

ONE_TOPIC_RATIO = 0.9
"""Share of a bundle's rate or throughput from which one topic counts as carrying it: cutting all others off would relieve it by
less than a tenth, and a split cannot be undone."""
MOST_BOUNDARIES = 10_000
"""Most boundaries of one split, so that its action fits in a record; eighty times the bundles that a namespace may have in Pulsar."""
_LEAST_TOPICS = 2
"""Topics a bundle needs to be split: a topic is the smallest unit."""
_OPEN = -1
"""Outcome of a candidate that passed every check made on columns."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Candidates:
    """Bundles above a limit, the heaviest first; c rows."""

    rows: Ints
    trigger: Codes
    load_ratio: Floats
    hits: Ints
    """Rounds above a limit, this one included, (c,)."""
    is_above: Bools
    """Whether it is above a limit, (c,)."""
    is_proposed: Bools
    """Whether it alone overloads its broker, (c,)."""
    boundaries_counts: Ints
    """Boundaries to make where an overloaded broker is the only reason, (c,); else 0: as many as are needed."""
    limits: Floats
    """The limit or mean that it is above, in the trigger's measure, (c,)."""


@dataclass(slots=True)
class _Round:
    """What has been decided so far."""

    decisions: list[SplitDecision] = field(default_factory=list)
    added: Counter[int] = field(default_factory=Counter)
    """Boundaries by namespace."""
    reasons: dict[int, str] = field(default_factory=dict)


def split(
    snapshot: SplitSnapshot,
    memory: SplitMemory,
    settings: SplitSettings,
    proposals: Proposals = NO_PROPOSALS,
) -> tuple[SplitPlan, SplitMemory]:
    """Decide one round. Pure; ``memory`` is not changed. The caller checks ``settings.enabled``.

    ``proposals`` need no hits: the shedding policy behind them has counted its own. A candidate whose range Pulsar would
    refuse gets the outcome ``range-too-narrow``.
    """
    found = _candidates(snapshot, memory, settings, proposals)
    outcome = _rule_out(snapshot, found, settings)
    heaviest = np.full(len(found.rows), NO_TOPIC, dtype=np.int64)
    so_far = _Round()
    for at in np.flatnonzero(outcome == _OPEN).tolist():
        if 0 < settings.max_splits_per_round_count <= len(so_far.decisions):
            outcome[outcome == _OPEN] = BUDGET
            break
        outcome[at] = _judge(snapshot, found, settings, at, so_far, heaviest)
    for at in np.flatnonzero(outcome == SOLE_TOPIC).tolist():
        heaviest[at] = heaviest_topic(snapshot.topic_table, int(found.rows[at]), int(found.trigger[at]))[0]
    examined = Examined(
        rows=found.rows,
        outcome=outcome,
        trigger=found.trigger,
        heaviest_topic=heaviest,
        evidence=dict(_evidence(snapshot, found, settings)),
        reasons=so_far.reasons,
    )
    hits = np.zeros(len(snapshot), dtype=np.int64)
    hits[found.rows] = np.where((outcome == ACTED) | ~found.is_above, 0, found.hits)
    few = _has_few_topics(snapshot)
    hits[few] = memory.hits[few]
    return SplitPlan(examined=examined, decisions=tuple(so_far.decisions)), SplitMemory(hits=hits)


def hot_partitions(table: TopicTable, settings: SplitSettings) -> Ints:
    """Rows of ``table`` that no split can help, the hottest first, ties by name: they need more partitions."""
    if settings.hot_partition_bytes_per_s <= 0:
        return np.zeros(0, dtype=np.int64)
    volume = table.bytes_per_s
    hot = np.flatnonzero(volume > settings.hot_partition_bytes_per_s).tolist()
    return np.array(sorted(hot, key=lambda row: (-volume[row], table.names[row])), dtype=np.int64)


def _candidates(
    snapshot: SplitSnapshot, memory: SplitMemory, settings: SplitSettings, proposals: Proposals
) -> _Candidates:
    passed = [
        (snapshot.topic_counts > settings.max_topics_count) & (settings.max_topics_count > 0),
        (snapshot.session_counts > settings.max_sessions_count) & (settings.max_sessions_count > 0),
        snapshot.messages_per_s > settings.max_messages_per_s,
        snapshot.bytes_per_s > settings.max_bytes_per_s,
    ]
    trigger = np.select(passed, [BY_TOPICS, BY_SESSIONS, BY_MESSAGES, BY_BYTES], -1).astype(np.int8)
    is_above = trigger >= 0
    fresh = ~is_above[proposals.rows]
    trigger[proposals.rows[fresh]] = proposals.triggers[fresh]
    wanted = np.zeros(len(snapshot), dtype=np.int64)
    wanted[proposals.rows[fresh]] = proposals.boundaries_counts[fresh]
    limits = _configured_limits(settings)[trigger]
    limits[proposals.rows[fresh]] = proposals.means_per_s[fresh]
    rows = np.flatnonzero(trigger >= 0)
    parts = [
        snapshot.messages_per_s[rows] / settings.max_messages_per_s,
        snapshot.bytes_per_s[rows] / settings.max_bytes_per_s,
    ]
    if settings.max_topics_count > 0:
        parts.append(snapshot.topic_counts[rows] / settings.max_topics_count)
    if settings.max_sessions_count > 0:
        parts.append(snapshot.session_counts[rows] / settings.max_sessions_count)
    ratio = np.max(parts, axis=0)
    order = np.argsort(-ratio, kind="stable")
    if (np.diff(ratio[order]) == 0).any():
        weights, where = ratio.tolist(), rows.tolist()
        by_name = sorted(range(len(where)), key=lambda at: (-weights[at], snapshot.names[where[at]]))
        order = np.array(by_name, dtype=np.int64)
    rows = rows[order]
    return _Candidates(
        rows=rows,
        trigger=trigger[rows],
        load_ratio=ratio[order],
        hits=memory.hits[rows] + is_above[rows],
        is_above=is_above[rows],
        is_proposed=np.isin(rows, proposals.rows),
        boundaries_counts=wanted[rows],
        limits=limits[rows],
    )


def _configured_limits(settings: SplitSettings) -> Floats:
    """Limit of each trigger; 0 for triggers that no setting limits and, in the last place, for no trigger."""
    limits = np.zeros(len(TRIGGERS) + 1)
    limits[[BY_TOPICS, BY_SESSIONS]] = settings.max_topics_count, settings.max_sessions_count
    limits[[BY_MESSAGES, BY_BYTES]] = settings.max_messages_per_s, settings.max_bytes_per_s
    return limits


def _rule_out(snapshot: SplitSnapshot, found: _Candidates, settings: SplitSettings) -> Codes:
    """Outcome of the candidates that checks on the columns rule out; ``_OPEN`` for the others."""
    return np.select(
        [
            _has_few_topics(snapshot)[found.rows],
            (found.hits <= settings.hit_count) & ~found.is_proposed,
            ~snapshot.may_split[found.rows],
            snapshot.topic_counts[found.rows] == 0,
        ],
        [SOLE_TOPIC, HIT_COUNT, MASKED, NO_TOPIC_STATS],
        _OPEN,
    ).astype(np.int8)


def _has_few_topics(snapshot: SplitSnapshot) -> Bools:
    """Whether a bundle is known to have too few topics; a count of 0 without statistics means that they were not counted."""
    counts = snapshot.topic_counts
    return (counts < _LEAST_TOPICS) & ((counts > 0) | snapshot.has_topic_stats)


def _judge(
    snapshot: SplitSnapshot,
    found: _Candidates,
    settings: SplitSettings,
    at: int,
    so_far: _Round,
    heaviest: Ints,
) -> int:
    """Outcome of one candidate that stood out for long enough; fills ``so_far`` and ``heaviest``."""
    row = int(found.rows[at])
    try:
        range_ = Bundle.parse(snapshot.names[row]).range
    except BadRange as error:
        so_far.reasons[at] = str(error)  # one broker's odd bundle name must not end the round for all
        return RANGE_TOO_NARROW
    room = _room(snapshot, settings, so_far, row)
    algorithm = _algorithm(settings, knows_topics=bool(snapshot.has_topic_stats[row]))
    if not range_.can_split:
        return RANGE_TOO_NARROW
    if room is not None and room <= 0:
        return NAMESPACE_FULL
    if algorithm is None:
        return NO_TOPIC_STATS
    carrier, share = heaviest_topic(snapshot.topic_table, row, int(found.trigger[at]))
    if found.trigger[at] not in (BY_TOPICS, BY_SESSIONS) and share >= ONE_TOPIC_RATIO:
        heaviest[at] = carrier
        return ONE_TOPIC
    question = _question(snapshot, settings, found, at, range_, room)
    return _cut(snapshot, question, algorithm, at, row, so_far)


def _algorithm(settings: SplitSettings, *, knows_topics: bool) -> str | None:
    """The algorithm to ask; None where its answer would be a guess that the settings do not allow."""
    if knows_topics or settings.algorithm == range_equally_divide.NAME:
        return settings.algorithm
    return None if settings.without_topic_stats == "hold" else range_equally_divide.NAME


def _cut(
    snapshot: SplitSnapshot, question: SplitQuestion, algorithm: str, at: int, row: int, so_far: _Round
) -> int:
    """Outcome of a candidate that may be split; notes where the algorithm cuts it."""
    cut = divide(algorithm, question)
    if not cut.boundaries:
        so_far.reasons[at] = cut.reason
        return NO_BOUNDARY
    room = question.max_boundaries_count
    if len(cut.boundaries) > MOST_BOUNDARIES:
        so_far.reasons[at] = (
            f"{len(cut.boundaries)} boundaries would be needed, and {MOST_BOUNDARIES} fit in an action"
        )
        return NO_BOUNDARY
    if room is not None and len(cut.boundaries) > room:
        return NAMESPACE_FULL
    so_far.added[int(snapshot.namespaces[row])] += len(cut.boundaries)
    so_far.decisions.append(
        SplitDecision(
            row=row, examined=at, algorithm=algorithm, cut=cut, children=children(question, cut.boundaries)
        )
    )
    return ACTED


def _room(snapshot: SplitSnapshot, settings: SplitSettings, so_far: _Round, row: int) -> int | None:
    """How many bundles the namespace may still get; None: any number."""
    if settings.max_namespace_bundles_count <= 0:
        return None
    namespace = int(snapshot.namespaces[row])
    taken = int(snapshot.namespace_bundle_counts[namespace]) + so_far.added[namespace]
    return settings.max_namespace_bundles_count - taken


def heaviest_topic(table: TopicTable, bundle: int, trigger: int) -> tuple[int, float]:
    """Row of the topic with most of the bundle's rate or throughput, ties by name, and its share of it.

    The measure is the trigger's; NO_TOPIC and 0 where no topic is known to have any.
    """
    rows = table.rows_of(bundle)
    load = (table.bytes_per_s if trigger in (BY_BYTES, BY_BROKER_BYTES) else table.messages_per_s)[rows]
    total = float(load.sum())
    if total <= 0:
        return NO_TOPIC, 0.0
    most = np.flatnonzero(load == load.max()) + rows.start
    row = min(most.tolist(), key=lambda at: table.names[at])
    return row, float(load[row - rows.start]) / total


def _question(
    snapshot: SplitSnapshot,
    settings: SplitSettings,
    found: _Candidates,
    at: int,
    range_: BundleRange,
    room: int | None,
) -> SplitQuestion:
    topics = snapshot.topic_table.of(int(found.rows[at])).take_range(range_)
    return SplitQuestion(
        range=range_,
        topics=topics,
        limits=_limits(snapshot, settings, int(found.rows[at]), int(found.trigger[at]), len(topics)),
        difference_threshold_percent=settings.difference_threshold_percent,
        boundary=settings.flow_or_qps_boundary,
        boundaries_count=int(found.boundaries_counts[at]) or None,
        max_boundaries_count=MOST_BOUNDARIES if room is None else min(room, MOST_BOUNDARIES),
        max_child_ratio=settings.max_child_ratio,
    )


def _limits(
    snapshot: SplitSnapshot, settings: SplitSettings, row: int, trigger: int, topics_count: int
) -> BundleLimits:
    """The limits of rate and throughput, and also of topics where there are too many topics or sessions."""
    limits = settings.limits()
    if settings.algorithm == balanced_flow_divide.NAME and topics_count:
        if trigger == BY_TOPICS:
            return replace(limits, topics_count=float(settings.max_topics_count))
        if trigger == BY_SESSIONS:
            allowed = settings.max_sessions_count / int(snapshot.session_counts[row])
            return replace(limits, topics_count=topics_count * allowed)
    return limits


def _evidence(
    snapshot: SplitSnapshot, found: _Candidates, settings: SplitSettings
) -> Iterator[tuple[str, Floats | Ints]]:
    yield "bundle_topics_count", snapshot.topic_counts[found.rows]
    yield "bundle_sessions_count", snapshot.session_counts[found.rows]
    yield "bundle_messages_per_s", snapshot.messages_per_s[found.rows]
    yield "bundle_bytes_per_s", snapshot.bytes_per_s[found.rows]
    yield "load_ratio", found.load_ratio
    yield "limit", found.limits
    yield "hit_count", found.hits
    yield "needed_hit_count", np.where(found.is_proposed, 0, settings.hit_count + 1)
