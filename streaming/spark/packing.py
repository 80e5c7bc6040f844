"""A cluster's memory as it lies in Spark's state: packed.

Spark's JVM hands bytes of the state to Python as text and makes that text character by character. Packed, they are a third to a half
as many, and so are those of the checkpoint. What is read may be plain: an earlier trimtab wrote it like that.
"""

_CODEC = "zstd"
_MARK = b"\xff"
"""First byte of a packed value. Without it a value begins with the version of its layout (``state.layouts``), and a trimtab that
knows no packed values says that a newer one wrote it."""
_SIZE_BYTES = 4
_FEWEST_BYTES = 256
"""Shorter values hardly become shorter."""


def pack(value: bytes) -> bytes:
    """The value as it is stored."""
    if len(value) < _FEWEST_BYTES:
        return value
    import pyarrow as pa  # noqa: PLC0415  a worker has it already, and what only asks for the state variables does not need it

    packed: bytes = pa.compress(value, codec=_CODEC, asbytes=True)
    return b"".join((_MARK, len(value).to_bytes(_SIZE_BYTES, "little"), packed))


def unpack(stored: bytes | bytearray) -> bytes:
    """The value that was stored."""
    if stored[:1] != _MARK:
        return bytes(stored)
    import pyarrow as pa  # noqa: PLC0415  as above

    head = len(_MARK) + _SIZE_BYTES
    size = int.from_bytes(stored[len(_MARK) : head], "little")
    value: bytes = pa.decompress(
        memoryview(stored)[head:], decompressed_size=size, codec=_CODEC, asbytes=True
    )
    return value
