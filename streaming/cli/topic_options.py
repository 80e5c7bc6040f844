"""Options of the commands that print what comes on a topic, and the reading that they share."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from streaming.ports.reading import Begin
from streaming.settings import Settings
from streaming.systems.reading import output_reader

if TYPE_CHECKING:
    from streaming.ports.reading import TopicRecord

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

cluster_option: Option = click.option("--cluster", metavar="NAME", help="Only of this cluster.")
from_option: Option = click.option(
    "--from",
    "begin",
    metavar="earliest|latest|TIME",
    default="latest",
    show_default=True,
    help="TIME is RFC 3339.",
)
no_follow_option: Option = click.option(
    "--no-follow", is_flag=True, help="Stop at the end of the topic instead of waiting for more."
)
format_option: Option = click.option(
    "--format",
    "-o",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="JSON is one event a line, as it was published.",
)


def records_of(settings: Settings, topic: str, begin: Begin, *, follow: bool) -> Iterator["TopicRecord"]:
    """The records of a topic of the output's side."""
    with output_reader(settings, topic, begin=begin) as reader:
        yield from reader.follow() if follow else reader.to_end()


def print_records(
    records: Iterator["TopicRecord"],
    text_of: Callable[["TopicRecord"], str],
    *,
    topic: str,
    cluster: str | None,
    form: str,
    skipped: type[Exception],
) -> None:
    """Print the records of a cluster, as text or as they are; what cannot be read is named on standard error.

    Ctrl-C ends it.
    """
    with suppress(KeyboardInterrupt):
        for record in records:
            if cluster is not None and record.key != cluster.encode():
                continue
            try:
                text = text_of(record)
            except skipped as error:
                click.echo(f"{topic}, offset {record.offset}: {error}", err=True)
                continue
            raw = (record.value or b"").decode(errors="replace") + "\n"
            click.echo(raw if form == "json" else text, nl=False)
