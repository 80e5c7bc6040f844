"""``trimtab record``: keep what a controller is given, for ``trimtab replay``."""

import threading
from contextlib import ExitStack
from typing import BinaryIO

import click

from streaming.cli.beginning import begin_of
from streaming.cli.configured import settings_options
from streaming.cli.options import example
from streaming.controller.recording import opened_for_recording
from streaming.ports.reading import Begin
from streaming.process.exits import WrongUse
from streaming.process.stopping import stopped_by_signals
from streaming.settings import Settings

_PAUSE_S = 1.0
"""Between two looks at the topics; the file is at most this far behind."""


@click.command("record", epilog=example("trimtab record --until-now today.ndjson.gz"))
@settings_options
@click.option(
    "--from",
    "begin",
    metavar="earliest|latest|TIME",
    default="earliest",
    show_default=True,
    help="Where the input begins; TIME is RFC 3339. The control topic is always read whole.",
)
@click.option("--until-now", is_flag=True, help="Stop at what is there now instead of waiting for more.")
@click.argument("file", metavar="FILE")
def record_command(settings: Settings, begin: str, file: str, *, until_now: bool) -> None:
    """Write the input and control records to FILE, a new one, as `trimtab replay` reads them.

    With the settings file of `trimtab run`. - is standard output; a name ending in .gz is packed. Ctrl-C or SIGTERM ends it.
    """
    first = begin_of(begin)
    try:
        with opened_for_recording(file) as out:
            count = _record(settings, first, out, until_now=until_now)
    except FileExistsError as error:
        raise WrongUse(f"{file} exists: give a new file, a recording is never written over") from error
    except OSError as error:
        raise WrongUse(f"{file} cannot be written: {error}") from error
    click.echo(f"{count} records written to {file}", err=True)


def record_until_now(settings: Settings, begin: Begin, file: str) -> int:
    """Record what lies on the input topic to a new file; the number of records."""
    with opened_for_recording(file) as out:
        return _record(settings, begin, out, until_now=True)


def _record(settings: Settings, begin: Begin, out: BinaryIO, *, until_now: bool) -> int:
    from streaming.controller.recorder import Recorder  # noqa: PLC0415  a broker's client, when a command needs it

    stop = threading.Event()
    with stopped_by_signals(lambda _: stop.set()), ExitStack() as stack:
        recorder = Recorder(stack, settings, begin=begin)
        count = recorder.write(out, is_stopped=stop.is_set)
        while not until_now and not stop.wait(_PAUSE_S):
            count += recorder.write(out, is_stopped=stop.is_set)
    return count
