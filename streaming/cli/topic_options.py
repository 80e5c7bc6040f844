"""What the commands that print the records of a topic share: their options, and the reading."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click
import msgspec

from streaming.cli.beginning import begin_of
from streaming.cli.configured import settings_options
from streaming.cli.forms import format_option, to_yaml
from streaming.cli.options import with_options
from streaming.operators.action_events import UnreadableEvent
from streaming.process.stopping import watched
from streaming.settings import Settings, TopicNames
from streaming.systems import output_reader
from streaming.transport.side import Begin

if TYPE_CHECKING:
    from streaming.transport.side import TopicRecord


class Remark(str):
    """A line that is for people only."""

    __slots__ = ()


as_published_option = format_option(
    "JSON: one event per line, as it was published. YAML: one document per event."
)
tail_options = with_options(
    settings_options,
    click.option("--cluster", metavar="NAME", help="Only of this cluster."),
    click.option(
        "--from",
        "begin",
        metavar="earliest|latest|TIME",
        default="latest",
        show_default=True,
        help="TIME is RFC 3339.",
    ),
    click.option(
        "--no-follow", is_flag=True, help="Stop at the end of the topic instead of waiting for more."
    ),
    as_published_option,
)
"""The options of every `tail`; they are passed to ``print_topic``."""


def records_of(settings: Settings, topic: str, begin: Begin, *, follow: bool) -> Iterator["TopicRecord"]:
    """The records of a topic on the output's side."""
    with output_reader(settings, topic, begin=begin) as reader:
        yield from reader.follow() if follow else reader.read_to_end()


def print_topic(
    topic_of: Callable[[TopicNames], str],
    text_of: Callable[["TopicRecord"], str],
    *,
    settings: Settings,
    cluster: str | None,
    begin: str,
    form: str,
    no_follow: bool,
) -> None:
    """Print the records of a topic, as text or as they are; what cannot be read is named on standard error.

    ``text_of`` raises ``UnreadableEvent`` for a record that is not what the topic should hold. Ctrl-C or SIGTERM ends it.
    """
    topic = topic_of(settings.topics)
    with nullcontext() if no_follow else watched():
        for record in records_of(settings, topic, begin_of(begin), follow=not no_follow):
            if cluster is not None and record.key != cluster.encode():
                continue
            try:
                text = text_of(record)
            except UnreadableEvent as error:
                click.echo(f"{topic}, offset {record.offset}: {error}", err=True)
                continue
            if form == "table":
                click.echo(text, nl=False)
            elif not isinstance(text, Remark):
                click.echo(render_published(record.value or b"", form), nl=False)


def render_published(value: bytes, form: str) -> str:
    """An event for a program: as it is on its topic, or as a YAML document."""
    if form == "json":
        return value.decode(errors="replace") + "\n"
    return "---\n" + to_yaml(msgspec.json.decode(value))
