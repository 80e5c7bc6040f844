"""When to split: which bundles are above a limit for long enough, and which of them a split can help.

From Pulsar: ``DefaultNamespaceBundleSplitStrategyImpl`` (present values, hit count) and ``BundleSplitterTask`` (averages);
``average_samples`` chooses between them. A bundle must be strictly above a limit; limits are checked in Pulsar's order: topics,
sessions, rate, throughput. A hit count belongs to the bundle: it rises in each round above a limit, is reset by a round below all
limits and by a split, and does not change while the bundle has fewer than two topics.

Where ours differs: the heaviest candidates come first, ties by name; a split that cannot help is not made, and the topic
that carries the load is named; a cut may have several boundaries, so the namespace's cap counts each of them.
What is known of the topics, and what happens where too little is known, is in ``evidence``.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from policies.columns import Bools, Codes, Floats, Ints, first_code
from policies.splitting.algorithms import divide
from policies.splitting.cut import BundleLimits, SplitQuestion, children, no_cut
from policies.splitting.evidence import DOMINANT_RATIO, Evidence, heaviest_topic
from policies.splitting.plan import (
    BY_BYTES,
    BY_MESSAGES,
    BY_SESSIONS,
    BY_TOPICS,
    MEASURES,
    NO_PROPOSALS,
    NO_TOPIC,
    OUTCOMES,
    TRIGGERS,
    UNITS,
    Examined,
    Outcome,
    Proposals,
    SplitDecision,
    SplitMemory,
    SplitPlan,
    SplitSettings,
    SplitSnapshot,
    TopicTable,
)
from policies.splitting.ranges import BadRange, Bundle

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
    """Rounds above a limit, or proposed by a policy that counts no hits, this one included, (c,)."""
    passed: Bools
    """Which limits it is above, in Pulsar's order, (4, c)."""
    counts: Bools
    """Whether the round is a hit, (c,)."""
    is_barred: Bools
    """Whether it puts its broker above average and fits no other, and its parts could not leave: it is above no limit, (c,)."""
    has_counted: Bools
    """Whether it needs no hits, because the policy that proposes it has counted its own, (c,)."""
    boundaries_counts: Ints
    """Boundaries to make where an overloaded broker is the only reason, (c,); else 0: as many as are needed."""
    limits: Floats
    """The limit or mean that it is above, in the trigger's measure, (c,)."""

    def triggers_of(self, at: int) -> list[int]:
        """All triggers of one candidate, the first of them first."""
        first = int(self.trigger[at])
        return [
            first,
            *(trigger for trigger in np.flatnonzero(self.passed[:, at]).tolist() if trigger != first),
        ]


@dataclass(slots=True)
class _Round:
    """What has been decided so far."""

    decisions: list[SplitDecision] = field(default_factory=list)
    spent_count: int = 0
    """Splits that spend the limit of the round; those that wait for a person do not."""
    added: Counter[int] = field(default_factory=Counter)
    """Their boundaries by namespace."""
    reasons: dict[int, str] = field(default_factory=dict)


def split(
    snapshot: SplitSnapshot,
    memory: SplitMemory,
    settings: SplitSettings,
    proposals: Proposals = NO_PROPOSALS,
) -> tuple[SplitPlan, SplitMemory]:
    """Decide one round. Pure; ``memory`` is not changed. The caller checks ``settings.enabled``.

    ``proposals`` need no hits where the shedding policy behind them has counted its own. A candidate whose range Pulsar would
    refuse gets the outcome ``range-too-narrow``.
    """
    candidates = _candidates(snapshot, memory, settings, proposals)
    outcome = _rule_out(snapshot, candidates, settings)
    so_far = _Round(spent_count=snapshot.decided_count)
    for at in np.flatnonzero(outcome == Outcome.ANTI_AFFINITY).tolist():
        so_far.reasons[at] = proposals.barred[int(candidates.rows[at])]
    waits = snapshot.waits[candidates.rows]
    for at in np.flatnonzero(outcome == _OPEN).tolist():
        if not waits[at] and 0 < settings.max_splits_per_round_count <= so_far.spent_count:
            outcome[at] = Outcome.BUDGET
            continue
        outcome[at] = _judge(snapshot, candidates, memory, settings, at, so_far)
    heaviest = np.full(len(candidates.rows), NO_TOPIC, dtype=np.int64)
    for at in np.flatnonzero((outcome == Outcome.SOLE_TOPIC) | (outcome == Outcome.DOMINANT_TOPIC)).tolist():
        heaviest[at] = heaviest_topic(
            snapshot.topic_table, int(candidates.rows[at]), int(candidates.trigger[at])
        )[0]
    examined = Examined(
        rows=candidates.rows,
        outcome=outcome,
        outcomes=OUTCOMES,
        trigger=candidates.trigger,
        triggers=TRIGGERS,
        heaviest_topic=heaviest,
        evidence={
            "bundle_topics_count": snapshot.topic_counts[candidates.rows],
            "bundle_sessions_count": snapshot.session_counts[candidates.rows],
            "bundle_messages_per_s": snapshot.messages_per_s[candidates.rows],
            "bundle_bytes_per_s": snapshot.bytes_per_s[candidates.rows],
            "load_ratio": candidates.load_ratio,
            "limit": candidates.limits,
            "hit_count": candidates.hits,
            "needed_hit_count": np.where(candidates.has_counted, 0, settings.hit_count + 1),
        },
        reasons=so_far.reasons,
    )
    hits = np.zeros(len(snapshot), dtype=np.int64)
    hits[candidates.rows] = np.where(candidates.counts & (outcome != Outcome.ACTED), candidates.hits, 0)
    few = _has_few_topics(snapshot)
    hits[few] = memory.hits[few]
    after = replace(memory, hits=hits)
    return SplitPlan(examined=examined, decisions=tuple(so_far.decisions)), after


def limits_passed(snapshot: SplitSnapshot, settings: SplitSettings) -> Bools:
    """Which limits each bundle is above, in Pulsar's order, (4, m)."""
    return np.array(
        [
            (snapshot.topic_counts > settings.max_topics_count) & (settings.max_topics_count > 0),
            (snapshot.session_counts > settings.max_sessions_count) & (settings.max_sessions_count > 0),
            snapshot.messages_per_s > settings.max_messages_per_s,
            snapshot.bytes_per_s > settings.max_bytes_per_s,
        ]
    )


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
    tests = limits_passed(snapshot, settings)
    trigger = np.select(list(tests), [BY_TOPICS, BY_SESSIONS, BY_MESSAGES, BY_BYTES], -1).astype(np.int8)
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
    rows, barred = rows[order], list(proposals.barred)
    is_proposed = np.isin(rows, np.setdiff1d(proposals.rows, barred))
    counts = is_above[rows] | (is_proposed & (not proposals.has_counted))
    return _Candidates(
        rows=rows,
        trigger=trigger[rows],
        load_ratio=ratio[order],
        hits=memory.hits[rows] + counts,
        passed=tests[:, rows],
        counts=counts,
        is_barred=np.isin(rows, barred) & ~is_above[rows],
        has_counted=is_proposed & proposals.has_counted,
        boundaries_counts=wanted[rows],
        limits=limits[rows],
    )


def _configured_limits(settings: SplitSettings) -> Floats:
    """Limit of each trigger; 0 for triggers that no setting limits and, in the last place, for no trigger."""
    limits = np.zeros(len(TRIGGERS) + 1)
    limits[[BY_TOPICS, BY_SESSIONS]] = settings.max_topics_count, settings.max_sessions_count
    limits[[BY_MESSAGES, BY_BYTES]] = settings.max_messages_per_s, settings.max_bytes_per_s
    return limits


def _rule_out(snapshot: SplitSnapshot, candidates: _Candidates, settings: SplitSettings) -> Codes:
    """Outcome of the candidates that checks on the columns rule out; ``_OPEN`` for the others."""
    tests = [
        (candidates.is_barred, Outcome.ANTI_AFFINITY),
        (_has_few_topics(snapshot)[candidates.rows], Outcome.SOLE_TOPIC),
        ((candidates.hits <= settings.hit_count) & ~candidates.has_counted, Outcome.HIT_COUNT),
        (~snapshot.may_split[candidates.rows], Outcome.MASKED),
        (snapshot.topic_counts[candidates.rows] == 0, Outcome.NO_TOPIC_STATS),
    ]
    return first_code(tests, _OPEN)


def _has_few_topics(snapshot: SplitSnapshot) -> Bools:
    """Whether a bundle is known to have too few topics; a count of 0 without statistics means that they were not counted."""
    counts = snapshot.topic_counts
    return (counts < _LEAST_TOPICS) & ((counts > 0) | snapshot.has_topic_stats)


def _judge(
    snapshot: SplitSnapshot,
    candidates: _Candidates,
    memory: SplitMemory,
    settings: SplitSettings,
    at: int,
    so_far: _Round,
) -> int:
    """Outcome of one candidate that stood out for long enough, by the first limit against which a cut helps; fills ``so_far``.

    Limits against which the evidence is complete come first.
    """
    row = int(candidates.rows[at])
    try:
        range_ = Bundle.parse(snapshot.names[row]).range
    except BadRange as error:
        so_far.reasons[at] = str(error)  # one broker's odd bundle name must not end the round for all
        return Outcome.RANGE_TOO_NARROW
    room = _room(snapshot, settings, so_far, row)
    if not range_.can_split:
        return Outcome.RANGE_TOO_NARROW
    if room is not None and room <= 0:
        return Outcome.NAMESPACE_FULL
    topics = snapshot.topic_table.topics_of(row).take_range(range_)
    question = SplitQuestion(
        range=range_,
        topics=topics,
        difference_threshold_percent=settings.difference_threshold_percent,
        boundary=settings.flow_or_qps_boundary,
        boundaries_count=int(candidates.boundaries_counts[at]) or None,
        max_boundaries_count=MOST_BOUNDARIES if room is None else min(room, MOST_BOUNDARIES),
        max_child_ratio=settings.max_child_ratio,
    )
    tried: dict[int, tuple[int, str]] = {}
    evidence = (Evidence(snapshot, row, trigger, topics) for trigger in candidates.triggers_of(at))
    for measure in sorted(evidence, key=lambda measure: not measure.is_known):
        tried[measure.trigger] = _judge_measure(measure, memory, settings, question, at, so_far)
        if tried[measure.trigger][0] == Outcome.ACTED:
            if measure.trigger != candidates.trigger[at]:
                candidates.trigger[at] = measure.trigger
                candidates.limits[at] = _configured_limits(settings)[measure.trigger]
            return Outcome.ACTED
    outcome, reason = tried[int(candidates.trigger[at])]
    if reason:
        so_far.reasons[at] = reason
    return outcome


def _judge_measure(
    evidence: Evidence,
    memory: SplitMemory,
    settings: SplitSettings,
    question: SplitQuestion,
    at: int,
    so_far: _Round,
) -> tuple[int, str]:
    """Outcome of one candidate by one of the limits it is above, and why; fills ``so_far`` where it is cut."""
    question = replace(question, limits=_limits(settings, evidence.trigger))
    if evidence.load <= 0:  # what the averages still show is no evidence of which topics have it
        return Outcome.NO_BOUNDARY, f"it has 0 {UNITS[evidence.trigger]} now"
    if not evidence.is_known:
        name = evidence.snapshot.names[evidence.row]
        reason = evidence.why_no_guess(settings, memory.blind_cuts.get(name))
        if reason:
            return Outcome.NO_TOPIC_STATS, reason
        algorithm, cut = evidence.guess(settings, question)
    elif evidence.has_one_topic:
        return Outcome.DOMINANT_TOPIC, ""
    else:
        algorithm, cut = settings.algorithm, divide(settings.algorithm, question)
        kept = evidence.kept_ratio(cut) if cut.boundaries else 0.0
        if kept >= DOMINANT_RATIO:
            cut = no_cut(f"{kept:.0%} of its {UNITS[evidence.trigger]} would stay together; {cut.reason}")
    if len(cut.boundaries) > MOST_BOUNDARIES:
        cut = no_cut(
            f"{len(cut.boundaries)} boundaries would be needed, and {MOST_BOUNDARIES} fit in an action"
        )
    if not cut.boundaries:
        return Outcome.NO_BOUNDARY, cut.reason
    room = question.max_boundaries_count
    if room is not None and len(cut.boundaries) > room:
        return Outcome.NAMESPACE_FULL, ""
    if not evidence.snapshot.waits[evidence.row]:
        so_far.spent_count += 1
        so_far.added[int(evidence.snapshot.namespaces[evidence.row])] += len(cut.boundaries)
    so_far.decisions.append(
        SplitDecision(
            row=evidence.row,
            examined=at,
            algorithm=algorithm,
            cut=cut,
            children=children(question, cut.boundaries),
            known=frozenset(
                MEASURES[trigger]
                for trigger in (BY_TOPICS, BY_SESSIONS, BY_MESSAGES, BY_BYTES)
                if evidence.by(trigger).is_known
            ),
        )
    )
    return Outcome.ACTED, ""


def _room(snapshot: SplitSnapshot, settings: SplitSettings, so_far: _Round, row: int) -> int | None:
    """How many bundles the namespace may still get; None: any number."""
    if settings.max_namespace_bundles_count <= 0:
        return None
    namespace = int(snapshot.namespaces[row])
    taken = int(snapshot.namespace_bundle_counts[namespace]) + so_far.added[namespace]
    return settings.max_namespace_bundles_count - taken


def _limits(settings: SplitSettings, trigger: int) -> BundleLimits:
    """The limits of rate and throughput, and also of topics or sessions where there are too many of them."""
    limits = settings.limits()
    if trigger == BY_TOPICS:
        return replace(limits, topics_count=float(settings.max_topics_count))
    if trigger == BY_SESSIONS:
        return replace(limits, sessions_count=float(settings.max_sessions_count))
    return limits
