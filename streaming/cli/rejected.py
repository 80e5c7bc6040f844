"""``trimtab rejected``: records that could not be used, and why."""

import base64
from typing import Any

import click

from streaming.cli.options import example, settings_options
from streaming.cli.output import table_lines, text_of
from streaming.cli.published import (
    Rejected,
    UnreadableEvent,
    as_published_option,
    print_topic,
    read_rejected,
    records_of,
    render_published,
    tail_options,
)
from streaming.process.exits import NotFound
from streaming.settings import Settings

_HEAD_CHARACTERS = 2_000
"""Characters of a rejected record that are shown."""


@click.group("rejected")
def rejected_command() -> None:
    """Read the records that could not be used, from the dead letter topic."""


@rejected_command.command("tail", epilog=example("trimtab rejected tail --from earliest --no-follow"))
@tail_options
def tail_command(settings: Settings, **options: Any) -> None:
    """Print a line for each rejected record: its place, the reason and what to do; Ctrl-C ends it."""
    print_topic(
        settings.topics.dead_letter,
        lambda record: tail_rejected_text(read_rejected(record.value or b"")),
        settings=settings,
        **options,
    )


@rejected_command.command("show", epilog=example("trimtab rejected show trimtab.input/0@4711"))
@settings_options
@as_published_option
@click.argument("place", metavar="TOPIC/PARTITION@OFFSET|ID")
def show_command(settings: Settings, place: str, form: str) -> None:
    """Show why a record was rejected, and how it begins; the place is what `tail` prints."""
    topic = settings.topics.dead_letter
    for record in records_of(settings, topic, "earliest"):
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


def place_of(event: Rejected) -> str:
    """Where the record that could not be used is: topic, partition and offset."""
    return f"{event.data.topic}/{event.data.partition}@{event.data.offset}"


def tail_rejected_text(event: Rejected) -> str:
    """A record that could not be used, in one line."""
    cluster = f" {event.cluster}" if event.cluster else ""
    return f"{event.time or 'at an unknown time'}{cluster} {place_of(event)} {event.data.reason}: {event.data.detail}\n"


def rejected_text(event: Rejected) -> str:
    """A record that could not be used, with its beginning."""
    data = event.data
    head = base64.b64decode(data.head_base64).decode(errors="backslashreplace")
    rest = "" if len(head) <= _HEAD_CHARACTERS else f"\n… {data.size_bytes} bytes in all"
    facts = [
        ("reason", data.reason),
        ("cluster", event.cluster or "not known"),
        ("time", event.time or "not known"),
        ("size", f"{data.size_bytes} bytes"),
        ("sha256", data.sha256),
        ("id", event.id),
    ]
    lines = [place_of(event), data.detail, "", *table_lines(facts), "", "It begins with", ""]
    return text_of(lines) + head[:_HEAD_CHARACTERS] + rest + "\n"
