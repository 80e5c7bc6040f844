"""Open proposals in the newest summaries, the answers of people, and what became of each answer."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote

import msgspec

from state.outputs import ApprovalRow, ProposalRow, rfc3339
from state.pulsar.approvals import ROUND
from streaming.contract.encode import encode_event
from streaming.contract.messages import ApprovalData, ApprovalMessage, type_of
from streaming.operators.action_events import UnreadableEvent
from streaming.operators.overlay import Asker
from streaming.operators.round_events import Newest, Round, read_round
from streaming.operators.searching import search_until
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, WrongUse
from streaming.settings import Settings
from streaming.systems import append_to_input, output_reader
from streaming.transport.side import TopicRecord

Verdict = Literal["approved", "rejected"]

_LOOK_BACK_S = (900, 86_400)
"""How far back summaries are looked for; the first step is long enough for a cluster whose last rounds are somewhat late."""
_ID_MIN = 6
"""The fewest characters of an id that a command takes."""
_SHOWN = 16
"""Characters of a subject in a message: enough of an id, and all of a round."""
_PATIENCE_S = 30.0
_PATIENCE_ROUNDS = 3
"""Rounds after which the one that counts an answer should have closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An open proposal with its cluster, and how long the cluster's rounds are."""

    cluster: str
    row: ProposalRow
    length_s: float


def newest_rounds(settings: Settings, *, cluster: str | None = None) -> list[Round]:
    """The newest round of each cluster, or of one. Raises ``exits.Refused``."""

    def read(back_s: float) -> Iterator[TopicRecord]:
        begin = round((time.time() - back_s) * 1000)
        with output_reader(settings, settings.topics.audit, begin=begin) as reader:
            yield from reader.read_to_end()

    newest = Newest()
    newest.look_back(read, () if cluster is None else (cluster,), steps_s=_LOOK_BACK_S)
    return [
        event
        for _, event in newest.rounds(settings.topics.audit)
        if cluster is None or event.cluster == cluster
    ]


def open_proposals(rounds: Iterable[Round]) -> list[Open]:
    """The open proposals, cluster by cluster, the oldest first."""
    found = []
    for event in rounds:
        data = event.data
        start_s, end_s = (datetime.fromisoformat(each).timestamp() for each in (data.start, data.end))
        rows = [] if data.approval is None else data.approval.open
        found += [Open(cluster=event.cluster, row=row, length_s=end_s - start_s) for row in rows]
    return found


def choose(found: Sequence[Open], ids: Sequence[str], *, round_: int | None) -> list[Open]:
    """The proposals that are named, by the beginnings of their ids or by their round. Raises ``WrongUse``."""
    chosen = [each for each in found if round_ is not None and each.row.round == round_]
    if round_ is not None and not chosen:
        raise WrongUse(f"no open proposal is of round {round_}: {_known(found)}")
    for beginning in ids:
        if len(beginning) < _ID_MIN:
            raise WrongUse(
                f"{beginning!r}: give at least the first {_ID_MIN} characters of the proposal's id"
            )
        named = [each for each in found if each.row.id.startswith(beginning)]
        if len(named) != 1:
            what = "is no open proposal" if not named else "is the beginning of several ids"
            raise WrongUse(f"{beginning} {what}: {_known(found)}")
        chosen += [each for each in named if each not in chosen]
    return chosen


def _known(found: Sequence[Open]) -> str:
    if not found:
        return "none is open; `trimtab status` says why nothing is proposed"
    return "open are " + ", ".join(f"{each.row.id[:12]} (round {each.row.round})" for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer that was written: to one proposal, or to all that are open of a round, of which ``open`` is one."""

    id: str
    open: Open
    subject: str
    """The proposal's id, or ``round/`` and the number of the round."""


def answer(
    settings: Settings,
    chosen: Sequence[Open],
    verdict: Verdict,
    *,
    round_: int | None = None,
    asker: Asker,
    now_ms: int,
    nonce: str,
) -> list[Answered]:
    """Write the answers to the input topic, whose order decides which round counts them; returns when the brokers have them.

    Proposals of ``round_`` have one answer for each cluster. Raises ``exits.Refused``.
    """
    wanted: dict[tuple[str, str], Open] = {}
    for each in chosen:
        subject = f"{ROUND}{round_}" if each.row.round == round_ else each.row.id
        wanted.setdefault((each.cluster, subject), each)
    found = [
        Answered(id=f"approval/{rfc3339(now_ms)}/{nonce}/{number}", open=each, subject=subject)
        for number, ((_, subject), each) in enumerate(wanted.items())
    ]
    records = [(each.open.cluster, encode(each, verdict, asker=asker, now_ms=now_ms)) for each in found]
    append_to_input(settings, settings.topics.input, records)
    return found


def encode(answered: Answered, verdict: Verdict, *, asker: Asker, now_ms: int) -> bytes:
    """The event of an answer, encoded."""
    return encode_event(
        type_=type_of(ApprovalMessage),
        id_=answered.id,
        source=f"/operator/{quote(asker.who, safe='')}",
        subject=answered.subject,
        time_ms=now_ms,
        cluster=answered.open.cluster,
        data=msgspec.json.encode(ApprovalData(verdict=verdict, who=asker.who, why=asker.why)),
    )


def wait_for_outcomes(settings: Settings, answered: Sequence[Answered]) -> list[tuple[Round, ApprovalRow]]:
    """What became of each proposal, from the summaries, in the order of the answers. Raises ``NotAcknowledged`` naming what has no answer."""
    longest_s = max(each.open.length_s for each in answered)
    deadline = Deadline(_PATIENCE_S + _PATIENCE_ROUNDS * longest_s)
    found = search_until(
        settings, lambda records: outcomes(records, answered), count=len(answered), deadline=deadline
    )
    missing = [each.subject[:_SHOWN] for each in answered if each.id not in found]
    if missing:
        raise NotAcknowledged(
            f"written, but no round has counted it yet: {', '.join(missing)}. No controller runs, or no report of the cluster "
            "comes: see `trimtab status`. The answer stays, and counts with the next round"
        )
    return [row for each in answered for row in found[each.id]]


def outcomes(
    records: Iterable[TopicRecord], answered: Sequence[Answered]
) -> dict[str, list[tuple[Round, ApprovalRow]]]:
    """By the event's id, the first summary that counted it, with each of its rows there."""
    wanted = {each.id for each in answered}
    found: dict[str, list[tuple[Round, ApprovalRow]]] = {}
    for record in records:
        try:
            event = read_round(record.value or b"")
        except UnreadableEvent:
            continue
        new: dict[str, list[tuple[Round, ApprovalRow]]] = {}
        for row in [] if event.data.approval is None else event.data.approval.answers:
            if row.id in wanted - found.keys():
                new.setdefault(row.id, []).append((event, row))
        found |= new
    return found
