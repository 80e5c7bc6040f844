"""People's answers to proposals, and the actions that follow from them.

An answer is for one proposal, or for all that are open of one round: for its plan. It counts when the first round after it closes,
whatever its own time is: its place in the log is the same in every replay. An approved action goes out, with a new id and a new
expiry, only if nothing is against it on this round's loads: its bundle is where it was, no mask, hold or budget stops it, and it
still helps. An unload does where its destination would not end above the usage of its source, a split where its bundle is still above
a limit, or too big for its broker and every other one. It then spends what any action spends. Whatever becomes of an answer, its
proposal is no longer open; the policy may propose the same action again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from policies.columns import Floats
from policies.shedding.view import NOBODY
from policies.splitting.plan import MEASURES, TRIGGERS, BlindCut, TopicTable, evidence_name
from state.events import Approval, namespace_of
from state.ledger import ActionKind, Child
from state.memory import ProposalRecord
from state.outputs import ApprovalRow, ApprovalSummary, Output, ProposalRow, Split, Unload, rfc3339
from state.pulsar import masks, splits
from state.pulsar.admission import Admission, Move, bundle_traffic, share_of
from state.pulsar.view import RoundContext
from state.summary import MAX_REMARK_CHARACTERS, SHOWN_ROWS

ROUND = "round/"
"""An answer that names this and the number of a round instead of a proposal is for all open proposals of that round."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer, and what became of it."""

    record: Approval
    outcome: str
    detail: str
    action: Unload | Split | None = None
    kind: ActionKind | None = None
    """What the proposal would do; None where it was not open."""


@dataclass(slots=True)
class Answers:
    """The answers since the last summary, and what follows from them."""

    expired: list[ProposalRecord] = field(default_factory=list)
    given: list[Answer] = field(default_factory=list)
    approved: list[tuple[int, ProposalRecord]] = field(default_factory=list)
    """Places in ``given`` of approvals that are to be decided on, with their proposals."""
    unloads: list[Unload] = field(default_factory=list)
    cuts: list[Split] = field(default_factory=list)
    unload_rows: set[int] = field(default_factory=set)
    """Bundle rows of the view that these actions move."""
    split_rows: set[int] = field(default_factory=set)
    """Bundle rows of the view that these actions cut."""


def begin(context: RoundContext) -> Answers:
    """Drop proposals that have expired, all of them where no approval is required any more, and those that are answered."""
    answers, header, closing = Answers(), context.header, context.closing
    is_asked = closing.proposals_expire_ms is not None
    kept: list[ProposalRecord] = []
    for proposal in header.proposals:
        (kept if is_asked and closing.end_ms < proposal.expires_ms else answers.expired).append(proposal)
    header.rejected = {
        bundle: until_ms
        for bundle, until_ms in header.rejected.items()
        if is_asked and closing.end_ms < until_ms
    }
    expired = {name for proposal in answers.expired for name in _names_of(proposal)}
    for record in header.approvals:
        answered = [proposal for proposal in kept if record.proposal_id in _names_of(proposal)]
        if not answered:
            outcome = "expired" if record.proposal_id in expired else "unknown"
            detail = "it is not open: it has expired, was answered before, or is of another cluster"
            answers.given.append(Answer(record, outcome, detail))
        for proposal in answered:
            kept.remove(proposal)
            named = msgspec.structs.replace(record, proposal_id=proposal.id)
            if record.verdict == "rejected":
                header.rejected[proposal.bundle] = closing.proposals_expire_ms or closing.end_ms
                answers.given.append(Answer(named, "rejected", "rejected", kind=proposal.kind))
            else:
                answers.approved.append((len(answers.given), proposal))
                answers.given.append(Answer(named, "", ""))
    header.proposals, header.approvals = kept, []
    return answers


def _names_of(proposal: ProposalRecord) -> tuple[str, str]:
    """What an answer to a proposal may name: the proposal itself, or all of its round."""
    return proposal.id, f"{ROUND}{proposal.round}"


def answer_none(answers: Answers, *, outcome: str, reason: str) -> None:
    """Answer all approvals in a round in which the policies do not run, so that no approved action goes out."""
    for place, proposal in answers.approved:
        answers.given[place] = Answer(answers.given[place].record, outcome, reason, kind=proposal.kind)


def answer(answers: Answers, admission: Admission, topics: TopicTable) -> None:
    """Decide on what was approved, in the order of the log; ``topics`` are the round's statistics by bundle row."""
    usage_ratio = admission.table.view.brokers.usage_ratio.copy()
    for place, proposal in answers.approved:
        made = _act(answers, admission, answers.given[place].record, proposal, usage_ratio, topics)
        answers.given[place] = replace(made, kind=proposal.kind)
        if admission.asking is not None and made.action is not None:
            admission.asking.acting.update(
                broker for broker in (proposal.source, proposal.destination) if broker is not None
            )


def _act(
    answers: Answers,
    admission: Admission,
    record: Approval,
    proposal: ProposalRecord,
    usage_ratio: Floats,
    topics: TopicTable,
) -> Answer:
    row = admission.context.advanced.row_of(proposal.source, proposal.bundle)
    if row is None:
        detail = f"{proposal.source} does not own {proposal.bundle} any more"
        return Answer(record, "owner-changed", detail)
    at = np.flatnonzero(admission.table.fleet_rows == row)
    if not len(at):
        return Answer(record, "maintenance", f"{proposal.source} takes no part in balancing")
    view_row = int(at[0])
    if view_row in answers.unload_rows | answers.split_rows:
        return Answer(record, "in-flight", "another approved action on it goes out in this round")
    if proposal.kind == "unload":
        made = _unload(admission, record, proposal, view_row, usage_ratio)
    else:
        made = _split(admission, record, proposal, view_row, answers.cuts, topics)
    if isinstance(made.action, Unload):
        answers.unload_rows.add(view_row)
        answers.unloads.append(made.action)
    elif made.action is not None:
        answers.split_rows.add(view_row)
        answers.cuts.append(made.action)
    return made


def _unload(
    admission: Admission, record: Approval, proposal: ProposalRecord, row: int, usage_ratio: Floats
) -> Answer:
    """Let an approved unload happen, unless something is against it; ``usage_ratio`` has the moves approved before, and is written to."""
    table, names = admission.table, admission.table.view.brokers.names
    source, destination = int(table.view.bundles.owners_of(np.array([row]))[0]), NOBODY
    if proposal.destination is not None:
        destination = names.index(proposal.destination) if proposal.destination in names else NOBODY
        if destination == NOBODY:
            detail = f"{proposal.destination} did not report, or takes no part in balancing"
            return Answer(record, "no-destination", detail)
        barred = admission.rules.bars(row, destination)
        if barred is not None:
            return Answer(record, barred.rule, barred.detail)
    code = int(table.mask_codes[row])
    if code != masks.Mask.OPEN:
        return Answer(record, masks.MASK_REASONS[code], masks.MASK_REASONS[code])
    move = Move(row, source, destination)
    moved = share_of(table.view, move) * float(usage_ratio[source])
    before = 100.0 * float(usage_ratio[source])
    after = 100.0 * (float(usage_ratio[destination]) + moved) if destination != NOBODY else 0.0
    if after > before:  # the bundle counts for its share of the source's usage
        detail = f"{names[destination]} would end at {after:.1f} %, {names[source]} is at {before:.1f} %: loads have changed"
        return Answer(record, "no-longer-helps", detail)
    hold = admission.hold(move)
    if hold is not None:
        return Answer(record, hold.reason, hold.detail)
    usage_ratio[source] -= moved
    if destination != NOBODY:
        usage_ratio[destination] += moved
    proposed = msgspec.json.decode(proposal.data, type=Unload)
    bundles = table.view.bundles
    action = admission.unload(
        proposal.bundle,
        source=proposal.source,
        destination=proposal.destination,
        policy=proposed.policy,
        trigger=proposed.trigger,
        reason=_approved(proposed.reason, record),
        evidence=proposed.evidence | bundle_traffic(bundles.messages_per_s[row], bundles.bytes_per_s[row]),
        proposal_id=proposal.id,
    )
    return Answer(record, "acted", "acted", action)


def _approved(reason: str, record: Approval) -> str:
    return f"{reason}; approved by {record.who or 'somebody'}: {record.why or 'no reason given'}"


def _split(
    admission: Admission,
    record: Approval,
    proposal: ProposalRecord,
    row: int,
    cuts: Sequence[Split],
    topics: TopicTable,
) -> Answer:
    """Let an approved split happen, unless something is against it; ``cuts`` are those approved before."""
    code, closing = int(admission.split_codes[admission.table.fleet_rows[row]]), admission.context.closing
    hold = admission.holds.split
    if code != masks.Mask.OPEN:
        return Answer(record, masks.MASK_REASONS[code], masks.MASK_REASONS[code])
    if hold is not None:
        return Answer(record, hold.reason, hold.detail)
    proposed = msgspec.json.decode(proposal.data, type=Split)
    refusal = splits.refuse_approved(admission, topics, proposed, row, cuts)
    if refusal is not None:
        return Answer(record, *refusal)
    action = msgspec.structs.replace(
        proposed,
        round=closing.number,
        reason=_approved(proposed.reason, record),
        expires_at=closing.expires_at,
        dry_run=closing.is_dry_run,
        proposal=msgspec.UNSET,
        proposal_id=proposal.id,
    )
    return Answer(record, "acted", "acted", action)


def children_of(split: Split) -> list[Child]:
    """The bundles that a split makes, each with its share of the topics' traffic when it was decided."""
    namespace, blind_cut = namespace_of(split.bundle), _blind_cut(split)
    messages = sum(child.messages_per_s or 0.0 for child in split.children)
    volume = sum(child.bytes_per_s or 0.0 for child in split.children)
    return [
        Child(
            f"{namespace}/{child.range}",
            None if child.messages_per_s is None else child.messages_per_s / messages if messages else 0.0,
            None if child.bytes_per_s is None else child.bytes_per_s / volume if volume else 0.0,
            blind_cut,
        )
        for child in split.children
    ]


def _blind_cut(split: Split) -> BlindCut | None:
    """What was cut, if it was not known what its topics have of what was too much."""
    measure, first = MEASURES[TRIGGERS.index(split.trigger)], split.children[0]
    known = {"topics": first.topics_count, "sessions": first.sessions_count}.get(
        measure, first.messages_per_s
    )
    if known is not None and known is not msgspec.UNSET:
        return None
    return BlindCut(measure, float(split.evidence[evidence_name(split.trigger)]))


def record_proposals(context: RoundContext, proposed: Sequence[tuple[Output, Unload | Split]]) -> None:
    """Remember the proposals of a round until they are answered or expire."""
    closing = context.closing
    assert closing.proposals_expire_ms is not None or not proposed
    for output, action in proposed:
        is_unload = isinstance(action, Unload)
        context.header.proposals.append(
            ProposalRecord(
                id=output.id,
                kind="unload" if is_unload else "split",
                bundle=action.bundle,
                source=action.source_broker if isinstance(action, Unload) else action.broker,
                destination=action.destination_broker if isinstance(action, Unload) else None,
                round=closing.number,
                expires_ms=closing.proposals_expire_ms or 0,
                data=output.data,
            )
        )


def section(
    context: RoundContext, answers: Answers, made: Sequence[tuple[Output, Unload | Split]]
) -> ApprovalSummary | None:
    """The section of the summary; None where no approval is required, no answer came and no proposal was dropped."""
    proposals = context.header.proposals
    if context.closing.proposals_expire_ms is None and not answers.given and not answers.expired:
        return None
    ids = {action.proposal_id: output.id for output, action in made}
    return ApprovalSummary(
        open_count=len(proposals),
        open=[
            ProposalRow(
                id=proposal.id,
                kind=proposal.kind,
                bundle=proposal.bundle,
                source_broker=proposal.source,
                destination_broker=proposal.destination,
                round=proposal.round,
                expires_at=rfc3339(proposal.expires_ms),
            )
            for proposal in proposals[:SHOWN_ROWS]
        ],
        expired=[proposal.id for proposal in answers.expired[:SHOWN_ROWS]],
        answers=[
            ApprovalRow(
                id=given.record.id[:MAX_REMARK_CHARACTERS],
                proposal_id=given.record.proposal_id[:MAX_REMARK_CHARACTERS],
                kind=given.kind,
                verdict=given.record.verdict,
                who=given.record.who,
                why=given.record.why,
                outcome=given.outcome,
                detail=given.detail,
                action_id=ids.get(given.record.proposal_id) if given.action is not None else None,
            )
            for given in answers.given[:SHOWN_ROWS]
        ],
    )
