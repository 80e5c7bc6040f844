"""``trimtab rounds``: what was seen, decided and held back, round by round."""

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
from streaming.operators.round_events import Newest, is_round_of, read_round
from streaming.operators.round_text import round_text, tail_round_text
from streaming.ports.reading import TopicRecord
from streaming.process.exits import NotFound
from streaming.settings import Settings


@click.group("rounds")
def rounds_command() -> None:
    """Read the round summaries of the audit topic."""


@rounds_command.command(
    "tail", epilog=example("trimtab rounds tail --cluster east-1 --from 2026-11-21T10:00:00Z")
)
@tail_options
def tail_command(**options: Any) -> None:
    """Print a line for each round as it closes; Ctrl-C ends it."""
    print_topic(
        lambda topics: topics.audit,
        lambda record: tail_round_text(read_round(record.value or b"").data),
        **options,
    )


@rounds_command.command("show", epilog=example("trimtab rounds show --cluster east-1 29700123"))
@settings_options
@click.option("--cluster", metavar="NAME", required=True, help="Its cluster.")
@as_published_option
@click.argument("number", type=int, required=False)
def show_command(settings: Settings, cluster: str, number: int | None, form: str) -> None:
    """Show what a round saw, decided and held back; without a number, the newest round."""
    records = records_of(settings, settings.topics.audit, "earliest", follow=False)
    newest = Newest()
    newest.take(record for record in records if _is_asked_for(record, cluster, number))
    if not newest.records():
        which = "no round" if number is None else f"no round {number}"
        raise NotFound(
            f"{which} of {cluster} on {settings.topics.audit}: `trimtab rounds tail --cluster {cluster} --from earliest "
            "--no-follow` lists all rounds"
        )
    if form == "table":
        (_, event), *_ = newest.rounds(settings.topics.audit)
        click.echo(round_text(event), nl=False)
        return
    click.echo(render_published(newest.records()[0].value or b"", form), nl=False)


def _is_asked_for(record: TopicRecord, cluster: str, number: int | None) -> bool:
    if number is None:
        return record.key == cluster.encode()
    return is_round_of(record.value or b"", cluster=cluster, number=number)
