"""``trimtab replay``: make the decisions for a recording, without Spark and without a broker."""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from streaming.cli.options import example, setting_option, with_settings
from streaming.controller.recording import STANDARD, BadRecording, opened_for_reading
from streaming.controller.replay import NoRecording, Only, Replay, files_of, ignore_size
from streaming.process.exits import WrongUse
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import AcceptedClusters, identity_of

_LONG_BYTES = 20_000_000
"""Inputs from this size on show a progress bar on a terminal."""


@click.command("replay", epilog=example("trimtab replay --only actions today.ndjson.gz"))
@with_settings(
    setting_option(
        "controller.mode", "--mode", type=click.Choice(["dry-run", "act"]), help="Overrides controller.mode."
    )
)
@click.option(
    "--only", type=click.Choice(["actions", "rounds", "rejected"]), help="Write only this kind of event."
)
@click.option("--keep-open", is_flag=True, help="Leave the rounds open that the input does not close.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, allow_dash=True), metavar="[FILE]...")
def replay_command(settings: Settings, only: Only | None, paths: tuple[str, ...], *, keep_open: bool) -> None:
    """Read input and control events as NDJSON (standard input by default), write the outputs as NDJSON.

    Lines are events, or what `trimtab record` wrote. A folder stands for the recordings in it, in the order of their names.

    It decides as `trimtab run` does, byte for byte. Files ending in .gz are unpacked. A summary goes to standard
    error.
    """
    replay = Replay(
        sys.stdout.buffer,
        name=settings.controller.name,
        identity=identity_of(settings),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
        accepted=AcceptedClusters(settings.controller.accepted_clusters),
        only=only,
    )
    try:
        files = files_of(paths)
    except NoRecording as error:
        raise WrongUse(str(error)) from error
    with _progress(files) as advance:
        for file in files or (STANDARD,):
            _play(replay, file, advance)
    if not keep_open:
        replay.close_open()
    _summarize(replay)


def _play(replay: Replay, file: str, advance: Callable[[int], None]) -> None:
    try:
        with opened_for_reading(file) as stream:
            replay.play(stream, file, advance)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WrongUse(
            f"{file}: not a whole gzip file ({error}); the part before the error was replayed"
        ) from error
    except BadRecording as error:
        raise WrongUse(str(error)) from error


@contextmanager
def _progress(files: tuple[str, ...]) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of long plain files on a terminal; otherwise nothing is shown."""
    plain = [file for file in files if file != STANDARD and not file.endswith(".gz")]
    total_bytes = sum(Path(file).stat().st_size for file in plain)
    if not sys.stderr.isatty() or len(plain) < len(files) or total_bytes < _LONG_BYTES:
        yield ignore_size
        return
    with click.progressbar(
        length=total_bytes, label="replay", file=sys.stderr, update_min_steps=_LONG_BYTES // 100
    ) as bar:
        yield bar.update


def _summarize(replay: Replay) -> None:
    tally = replay.tally
    ends = [f"{tally.of(result)} {result}" for result in ("used", "superseded", "late", "rejected")]
    waiting_count = replay.taken_count - sum(tally.results.values())
    if waiting_count:
        ends.append(f"{waiting_count} waiting in open rounds")
    click.echo(
        f"{replay.taken_count} records: {', '.join(ends)}; {replay.written_count} events written", err=True
    )
    for reason, count in sorted(tally.reasons.items()):
        click.echo(f"  rejected {reason}: {count}", err=True)
