"""``trimtab rounds``: what was seen, decided and held back, round by round."""

import time
from typing import Any

import click
import msgspec

from streaming.cli.configured import settings_options
from streaming.cli.options import example
from streaming.cli.topic_options import (
    as_published_option,
    print_topic,
    records_of,
    render_published,
    tail_options,
)
from streaming.operators.round_events import LOOK_BACK_S, Newest, is_round_of, read_round
from streaming.operators.round_subject import about_text, newest_about
from streaming.operators.round_text import round_text, tail_round_text
from streaming.process.exits import NotFound, WrongUse
from streaming.settings import Settings
from streaming.transport.side import TopicRecord


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


@rounds_command.command(
    "show",
    epilog=example("trimtab rounds show --cluster east-1 --bundle shop/orders/0x80000000_0xa0000000"),
)
@settings_options
@click.option("--cluster", metavar="NAME", required=True, help="Its cluster.")
@click.option("--broker", metavar="ID", help="Only what rounds say of this broker.")
@click.option(
    "--bundle", metavar="TENANT/NAMESPACE/RANGE", help="Only what rounds say of this bundle and its broker."
)
@as_published_option
@click.argument("number", type=int, required=False)
def show_command(
    settings: Settings, cluster: str, broker: str | None, bundle: str | None, number: int | None, form: str
) -> None:
    """Show what a round saw, decided and held back; without a number, the newest round.

    With --broker or --bundle: the newest five rounds that name it, each with its outcome, the numbers, and what would have to change.
    """
    if broker is not None and bundle is not None:
        raise WrongUse("--broker and --bundle cannot be given together")
    subject = bundle or broker
    topic = settings.topics.audit
    records = records_of(settings, topic, "earliest" if subject is None else _day_ago(), follow=False)
    asked = (record for record in records if _is_asked_for(record, cluster, number))
    if subject is not None:
        rounds = newest_about(asked, subject, is_bundle=bundle is not None)
        if not rounds:
            raise NotFound(_not_named(cluster, subject, is_bundle=bundle is not None))
        if form == "table":
            click.echo(about_text([event.data for event in rounds]), nl=False)
            return
        for event in rounds:
            click.echo(render_published(msgspec.json.encode(event), form), nl=False)
        return
    newest = Newest()
    newest.take(asked)
    if not newest.records():
        which = "no round" if number is None else f"no round {number}"
        raise NotFound(
            f"{which} of {cluster} on {topic}: `trimtab rounds tail --cluster {cluster} --from earliest "
            "--no-follow` lists all rounds"
        )
    if form == "table":
        (_, event), *_ = newest.rounds(topic)
        click.echo(round_text(event), nl=False)
        return
    click.echo(render_published(newest.records()[0].value or b"", form), nl=False)


def _is_asked_for(record: TopicRecord, cluster: str, number: int | None) -> bool:
    if number is None:
        return record.key == cluster.encode()
    return is_round_of(record.value or b"", cluster=cluster, number=number)


def _day_ago() -> int:
    return round((time.time() - LOOK_BACK_S[-1]) * 1000)


def _not_named(cluster: str, subject: str, *, is_bundle: bool) -> str:
    if is_bundle:
        return (
            f"no round of {cluster} in the last day names {subject}: its broker did not fire, or 100 heavier bundles did; "
            f"see its broker: trimtab rounds show --cluster {cluster} --broker ID"
        )
    return (
        f"no round of {cluster} in the last day names {subject}: it did not report, or 100 brokers are busier; "
        f"`trimtab rounds show --cluster {cluster}` shows the newest round"
    )
