"""``trimtab feed``: play a recording, or a made-up fleet, to the input topic as if it happened now."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from streaming.cli.options import example, setting_option, with_settings
from streaming.cli.service import refuse_errors
from streaming.controller.feed import CLUSTER, FAST, Fed, sample_events, shift_to
from streaming.controller.recording import BadRecording
from streaming.process.exits import WrongUse
from streaming.process.stopping import stopped_by_signals
from streaming.settings import Settings
from streaming.transport.errors import PublishError
from streaming.transport.side import EventSink

_SAID_EVERY_S = 5.0


@click.command("feed", epilog=example("trimtab feed --to kafka://127.0.0.1:9092 --fast"))
@with_settings(
    setting_option(
        "input.url",
        "--to",
        "--input",
        metavar="URL",
        help="Overrides input.url, where the events are written.",
    )
)
@click.option(
    "--fast",
    is_flag=True,
    help=f"{FAST} times as fast: a minute is five seconds. Give the controller [pulsar.rounds] length_s = 5, lateness_s = 1.",
)
@click.argument(
    "recording", required=False, type=click.Path(exists=True, dir_okay=False), metavar="[RECORDING]"
)
def feed_command(settings: Settings, recording: str | None, *, fast: bool) -> None:
    """Write the events of RECORDING to the input topic with the times of today, at the pace at which they came.

    RECORDING is a file of `trimtab record`, or of events as lines; .gz is unpacked. Without one, four made-up brokers report for
    an hour as the cluster `sample`, and one of them carries half of the traffic. Decisions have no effect. Ctrl-C ends it.
    """
    stop, count = threading.Event(), 0
    with (
        stopped_by_signals(lambda _: stop.set()),
        refuse_errors(),
        _lines_of(recording) as lines,
        _sink_unless_stopped(settings, stop) as sink,
    ):
        if sink is not None:
            click.echo(f"feeding {recording or f'the cluster {CLUSTER}'} to {settings.input.url}", err=True)
            fed = shift_to(lines, round(time.time() * 1000), speed=FAST if fast else 1)
            try:
                count = _feed(fed, sink, stop)
            except (BadRecording, EOFError, gzip.BadGzipFile) as error:
                raise WrongUse(f"{recording}: {error}") from error
    click.echo(f"{count} records fed", err=True)


@contextmanager
def _sink_unless_stopped(settings: Settings, stop: threading.Event) -> Iterator[EventSink | None]:
    """Where the events are written; None if it could not be opened, and a stop was asked for meanwhile."""
    from streaming.systems import event_sink_of  # noqa: PLC0415  a broker's client is loaded when needed

    try:
        sink = event_sink_of(settings)
    except PublishError:
        if not stop.is_set():
            raise
        yield None
        return
    with closing(sink):
        yield sink


@contextmanager
def _lines_of(recording: str | None) -> Iterator[Iterator[bytes]]:
    if recording is None:
        yield sample_events()
    elif recording.endswith(".gz"):
        with gzip.open(recording, "rb") as packed:
            yield iter(packed)
    else:
        with Path(recording).open("rb") as plain:
            yield iter(plain)


def _feed(records: Iterator[Fed], sink: EventSink, stop: threading.Event) -> int:
    """Write each record when it is due, those of one moment together; returns how many were written."""
    count, said_s = 0, time.monotonic()
    for record in records:
        wait_s = record.at_ms / 1000 - time.time()
        if wait_s > 0:
            sink.flush()
            if time.monotonic() - said_s > _SAID_EVERY_S:
                said_s = time.monotonic()
                click.echo(f"{count} records fed", err=True)
            if stop.wait(wait_s):
                break
        sink.send(record.key, record.value)
        count += 1
    sink.flush()
    return count
