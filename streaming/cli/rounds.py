"""``trimtab rounds``: what was seen, decided and held back, round by round."""

from pathlib import Path

import click

from streaming.cli.beginning import begin_of
from streaming.cli.configured import read_settings
from streaming.cli.options import config_option, example
from streaming.cli.topic_options import (
    cluster_option,
    format_option,
    from_option,
    no_follow_option,
    print_records,
    records_of,
)
from streaming.operators.action_events import UnreadableEvent
from streaming.operators.round_events import Newest, is_round_of, read_round
from streaming.operators.round_text import round_text, tail_round_text
from streaming.ports.reading import TopicRecord
from streaming.process.exits import NotFound


@click.group("rounds")
def rounds_command() -> None:
    """Read the round summaries of the audit topic."""


@rounds_command.command(
    "tail", epilog=example("trimtab rounds tail --cluster east-1 --from 2026-11-21T10:00:00Z")
)
@config_option
@cluster_option
@from_option
@no_follow_option
@format_option
def tail_command(config: Path | None, cluster: str | None, begin: str, form: str, *, no_follow: bool) -> None:
    """Print a line a round as it closes; Ctrl-C ends it."""
    settings = read_settings(config, {})
    topic = settings.topics.audit
    print_records(
        records_of(settings, topic, begin_of(begin), follow=not no_follow),
        lambda record: tail_round_text(read_round(record.value or b"").data),
        topic=topic,
        cluster=cluster,
        form=form,
        skipped=UnreadableEvent,
    )


@rounds_command.command("show", epilog=example("trimtab rounds show --cluster east-1 29700123"))
@config_option
@click.option("--cluster", metavar="NAME", required=True, help="Its cluster.")
@format_option
@click.argument("number", type=int, required=False)
def show_command(config: Path | None, cluster: str, number: int | None, form: str) -> None:
    """What a round saw, decided and held back; the newest one without a number."""
    settings = read_settings(config, {})
    records = records_of(settings, settings.topics.audit, "earliest", follow=False)
    newest = Newest()
    newest.take(record for record in records if _is_asked_for(record, cluster, number))
    if not newest.records():
        which = "no round" if number is None else f"no round {number}"
        raise NotFound(
            f"{which} of {cluster} on {settings.topics.audit}: `trimtab rounds tail --cluster {cluster} --from earliest "
            "--no-follow` lists what there is"
        )
    value = newest.records()[0].value or b""
    click.echo(value.decode() + "\n" if form == "json" else round_text(read_round(value)), nl=False)


def _is_asked_for(record: TopicRecord, cluster: str, number: int | None) -> bool:
    if number is None:
        return record.key == cluster.encode()
    return is_round_of(record.value or b"", cluster=cluster, number=number)
