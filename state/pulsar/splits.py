"""A round's splits: from the fleet and the topic statistics to actions, memory and the table of the summary.

They are decided before the round's unloads are admitted, because a bundle is never split and unloaded in one round: a
bundle that is too heavy to be moved (``relief``) is split instead of unloaded, any other that the policy wants to move is left to the policy.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import msgspec
import numpy as np

from policies.columns import Codes, Ints
from policies.shedding.contract import SheddingPlan
from policies.splitting.criteria import limits_passed, split
from policies.splitting.cut import ChildLoad
from policies.splitting.evidence import NO_STATISTICS, heaviest_topic
from policies.splitting.plan import (
    BY_BROKER_MESSAGES,
    NO_TOPIC,
    TRIGGERS,
    UNITS,
    Outcome,
    Proposals,
    SplitDecision,
    SplitMemory,
    SplitPlan,
    SplitSnapshot,
    TopicTable,
    evidence_name,
)
from policies.splitting.relief import parts_count, receivers_of
from policies.wording import found_in
from state.closing import Hold
from state.events import SESSIONS, TOPICS, TopicStats, namespace_of
from state.outputs import Section, Split, SplitChild, SplitRow
from state.pulsar import masks
from state.pulsar.admission import PROPOSED, Admission, Refusal
from state.pulsar.listings import find, pick
from state.pulsar.view import PolicyView, RoundContext
from state.summary import SHOWN_ROWS, join_names, section_of

POLICY = "bundle-split"

_SHOWN_BOUNDARIES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Splits:
    """What the split criteria of a round decided."""

    table: PolicyView
    snapshot: SplitSnapshot
    plan: SplitPlan
    mask_codes: Codes
    hold: Hold | None
    """Why none of the decided splits happens; None where they do."""
    waiting: dict[int, Hold]
    """By bundle row, why a split that has to be approved does not happen now: it is proposed, or waits for its broker's open proposal."""
    replaced_counts: Mapping[int, int]
    """By bundle row, how many moves of other bundles of its broker its split takes the place of."""
    cuts: list[Split] = field(default_factory=list)
    """The splits that happen, in the order of the criteria."""
    proposals: list[Split] = field(default_factory=list)
    """Those that are proposed in this round."""
    counting: frozenset[int] = frozenset()
    """Bundle rows that are split for their broker's sake if that is still so after some rounds."""
    before_moves: dict[int, Hold] = field(default_factory=dict)
    """By broker row, why no bundle of it moves in this round: the parts of the one that is split are to be known first."""

    @property
    def rows(self) -> frozenset[int]:
        """Bundle rows of the splits that happen or are proposed."""
        return frozenset(
            decision.row for decision in self.plan.decisions if self.hold_of(decision.row) in (None, PROPOSED)
        )

    def hold_of(self, row: int) -> Hold | None:
        """Why a decided split of a bundle row does not happen."""
        return self.hold or self.waiting.get(row)


def decide(
    admission: Admission,
    plan: SheddingPlan,
    topics: TopicTable,
    *,
    proposals: Proposals,
    acting: Collection[int],
    approved: Sequence[Split],
) -> Splits:
    """Run the criteria; what they remember goes to the round's fleet. ``acting`` are bundle rows of approved actions that go out.

    ``approved`` are the splits among these. ``proposals`` are those of ``relief``. Any other bundle that the policy wants to move is left
    to the policy, unless that wants bundles to be split first, or unloads are held as failing until a person resumes the cluster.
    """
    context, table, held, hold = (
        admission.context,
        admission.table,
        admission.holds.unload,
        admission.holds.split,
    )
    may_split = context.pulsar.policy.plans_rounds or (held is not None and held.reason == "failing")
    leaving = plan.unload_rows[:0] if may_split else plan.unload_rows
    fleet, rows = context.fleet, table.fleet_rows
    wanted = np.setdiff1d(proposals.rows, list(proposals.barred))
    codes = masks.keep_from_splits(
        admission.split_codes[rows], acting=acting, leaving=np.setdiff1d(leaving, wanted).tolist()
    )
    snapshot = _snapshot(context, table, topics, approved)
    waiting = {} if hold else _waiting(admission, snapshot, proposals)
    waits = [row for row, held in waiting.items() if held is not PROPOSED]
    snapshot = replace(
        snapshot,
        may_split=codes == masks.Mask.OPEN,
        waits=np.isin(np.arange(len(snapshot)), waits),
    )
    memory = SplitMemory(hits=fleet.split_hits[rows], blind_cuts=fleet.blind_cuts)
    split_plan, after = split(snapshot, memory, context.pulsar.split, proposals)
    may_be_cut = snapshot.may_split & (snapshot.topic_counts > 0)
    if context.pulsar.split.without_topic_stats == "hold":
        may_be_cut &= snapshot.has_topic_stats
    splits = Splits(
        table=table,
        snapshot=snapshot,
        plan=split_plan,
        mask_codes=codes,
        hold=hold,
        waiting=waiting,
        replaced_counts={
            row: count
            for row, count in zip(proposals.rows.tolist(), proposals.replaced_counts.tolist(), strict=True)
            if count
        },
        counting=frozenset(() if hold else _counting(split_plan, wanted[may_be_cut[wanted]])),
    )
    hits = np.where(context.advanced.is_absent[rows], memory.hits, after.hits)
    for decision in split_plan.decisions:
        reason = splits.hold_of(decision.row)
        if reason is None:
            splits.cuts.append(_action(splits, decision, context))
            continue
        hits[decision.row] = int(split_plan.examined.evidence["hit_count"][decision.examined])
        if reason is PROPOSED and admission.asking is not None:
            splits.proposals.append(admission.asking.propose(_action(splits, decision, context)))
    fleet.split_hits[rows] = hits
    splits.before_moves.update(_before_moves(splits, admission, approved))
    return splits


def _counting(split_plan: SplitPlan, rows: Ints) -> list[int]:
    """Those of these bundle rows that have to stand out for longer."""
    examined = split_plan.examined
    found: list[int] = np.intersect1d(examined.rows[examined.outcome == Outcome.HIT_COUNT], rows).tolist()
    return found


def _before_moves(
    splits: Splits, admission: Admission, approved: Sequence[Split]
) -> Iterator[tuple[int, Hold]]:
    """Brokers whose moves a split takes the place of: one of this round, or one that the reports do not show yet."""
    if not splits.replaced_counts:
        return
    context, bundles, split_rows = admission.context, admission.table.view.bundles, splits.rows
    flying = context.ledger.splits_on_their_way(end_ms=context.end_ms)
    shown_later = {action.bundle for action in approved}
    shown_later |= {decision.bundle for decision in flying if not decision.dry_run}
    for row, count in splits.replaced_counts.items():
        name = bundles.names[row]
        is_cut = row in split_rows | splits.counting and (
            splits.hold_of(row) is None or admission.needs_approval("unloads", row)
        )
        if is_cut or name in shown_later:
            detail = f"{name} is split first: {count} moves of lighter bundles would not be enough"
            yield int(bundles.owners_of(np.array([row]))[0]), Hold("split-first", detail)


def _waiting(admission: Admission, snapshot: SplitSnapshot, proposals: Proposals) -> dict[int, Hold]:
    """Candidates whose splits have to be approved: proposed, or held while a proposal of their broker is open."""
    asking = admission.asking
    if asking is None:
        return {}
    above = np.flatnonzero(limits_passed(snapshot, admission.context.pulsar.split).any(axis=0))
    return {
        row: asking.hold(admission.table.broker_of(row)) or PROPOSED
        for row in np.union1d(above, proposals.rows).tolist()
        if admission.needs_approval("splits", row)
    }


def refuse_approved(
    admission: Admission, topics: TopicTable, action: Split, row: int, approved: Sequence[Split]
) -> Refusal | None:
    """Why an approved split of a bundle row that may be split does not go out; ``approved`` are those that go out before it.

    Nothing calls for it any more, or its namespace or the round has no room left.
    """
    context, settings = admission.context, admission.context.pulsar.split
    snapshot = _snapshot(context, admission.table, topics, approved)
    is_above = bool(limits_passed(snapshot, settings)[:, row].any())
    if not is_above and not _overloads(admission, row, action.trigger):
        detail = f"{action.bundle} is above no limit of splits, and its broker does not need it to be cut: loads have changed"
        return "no-longer-helps", detail
    most = settings.max_namespace_bundles_count
    count = int(snapshot.namespace_bundle_counts[snapshot.namespaces[row]]) + len(action.boundaries)
    if 0 < most < count:
        detail = (
            f"{namespace_of(action.bundle)} would have {count} bundles, max_namespace_bundles_count is {most}"
        )
        return "namespace-full", detail
    if 0 < settings.max_splits_per_round_count <= len(approved):
        return "budget", "max_splits_per_round_count is spent"
    return None


def _overloads(admission: Admission, row: int, trigger: str) -> bool:
    """Whether a bundle that was to be cut for its broker's sake still puts it above the average of its group, and fits no other."""
    if not trigger.startswith("broker-"):
        return False
    view, groups = admission.table.view, admission.table.broker_groups
    brokers, bundles = view.brokers, view.bundles
    if masks.stays(admission.table.mask_codes[[row]])[0]:
        return False
    owner = int(bundles.owners_of(np.array([row]))[0])
    by_messages = TRIGGERS.index(trigger) == BY_BROKER_MESSAGES
    load = brokers.messages_per_s if by_messages else brokers.bytes_per_s
    traffic = bundles.messages_per_s if by_messages else bundles.bytes_per_s
    alike = groups == groups[owner]
    count = parts_count(
        load[alike],
        receivers_of(view, row)[alike],
        int(alike[:owner].sum()),
        kept=float(load[owner]),
        bundle=float(traffic[row]),
    )
    return count > 0


def _snapshot(
    context: RoundContext, table: PolicyView, topics: TopicTable, approved: Sequence[Split]
) -> SplitSnapshot:
    """The bundles as the criteria see them, none of them masked; ``approved`` splits count as carried out."""
    fleet, rows = context.fleet, table.fleet_rows
    counts = context.advanced.counts[rows]
    has_stats = topics.ends >= topics.starts
    reported = counts[:, TOPICS]
    return SplitSnapshot(
        names=table.view.bundles.names,
        namespaces=fleet.namespace[rows],
        namespace_bundle_counts=_namespace_bundle_counts(context, approved),
        topic_counts=np.where((reported == 0) & has_stats, topics.ends - topics.starts, reported),
        session_counts=counts[:, SESSIONS],
        messages_per_s=fleet.split_averages[rows, 0],
        bytes_per_s=fleet.split_averages[rows, 1],
        may_split=np.ones(len(rows), dtype=np.bool_),
        waits=np.zeros(len(rows), dtype=np.bool_),
        decided_count=len(approved),
        has_topic_stats=has_stats,
        topic_table=topics,
    )


def _namespace_bundle_counts(context: RoundContext, approved: Sequence[Split]) -> Ints:
    """How many bundles each namespace of the fleet has once the splits on their way, and those approved in this round, are done."""
    fleet, flying = context.fleet, context.ledger.splits_on_their_way(end_ms=context.end_ms)
    counts = np.bincount(fleet.namespace, minlength=len(fleet.namespaces))
    names = {decision.bundle for decision in flying}
    names |= {child.bundle for decision in flying for child in decision.children}
    known = set(pick(fleet.bundles, find(fleet.bundles, names))) if names else names
    for decision in flying:
        namespace = namespace_of(decision.bundle)
        if namespace in fleet.namespaces:  # all of it may be gone
            missing_count = sum(child.bundle not in known for child in decision.children)
            counts[fleet.namespaces.index(namespace)] += missing_count - (decision.bundle in known)
    for action in approved:
        counts[fleet.namespaces.index(namespace_of(action.bundle))] += len(action.boundaries)
    return counts


def topic_table(table: PolicyView, topics: Mapping[str, TopicStats]) -> TopicTable:
    """The round's statistics by bundle row; only those of a bundle's owner count. A row without any ends before it starts."""
    bundles, brokers = table.view.bundles, table.view.brokers
    starts = np.zeros(len(bundles), dtype=np.int64)
    ends = np.full(len(bundles), -1, dtype=np.int64)
    statistics = [(at, topics[name].traffic) for at, name in enumerate(brokers.names) if name in topics]
    base = 0
    for at, traffic in statistics:
        owned = bundles.rows_of(at)
        row_of = dict(zip(bundles.names[owned], range(owned.start, owned.stop), strict=True))
        rows: Ints = np.fromiter(
            map(row_of.get, traffic.bundles, repeat(-1)), dtype=np.int64, count=len(traffic.bundles)
        )
        edges = base + np.cumsum(traffic.counts)
        known = rows >= 0
        starts[rows[known]] = (edges - traffic.counts)[known]
        ends[rows[known]] = edges[known]
        base += len(traffic.topics)
    return TopicTable(
        names=[name for _, traffic in statistics for name in traffic.topics],
        messages_per_s=np.concatenate([np.zeros(0), *(traffic.messages_per_s for _, traffic in statistics)]),
        bytes_per_s=np.concatenate([np.zeros(0), *(traffic.bytes_per_s for _, traffic in statistics)]),
        sessions=np.concatenate(
            [np.zeros(0, dtype=np.int64), *(traffic.sessions for _, traffic in statistics)]
        ),
        starts=starts,
        ends=ends,
    )


def as_in(table: PolicyView, measured: PolicyView, topics: TopicTable) -> TopicTable:
    """Statistics by bundle row of ``measured``, put by bundle row of ``table``, another view of the same fleet."""
    if table is measured:
        return topics
    largest = max(measured.fleet_rows.max(initial=-1), table.fleet_rows.max(initial=-1))
    rows = np.full(largest + 1, -1, dtype=np.int64)
    rows[measured.fleet_rows] = np.arange(len(measured.fleet_rows))
    measured_rows = rows[table.fleet_rows]  # -1, where it was not measured, is the entry behind the last
    return replace(
        topics,
        starts=np.append(topics.starts, 0)[measured_rows],
        ends=np.append(topics.ends, -1)[measured_rows],
    )


def _action(splits: Splits, decision: SplitDecision, context: RoundContext) -> Split:
    name, examined, closing = splits.snapshot.names[decision.row], splits.plan.examined, context.closing
    owner, evidence = splits.table.broker_of(decision.row), examined.evidence_of(decision.examined)
    trigger = examined.trigger_of(decision.examined)
    boundaries = join_names([f"0x{at:08x}" for at in decision.cut.boundaries], _SHOWN_BOUNDARIES)
    return Split(
        cluster=closing.cluster,
        round=closing.number,
        policy=POLICY,
        trigger=trigger,
        reason=f"{_why(splits, decision.row, owner, trigger, evidence)}: cut at {boundaries} by {decision.algorithm}; {decision.cut.reason}",
        evidence={**evidence},
        expected={
            str(child.range): {"messages_per_s": child.messages_per_s, "bytes_per_s": child.bytes_per_s}
            for child in decision.children
            if _knows_traffic(decision)
        },
        precondition={"owner": owner, "range": name.rpartition("/")[2]},
        expires_at=closing.expires_at,
        dry_run=closing.is_dry_run,
        bundle=name,
        broker=owner,
        algorithm=decision.algorithm,
        boundaries=list(decision.cut.boundaries),
        children=[_child(child, decision) for child in decision.children],
    )


def _child(child: ChildLoad, decision: SplitDecision) -> SplitChild:
    is_known = _knows_traffic(decision)
    return SplitChild(
        range=str(child.range),
        topics_count=child.topics_count if "topics" in decision.known else None,
        messages_per_s=child.messages_per_s if is_known else None,
        bytes_per_s=child.bytes_per_s if is_known else None,
        sessions_count=child.sessions_count if "sessions" in decision.known else msgspec.UNSET,
    )


def _knows_traffic(decision: SplitDecision) -> bool:
    return bool({"messages", "bytes"} & decision.known)


def _why(splits: Splits, row: int, owner: str, trigger: str, evidence: Mapping[str, float | int]) -> str:
    name, limit = splits.snapshot.names[row], evidence["limit"]
    amount = f"{name} has {evidence[evidence_name(trigger)]:.0f} {UNITS[TRIGGERS.index(trigger)]}"
    if not trigger.startswith("broker-"):
        hits, needed = int(evidence["hit_count"]), int(evidence["needed_hit_count"])
        since = found_in(hits, needed) if needed else f"and {owner} has to give away load now"
        return f"{amount}, {limit:.0f} are allowed, {since}"
    average = f"(a broker has {limit:.0f} on average)"
    found = f"{owner} would be at most average without it {average}, but"
    if replaced := splits.replaced_counts.get(row):
        found = f"{replaced} moves of lighter bundles would not relieve {owner} enough {average}, and"
    return f"{amount}; {found} any broker that took it whole would then have more than {owner} has left"


def section(splits: Splits) -> Section[SplitRow]:
    """Every bundle that stands out, with its one outcome; the heaviest are shown."""
    examined = splits.plan.examined
    outcomes = [_outcome(splits, row) for row in range(len(examined))]
    shown = [
        SplitRow(
            bundle=splits.snapshot.names[int(examined.rows[row])],
            broker=splits.table.broker_of(int(examined.rows[row])),
            outcome=outcomes[row],
            detail=_detail(splits, row, outcomes[row]),
            trigger=examined.trigger_of(row),
            evidence=examined.evidence_of(row),
        )
        for row in range(min(SHOWN_ROWS, len(examined)))
    ]
    return section_of(outcomes, shown)


def _outcome(splits: Splits, row: int) -> str:
    outcome = splits.plan.examined.outcome_of(row)
    hold = splits.hold_of(int(splits.plan.examined.rows[row]))
    if outcome == "acted" and hold is not None:
        return hold.reason
    if int(splits.plan.examined.outcome[row]) == Outcome.MASKED:
        return masks.SPLIT_MASK_REASONS[int(splits.mask_codes[splits.plan.examined.rows[row]])]
    return outcome


def _detail(splits: Splits, row: int, outcome: str) -> str:
    examined = splits.plan.examined
    evidence = examined.evidence_of(row)
    hold = splits.hold_of(int(examined.rows[row]))
    if hold is not None and outcome == hold.reason:
        return hold.detail
    if outcome == "hit-count":
        return f"hit-count {evidence['hit_count']}/{evidence['needed_hit_count']}"
    if int(examined.heaviest_topic[row]) != NO_TOPIC:
        topic, share = one_topic(splits, row)
        return f"{topic} carries {share:.0%} of it: a split cannot help"
    if int(examined.outcome[row]) == Outcome.NO_TOPIC_STATS:
        return examined.reasons.get(row, NO_STATISTICS)
    return examined.reasons.get(row, outcome)


def one_topic(splits: Splits, row: int) -> tuple[str, float]:
    """The topic that carries the load of an examined bundle, and its share of it."""
    examined, table = splits.plan.examined, splits.snapshot.topic_table
    topic, share = heaviest_topic(table, int(examined.rows[row]), int(examined.trigger[row]))
    return table.names[topic], share
