"""``trimtab record``: input and control as records of a recording, in the order of their append times, in a file or a rotating folder.

That is the order in which a controller that keeps up takes them, except that it takes the control records of a batch first.
docs/run/operations.md says what differs. Invariants: each partition's records come in its order; for equal append times control
comes first; what is there when a pass begins is written by its end.

A folder holds packed files of a limited size; the oldest are removed when all together exceed a limit. A file is whole after each flush,
for each flush adds a gzip member of its own; names ascend in the order of the records; ``places.json`` says how far each partition was
recorded, so that a later start goes on there. A stop by force may leave records behind that the next start records again; a controller
counts them as superseded.
"""

import gzip
import heapq
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from streaming.contract.encode import Origin
from streaming.controller.recording import Recorded, decode_recorded, encode_recorded
from streaming.settings import Settings
from streaming.systems import input_side
from streaming.transport.side import Begin, Reader, TopicRecord


@dataclass(frozen=True, slots=True)
class _Log:
    """One partition, and the coordinates that its records have in the live application."""

    reader: Reader
    topic: str
    partition: int
    is_control: bool
    is_on_pulsar: bool

    def records(self) -> Iterator[tuple[tuple[int, bool, Origin], Recorded]]:
        """The records that are there, each with its place in the order; an append time below the one before counts as that one."""
        latest_ms = 0
        for record in self.reader.read_to_end():
            latest_ms = max(latest_ms, record.timestamp)
            recorded = self._record(record)
            yield (latest_ms, not self.is_control, recorded.origin), recorded

    def _record(self, record: TopicRecord) -> Recorded:
        value = record.value
        if value is None and self.is_on_pulsar:
            value = b""  # the live source makes this of a message without content
        return Recorded(
            origin=Origin(topic=self.topic, partition=record.partition, offset=record.offset),
            key=record.key,
            value=value,
            appended_ms=record.timestamp,
            is_control=self.is_control,
        )


class Recorder:
    """Reads both topics; ``stack`` closes the connections. Raises ``exits.Refused``."""

    def __init__(self, stack: ExitStack, settings: Settings, *, begin: Begin) -> None:
        topics = settings.topics
        self._logs = [
            *_logs(stack, settings, topics.input, begin=begin, is_control=False),
            *_logs(stack, settings, topics.control, begin="earliest", is_control=True),
        ]

    def records(self, *, is_stopped: Callable[[], bool]) -> Iterator[Recorded]:
        """One pass: all records that are there and were not yet returned."""
        for _, recorded in heapq.merge(*(log.records() for log in self._logs), key=lambda each: each[0]):
            if is_stopped():
                break
            yield recorded

    def write(self, out: BinaryIO, *, is_stopped: Callable[[], bool]) -> int:
        """Write a pass. Returns the number of records."""
        count = 0
        for recorded in self.records(is_stopped=is_stopped):
            out.write(encode_recorded(recorded) + b"\n")
            count += 1
        out.flush()
        return count


def _logs(
    stack: ExitStack, settings: Settings, topic: str, *, begin: Begin, is_control: bool
) -> Iterator[_Log]:
    side, is_on_pulsar = input_side(settings), settings.input.is_pulsar
    name = side.full_name(topic)
    first = stack.enter_context(side.reader(topic, begin=begin, partition=0))
    others = [
        stack.enter_context(side.reader(topic, begin=begin, partition=number))
        for number in range(1, first.partitions_count)
    ]
    for number, reader in enumerate([first, *others]):
        yield _Log(reader, name, number, is_control=is_control, is_on_pulsar=is_on_pulsar)


_PLACES = "places.json"
_ENDING = ".ndjson.gz"
_MEMBER_BYTES = 8 * 1024 * 1024
"""Bytes that are packed and flushed at once: what a pass over a long topic holds in memory."""
_PIECE_BYTES = 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS
"""``wbits`` of zlib for data in the frame of a gzip member."""


class RecordedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far a partition was recorded."""

    topic: str
    partition: int
    offset: int
    appended_ms: int
    is_control: bool = False


class RotatingFolder:
    """Takes the records of a ``Recorder`` and writes them to the files. Raises ``OSError``."""

    def __init__(
        self, folder: Path, *, file_bytes: int, total_bytes: int, tell: Callable[[str], None]
    ) -> None:
        """``tell`` is called with a sentence about each file that is removed or mended."""
        self._folder, self._tell = folder, tell
        self._file_bytes, self._total_bytes = file_bytes, total_bytes
        self._places = {(each.topic, each.partition): each for each in _read_places(folder / _PLACES)}
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self.count = 0
        """Records taken so far."""
        self._file: Path | None = None
        files = self._files()
        self._number = _number(files[-1]) if files else 0
        if files:
            self._repair(files[-1])

    def begin(self, otherwise: Begin) -> Begin:
        """Where to go on with the input: at the earliest of its partitions' last append times."""
        known = [each.appended_ms for each in self._places.values() if not each.is_control]
        return min(known) if known else otherwise

    def has(self, record: Recorded) -> bool:
        """Whether it was recorded before; a topic that was made anew begins with small offsets and later append times."""
        place = self._places.get((record.origin.topic, record.origin.partition))
        return (
            place is not None
            and record.origin.offset <= place.offset
            and record.appended_ms <= place.appended_ms
        )

    def write(self, record: Recorded) -> None:
        """Take a record that follows those before it, unless it was recorded before."""
        if self.has(record):
            return
        line = encode_recorded(record) + b"\n"
        self._lines.append(line)
        self._waiting_bytes += len(line)
        origin = record.origin
        self._places[origin.topic, origin.partition] = RecordedPlace(
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            appended_ms=record.appended_ms,
            is_control=record.is_control,
        )
        self.count += 1
        if self._waiting_bytes >= _MEMBER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the records that wait; then begin a new file if this one is full, and remove the oldest files if needed."""
        if not self._lines:
            return
        file = self._file or self._next_file()
        with file.open("ab") as out:
            out.write(gzip.compress(b"".join(self._lines)))
            out.flush()
            os.fsync(out.fileno())  # before places.json counts it
        self._lines, self._waiting_bytes, self._file = [], 0, file
        fresh = self._folder / f".{_PLACES}.new"
        fresh.write_bytes(msgspec.json.encode(list(self._places.values())) + b"\n")
        fresh.replace(self._folder / _PLACES)
        if file.stat().st_size >= self._file_bytes:
            self._file = None
        self._remove_oldest(file)

    def _next_file(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)  # not before: a start that is refused leaves none
        self._number += 1
        moment = decode_recorded(self._lines[0]).appended_ms // 1000
        return self._folder / f"{self._number:08}-{moment}{_ENDING}"

    def _files(self) -> list[Path]:
        return sorted(each for each in self._folder.glob(f"*{_ENDING}") if _number(each))

    def _remove_oldest(self, current: Path) -> None:
        files = self._files()
        total_bytes = sum(each.stat().st_size for each in files)
        for file in files:
            if total_bytes <= self._total_bytes or file == current:
                return
            total_bytes -= file.stat().st_size
            file.unlink()
            self._tell(f"removed {file}: all files together were above {self._total_bytes:,} bytes")

    def _repair(self, file: Path) -> None:
        """Cut off what a stop by force left of the last member; ``places.json`` does not count that."""
        whole_bytes = _whole_bytes(file)
        if whole_bytes < file.stat().st_size:
            os.truncate(file, whole_bytes)
            self._tell(f"repaired {file}: removed its incomplete end; those records are recorded again")


def _number(file: Path) -> int:
    """The number in a file's name; 0 for a file that is not ours."""
    head = file.name.partition("-")[0]
    return int(head) if head.isdecimal() else 0


def _read_places(file: Path) -> list[RecordedPlace]:
    if not file.exists():
        return []
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[RecordedPlace])
    except msgspec.MsgspecError as error:
        raise OSError(
            f"{file} holds the positions of the recording, but cannot be read: {error}; remove it to begin "
            "anew at --from"
        ) from error


def _whole_bytes(file: Path) -> int:
    """Where the last whole gzip member of a file ends."""
    whole_bytes, read_bytes = 0, 0
    member = zlib.decompressobj(wbits=_GZIP)
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            read_bytes += len(piece)
            while piece:
                try:
                    member.decompress(piece)
                except zlib.error:
                    return whole_bytes
                piece = member.unused_data
                if member.eof:
                    whole_bytes = read_bytes - len(piece)
                    member = zlib.decompressobj(wbits=_GZIP)
    return whole_bytes
