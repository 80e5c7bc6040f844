"""``trimtab rejected``: the records that could not be used, why, and what to do about each."""

import base64
from collections.abc import Mapping
from typing import Any

import click

from policies.wording import time_text
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
_STRANGER = (
    "perhaps somebody else writes to this topic: find the sender, and mend it or give it a topic of its own"
)
_VALUES = "mend it at the sender: the broker or its collector"
_INVENTED = "find the sender that makes up names, or repeats itself under new ids"
_OVERLAY = "the overlay before it is still in force: send a valid one, `trimtab policy set` checks it"
REMEDIES: Mapping[str, str] = {
    "not-json": _STRANGER,
    "not-cloudevent": _STRANGER,
    "unknown-type": "correct the type at the sender, or upgrade trimtab if the sender is newer",
    "missing-cluster": "let the sender name the cluster, in the event and as the record's key",
    "invalid-cluster": "correct the name at the sender: 1 to 100 of A-Z a-z 0-9 . _ -",
    "cluster-mismatch": "let the sender use the cluster's name as the record's key",
    "no-subject": "let the sender name the broker or cluster that the event is about",
    "bad-time": "correct the time that the sender writes: RFC 3339, with an offset",
    "bad-data": _VALUES,
    "not-finite": _VALUES,
    "negative-usage": _VALUES,
    "negative-rate": _VALUES,
    "bad-bundle-name": _VALUES,
    "ahead-of-log": "set the sender's clock, by NTP",
    "too-large": "send fewer bundles a report, or raise controller.max_record_bytes",
    "unknown-cluster": "",
    "wrong-system": "",
    "wrong-partition": "",
    "wrong-topic": _STRANGER,
    "too-many-brokers": _INVENTED,
    "too-many-bundles": _INVENTED,
    "too-many-topics": _INVENTED,
    "too-many-replicas": _INVENTED,
    "too-many-results": "",
    "too-many-approvals": "",
    "bad-settings": _OVERLAY,
    "not-changeable": _OVERLAY,
    "internal-error": "",
}
"""What to do about a record that is refused; empty where its detail says it."""


@click.group("rejected")
def rejected_command() -> None:
    """Read the records that could not be used, from the dead letter topic."""


@rejected_command.command(
    "tail",
    short_help="Print a line for each rejected record.",
    epilog=example("trimtab rejected tail --from earliest --no-follow"),
)
@tail_options
def tail_rejected_command(settings: Settings, **options: Any) -> None:
    """Print a line for each rejected record: its place, the reason and what to do; Ctrl-C ends it."""
    print_topic(
        settings.topics.dead_letter,
        lambda record: tail_rejected_text(read_rejected(record.value or b"")),
        settings=settings,
        **options,
    )


@rejected_command.command(
    "show",
    short_help="Show why a record was rejected, and how it begins.",
    epilog=example("trimtab rejected show trimtab.input/0@4711"),
)
@settings_options
@as_published_option
@click.argument("place", metavar="TOPIC/PARTITION@OFFSET|ID")
def show_rejected_command(settings: Settings, place: str, form: str) -> None:
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
    """A record that could not be used, in one line, with what to do."""
    data, cluster = event.data, f" {event.cluster}" if event.cluster else ""
    remedy = REMEDIES.get(data.reason, "")
    then = f" → {remedy}" if remedy else ""
    return f"{time_text(event.time or 'at an unknown time')}{cluster} {place_of(event)} {data.reason}: {data.detail}{then}\n"


def rejected_text(event: Rejected) -> str:
    """A record that could not be used, with its beginning."""
    data = event.data
    head = base64.b64decode(data.head_base64).decode(errors="backslashreplace")
    rest = "" if len(head) <= _HEAD_CHARACTERS else f"\n… {data.size_bytes} bytes in all"
    facts = [
        ("reason", data.reason),
        ("cluster", event.cluster or "not known"),
        ("time", time_text(event.time or "not known")),
        ("size", f"{data.size_bytes} bytes"),
        ("sha256", data.sha256),
        ("id", event.id),
    ]
    remedy = REMEDIES.get(data.reason, "")
    lines = [
        place_of(event),
        data.detail,
        *([f"→ {remedy}"] if remedy else []),
        "",
        *table_lines(facts),
        "",
        "It begins with",
        "",
    ]
    return text_of(lines) + head[:_HEAD_CHARACTERS] + rest + "\n"
