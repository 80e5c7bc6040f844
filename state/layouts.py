"""Versions of the layout of a cluster's stored memory: what an older trimtab wrote is upgraded, what a newer one wrote is refused.

Every stored value begins with one byte, the version of its layout. ``VERSION`` rises with every change of a layout, a
field added at the end included: an older trimtab would drop it silently when it writes the value back. Each rise brings
an upgrade from the version before it. A version without an upgrade is refused, and the message says what to do.

Invariant: a value is read under the version that it was written with, or not at all.

No version was released yet: until one is, layouts may change under the same number.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

VERSION = 4
"""Version of every layout. Older bytes stood for several layouts each and cannot be told apart."""

FRESH = (
    "--fresh, which forgets every cluster's averages, hit counts, cooldowns, budgets and actions in flight"
)
"""For messages that recommend it: the option of a start that begins without the memory, and what is lost by it."""

Kind = Literal["header", "fleet", "kafka", "report", "topics", "logs", "moves", "batch"]
"""What a stored value is."""

Upgrade = Callable[[Kind, Any], Any]
"""Makes a decoded body (lists, dicts and plain values) into one of the next version."""


UPGRADES: dict[int, Upgrade] = {}
"""Upgrades by the version that each one starts from."""


class Names:
    """Names of rows, as a list and as the text that is stored: each is made from the other when it is first needed."""

    __slots__ = ("_list", "_text")

    def __init__(self, names: list[str] | None = None, text: str | None = None) -> None:
        """One of the two, or both if they have the same names."""
        self._list, self._text = names, text

    @property
    def each(self) -> list[str]:
        """A string for each row."""
        if self._list is None:
            self._list = self._text.split("\n") if self._text else []
        return self._list

    @property
    def text(self) -> str:
        """One name per line; no name contains a line break."""
        if self._text is None:
            self._text = "\n".join(self.each)
        return self._text

    def begin_with(self, names: list[str]) -> bool:
        """Whether the first names are these; one text is compared faster than a hundred thousand equal strings."""
        first, text = "\n".join(names), self.text
        return text.startswith(first) and (not names or len(text) == len(first) or text[len(first)] == "\n")


_WHOLE = [
    (np.dtype(name), int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("|u1", "<u2", "<u4", "<i4", "<i8")
]
"""Types of whole numbers that columns are stored in, the smallest first, each with its bounds."""


_MANY_COUNT = 1_000
"""From so many numbers on it is worth a look whether all of them are zero."""


def _encode_other(value: Any) -> Any:
    """Names as one text. A column as its shape, its type and its numbers: none for many zeros, bits for truth values, small whole numbers."""
    if isinstance(value, Names):
        return value.text
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"{type(value)} is not stored")
    if not 0 < value.size < _MANY_COUNT and not value.any():
        return value.shape, value.dtype.str, b""
    if value.dtype == np.bool_:
        return value.shape, value.dtype.str, np.packbits(value).tobytes()
    if value.dtype == np.int64:
        least, most = int(value.min()), int(value.max())
        value = value.astype(next(type_ for type_, low, high in _WHOLE if low <= least and most <= high))
    return value.shape, value.dtype.str, value.tobytes()


def _decode_other(type_: type, stored: Any) -> Any:
    if type_ is Names:
        return Names(text=stored)
    shape, kind, numbers = stored
    if not numbers:
        return np.zeros(shape, dtype=kind)
    if kind == np.dtype(np.bool_).str:
        bits = np.unpackbits(np.frombuffer(numbers, dtype=np.uint8), count=math.prod(shape))
        return bits.astype(np.bool_).reshape(shape)
    column = np.frombuffer(numbers, dtype=kind).reshape(shape)
    return column if column.dtype == np.float64 else column.astype(np.int64, copy=False)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)

T = TypeVar("T")


def body_decoder(type_: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Reads the body of a stored value, columns and names included."""
    return msgspec.msgpack.Decoder(type_, dec_hook=_decode_other)


class NewerStateError(Exception):
    """The memory was written by a newer trimtab."""


class OlderStateError(Exception):
    """The memory was written by a trimtab so old that nothing upgrades it."""


def seal(body: Any) -> bytes:
    """A value with its version before it."""
    return bytes([VERSION]) + _encoder.encode(body)


def unseal(kind: Kind, value: bytes) -> bytes | memoryview:
    """The encoded body of a value, in today's layout. Raises ``NewerStateError`` and ``OlderStateError``."""
    version = value[0]
    if version == VERSION:
        return memoryview(value)[1:]
    refuse_version(version, "the memory in the checkpoint")
    body = msgspec.msgpack.decode(memoryview(value)[1:])
    for step in range(version, VERSION):
        body = UPGRADES[step](kind, body)
    return _encoder.encode(body)


def refuse_version(version: int, name: str) -> None:
    """Raise ``NewerStateError`` or ``OlderStateError`` where memory of this version cannot be read; ``name`` says what has it."""
    if version > VERSION:
        raise NewerStateError(
            f"{name} was written by a newer trimtab (memory version {version}, this one knows {VERSION}): "
            f"run the trimtab that wrote it or a newer one, or start over with {FRESH}"
        )
    if any(step not in UPGRADES for step in range(version, VERSION)):
        raise OlderStateError(
            f"{name} was written by an older trimtab (memory version {version}, this one reads {VERSION}): start over with {FRESH}"
        )
