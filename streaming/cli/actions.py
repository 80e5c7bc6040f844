"""``trimtab actions``: watch what is decided, and ask why."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from streaming.cli.approve import proposal_text
from streaming.cli.configured import settings_options
from streaming.cli.forms import format_option, render
from streaming.cli.options import example
from streaming.cli.topic_options import Remark, print_topic, records_of, tail_options
from streaming.operators import proposals
from streaming.operators.action_events import (
    Action,
    Epochs,
    UnreadableEvent,
    epoch_of,
    has_id,
    read_action,
    read_leader,
)
from streaming.operators.action_text import leader_text, tail_text, why_text
from streaming.operators.round_events import Round, is_round_of, read_round
from streaming.process.exits import NotFound, WrongUse
from streaming.settings import Settings
from streaming.transport.side import Begin

if TYPE_CHECKING:
    from streaming.transport.side import TopicRecord

_ID_MIN = 6
"""The fewest characters of an id that a command takes; shorter ones would soon name several actions."""
_AROUND_MS = 600_000
"""How far around an action its round's summary is looked for: both are written together, but clocks may have been set in between."""


@click.group("actions")
def actions_command() -> None:
    """Watch what is decided, and ask why."""


@actions_command.command("tail", epilog=example("trimtab actions tail --cluster east-1 --from earliest"))
@tail_options
@click.option("--dry-run", is_flag=True, help="Read the dry-run's topic: what would have been done.")
def tail_command(*, dry_run: bool, **options: Any) -> None:
    """Print actions as they are published; Ctrl-C ends it.

    The table also shows when another controller takes over.
    """
    epochs = Epochs()

    def text_of(record: "TopicRecord") -> str:
        value, epoch = record.value or b"", epoch_of(record.headers)
        try:
            action = read_action(value)
        except UnreadableEvent:
            leader = read_leader(value)
            if leader is None:
                raise
            epochs.is_stale(leader.source, record.partition, epoch)
            return Remark(leader_text(leader))
        return tail_text(action, epoch=epoch, stale=epochs.is_stale(action.source, record.partition, epoch))

    print_topic(
        lambda topics: topics.actions_dry_run if dry_run else topics.actions,
        text_of,
        **options,
    )


@actions_command.command("list", epilog=example("trimtab actions list --pending --cluster east-1"))
@settings_options
@click.option("--cluster", metavar="NAME", help="Only of this cluster.")
@click.option("--pending", is_flag=True, help="Only proposals that wait for `trimtab approve`.")
@format_option("JSON and YAML are a list with one object for each.")
def list_command(settings: Settings, cluster: str | None, form: str, *, pending: bool) -> None:
    """Show what waits for approval and what is in flight, according to the newest round of each cluster."""
    rounds = proposals.newest_rounds(settings, cluster=cluster)
    waiting = proposals.open_proposals(rounds)
    flying = [] if pending else [(event.cluster, row) for event in rounds for row in event.data.in_flight]
    if form != "table":
        rows = [
            {"state": "proposed", "cluster": each.cluster, **msgspec.to_builtins(each.row)}
            for each in waiting
        ]
        rows += [{"state": "in-flight", "cluster": name, **msgspec.to_builtins(row)} for name, row in flying]
        click.echo(render(rows, form), nl=False)
        return
    for each in waiting:
        click.echo(f"waits for approval: {proposal_text(each)}")
    for name, row in flying:
        click.echo(f"in flight: {row.id} {name}: {row.kind} {row.target}, until {row.expires_at}")
    if not waiting and not flying:
        click.echo("nothing waits for approval" + ("" if pending else " or is in flight"))


@actions_command.command("why", epilog=example("trimtab actions why 4f0021f6"))
@settings_options
@format_option("JSON and YAML have the data of the action and of its round (null if the round's is gone).")
@click.argument("id", metavar="ID")
def why_command(settings: Settings, id: str, form: str) -> None:  # noqa: A002  the option's name
    """Show why an action was decided, and what was held back in its round; the first 6 characters of its id are enough."""
    if len(id) < _ID_MIN:
        raise WrongUse(f"{id!r}: give at least the first {_ID_MIN} characters of the action's id")
    action, appended_ms = _find(settings, id)
    found = _summary_of(settings, action, appended_ms)
    missing = f"The summary of its round is not on {settings.topics.audit} (any more), so it is not known what else the round looked at."
    round_ = None if found is None else found.data
    if form != "table":
        tree = {
            "id": action.id,
            "action": msgspec.to_builtins(action.data),
            "round": msgspec.to_builtins(round_),
        }
        click.echo(render(tree, form), nl=False)
        return
    click.echo(why_text(action, round_, missing=missing), nl=False)


def _find(settings: Settings, beginning: str) -> tuple[Action, int]:
    """The action whose id has this beginning, and when it was published, in ms; raises ``NotFound``, ``WrongUse`` or ``Refused``."""
    topics = (settings.topics.actions, settings.topics.actions_dry_run)
    found: dict[str, tuple[Action, int]] = {}
    for topic in topics:
        for record in records_of(settings, topic, "earliest", follow=False):
            if record.value is not None and has_id(record.value, beginning):
                try:
                    action = read_action(record.value)
                except UnreadableEvent as error:
                    raise error.at(topic, record.offset) from error
                found[action.id] = (action, record.timestamp)
    if not found:
        raise NotFound(
            f"no action {beginning} on {' or '.join(topics)}: it may be older than the topics keep, or of another "
            "controller's topics; `trimtab actions tail --from earliest --no-follow` lists all actions, with --dry-run those of the dry-run"
        )
    if len(found) > 1:
        raise WrongUse(f"{beginning} is the beginning of several ids: {', '.join(sorted(found))}")
    return next(iter(found.values()))


def _summary_of(settings: Settings, action: Action, appended_ms: int) -> Round | None:
    """The summary of the action's round, looked for at the time where it should be, then on the whole topic. Raises ``Refused``."""
    audit, number = settings.topics.audit, action.data.round
    looks: tuple[tuple[Begin, int | None], ...] = (
        (max(0, appended_ms - _AROUND_MS), appended_ms + _AROUND_MS),
        ("earliest", None),
    )
    for begin, until_ms in looks:
        for record in records_of(settings, audit, begin, follow=False):
            if until_ms is not None and record.timestamp > until_ms:
                break
            value = record.value or b""
            if is_round_of(value, cluster=action.cluster, number=number):
                try:
                    return read_round(value)
                except UnreadableEvent as error:
                    raise error.at(audit, record.offset) from error
    return None
