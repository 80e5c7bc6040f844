"""The compact encoding of a header: an array of its fields behind the version of the layout (``state.engine.layouts``).

A change of a field here, or in anything that is encoded, is a change of the layout: see there what to do.
"""

import msgspec

from state.engine.layouts import seal, unseal
from state.engine.memory import Header

_header_decoder = msgspec.msgpack.Decoder(Header)


def encode_header(header: Header) -> bytes:
    """Bytes of a header."""
    return seal(header)


def decode_header(value: bytes) -> Header:
    """Header from bytes. Raises what ``unseal`` does."""
    return _header_decoder.decode(unseal("header", value))
