"""What controllers write on the topic of beats: which of them run, which one leads, and how far it is. It decides nothing.

A beat says which controller tries to lead. Which one may lead is decided by the publisher: transactional id (on Pulsar the
exclusive producer), epoch and marker.
"""

from typing import Literal

import msgspec

_BEATS_A_SESSION = 5

Role = Literal["leader", "standby"]


def every_s(session_s: float) -> float:
    """Seconds between two beats of a controller with this session."""
    return session_s / _BEATS_A_SESSION


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A beat. The record's key is the controller's name; the record's append time says how old the beat is."""

    name: str
    """Name of the controller."""
    instance: str
    """``host:pid`` of its process."""
    epoch: int
    """Epoch of its last start as a leader; 0 for a standby that has not led."""
    batch: int | None
    """The newest micro-batch that this process has begun; None before its first."""
    at: str
    """When it was sent, RFC 3339, by the process's own clock."""
    version: str
    """Version of trimtab."""
    spark_version: str = ""
    """Version of Spark; empty in a beat of a version that did not say it."""
    role: Role = "leader"
    session_s: float
    """``controller.session_s``: if no beat comes for so long, another controller may try to lead."""
    is_leaving: bool = False
    """Whether this is its last beat: it has ended in good order, and no standby has to wait for the session's end."""
    checkpoint: str = ""
    """Where its checkpoint is; a path is that of its machine, and absolute. Empty in a beat of a version that did not say it."""
    problem: str = ""
    """Why a standby could not lead now, or why a leader's query fails; empty where nothing is wrong."""


class Unreadable(ValueError):
    """A record of the topic that is no beat."""


_encoder = msgspec.json.Encoder()
_beat = msgspec.json.Decoder(Beat)


def encode(beat: Beat) -> bytes:
    """A beat as JSON."""
    return _encoder.encode(beat)


def decode(value: bytes) -> Beat:
    """The beat of a record; raises ``Unreadable``."""
    try:
        return _beat.decode(value)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"no beat of a controller: {error}") from error
