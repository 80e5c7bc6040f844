"""``trimtab approve`` and ``reject``: a person's decision on proposals, written to the input topic."""

import getpass
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import click

from streaming.cli.configured import settings_options
from streaming.cli.options import example, with_options
from streaming.operators import proposals
from streaming.operators.overlay import Asker
from streaming.operators.proposals import Open, Verdict
from streaming.process.exits import NotAcknowledged
from streaming.settings import Settings

_options: Callable[[Callable[..., Any]], Callable[..., Any]] = with_options(
    click.argument("ids", nargs=-1, metavar="[ID]..."),
    settings_options,
    click.option(
        "--round", "round_", type=int, metavar="N", help="Every open proposal of that round, with one answer."
    ),
    click.option("--cluster", metavar="NAME", help="Only of this cluster."),
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
    asker = Asker(who=who or getpass.getuser(), why=why.strip())
    found = proposals.open_proposals(proposals.newest_rounds(settings, cluster=cluster))
    chosen = proposals.choose(found, ids, round_=round_)
    answered = proposals.answer(
        settings,
        chosen,
        verdict,
        round_=round_,
        asker=asker,
        now_ms=round(time.time() * 1000),
        nonce=uuid4().hex[:8],
    )
    for each in chosen:
        click.echo(f"{verdict}: {proposal_text(each)}")
    if not wait:
        return
    refused = []
    for event, row in proposals.wait_for_outcomes(settings, answered):
        action = "" if row.action_id is None else f", action {row.action_id}"
        detail = "" if row.detail == row.outcome else f" ({row.detail})"
        click.echo(f"{row.proposal_id[:12]}: {row.outcome}{detail} in round {event.data.round}{action}")
        if row.outcome not in {"acted", "rejected"}:
            refused.append(row.proposal_id[:12])
    if refused:
        raise NotAcknowledged(
            f"{', '.join(refused)}: no action was published; the policy may propose it again"
        )


def proposal_text(found: Open) -> str:
    """A proposal in one line."""
    row = found.row
    way = (
        f" {row.source} -> {row.destination or 'where placement chooses'}"
        if row.kind == "unload"
        else f" at {row.source}"
    )
    return f"{row.id} {found.cluster} round {row.round}: {row.kind} {row.bundle}{way}, until {row.expires_at}"
