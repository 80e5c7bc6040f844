"""The query's checkpoint, seen from outside: whose it is, how far it got, and whether this trimtab may go on with it.

Beside Spark's own files is ``trimtab.json``, the manifest: controller, memory version, round lengths, and the trimtab that wrote
them. A start changes nothing that counts before it has fenced its predecessor, so an older trimtab, or one with other settings, refuses
before it has written anything.

Every start goes on in a directory of its own, copied from the newest one that counts: a predecessor that was frozen and goes on can
write only into its own, because Spark plans batches, writes state and commits from threads that do not check for a successor. A
directory counts once its manifest is there, which is written last and deleted first; the directory with the highest epoch is the newest. Files
in the checkpoint itself count as the oldest start. Older starts are deleted once the new one has committed a batch.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from state.closing import MemoryStart
from state.outputs import rfc3339
from state.pulsar.holds import acts_after_ms
from streaming.process.exits import words_of
from streaming.settings import Settings
from streaming.settings.identity import kept_digest
from streaming.spark.failures import is_full_disk
from streaming.spark.files import Files, UnsafeStore, require_promises
from streaming.transport.checkpoint import (
    CLAIM,
    MANIFEST,
    Start,
    all_starts,
    decode_progress,
    manifest_of,
    newest_number,
    newest_start,
    place_of,
    read_manifest,
    read_offsets,
    read_query,
    refuse_other_manifests,
    refuse_strangers,
)
from streaming.transport.errors import CheckpointError, StartWith
from streaming.transport.publishing import Checkpoint, Marker
from streaming.transport.side import Place, Progress

_LOG = logging.getLogger(__name__)


class CheckpointDirectory:
    """A checkpoint directory or URL, in which each start has its own directory; ``topic_ids`` are the present ids of the input."""

    def __init__(
        self, spark: SparkSession, location: str, *, topic_ids: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.location = location
        self._topic_ids = topic_ids
        self._start: Start | None = None
        self._copied_commit: int | None = None
        self._is_alone = False
        self._is_safe = False
        self._unfinished_settings: Mapping[str, Mapping[str, Any]] = {}
        with self._explain_errors():
            self._files = Files(spark, location)

    @property
    def suits_plain_files(self) -> bool:
        """Whether Spark's plain file manager is enough for it."""
        return self._files.suits_plain_files

    @property
    def in_use(self) -> str:
        """Where this start's query keeps its files, once it has begun."""
        assert self._start is not None, "call begin() first"
        return self._files.address(self._start.directory)

    def is_there(self) -> bool:
        """Whether this start's directory still exists; True also where the store does not answer."""
        assert self._start is not None, "call begin() first"
        try:
            return self._files.exists(self._start.file(MANIFEST))
        except (Py4JJavaError, OSError) as error:
            _LOG.warning("the checkpoint %s could not be checked: %s", self.location, _cause_of(error))
            return True

    def places(self) -> list[Place]:
        """How far the input has been read by batches that are committed; nothing before the first."""
        return self._progress("commits").places

    def planned_batch(self) -> Progress:
        """How far the newest batch goes, and when it was planned; nothing before the first."""
        return self._progress("offsets")

    def _progress(self, log: str) -> Progress:
        """What the offsets file of the newest batch in one of Spark's logs says."""
        with self._explain_errors():
            start = self._start or newest_start(self._files) or Start(0)
            text = read_offsets(self._files, start, log)
        try:
            return decode_progress(text)
        except ValueError as error:  # Spark fails on it as well; that error names file and remedy
            _LOG.warning("the newest offsets of %s cannot be read: %s", self.location, error)
            return Progress()

    def inspect(self, settings: Settings, start_with: StartWith) -> Checkpoint:
        """What the checkpoint says, if it is this controller's and fits the settings; for ``fresh``, whatever is there.

        The first look makes and deletes a file in it; nothing is left behind. Raises CheckpointError.
        """
        with self._explain_errors():
            self._require_promises()
            newest = newest_start(self._files)
            try:
                checkpoint: Checkpoint | CheckpointError = self._inspect_start(
                    newest, settings, is_fresh=start_with == "fresh"
                )
            except CheckpointError as error:
                checkpoint = error
            if newest_start(self._files) != newest:  # another start began, and may have deleted it
                return self.inspect(settings, start_with)
        if isinstance(checkpoint, CheckpointError):
            raise checkpoint
        return checkpoint

    def _require_promises(self) -> None:
        """Test the store at the first look only: at later looks no other process may begin."""
        if self._is_safe:
            return
        try:
            with self._files.root_for_now():
                require_promises(self._files)
        except UnsafeStore as error:
            raise CheckpointError(f"the checkpoint {self.location} cannot be used: {error}") from error
        self._is_safe = True

    def memory_start(self) -> MemoryStart | None:
        """When the memory in it began; None while it holds none."""
        with self._explain_errors():
            newest = self._start or newest_start(self._files)
            return None if newest is None else read_manifest(self._files, self.location, newest).memory_start

    def begin(self, settings: Settings, marker: Marker, start_with: StartWith, *, now_ms: int) -> None:
        """Make the directory of the start that has claimed this marker; ``fresh`` moves what is there aside.

        Raises CheckpointError.
        """
        start = Start(marker.epoch)
        with self._explain_errors():
            if start_with == "fresh":
                self._move_aside()
            self._unfinished_settings = self._settings_of(marker, without=kept_digest(settings))
            memory_start = self.memory_start() or _new_memory(settings, now_ms, is_fresh=bool(marker.over))
            manifest = manifest_of(settings, self._topic_ids, memory_start)
            manifest = msgspec.structs.replace(
                manifest, settings={**manifest.settings, **self._unfinished_settings}
            )
            begin_start(self._files, start, msgspec.json.encode(manifest))
            self._copied_commit = newest_number(self._files, start, "commits")
        self._start = start

    def settings_of_unfinished(self, marker: Marker) -> Mapping[str, Any] | None:
        """The settings of a published batch that Spark has still to commit, if they are not this start's; else None."""
        start = self._start
        assert start is not None, "call begin() first"
        with self._explain_errors():
            planned = newest_number(self._files, start, "offsets")
            committed = newest_number(self._files, start, "commits")
        if marker.ran_with is None or marker.batch_id != planned or planned == committed:
            return None
        return self._unfinished_settings.get(marker.ran_with.settings)

    def _settings_of(self, marker: Marker, *, without: str) -> dict[str, dict[str, Any]]:
        digest = None if marker.ran_with is None else marker.ran_with.settings
        newest = newest_start(self._files)
        if newest is None or digest is None or digest == without:
            return {}
        settings = read_manifest(self._files, self.location, newest).settings
        return {digest: settings[digest]} if digest in settings else {}

    def drop_older(self) -> None:
        """Delete what was there before this start, once this start has committed a batch of its own; call it again until then.

        What cannot be deleted stays until the next start.
        """
        start = self._start
        if start is None or self._is_alone:
            return
        try:
            if newest_number(self._files, start, "commits") == self._copied_commit:
                return
            drop_older_starts(self._files, start)
        except (Py4JJavaError, OSError) as error:
            _LOG.warning(
                "older checkpoints below %s could not be deleted: %s", self.location, _cause_of(error)
            )
        self._is_alone = True

    def _inspect_start(self, newest: Start | None, settings: Settings, *, is_fresh: bool) -> Checkpoint:
        if is_fresh:  # as much as can be read of a checkpoint that may be damaged or missing
            start = newest or Start(0)
            try:
                return read_query(self._files, self.location, start)
            except CheckpointError:
                return Checkpoint(
                    query_id=None, last_batch_id=None, epoch=start.epoch, location=place_of(self.location)
                )
        if newest is None:
            refuse_strangers(self._files, self.location)
            return Checkpoint(query_id=None, last_batch_id=None, location=place_of(self.location))
        manifest = read_manifest(self._files, self.location, newest)
        refuse_other_manifests(self.location, manifest, manifest_of(settings, self._topic_ids))
        return read_query(self._files, self.location, newest)

    def _move_aside(self) -> None:
        if not self._files.names():
            return
        number = 1
        while self._files.is_beside(aside := f".replaced-{number}"):
            number += 1
        if not self._files.rename_root(aside):
            raise CheckpointError(
                f"{self.location} could not be renamed to {self.location}{aside}: move it away by hand"
            )

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Add the remedy to errors of the file system. ``ConnectionError`` is not one of them: py4j raises it when the JVM has ended."""
        try:
            yield
        except ConnectionError:
            raise
        except (Py4JJavaError, OSError) as error:
            cause = _cause_of(error)
            if is_full_disk(cause):
                text = f"the disk of the checkpoint {self.location} is full ({cause}): free space on it, or set spark.checkpoint"
                raise CheckpointError(text) from error
            raise CheckpointError(
                f"the checkpoint {self.location} cannot be read or written ({cause}): "
                f"check the path and its permissions, or set spark.checkpoint"
            ) from error


def _cause_of(error: Py4JJavaError | OSError) -> str:
    """What the file system says, with its file."""
    return words_of(error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error))


def _new_memory(settings: Settings, now_ms: int, *, is_fresh: bool) -> MemoryStart:
    start = MemoryStart(now_ms, is_fresh=is_fresh)
    why = (
        ", when every bundle that was moved before has rested (pulsar.guards.bundle_cooldown_s)"
        if is_fresh
        else ""
    )
    _LOG.info(
        "no memory of earlier rounds: of a Pulsar cluster the first round that acts ends after %s%s",
        rfc3339(acts_after_ms(start, settings.pulsar)),
        why,
    )
    return start


_PARTS = ("commits", "offsets", "metadata", "sources", "state")
"""What Spark writes. Commits are copied first, because Spark writes a commit after everything that belongs to it."""
_SCHEMA_PATH = re.compile(rb'"[^"]*(/state/\d+/_stateSchema/[^"]*)"')
"""Spark stores the whole path of a schema, which changes with the directory."""
_ATTEMPTS = 3


def begin_start(files: Files, start: Start, manifest: bytes) -> None:
    """Copy what counts into the directory of this start, and make it count.

    A process that ends while we copy may still delete what it wrote, so the same start must be the newest before and after the copy.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        before = newest_start(files)
        _claim(files, start)
        try:
            if before is not None:
                _copy(files, before, start)
            if newest_start(files) == before:
                files.write_whole(start.file(MANIFEST), manifest)
                return
        except (Py4JJavaError, OSError):
            if attempt == _ATTEMPTS:
                files.delete(start.directory)
                raise
        files.delete(start.directory)
    raise OSError(f"{files.address('')} is changed by another process while it is copied")


def _claim(files: Files, start: Start) -> None:
    """Let only one process work in a directory, even if two have the same epoch because their commits topics are not the same."""
    try:
        files.write_new(start.file(CLAIM), b"")
    except FileExistsError as error:
        raise OSError(
            f"{files.address(start.directory)} belongs to another process with the same epoch: do two controllers with "
            "different brokers share this checkpoint?"
        ) from error


def drop_older_starts(files: Files, start: Start) -> None:
    """Delete what was written before this start, its manifest first."""
    for older in sorted(all_starts(files)):
        if older >= start:
            continue
        files.delete(older.file(MANIFEST))
        for name in [older.directory] if older.directory else _PARTS:
            files.delete(name)


def _copy(files: Files, before: Start, start: Start) -> None:
    for part in _PARTS:
        if files.exists(before.file(part)):
            files.copy(before.file(part), start.file(part))
    _forget_unplanned(files, start)
    for operator in files.names(start.file("state")):
        _move_schemas(files, start, start.file("state", operator, "_metadata", "v2"))


def _forget_unplanned(files: Files, start: Start) -> None:
    """Keep only one planned batch: another one may have been committed and the next planned since the commits were copied."""
    committed = newest_number(files, start, "commits")
    most = 0 if committed is None else committed + 1
    for name in files.names(start.file("offsets")):
        if name.isdecimal() and int(name) > most:
            files.delete(start.file("offsets", name))


def _move_schemas(files: Files, start: Start, directory: str) -> None:
    here = files.address(start.directory).encode()
    for name in files.names(directory):
        text = files.read(f"{directory}/{name}")
        if text is not None:
            moved = _SCHEMA_PATH.sub(lambda match: b'"%b%b"' % (here, match[1]), text)
            files.write(f"{directory}/{name}", moved)
