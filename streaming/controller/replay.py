"""Replay: the same controller on recordings, without Spark and without a broker.

A line is an event, or a record of ``trimtab record`` with its key, partition, append time and topic: then what depends on those
is repeated too. It streams: the outputs of a round are written and flushed as soon as it closes, so another program can drive it
through a pipe with one tick per step. For the same events and settings the bytes are those the live application
publishes; a rejected event without coordinates carries its file and line.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from policies.wording import counted, time_text
from state.closing import Identity
from state.controller import Controller
from state.events import Control, Event
from state.outputs import Output, rfc3339
from state.settings import SettingsSource
from state.store import DictStore
from streaming.contract.decode import decode
from streaming.contract.encode import (
    MAX_QUOTED_BYTES,
    Origin,
    RefusedRecord,
    encode,
    encode_refused,
    source_of,
)
from streaming.controller.recording import PREFIX, BadRecording, decode_recorded, opened_for_reading
from streaming.settings.identity import EVERY_CLUSTER, AcceptedClusters
from streaming.transport.intake import Intake, Record, Tally

Only = Literal["actions", "rounds", "rejected"]

_DRAIN_BYTES = 1024 * 1024
_ENDINGS = (".ndjson", ".ndjson.gz")
"""How names of recordings end."""


def ignore_size(_size_bytes: int) -> None:
    """For a replay that shows no progress."""


class Replay:
    """Runs recordings through the controllers of all their clusters."""

    def __init__(
        self,
        out: BinaryIO,
        *,
        name: str,
        identity: Identity,
        settings: SettingsSource,
        max_record_bytes: int,
        accepted: AcceptedClusters = EVERY_CLUSTER,
        only: Only | None = None,
    ) -> None:
        self._out = out
        self._source = source_of(name)
        self._identity = identity
        self._settings = settings
        self._max_record_bytes = max_record_bytes
        self._only = only
        self._controllers: dict[str, Controller] = {}
        self._intake = Intake(self._controller_of, max_record_bytes=max_record_bytes, accepted=accepted)
        self.taken_count = 0
        """Records read so far; those not in ``tally`` wait in open rounds."""
        self.written_count = 0

    @property
    def tally(self) -> Tally:
        """How the records ended so far."""
        return self._intake.tally

    def play(self, stream: BinaryIO, file: str, progress: Callable[[int], None] = ignore_size) -> None:
        """Take every line of a recording; ``progress`` is called with the bytes of each. Raises ``BadRecording``."""
        for record, size_bytes in _records(stream, file, self._max_record_bytes):
            self.taken_count += 1
            outputs, refused = self._intake.take(record)
            self._write(outputs, refused)
            progress(size_bytes)

    def close_open(self) -> None:
        """Close the open rounds of every cluster."""
        for cluster in sorted(self._controllers):
            self._write(self._intake.close_open(cluster), None)

    def _controller_of(self, cluster: str) -> Controller:
        """The controller of a cluster, made at the first call; it keeps its memory and commits nothing."""
        if cluster not in self._controllers:
            self._controllers[cluster] = Controller(
                cluster, DictStore(), identity=self._identity, settings=self._settings
            )
        return self._controllers[cluster]

    def _write(self, outputs: list[Output], refused: RefusedRecord | None) -> None:
        lines = [
            encode(output, self._source) for output in outputs if self._only in {None, f"{output.kind}s"}
        ]
        if refused is not None and self._only in {None, "rejected"}:
            lines.append(encode_refused(refused, self._source))
        if lines:
            self._out.write(b"\n".join(lines) + b"\n")
            self._out.flush()
            self.written_count += len(lines)


def read_events(stream: BinaryIO, file: str, max_record_bytes: int) -> Iterator[tuple[str, Event]]:
    """Every event of a recording with its cluster; what a controller would refuse is left out. Raises ``BadRecording``."""
    for record, _ in _records(stream, file, max_record_bytes):
        cluster, event, _ = decode(record.value)
        if isinstance(event, Event):
            yield cluster, event


def _records(stream: BinaryIO, file: str, max_record_bytes: int) -> Iterator[tuple[Record, int]]:
    """Each line that is not blank, with its size; a line above the limit is hashed and dropped, not held."""
    number, piece_bytes = 0, max(max_record_bytes + 2, len(PREFIX))
    while line := stream.readline(piece_bytes):
        number += 1
        if line.startswith(PREFIX):
            line += b"" if line.endswith(b"\n") else stream.readline()
            try:
                record = decode_recorded(line).to_record(max_record_bytes)
            except BadRecording as error:
                raise BadRecording(
                    f"{file}, line {number}: {error}; the lines before this one were replayed"
                ) from error
            yield record, len(line)
            continue
        size_bytes = len(line)
        value = line.rstrip(b"\r\n")
        origin = Origin(topic=file, partition=0, offset=number)
        if len(value) > max_record_bytes:
            head, whole_bytes, digest = _drain(stream, line)
            yield Record(value=head, origin=origin, oversize=(whole_bytes, digest)), whole_bytes
        elif value:
            yield Record(value=value, origin=origin), size_bytes


def _drain(stream: BinaryIO, start: bytes) -> tuple[bytes, int, str]:
    """Read to the end of a line that begins with ``start``: its first 64 KiB, its size and its SHA-256."""
    digest, whole_bytes, head, piece = hashlib.sha256(), 0, b"", start
    while piece:
        text = piece.rstrip(b"\r\n")
        digest.update(text)
        whole_bytes += len(text)
        head += text[: MAX_QUOTED_BYTES - len(head)]
        piece = b"" if piece.endswith(b"\n") else stream.readline(_DRAIN_BYTES)
    return head, whole_bytes, digest.hexdigest()


class NoRecording(Exception):
    """A folder without recordings; the text says what was looked for."""


def files_of(paths: Sequence[str]) -> tuple[str, ...]:
    """The files; a folder stands for the recordings in it, by name, which is their order in time. Raises ``NoRecording``."""
    return tuple(file for path in paths for file in (_files_in(path) if Path(path).is_dir() else [path]))


def _files_in(folder: str) -> list[str]:
    found = sorted(str(each) for each in Path(folder).iterdir() if each.name.endswith(_ENDINGS))
    if not found:
        raise NoRecording(
            f"{folder}: no file in it ends in {' or '.join(_ENDINGS)}, as `trimtab record` names them"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvents:
    """The events of some files, read anew with each call; picklable."""

    files: tuple[str, ...]
    since_ms: int | None = None
    """Earlier events are left out, except control events: they hold until an operator sends others."""
    until_ms: int | None = None
    """Events from this time on are left out."""
    max_record_bytes: int

    def __call__(self) -> Iterator[tuple[str, Event]]:
        """Each event with its cluster. Raises ``BadRecording``, and what ``gzip`` raises for a file that is not whole."""
        for file in self.files:
            with opened_for_reading(file) as stream:
                for cluster, event in read_events(stream, file, self.max_record_bytes):
                    if self._is_within(event):
                        yield cluster, event

    def explain_lack(self, lack: str) -> str:
        """Why the files lack something, by all that is in them, whatever the time asked for. Raises as a call does."""
        lines_count = refused_count = 0
        first_ms, last_ms = math.inf, -math.inf
        for file in self.files:
            with opened_for_reading(file) as stream:
                for record, _ in _records(stream, file, self.max_record_bytes):
                    lines_count += 1
                    _, event, _ = decode(record.value)
                    if not isinstance(event, Event):
                        refused_count += 1
                    elif not isinstance(event, Control):  # it may be far older than the rest
                        first_ms, last_ms = min(first_ms, event.time_ms), max(last_ms, event.time_ms)
        refused = f"{counted(refused_count, 'line')} refused"
        if last_ms < first_ms:
            found = f"no line of it is a usable report ({refused})" if lines_count else "it is empty"
            return f"{found}; expected a recording of `trimtab record`"
        within = "" if self.since_ms is None and self.until_ms is None else " in the time asked for"
        first, last = (time_text(rfc3339(int(each))) for each in (first_ms, last_ms))
        return (
            f"{lack}{within}; its reports are from {first} to {last}{', ' + refused if refused_count else ''}"
        )

    def _is_within(self, event: Event) -> bool:
        if self.since_ms is not None and event.time_ms < self.since_ms and not isinstance(event, Control):
            return False
        return self.until_ms is None or event.time_ms < self.until_ms
