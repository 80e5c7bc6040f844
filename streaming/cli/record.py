"""``trimtab record``: keep what a controller is given, for ``trimtab replay`` and ``backtest``."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from streaming.cli.options import Size, begin_of, example, settings_options, size_text
from streaming.controller.recording import opened_for_recording
from streaming.process.exits import Refused, WrongUse
from streaming.process.stopping import stopped_by_signals
from streaming.settings import Settings
from streaming.transport.side import Begin

if TYPE_CHECKING:
    from streaming.controller.recorder import Recorder

_PAUSE_S = 1.0
"""Pause between two reads of the topics; the file is at most this far behind."""
_FILE_BYTES = 64 * 1024**2
_Pass = Callable[["Recorder"], int]
"""Writes the records that are there; returns how many."""


class _Source(NamedTuple):
    """What is recorded."""

    settings: Settings
    begin: Begin
    until_now: bool


@click.command("record", epilog=example("trimtab record --max-total-size 20GiB /var/lib/trimtab/recordings"))
@settings_options
@click.option(
    "--from",
    "begin",
    metavar="earliest|latest|TIME",
    default="earliest",
    show_default=True,
    help="Where to begin in the input; TIME is RFC 3339. The control topic is always read whole.",
)
@click.option(
    "--until-now", is_flag=True, help="Stop at the present end of the topics instead of waiting for more."
)
@click.option(
    "--max-total-size",
    "total_bytes",
    type=Size(),
    help="FILE is a folder of packed files; if they are larger than this together, the oldest is removed.",
)
@click.option(
    "--max-file-size",
    "file_bytes",
    type=Size(),
    help=f"With --max-total-size: size at which the next file begins.  [default: {size_text(_FILE_BYTES)}]",
)
@click.argument("file", metavar="FILE")
def record_command(
    settings: Settings,
    begin: str,
    file: str,
    *,
    until_now: bool,
    total_bytes: int | None,
    file_bytes: int | None,
) -> None:
    """Write the input and control records to FILE, a new file, in the form that `trimtab replay` reads.

    Give the settings file of `trimtab run`. - is standard output; a name ending in .gz is packed. Ctrl-C or SIGTERM ends it. With
    --max-total-size it runs for months: a later start with the same folder goes on where it ended.
    """
    if file_bytes is not None and total_bytes is None:
        raise WrongUse("--max-file-size: give --max-total-size too, so that the files cannot fill the disk")
    source, stop = _Source(settings, begin_of(begin), until_now=until_now), threading.Event()
    try:
        with stopped_by_signals(lambda _: stop.set()):
            if total_bytes is not None:
                count = _record_rotating(source, Path(file), (total_bytes, file_bytes), stop)
            else:
                count = _record_to_file(source, file, stop)
    except FileExistsError as error:
        raise WrongUse(f"{file} exists: give a new file, a recording is never overwritten") from error
    except OSError as error:
        raise WrongUse(f"{file} cannot be written: {error}") from error
    click.echo(f"{count} records written to {file}", err=True)


def _record_to_file(source: _Source, file: str, stop: threading.Event) -> int:
    def opened(stack: ExitStack) -> _Pass:
        out = stack.enter_context(opened_for_recording(file))
        return lambda recorder: recorder.write(out, is_stopped=stop.is_set)

    if Path(file).exists():
        raise FileExistsError
    return _record(source, opened, stop)


@contextmanager
def record_for_now(settings: Settings, begin: Begin) -> Iterator[tuple[str, int]]:
    """A file with what is on the input topic, and the number of its records; the file is deleted after the block."""
    with tempfile.TemporaryDirectory(prefix="trimtab-record-") as folder:
        file = str(Path(folder) / "input.ndjson.gz")
        yield file, _record_to_file(_Source(settings, begin, until_now=True), file, threading.Event())


def _record_rotating(
    source: _Source, folder: Path, sizes: tuple[int, int | None], stop: threading.Event
) -> int:
    """``sizes``: the most bytes of all files together, and of one file (None: the default)."""
    from streaming.controller.recorder import RotatingFolder  # noqa: PLC0415  see `commands`

    total_bytes, file_bytes = sizes[0], sizes[1] or min(_FILE_BYTES, sizes[0])
    if file_bytes > total_bytes:
        raise WrongUse(
            f"--max-file-size {size_text(file_bytes)} is above --max-total-size {size_text(total_bytes)}: make it smaller"
        )
    out = RotatingFolder(
        folder, file_bytes=file_bytes, total_bytes=total_bytes, tell=lambda text: click.echo(text, err=True)
    )

    def write(recorder: "Recorder") -> int:
        before = out.count
        for record in recorder.records(is_stopped=stop.is_set):
            out.write(record)
        out.flush()
        return out.count - before

    return _record(source._replace(begin=out.begin(source.begin)), lambda _: write, stop)


def _record(source: _Source, opened: Callable[[ExitStack], _Pass], stop: threading.Event) -> int:
    """Record what is there, and until a stop what comes. Nothing is written before the topics are read: a refused start leaves no file."""
    from streaming.controller.recorder import Recorder  # noqa: PLC0415  a broker's client, when a command needs it

    with ExitStack() as stack:
        try:
            recorder = Recorder(stack, source.settings, begin=source.begin)
        except Refused:
            if stop.is_set():
                return 0
            raise
        write = opened(stack)
        count = write(recorder)
        while not source.until_now and not stop.wait(_PAUSE_S):
            count += write(recorder)
    return count
