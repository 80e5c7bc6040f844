"""Published actions of every kind, read by the fields that all kinds have; unknown fields are ignored."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from state.outputs.actions import ACTION_PREFIX
from streaming.contract.encode import LEADER_TYPE, LeaderData
from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope
from streaming.process.exits import Refused


class ActionData(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every action; a broker is None if its kind has none."""

    round: int
    policy: str
    trigger: str
    reason: str
    evidence: dict[str, Any]
    expected: dict[str, Any] = {}
    precondition: dict[str, Any] = {}
    expires_at: str
    dry_run: bool
    proposal: bool = False
    proposal_id: str | None = None
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

    def at(self, topic: str, offset: int) -> Refused:
        """The error that ends a command which cannot do without the record."""
        return Refused(f"{topic}, offset {offset}: {self}")


_leaders = msgspec.json.Decoder(ReadEnvelope[LeaderData])
_actions = msgspec.json.Decoder(Action)


def read_action(value: bytes) -> Action:
    """The action a record holds; raises ``UnreadableEvent``."""
    try:
        action = _actions.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"not an action: {error}; it may be from another version of trimtab") from error
    if not action.type.startswith(ACTION_PREFIX):
        raise UnreadableEvent(f"{action.type} is not an action")
    return action


def has_id(value: bytes, beginning: str) -> bool:
    """Whether a record is an action whose id has this beginning."""
    try:
        event = read_envelope(value)
    except msgspec.MsgspecError:
        return False
    return event.type.startswith(ACTION_PREFIX) and event.id.startswith(beginning)


def read_leader(value: bytes) -> ReadEnvelope[LeaderData] | None:
    """The event about a new leader; None for any other record."""
    try:
        event = _leaders.decode(value)
    except msgspec.MsgspecError:
        return None
    return event if event.type == LEADER_TYPE else None


def epoch_of(headers: Iterable[tuple[str, bytes]]) -> int | None:
    """The epoch of the controller that wrote a record; None where the header is missing or no number."""
    text = dict(headers).get(EPOCH_HEADER, b"").decode(errors="replace")
    return int(text) if text.isdecimal() else None


@dataclass(slots=True)
class Epochs:
    """The highest epoch seen, for each source in each partition."""

    _highest: dict[tuple[str, int], int] = field(default_factory=dict)

    def is_stale(self, source: str, partition: int, epoch: int | None) -> bool:
        """Whether a newer controller of the same source has written there before; a stale action must not be obeyed."""
        if epoch is None:
            return False
        at = (source, partition)
        highest = self._highest[at] = max(epoch, self._highest.get(at, epoch))
        return epoch < highest
