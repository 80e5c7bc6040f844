"""What controllers write on the topic of beats: which of them run, which one leads, and how far it is. It decides nothing.

A beat says which controller tries to lead. Which one may lead is decided by the publisher: transactional id (on Pulsar the
exclusive producer), epoch and marker.
"""

from typing import Literal

import msgspec

__all__ = ["Beat", "HandOver", "Role", "Unreadable", "decode", "encode", "every_s"]

_BEATS_A_SESSION = 5
_SESSION_S_BEFORE = 25.0
"""``session_s`` of a beat without one: the versions from before that field sent a beat every 5 s."""

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
    role: Role = "leader"
    session_s: float = _SESSION_S_BEFORE
    """``controller.session_s``: if no beat comes for so long, another controller may try to lead."""
    is_leaving: bool = False
    """Whether this is its last beat: it has ended in good order, and no standby has to wait for the session's end."""
    problem: str = ""
    """Why a standby could not lead now; empty where it could."""


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """A person asks a standby to take over from the leader of this epoch. It counts for no other leader."""

    name: str
    """Name of the controller."""
    to: str
    """``host:pid`` of the standby."""
    leader_epoch: int
    at: str
    """When the person asked, RFC 3339, by the clock of that person's machine."""


class Unreadable(ValueError):
    """A record of the topic that is neither a beat nor a hand-over."""


_encoder = msgspec.json.Encoder()
_beat = msgspec.json.Decoder(Beat)
_hand_over = msgspec.json.Decoder(HandOver)


def encode(message: Beat | HandOver) -> bytes:
    """A beat or a hand-over as JSON."""
    return _encoder.encode(message)


def decode(value: bytes) -> Beat | HandOver:
    """The beat or hand-over of a record; raises ``Unreadable``."""
    try:
        return _beat.decode(value)
    except msgspec.MsgspecError as error:
        try:
            return _hand_over.decode(value)
        except msgspec.MsgspecError:
            raise Unreadable(f"no beat of a controller: {error}") from error
