"""``trimtab approve`` and ``reject``: a person's decision on open proposals, written to the input topic, and what became of it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

import click
import msgspec

from policies.wording import time_text
from state.outputs import ApprovalRow, ProposalRow, rfc3339
from state.pulsar.approvals import ROUND
from streaming.cli.options import cluster_option, example, login_user, settings_options, with_options
from streaming.cli.published import Newest, Round, length_s, search_rounds, stranger_hint
from streaming.contract.encode import encode_event
from streaming.contract.messages import ApprovalData, ApprovalMessage, type_of
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, NotFound, WrongUse, waiting
from streaming.settings import Settings
from streaming.systems import input_side

Verdict = Literal["approved", "rejected"]
"""A person's answer."""
ID_MIN = 6
"""The fewest characters of an id that a command takes; shorter ones would soon name several actions."""
_SHOWN = 16
"""Characters of a subject in a message: enough of an id, and all of a round."""
Open = tuple[str, ProposalRow]
"""An open proposal with its cluster."""
_PATIENCE_S = 30.0
_PATIENCE_ROUNDS = 3
"""Rounds after which the one that counts an answer should have closed."""


_options: Callable[[Callable[..., Any]], Callable[..., Any]] = with_options(
    click.argument("ids", nargs=-1, metavar="[ID]..."),
    settings_options,
    click.option(
        "--round", "round_", type=int, metavar="N", help="Every open proposal of that round, with one answer."
    ),
    cluster_option,
    click.option("--wait", is_flag=True, help="Wait until a round has counted it, and show the outcome."),
    click.option("--why", required=True, metavar="TEXT", help="The reason; shown in the round's summary."),
    click.option("--who", metavar="NAME", help="Your name; the login user if not given."),
)


@click.command(
    "approve",
    epilog=example('trimtab approve 4f0021f6 --why "looks right" --wait'),
    short_help="Approve proposals.",
)
@_options
def approve_command(**options: Any) -> None:
    """Approve proposed actions; `trimtab actions list --pending` shows them.

    An action is published only if the loads of the round that counts the approval still allow it; --wait shows the outcome, and
    ends with exit code 7 if an action was not published. The first 6 characters of an id are enough.
    """
    _write_verdict("approved", **options)


@click.command(
    "reject",
    epilog=example('trimtab reject --round 29700123 --why "not before the sale"'),
    short_help="Reject proposals.",
)
@_options
def reject_command(**options: Any) -> None:
    """Reject proposed actions; their bundles are left alone for as long as a proposal waits (`proposal_ttl_s`)."""
    _write_verdict("rejected", **options)


def _write_verdict(
    verdict: Verdict,
    *,
    settings: Settings,
    ids: tuple[str, ...],
    round_: int | None,
    cluster: str | None,
    why: str,
    who: str | None,
    wait: bool,
) -> None:
    if not ids and round_ is None:
        raise click.UsageError("name the proposals: ID (once or more) or --round N")
    if not why.strip():
        raise click.BadParameter("give a reason: it is shown in the round's summary", param_hint="--why")
    rounds = newest_rounds(settings, cluster=cluster)
    chosen = _choose(open_proposals(rounds), ids, round_=round_)
    answers = _answer(settings, chosen, verdict, round_=round_, who=who or login_user(), why=why.strip())
    for each in chosen:
        click.echo(f"{verdict}: {proposal_text(*each)}")
    if not wait:
        return
    refused, clusters = [], {name for name, _ in chosen}
    longest_s = max(length_s(event.data) for event in rounds if event.cluster in clusters)
    with waiting("the answer counts with the next round, and `trimtab rounds show` tells its outcome"):
        outcomes = _wait_for_outcomes(settings, answers, longest_s)
    for event, row in outcomes:
        action = "" if row.action_id is None else f", action {row.action_id}"
        detail = "" if row.detail == row.outcome else f" ({row.detail})"
        click.echo(f"{row.proposal_id[:12]}: {row.outcome}{detail} in round {event.data.round}{action}")
        if row.outcome not in ({"acted"} if verdict == "approved" else {"rejected", "expired"}):
            refused.append(row.proposal_id[:12])
    if refused:
        why = (
            "no action was published; the policy may propose it again"
            if verdict == "approved"
            else "it was not open any more, somebody may have approved it"
        )
        raise NotAcknowledged(f"{', '.join(refused)}: {why}")


def proposal_text(cluster: str, row: ProposalRow) -> str:
    """A proposal in one line."""
    way = (
        f" {row.source_broker} -> {row.destination_broker or 'where placement chooses'}"
        if row.kind == "unload"
        else f" at {row.source_broker}"
    )
    return f"{row.id} {cluster} round {row.round}: {row.kind} {row.bundle}{way}, until {time_text(row.expires_at)}"


def newest_rounds(settings: Settings, *, cluster: str | None = None) -> list[Round]:
    """The newest round of each cluster, or of one. Raises ``exits.Refused``, and ``NotFound`` for a cluster that nothing names."""
    newest = Newest(settings)
    newest.look_back(() if cluster is None else (cluster,))
    found = [event for _, event in newest.rounds() if cluster is None or event.cluster == cluster]
    if cluster is not None and not found and (hint := stranger_hint(settings, cluster)) is not None:
        raise NotFound(f"{cluster}: no setting and no round of the last day names this cluster; {hint}")
    return found


def open_proposals(rounds: Iterable[Round]) -> list[Open]:
    """The open proposals, cluster by cluster, the oldest first."""
    known = [(event.cluster, event.data.approval) for event in rounds]
    return [(cluster, row) for cluster, approval in known if approval is not None for row in approval.open]


def _choose(found: Sequence[Open], ids: Sequence[str], *, round_: int | None) -> list[Open]:
    """The proposals that are named, by the beginnings of their ids or by their round. Raises ``NotFound`` or ``WrongUse``."""
    known = ", ".join(f"{row.id[:12]} (round {row.round})" for _, row in found)
    listed = f"open are {known}" if known else "none is open; `trimtab status` says why nothing is proposed"
    chosen = [each for each in found if round_ is not None and each[1].round == round_]
    if round_ is not None and not chosen:
        raise NotFound(f"no open proposal is of round {round_}: {listed}")
    for beginning in ids:
        if len(beginning) < ID_MIN:
            raise WrongUse(f"{beginning!r}: give at least the first {ID_MIN} characters of the proposal's id")
        named = [each for each in found if each[1].id.startswith(beginning)]
        if not named:
            raise NotFound(f"{beginning} is no open proposal: {listed}")
        if len(named) > 1:
            raise WrongUse(f"{beginning} is the beginning of several ids: {listed}")
        chosen += [each for each in named if each not in chosen]
    return chosen


def _answer(
    settings: Settings, chosen: Sequence[Open], verdict: Verdict, *, round_: int | None, who: str, why: str
) -> dict[str, str]:
    """Write the answers to the input topic, whose order decides which round counts them; returns when the brokers have them.

    Proposals of ``round_`` have one answer for each cluster. By the id of its event, each answer has its subject: a proposal's id,
    or ``round/`` and the number of the round. Raises ``exits.Refused``.
    """
    now_ms = round(time.time() * 1000)
    began, source = f"approval/{rfc3339(now_ms)}/{uuid4().hex[:8]}", f"/operator/{quote(who, safe='')}"
    data = msgspec.json.encode(ApprovalData(verdict=verdict, who=who, why=why))
    subjects = [(cluster, f"{ROUND}{round_}" if row.round == round_ else row.id) for cluster, row in chosen]
    answers, records = {}, []
    for number, (cluster, subject) in enumerate(dict.fromkeys(subjects)):
        answers[f"{began}/{number}"] = subject
        value = encode_event(
            type_=type_of(ApprovalMessage),
            id_=f"{began}/{number}",
            source=source,
            subject=subject,
            time_ms=now_ms,
            cluster=cluster,
            data=data,
        )
        records.append((cluster, value))
    input_side(settings).append(settings.topics.input, records)
    return answers


def _wait_for_outcomes(
    settings: Settings, answers: Mapping[str, str], longest_s: float
) -> list[tuple[Round, ApprovalRow]]:
    """What became of each proposal, from the first summary that counted its answer, in the order of the answers.

    ``longest_s`` is the length of the longest round. Raises ``NotAcknowledged`` naming what has no answer.
    """

    def search(rounds: Iterable[Round]) -> dict[str, list[tuple[Round, ApprovalRow]]]:
        found: dict[str, list[tuple[Round, ApprovalRow]]] = {}
        for event in rounds:
            rows = [] if event.data.approval is None else event.data.approval.answers
            for id_ in (answers.keys() - found.keys()) & {row.id for row in rows}:
                found[id_] = [(event, row) for row in rows if row.id == id_]
        return found

    deadline = Deadline(_PATIENCE_S + _PATIENCE_ROUNDS * longest_s)
    found = search_rounds(settings, search, count=len(answers), deadline=deadline)
    missing = [subject[:_SHOWN] for id_, subject in answers.items() if id_ not in found]
    if missing:
        raise NotAcknowledged(
            f"written, but no round has counted it yet: {', '.join(missing)}. No controller runs, or no report of the cluster "
            "comes: see `trimtab status`. The answer stays, and counts with the next round"
        )
    return [row for id_ in answers for row in found[id_]]
