"""Versions of the layout of a cluster's stored memory: what an older trimtab wrote is upgraded, what a newer one wrote is refused.

Every stored value begins with one byte, the version of its layout. ``VERSION`` rises with every change of a layout, a
field added at the end included: an older trimtab would drop it silently when it writes the value back. Each rise brings
an upgrade from the version before it. A version without an upgrade is refused, and the message says what to do.

Invariant: a value is read under the version that it was written with, or not at all.

No version was released yet: until one is, layouts may change under the same number.
"""

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


def _encode_column(value: Any) -> tuple[tuple[int, ...], bytes]:
    """A column of integers as its shape and its numbers, little-endian int64."""
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"{type(value)} is not stored")
    return value.shape, value.astype("<i8").tobytes()


def _decode_column(type_: type, stored: Any) -> Any:  # noqa: ARG001  all columns that are stored like this hold integers
    shape, numbers = stored
    return np.frombuffer(numbers, dtype="<i8").reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_column)

T = TypeVar("T")


def body_decoder(type_: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Reads the body of a stored value, columns of integers included."""
    return msgspec.msgpack.Decoder(type_, dec_hook=_decode_column)


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
