"""``trimtab actions``: watch what is decided, and ask why."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.beginning import begin_of
from streaming.cli.configured import read_settings
from streaming.cli.options import config_option
from streaming.operators.action_events import (
    Action,
    Epochs,
    Round,
    UnreadableEvent,
    epoch_of,
    has_id,
    read_action,
    read_round,
)
from streaming.operators.action_text import tail_text, why_text
from streaming.ports.reading import Begin
from streaming.process.exits import WrongUse
from streaming.settings import Settings
from streaming.systems.reading import output_reader

if TYPE_CHECKING:
    from streaming.ports.reading import TopicRecord

_ID_MIN = 6
"""Characters of an id that are asked for at least; shorter ones would soon name several actions."""
_AROUND_MS = 600_000
"""A round's summary is written together with its actions; producers' clocks may have been set since."""


class NotFound(click.ClickException):
    """What was asked for is not there."""


@click.group("actions")
def actions_command() -> None:
    """Watch what is decided, and ask why."""


@actions_command.command("tail")
@config_option
@click.option("--cluster", metavar="NAME", help="Only of this cluster.")
@click.option("--dry-run", is_flag=True, help="What would have been done: the dry-run's topic.")
@click.option(
    "--from",
    "begin",
    metavar="earliest|latest|TIME",
    default="latest",
    show_default=True,
    help="TIME is RFC 3339.",
)
@click.option("--no-follow", is_flag=True, help="Stop at the end of the topic instead of waiting for more.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output."
)
def tail_command(
    config: Path | None, cluster: str | None, begin: str, form: str, *, dry_run: bool, no_follow: bool
) -> None:
    """Print actions as they are published; Ctrl-C ends it. JSON is one event a line, as it was published."""
    settings = read_settings(config, {})
    topic = settings.topics.actions_dry_run if dry_run else settings.topics.actions
    records = _records(settings, topic, begin_of(begin), follow=not no_follow)
    with suppress(KeyboardInterrupt):
        for text in _texts(records, topic, cluster=cluster, form=form):
            click.echo(text, nl=False)


def _texts(records: Iterator["TopicRecord"], topic: str, *, cluster: str | None, form: str) -> Iterator[str]:
    """What is printed of each action; a record that is none is named on standard error."""
    epochs = Epochs()
    for record in records:
        if cluster is not None and record.key != cluster.encode():
            continue
        try:
            action = read_action(record.value or b"")
        except UnreadableEvent as error:
            click.echo(f"{topic}, offset {record.offset}: {error}", err=True)
            continue
        epoch = epoch_of(record.headers)
        stale = epochs.is_stale(action, epoch)
        yield (
            (record.value or b"").decode() + "\n"
            if form == "json"
            else tail_text(action, epoch=epoch, stale=stale)
        )


@actions_command.command("why")
@config_option
@click.argument("id", metavar="ID")
def why_command(config: Path | None, id: str) -> None:  # noqa: A002  the option's name
    """Why an action was decided, and what was held back in its round; the first 6 characters of its id are enough."""
    if len(id) < _ID_MIN:
        raise WrongUse(f"{id!r}: give at least the first {_ID_MIN} characters of the action's id")
    settings = read_settings(config, {})
    action, appended_ms = _find(settings, id)
    try:
        found = _summary_of(settings, action, appended_ms)
    except UnreadableEvent as error:
        raise click.ClickException(f"{error}; it may be of another version of trimtab") from error
    missing = f"Its round's summary is not on {settings.topics.audit} (any more), so what else was looked at is not known."
    click.echo(why_text(action, None if found is None else found.data, missing=missing), nl=False)


def _records(settings: Settings, topic: str, begin: Begin, *, follow: bool) -> Iterator["TopicRecord"]:

    with output_reader(settings, topic, begin=begin) as reader:
        yield from reader.follow() if follow else reader.to_end()


def _find(settings: Settings, beginning: str) -> tuple[Action, int]:
    """The action whose id begins so and when it was published; raises ``NotFound`` or ``WrongUse``."""
    topics = (settings.topics.actions, settings.topics.actions_dry_run)
    found: dict[str, tuple[Action, int]] = {}
    for topic in topics:
        for record in _records(settings, topic, "earliest", follow=False):
            if record.value is not None and has_id(record.value, beginning):
                action = read_action(record.value)
                found[action.id] = (action, record.timestamp)
    if not found:
        raise NotFound(
            f"no action {beginning} on {' or '.join(topics)}: it may be older than the topics keep, or of another "
            "controller's topics; `trimtab actions tail --from earliest --no-follow` lists what there is"
        )
    if len(found) > 1:
        raise WrongUse(f"{beginning} is the beginning of several ids: {', '.join(sorted(found))}")
    return next(iter(found.values()))


def _summary_of(settings: Settings, action: Action, appended_ms: int) -> Round | None:
    """The summary of the action's round: looked for where it should be, then everywhere."""
    audit, number = settings.topics.audit, action.data.round
    looks: tuple[tuple[Begin, int | None], ...] = (
        (max(0, appended_ms - _AROUND_MS), appended_ms + _AROUND_MS),
        ("earliest", None),
    )
    for begin, until_ms in looks:
        for record in _records(settings, audit, begin, follow=False):
            if until_ms is not None and record.timestamp > until_ms:
                break
            found = read_round(record.value or b"", cluster=action.cluster, number=number)
            if found is not None:
                return found
    return None
