"""``trimtab rejected``: records that could not be used, and why."""

from typing import Any

import click

from streaming.cli.configured import settings_options
from streaming.cli.options import example
from streaming.cli.topic_options import (
    as_published_option,
    print_topic,
    records_of,
    render_published,
    tail_options,
)
from streaming.operators.action_events import UnreadableEvent
from streaming.operators.round_events import read_rejected
from streaming.operators.round_text import place_of, rejected_text, tail_rejected_text
from streaming.process.exits import NotFound
from streaming.settings import Settings


@click.group("rejected")
def rejected_command() -> None:
    """Read the records that could not be used, from the dead letter topic."""


@rejected_command.command("tail", epilog=example("trimtab rejected tail --from earliest --no-follow"))
@tail_options
def tail_command(**options: Any) -> None:
    """Print a line for each rejected record: its place, the reason and what to do; Ctrl-C ends it."""
    print_topic(
        lambda topics: topics.dead_letter,
        lambda record: tail_rejected_text(read_rejected(record.value or b"")),
        **options,
    )


@rejected_command.command("show", epilog=example("trimtab rejected show trimtab.input/0@4711"))
@settings_options
@as_published_option
@click.argument("place", metavar="TOPIC/PARTITION@OFFSET|ID")
def show_command(settings: Settings, place: str, form: str) -> None:
    """Show why a record was rejected, and how it begins; the place is what `tail` prints."""
    topic = settings.topics.dead_letter
    for record in records_of(settings, topic, "earliest", follow=False):
        try:
            event = read_rejected(record.value or b"")
        except UnreadableEvent:
            continue
        if place in (place_of(event), event.id):
            value = record.value or b""
            click.echo(rejected_text(event) if form == "table" else render_published(value, form), nl=False)
            return
    raise NotFound(
        f"no rejected record {place} on {topic}: `trimtab rejected tail --from earliest --no-follow` lists all rejected records"
    )
