"""Every start goes on in a directory of its own below the checkpoint, copied from the newest one that counts.

A predecessor that was frozen and goes on can write only into its own directory: Spark plans batches, writes state and
commits from threads that do not check for a successor. A directory counts once its card is there, which is written last and
deleted first; the directory with the highest epoch is the newest. Files in the checkpoint itself, from before there were such
directories, count as the oldest start. Older starts are deleted once the new one has committed a batch.
"""

import re

from py4j.protocol import Py4JJavaError

from streaming.spark.files import Files
from streaming.transport.checkpoint import CARD, CLAIM, Start, all_starts, newest_number, newest_start

_PARTS = ("commits", "offsets", "metadata", "sources", "state")
"""What Spark writes. Commits are copied first, because Spark writes a commit after everything that belongs to it."""
_SCHEMA_PATH = re.compile(rb'"[^"]*(/state/\d+/_stateSchema/[^"]*)"')
"""Spark stores the whole path of a schema, which changes with the directory."""
_ATTEMPTS = 3


def begin(files: Files, own: Start, card: bytes) -> None:
    """Copy what counts into the directory of this start, and make it count.

    A process that ends while we copy may still delete what it wrote, so the same start must be the newest before and after the copy.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        before = newest_start(files)
        _claim(files, own)
        try:
            if before is not None:
                _copy(files, before, own)
            if newest_start(files) == before:
                files.write_whole(own.file(CARD), card)
                return
        except (Py4JJavaError, OSError):
            if attempt == _ATTEMPTS:
                files.delete(own.directory)
                raise
        files.delete(own.directory)
    raise OSError(f"{files.address('')} is changed by another process while it is copied")


def _claim(files: Files, own: Start) -> None:
    """Let only one process work in a directory, even if two have the same epoch because their commits topics are not the same."""
    try:
        files.write_new(own.file(CLAIM), b"")
    except FileExistsError as error:
        raise OSError(
            f"{files.address(own.directory)} belongs to another process with the same epoch: do two controllers with "
            "different brokers share this checkpoint?"
        ) from error


def drop_older(files: Files, own: Start) -> None:
    """Delete what was written before this start, its card first."""
    for start in sorted(all_starts(files)):
        if start >= own:
            continue
        files.delete(start.file(CARD))
        for name in [start.directory] if start.directory else _PARTS:
            files.delete(name)


def _copy(files: Files, before: Start, own: Start) -> None:
    for part in _PARTS:
        if files.exists(before.file(part)):
            files.copy(before.file(part), own.file(part))
    _forget_unplanned(files, own)
    for operator in files.names(own.file("state")):
        _move_schemas(files, own, own.file("state", operator, "_metadata", "v2"))


def _forget_unplanned(files: Files, own: Start) -> None:
    """Keep only one planned batch: another one may have been committed and the next planned since the commits were copied."""
    committed = newest_number(files, own, "commits")
    most = 0 if committed is None else committed + 1
    for name in files.names(own.file("offsets")):
        if name.isdecimal() and int(name) > most:
            files.delete(own.file("offsets", name))


def _move_schemas(files: Files, own: Start, directory: str) -> None:
    here = files.address(own.directory).encode()
    for name in files.names(directory):
        text = files.read(f"{directory}/{name}")
        if text is not None:
            moved = _SCHEMA_PATH.sub(lambda found: b'"%b%b"' % (here, found[1]), text)
            files.write(f"{directory}/{name}", moved)
