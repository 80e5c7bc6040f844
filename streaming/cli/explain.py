"""``trimtab explain``: why a bundle or a broker is left alone, and what would have to change."""

import gzip
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import click
import msgspec

from state.outputs import rfc3339
from streaming.cli.beginning import moment_of
from streaming.cli.configured import settings_options
from streaming.cli.forms import format_option, render
from streaming.cli.options import Duration, example
from streaming.controller.recording import BadRecording
from streaming.controller.recordings import NoRecording, RecordedEvents, files_of
from streaming.operators.explain import Explainer, Explanation
from streaming.operators.explain_text import explain_text
from streaming.process.exits import NotFound, WrongUse
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import identity_of


@click.command(
    "explain", epilog=example("trimtab explain shop/orders/0x80000000_0xa0000000 --cluster east-1")
)
@settings_options
@click.option("--cluster", metavar="NAME", help="Only of this cluster.")
@click.option(
    "--at", metavar="TIME", help="As it was at this time; RFC 3339.  [default: now, or the recording's end]"
)
@click.option(
    "--last",
    type=Duration(),
    default="3h",
    show_default=True,
    help="How much time before that is replayed.",
)
@click.option(
    "--recording",
    "recordings",
    multiple=True,
    type=click.Path(exists=True),
    help="Replay this file or folder of `trimtab record` instead of the input topic; more than one may be given.",
)
@format_option("JSON and YAML are a list with one object per cluster.")
@click.argument("subject", metavar="BUNDLE|BROKER")
def explain_command(
    settings: Settings,
    cluster: str | None,
    at: str | None,
    last: timedelta,
    recordings: tuple[str, ...],
    form: str,
    subject: str,
) -> None:
    """Say what the controller knows of a bundle or a broker, which guards hold it, and what would have to change for it to move.

    The last hours of the input topic are replayed up to that moment, because a summary names only the 100 heaviest bundles. Give the
    settings file of the controller. Nothing is written.
    """
    at_ms = None if at is None else moment_of(at, "--at")
    with _files(settings, recordings, at_ms, last) as (files, begin_ms):
        events = RecordedEvents(
            files=files,
            since_ms=begin_ms,
            until_ms=None if at_ms is None else at_ms + 1,
            max_record_bytes=settings.controller.max_record_bytes,
        )
        explainer = Explainer(
            subject, identity=identity_of(settings), settings=ClusterSettingsSource(settings)
        )
        try:
            for name, event in events():
                if cluster in {None, name}:
                    explainer.take(name, event)
        except (BadRecording, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise WrongUse(f"{', '.join(recordings)}: {error}") from error
    found = explainer.explain()
    if not found:
        raise NotFound(_describe_unknown(subject, explainer, cluster, last))
    _show(found, form)


def _describe_unknown(subject: str, explainer: Explainer, cluster: str | None, last: timedelta) -> str:
    clusters = explainer.clusters
    if not clusters:
        of = "" if cluster is None else f" of {cluster}"
        return f"nothing{of} was reported in that time: give another --at, a longer --last than {last}, or --recording"
    if not explainer.has_rounds:
        return f"no round of {', '.join(clusters)} has ended in that time: wait for one, or give another --at or a longer --last"
    kind = "bundle" if "/" in subject else "broker"
    return (
        f"no {kind} {subject} in {', '.join(clusters)}: give the full name, as `trimtab rounds show` prints it"
        + (", such as shop/orders/0x80000000_0xa0000000" if kind == "bundle" else ", such as broker-1:8080")
    )


@contextmanager
def _files(
    settings: Settings, recordings: Sequence[str], at_ms: int | None, last: timedelta
) -> Iterator[tuple[tuple[str, ...], int | None]]:
    """What is replayed, and from when on. A recording without --at is replayed whole."""
    span_ms = round(last.total_seconds() * 1000)
    if recordings:
        try:
            files = files_of(recordings)
        except NoRecording as error:
            raise WrongUse(str(error)) from error
        yield files, None if at_ms is None else at_ms - span_ms
        return
    from streaming.cli.record import record_for_now  # noqa: PLC0415  a broker's client, when it is needed

    begin_ms = (round(time.time() * 1000) if at_ms is None else at_ms) - span_ms
    with record_for_now(settings, begin_ms) as (file, count):
        click.echo(f"{count} records read, from {rfc3339(begin_ms)} on", err=True)
        yield (file,), None


def _show(found: list[Explanation], form: str) -> None:
    if form == "table":
        click.echo("\n".join(explain_text(each) for each in found), nl=False)
        return
    click.echo(render([msgspec.to_builtins(each) for each in found], form), nl=False)
