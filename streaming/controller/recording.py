"""The file of ``trimtab record``: what a controller was given, one JSON object per line, each record with its coordinates.

Invariants: a record read back is the one written, byte for byte, whatever its bytes are; a line begins with ``PREFIX``, so that
``trimtab replay`` tells it from a bare event and both may stand in one file; a line does not depend on others, so files may be
joined and cut. Limits: a record is held in memory whole; headers are not kept, because no decision depends on them.
"""

import base64
import gzip
import hashlib
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from streaming.contract.encode import MAX_QUOTED_BYTES, Origin
from streaming.process.exits import words_of
from streaming.transport.intake import Record

_VERSION = 1
PREFIX = b'{"trimtab_record":'
"""How each line begins."""
STANDARD = "-"
"""The file's name that means standard output or input."""
_BUFFER_BYTES = 1024 * 1024
"""Load reports are tens of kilobytes; Python's own 8 KiB would take several reads for each."""


class BadRecording(ValueError):
    """A line that is marked as a recorded record and cannot be read as one; the text says why."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it was in the log."""

    origin: Origin
    key: bytes | None
    value: bytes | None
    appended_ms: int
    is_control: bool

    def to_record(self, max_record_bytes: int) -> Record:
        """The record as the live source hands it to the operator: a value above the limit is cut to its head, with size and hash."""
        value, oversize = self.value, None
        if value is not None and len(value) > max_record_bytes:
            oversize = (len(value), hashlib.sha256(value).hexdigest())
            value = value[:MAX_QUOTED_BYTES]
        return Record(
            value=value,
            origin=self.origin,
            key="" if self.key is None else self.key.decode(errors="replace"),
            appended_ms=self.appended_ms,
            is_control=self.is_control,
            oversize=oversize,
        )


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The order of the fields is that of the line."""

    trimtab_record: int
    topic: str
    partition: int
    offset: int
    appended_ms: int
    control: bool = False
    key: str | None = None
    key_base64: str | None = None
    event: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


def encode_recorded(record: Recorded) -> bytes:
    """One line without its line end. A value is written as JSON if it is read back as the same bytes, else in base64."""
    value = record.value
    # a line end in the value would cut the line; reading it back decides the rest
    if value is not None and value[:1] == b"{" and value[-1:] == b"}" and not {10, 13} & set(value):
        line = _encoder.encode(_line(record, as_json=True))
        if _is_whole(line, record):
            return line
    return _encoder.encode(_line(record, as_json=False))


def decode_recorded(line: bytes) -> Recorded:
    """The record of a line. Raises ``BadRecording``."""
    try:
        found = _decoder.decode(line)
        key = _bytes_of(found.key_base64) if found.key is None else found.key.encode()
        event = found.event
        value = _bytes_of(found.value_base64) if event is msgspec.UNSET else bytes(event)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:  # of text or base64
        raise BadRecording(f"not a line of a recording: {words_of(error)}") from error
    if found.trimtab_record != _VERSION:
        raise BadRecording(
            f"the line has version {found.trimtab_record}, but this trimtab reads version {_VERSION}: use the trimtab "
            "that wrote it"
        )
    return Recorded(
        origin=Origin(topic=found.topic, partition=found.partition, offset=found.offset),
        key=key,
        value=value,
        appended_ms=found.appended_ms,
        is_control=found.control,
    )


def opened_for_reading(file: str) -> AbstractContextManager[BinaryIO]:
    """Standard input for ``-``, else a file: packed if its name ends in .gz."""
    if file == STANDARD:
        return nullcontext(sys.stdin.buffer)
    if file.endswith(".gz"):
        return cast("BinaryIO", gzip.open(file, "rb"))
    return Path(file).open("rb", buffering=_BUFFER_BYTES)


def opened_for_recording(file: str) -> AbstractContextManager[BinaryIO]:
    """Where a recording is written: ``-`` is standard output, a name ending in .gz is packed. Raises FileExistsError."""
    if file == STANDARD:
        return nullcontext(sys.stdout.buffer)
    if file.endswith(".gz"):
        return cast("BinaryIO", gzip.open(file, "xb"))
    return Path(file).open("xb")


def _is_whole(line: bytes, record: Recorded) -> bool:
    try:
        line.decode()
        return decode_recorded(line) == record
    except (BadRecording, UnicodeDecodeError):
        return False


def _line(record: Recorded, *, as_json: bool) -> _Line:
    key, value = record.key, record.value
    text = None if key is None else _text(key)
    return _Line(
        trimtab_record=_VERSION,
        topic=record.origin.topic,
        partition=record.origin.partition,
        offset=record.origin.offset,
        appended_ms=record.appended_ms,
        control=record.is_control,
        key=text,
        key_base64=None if key is None or text is not None else base64.b64encode(key).decode(),
        event=msgspec.Raw(value) if as_json and value is not None else msgspec.UNSET,
        value_base64=None if as_json or value is None else base64.b64encode(value).decode(),
    )


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
