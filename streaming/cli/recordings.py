"""``trimtab record``, ``replay`` and ``feed``: keep what a controller is given, decide on it again, or play it as if it happened now."""

import gzip
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from policies.wording import counted
from state.closing import UNBOUNDED, MemoryStart
from state.overlay import epoch_ms
from streaming.cli.options import (
    TIME_HELP,
    Moment,
    Size,
    begin_option,
    example,
    mode_option,
    setting_option,
    settings_options,
    with_settings,
)
from streaming.cli.output import progress
from streaming.controller.feed import CLUSTER, FAST, Fed, sample_events, shift_to
from streaming.controller.recording import STANDARD, BadRecording, opened_for_reading, opened_for_recording
from streaming.process.exits import Refused, WrongUse, raised_as, words_of
from streaming.process.stop_signals import stopped_by_signals
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import AcceptedClusters, identity_of
from streaming.transport.errors import NoTopic, PublishError
from streaming.transport.side import Begin, EventSink

if TYPE_CHECKING:
    from streaming.controller.recorder import Recorder
    from streaming.controller.replay import Only

_PAUSE_S = 1.0
"""Pause between two reads of the topics; the file is at most this far behind."""
_FILE_BYTES = 64 * 1024**2
_LONG_BYTES = 20_000_000
"""A replay of files from this size on shows a progress bar on a terminal."""
_SAID_EVERY_S = 5.0


@contextmanager
def _ended_by(stop: threading.Event, error: type[Exception]) -> Iterator[None]:
    """While connecting: the error that a stop causes is none."""
    try:
        yield
    except error:
        if not stop.is_set():
            raise


@click.command("record", epilog=example("trimtab record --max-total-size 20GiB /var/lib/trimtab/recordings"))
@settings_options
@begin_option("Where to begin in the input; the control topic is always read whole.", default="earliest")
@click.option(
    "--until-now", is_flag=True, help="Stop at the present end of the topics instead of waiting for more."
)
@click.option(
    "--max-total-size",
    "total_bytes",
    type=Size(),
    help="FILE is a folder of packed files. Once they are larger than this together, the oldest are removed.",
)
@click.argument("file", metavar="FILE")
def record_command(
    settings: Settings,
    begin: Begin,
    file: str,
    *,
    until_now: bool,
    total_bytes: int | None,
) -> None:
    """Write the input and control records to FILE, a new file, in the form that `trimtab replay` reads.

    Give the settings file of `trimtab run`. - is standard output; a name ending in .gz is packed. Ctrl-C or SIGTERM ends it. With
    --max-total-size it runs for months: a later start with the same folder goes on where it ended.
    """
    stop = threading.Event()
    try:
        with stopped_by_signals(lambda _: stop.set()):
            if total_bytes is None:
                count = _record_to_file(settings, begin, file, stop, until_now=until_now)
            else:
                count = _record_to_folder(settings, begin, Path(file), total_bytes, stop, until_now=until_now)
    except FileExistsError as error:
        raise WrongUse(f"{file} exists: give a new file, a recording is never overwritten") from error
    except _NOT_THIS_PATH as error:
        raise WrongUse(f"{file} cannot be written: {words_of(error)}") from error
    except OSError as error:
        raise Refused(f"{file} cannot be written: {words_of(error)}. {_left_at(Path(file))}") from error
    click.echo(f"{counted(count, 'record')} written to {file}", err=True)


_NOT_THIS_PATH = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""The path is wrong; any other error is of the disk."""


def _left_at(file: Path) -> str:
    """What is left of a recording that could not be written on, and what to do."""
    if file.is_dir():
        return "Free space and run it again: it goes on where it ended"
    if file.is_file():
        return "What was written until then is left there, its last line may be cut: free space, and delete it or give a new file"
    return "Give a place with more space"


@contextmanager
def record_for_now(settings: Settings, begin: Begin) -> Iterator[tuple[str, int]]:
    """A file with what is on the input topic, and the number of its records; the file is deleted after the block."""
    with tempfile.TemporaryDirectory(prefix="trimtab-record-") as folder:
        file = str(Path(folder) / "input.ndjson.gz")
        yield file, _record_to_file(settings, begin, file, threading.Event(), until_now=True)


def _record_to_file(
    settings: Settings, begin: Begin, file: str, stop: threading.Event, *, until_now: bool
) -> int:
    if Path(file).exists():
        raise FileExistsError

    def opened(stack: ExitStack) -> Callable[["Recorder"], int]:
        out = stack.enter_context(opened_for_recording(file))
        return lambda recorder: recorder.write(out, is_stopped=stop.is_set)

    return _record(settings, begin, opened, stop, until_now=until_now)


def _record_to_folder(
    settings: Settings,
    begin: Begin,
    folder: Path,
    total_bytes: int,
    stop: threading.Event,
    *,
    until_now: bool,
) -> int:
    from streaming.controller.recorder import RotatingFolder  # noqa: PLC0415  see `commands`

    out = RotatingFolder(
        folder,
        file_bytes=min(_FILE_BYTES, total_bytes),
        total_bytes=total_bytes,
        tell=lambda text: click.echo(text, err=True),
    )

    def write(recorder: "Recorder") -> int:
        before = out.count
        for record in recorder.records(is_stopped=stop.is_set):
            out.write(record)
        out.flush()
        return out.count - before

    return _record(settings, out.begin(begin), lambda _: write, stop, until_now=until_now)


def _record(
    settings: Settings,
    begin: Begin,
    opened: Callable[[ExitStack], Callable[["Recorder"], int]],
    stop: threading.Event,
    *,
    until_now: bool,
) -> int:
    """Record what is there, and until a stop what comes; returns how many records.

    What ``opened`` returns writes the records that are there. Nothing is opened before the topics are read: a refused start leaves no
    file.
    """
    from streaming.controller.recorder import Recorder  # noqa: PLC0415  a broker's client, when a command needs it

    count, recorder = 0, None
    with ExitStack() as stack:
        with _ended_by(stop, Refused):
            recorder = Recorder(stack, settings, begin=begin)
        if recorder is not None:
            write = opened(stack)
            count = write(recorder)
            while not until_now and not stop.wait(_PAUSE_S):
                count += write(recorder)
    return count


@click.command("replay", epilog=example("trimtab replay --only actions today.ndjson.gz"))
@with_settings(mode_option)
@click.option(
    "--only", type=click.Choice(["actions", "rounds", "rejected"]), help="Write only this kind of event."
)
@click.option(
    "--started",
    type=Moment(),
    help="When `trimtab run` began without memory: nothing is done in rounds that ended before it. Else every round acts. "
    f"{TIME_HELP}",
)
@click.option("--fresh", is_flag=True, help="With --started: `trimtab run` began with this option.")
@click.option("--keep-open", is_flag=True, help="Leave the rounds open that the input does not close.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, allow_dash=True), metavar="[FILE]...")
def replay_command(
    settings: Settings,
    only: "Only | None",
    started: datetime | None,
    paths: tuple[str, ...],
    *,
    fresh: bool,
    keep_open: bool,
) -> None:
    """Read input and control events as NDJSON (standard input by default), write the outputs as NDJSON.

    Lines are events, or what `trimtab record` wrote. A folder stands for the recordings in it, in the order of their names.

    It decides as `trimtab run` does, byte for byte. Give --started for a controller that began without memory: the reason of actions
    that it held as `starting` names the time. Files ending in .gz are unpacked. A summary goes to standard error.
    """
    from streaming.controller.replay import NoRecording, Replay, files_of  # noqa: PLC0415  see `commands`

    if fresh and started is None:
        raise WrongUse("--fresh needs --started, the time at which `trimtab run --fresh` began")
    memory_start = UNBOUNDED if started is None else MemoryStart(epoch_ms(started), is_fresh=fresh)
    replay = Replay(
        sys.stdout.buffer,
        name=settings.controller.name,
        identity=identity_of(settings, memory_start),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
        accepted=AcceptedClusters(settings.controller.accepted_clusters),
        only=only,
    )
    with raised_as(WrongUse, NoRecording):
        files = files_of(paths)
    plain = [file for file in files if file != STANDARD and not file.endswith(".gz")]
    total_bytes = sum(Path(file).stat().st_size for file in plain) if len(plain) == len(files) else 0
    is_long = total_bytes >= _LONG_BYTES
    with progress(total_bytes if is_long else None, "replay", step=_LONG_BYTES // 100) as advance:
        for file in files or (STANDARD,):
            try:
                with raised_as(WrongUse, BadRecording), opened_for_reading(file) as stream:
                    replay.play(stream, file, advance)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                text = f"{file}: not a whole gzip file ({error}); the part before the error was replayed"
                raise WrongUse(text) from error
    if not keep_open:
        replay.close_open()
    tally = replay.tally
    ends = [f"{tally.count_of(result)} {result}" for result in ("used", "superseded", "late", "rejected")]
    if waiting_count := replay.taken_count - sum(tally.results.values()):
        ends.append(f"{waiting_count} waiting in open rounds")
    click.echo(
        f"{counted(replay.taken_count, 'record')}: {', '.join(ends)}; {counted(replay.written_count, 'event')} written",
        err=True,
    )
    for reason, count in sorted(tally.reasons.items()):
        click.echo(f"  rejected {reason}: {count}", err=True)
    if only != "rejected" and 0 < replay.taken_count == tally.count_of("rejected"):
        raise WrongUse(
            "no line of it can be used: expected a recording of `trimtab record`, or events as lines"
        )


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
    help=f"{FAST} times as fast: a minute takes five seconds. Give the controller [pulsar.rounds] length_s = 5, lateness_s = 1.",
)
@click.argument(
    "recording", required=False, type=click.Path(exists=True, dir_okay=False), metavar="[RECORDING]"
)
def feed_command(settings: Settings, recording: str | None, *, fast: bool) -> None:
    """Write the events of RECORDING to the input topic with the times of today, at the pace at which they came.

    RECORDING is a file of `trimtab record`, or of events as lines; .gz is unpacked; its end ends the command. Without one, four
    made-up brokers report as the cluster `sample` until Ctrl-C, and one of them carries half of the traffic. Decisions have no effect.
    """
    from streaming.systems import event_sink_of  # noqa: PLC0415  a broker's client is loaded when needed

    stop, count = threading.Event(), 0
    with ExitStack() as stack:
        stack.enter_context(stopped_by_signals(lambda _: stop.set()))
        stack.enter_context(raised_as(Refused, PublishError, NoTopic))
        opened = nullcontext(sample_events()) if recording is None else opened_for_reading(recording)
        lines, sink = stack.enter_context(opened), None
        with _ended_by(stop, PublishError):
            sink = stack.enter_context(closing(event_sink_of(settings)))
        if sink is not None:
            what = f"the cluster {CLUSTER}, until Ctrl-C," if recording is None else recording
            click.echo(f"feeding {what} to {settings.input.url}", err=True)
            fed = shift_to(lines, round(time.time() * 1000), speed=FAST if fast else 1)
            try:
                count = _feed(fed, sink, stop)
            except (BadRecording, EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise WrongUse(f"{recording}: {error}") from error
            except PublishError as error:
                raise Refused(f"{error}. The feed has ended: start it again once that is mended") from error
    how = "stopped" if stop.is_set() else f"{recording} has ended"
    click.echo(f"{how}: {counted(count, 'record')} fed", err=True)


def _feed(records: Iterator[Fed], sink: EventSink, stop: threading.Event) -> int:
    """Write each record when it is due, those of one moment together; returns how many were written."""
    count, said_s = 0, time.monotonic()
    for record in records:
        wait_s = record.at_ms / 1000 - time.time()
        if wait_s > 0:
            sink.flush()
            if time.monotonic() - said_s > _SAID_EVERY_S:
                said_s = time.monotonic()
                click.echo(f"{counted(count, 'record')} fed", err=True)
            if stop.wait(wait_s):
                break
        sink.send(record.key, record.value)
        count += 1
    sink.flush()
    return count
