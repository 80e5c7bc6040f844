"""``trimtab report``: whether the actions of some days helped, and what was held back."""

import time
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from state.outputs import rfc3339
from streaming.cli.configured import settings_options
from streaming.cli.forms import format_option, render
from streaming.cli.options import Duration, example
from streaming.cli.topic_options import records_of
from streaming.operators.action_events import UnreadableEvent, epoch_of
from streaming.operators.report import Report
from streaming.operators.report_text import report_text
from streaming.operators.round_events import is_round
from streaming.process.exits import NotFound
from streaming.settings import Settings

if TYPE_CHECKING:
    from streaming.operators.report import ClusterReport

_UNBALANCED_POINTS = 15.0


@click.command("report", epilog=example("trimtab report --since 7d --html report.html"))
@settings_options
@click.option("--cluster", metavar="NAME", help="Only of this cluster.")
@click.option(
    "--since",
    type=Duration(),
    default="7d",
    show_default=True,
    help="How far back, such as 12h or 30d.",
)
@click.option(
    "--unbalanced-points",
    type=click.FloatRange(0),
    default=_UNBALANCED_POINTS,
    show_default=True,
    help="A cluster is unbalanced while its hottest broker is more than this above its coldest.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots.")
@format_option("JSON and YAML are an object with a list of clusters.")
def report_command(
    settings: Settings,
    cluster: str | None,
    since: timedelta,
    unbalanced_points: float,
    html: Path | None,
    form: str,
) -> None:
    """Show what was decided in the last days, what it gained, what had no effect, and what was held back by which guard.

    All of it is on the audit topic: the summary of the round that judged an action says which effect was expected and seen.
    """
    since_ms = round((time.time() - since.total_seconds()) * 1000)
    topic = settings.topics.audit
    reach = _describe_reach(settings, since_ms)
    report = Report(unbalanced_points=unbalanced_points)
    for record in records_of(settings, topic, since_ms, follow=False):
        value = record.value or b""
        if not is_round(value) or (cluster is not None and record.key != cluster.encode()):
            continue
        try:
            report.take(value, epoch_of(record.headers) or 0)
        except UnreadableEvent as error:
            click.echo(f"{topic}, offset {record.offset}: {error}", err=True)
    found = report.clusters()
    if not found:
        of = "" if cluster is None else f" of {cluster}"
        raise NotFound(f"no round{of} on {topic} since {rfc3339(since_ms)}; {reach}")
    if html is not None:
        from streaming.operators.report_page import render_page  # noqa: PLC0415  the plotting library takes a second

        html.write_text(render_page(found, reach), encoding="utf-8")
        click.echo(f"page written to {html}", err=True)
    _show(found, reach, form)


def _describe_reach(settings: Settings, since_ms: int) -> str:
    """How far back the audit topic reaches."""
    topic = settings.topics.audit
    first = next(islice(records_of(settings, topic, "earliest", follow=False), 1), None)
    if first is None:
        return f"{topic} is empty"
    text = f"{topic} reaches back to {rfc3339(first.timestamp)}"
    if first.timestamp > since_ms:
        return f"{text}, not to {rfc3339(since_ms)}: earlier rounds are not known"
    return text


def _show(found: "list[ClusterReport]", reach: str, form: str) -> None:
    if form == "table":
        click.echo("\n".join([*(report_text(each) for each in found), reach]))
        return
    click.echo(render({"reach": reach, "clusters": [each.tree() for each in found]}, form), nl=False)
