"""What controllers write on the topic of beats: who runs, who leads, and how far. It decides nothing.

The beat says who tries to lead. Who may is decided by the publisher: transactional id (on Pulsar the exclusive producer),
epoch and marker.
"""

from typing import Literal

import msgspec

__all__ = ["Beat", "HandOver", "Role", "Unreadable", "decode", "encode", "every_s"]

_BEATS_A_SESSION = 5
_SESSION_S_BEFORE = 25.0
"""Of a beat that names none: its version beat every 5 s."""

Role = Literal["leader", "standby"]


def every_s(session_s: float) -> float:
    """Seconds between two beats of a controller with this session."""
    return session_s / _BEATS_A_SESSION


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Its record's key is the controller's name; when it was appended says how old it is."""

    name: str
    """The controller's."""
    instance: str
    """``host:pid`` of its process."""
    epoch: int
    """Of its last start as a leader; 0 for a standby that has not led."""
    batch: int | None
    """The newest micro-batch that this process has begun; None before its first."""
    at: str
    """RFC 3339, by the process's own clock."""
    version: str
    """Of trimtab."""
    role: Role = "leader"
    session_s: float = _SESSION_S_BEFORE
    """``controller.session_s``: without a beat for so long, another one may try to lead."""
    is_leaving: bool = False
    """Whether this is its last beat: it has ended in good order, and nobody has to wait for the session's end."""
    problem: str = ""
    """Why a standby could not lead now; empty where it could."""


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """A person asks a standby to take over from the leader of this epoch. It counts for no other leader."""

    name: str
    """The controller's."""
    to: str
    """``host:pid`` of the standby."""
    leader_epoch: int
    at: str
    """RFC 3339, by the clock of who asks."""


class Unreadable(ValueError):
    """A record of the topic that is neither."""


_encoder = msgspec.json.Encoder()
_beat = msgspec.json.Decoder(Beat)
_hand_over = msgspec.json.Decoder(HandOver)


def encode(said: Beat | HandOver) -> bytes:
    """As JSON."""
    return _encoder.encode(said)


def decode(value: bytes) -> Beat | HandOver:
    """Read one back; raises ``Unreadable``."""
    try:
        return _beat.decode(value)
    except msgspec.MsgspecError as error:
        try:
            return _hand_over.decode(value)
        except msgspec.MsgspecError:
            raise Unreadable(f"no beat of a controller: {error}") from error
