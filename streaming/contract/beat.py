"""A controller's beat on the topic of beats: who runs, and how far it is. It decides nothing."""

import msgspec

__all__ = ["EVERY_S", "Beat", "Unreadable", "decode", "encode"]

EVERY_S = 5.0
"""Seconds between two beats: who asks whether a controller runs waits no longer, and an hour of them is 150 KB."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Its record's key is the controller's name; when it was appended says how old it is."""

    name: str
    """The controller's."""
    instance: str
    """``host:pid`` of its process."""
    epoch: int
    batch: int | None
    """The newest micro-batch that this process has begun; None before its first."""
    at: str
    """RFC 3339, by the process's own clock."""
    version: str
    """Of trimtab."""


class Unreadable(ValueError):
    """A record of the topic that is no beat."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Beat)


def encode(beat: Beat) -> bytes:
    """As JSON."""
    return _encoder.encode(beat)


def decode(value: bytes) -> Beat:
    """Read one back; raises ``Unreadable``."""
    try:
        return _decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"no beat of a controller: {error}") from error
