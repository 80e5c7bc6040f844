"""Replay: the same controller on a recording, without Spark and without a broker.

A line is an event, or a record of ``trimtab record`` with its key, partition, append time and topic: then what depends on those
is repeated too. It streams: the outputs of a round are written and flushed as soon as it closes, so another program can drive it
through a pipe with one tick per step. For the same events and settings the bytes are those the live application
publishes; a rejected event without coordinates carries its file and line.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal

from state.closing import Identity
from state.controller import Controller
from state.events import Event
from state.outputs import Output
from state.settings import SettingsSource
from state.store import DictStore
from streaming.contract.decode import decode
from streaming.contract.encode import MAX_QUOTED_BYTES, Refused, encode, encode_refused, source_of
from streaming.contract.origin import Origin
from streaming.controller.recording import PREFIX, BadRecording, decode_recorded
from streaming.settings.accepted import EVERY_CLUSTER, AcceptedClusters
from streaming.transport.intake import Intake, Record, Tally

Only = Literal["actions", "rounds", "rejected"]

_DRAIN_BYTES = 1024 * 1024


def ignore_size(_size_bytes: int) -> None:
    """For a replay that shows no progress."""


class Controllers:
    """The controllers of all clusters, with their memory in dicts."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: SettingsSource,
        max_record_bytes: int,
        accepted: AcceptedClusters = EVERY_CLUSTER,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self.intake = Intake(self.of, max_record_bytes=max_record_bytes, accepted=accepted)
        self.stores: dict[str, DictStore] = {}
        self.by_cluster: dict[str, Controller] = {}

    def of(self, cluster: str) -> Controller:
        """The controller of a cluster, made at the first call."""
        found = self.by_cluster.get(cluster)
        if found is None:
            store = self.stores[cluster] = DictStore()
            found = Controller(cluster, store, identity=self._identity, settings=self._settings)
            self.by_cluster[cluster] = found
        return found


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
        self._max_record_bytes = max_record_bytes
        self._only = only
        self._controllers = Controllers(
            identity=identity, settings=settings, max_record_bytes=max_record_bytes, accepted=accepted
        )
        self._intake = self._controllers.intake
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
        for cluster in sorted(self._controllers.by_cluster):
            self._write(self._intake.close_open(cluster), None)

    def _write(self, outputs: list[Output], refused: Refused | None) -> None:
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
        cluster, event = decode(record.value)
        if isinstance(event, Event):
            yield cluster, event


def _records(stream: BinaryIO, file: str, max_record_bytes: int) -> Iterator[tuple[Record, int]]:
    """Each line that is not blank, with its size; a line above the limit is hashed and dropped, not held."""
    number, piece_bytes = 0, max(max_record_bytes + 2, len(PREFIX))
    while line := stream.readline(piece_bytes):
        number += 1
        if line.startswith(PREFIX):
            line += b"" if line.endswith(b"\n") else stream.readline()
            yield _read_recorded(line, f"{file}, line {number}", max_record_bytes), len(line)
            continue
        size_bytes = len(line)
        value = line.rstrip(b"\r\n")
        origin = Origin(topic=file, partition=0, offset=number)
        if len(value) > max_record_bytes:
            head, whole_bytes, digest = _drain(stream, line)
            yield Record(value=head, origin=origin, oversize=(whole_bytes, digest)), whole_bytes
        elif value:
            yield Record(value=value, origin=origin), size_bytes


def _read_recorded(line: bytes, where: str, max_record_bytes: int) -> Record:
    try:
        return decode_recorded(line).to_record(max_record_bytes)
    except BadRecording as error:
        raise BadRecording(f"{where}: {error}; the lines before this one were replayed") from error


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
