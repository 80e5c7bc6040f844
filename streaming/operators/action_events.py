"""A published action as any kind of it can be read: what all kinds have in common, unknown fields left alone."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope

ACTION_PREFIX = "trimtab.action."


class ActionData(msgspec.Struct, frozen=True, kw_only=True):
    """What every action says; brokers where its kind has them."""

    round: int
    policy: str
    trigger: str
    reason: str
    evidence: dict[str, Any]
    expected: dict[str, Any] = {}
    precondition: dict[str, Any] = {}
    expires_at: str
    dry_run: bool
    broker: str | None = None
    source_broker: str | None = None
    destination_broker: str | None = None


class Action(ReadEnvelope[ActionData], frozen=True, kw_only=True):
    """An action event."""

    @property
    def kind(self) -> str:
        """``unload``, ``split``, …"""
        return self.type.removeprefix(ACTION_PREFIX).rpartition(".")[0]


class UnreadableEvent(Exception):
    """A record is not what its topic should hold; the text says what it is."""


_actions = msgspec.json.Decoder(Action)


def read_action(value: bytes) -> Action:
    """The action a record holds; raises ``UnreadableEvent``."""
    try:
        action = _actions.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"no action: {error}") from error
    if not action.type.startswith(ACTION_PREFIX):
        raise UnreadableEvent(f"{action.type} is no action")
    return action


def has_id(value: bytes, beginning: str) -> bool:
    """Whether a record is an event whose id begins so."""
    try:
        return read_envelope(value).id.startswith(beginning)
    except msgspec.MsgspecError:
        return False


def epoch_of(headers: Iterable[tuple[str, bytes]]) -> int | None:
    """The controller's epoch of a record; None where the header is missing or no number."""
    text = dict(headers).get(EPOCH_HEADER, b"").decode(errors="replace")
    return int(text) if text.isdecimal() else None


@dataclass(slots=True)
class Epochs:
    """The highest epoch seen, for each (source, cluster)."""

    _highest: dict[tuple[str, str], int] = field(default_factory=dict)

    def is_stale(self, action: Action, epoch: int | None) -> bool:
        """Whether a newer controller of the same source has spoken before; such an action must not be obeyed."""
        if epoch is None:
            return False
        at = (action.source, action.cluster)
        highest = self._highest[at] = max(epoch, self._highest.get(at, epoch))
        return epoch < highest
