"""Which messages are on which topics; all pages are made from this table."""

import inspect
from dataclasses import dataclass

import msgspec

from streaming.contract.messages import INPUT_TYPES, ControlMessage, type_of
from streaming.contract.published import (
    LeaderMessage,
    RejectedMessage,
    RoundMessage,
    SkippedMessage,
    SplitMessage,
    ThrottleMessage,
    UnloadMessage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKind:
    """A message type with the topics it is found on, as the names of the settings in ``[topics]``."""

    message: type[msgspec.Struct]
    topics: tuple[str, ...]
    is_read: bool
    """Whether trimtab reads it; otherwise it publishes it."""

    @property
    def type(self) -> str:
        """CloudEvents type."""
        return type_of(self.message)

    @property
    def summary(self) -> str:
        """The docstring of the message, in one line."""
        return " ".join((inspect.getdoc(self.message) or "").split())

    @property
    def schema_name(self) -> str:
        """File name, and `$id`, of its schema."""
        return f"{self.type}.schema.json"


KINDS = (
    *(MessageKind(message=message, topics=("input",), is_read=True) for message in INPUT_TYPES),
    MessageKind(message=ControlMessage, topics=("control",), is_read=True),
    MessageKind(message=UnloadMessage, topics=("actions", "actions_dry_run"), is_read=False),
    MessageKind(message=SplitMessage, topics=("actions", "actions_dry_run"), is_read=False),
    MessageKind(message=ThrottleMessage, topics=("actions", "actions_dry_run"), is_read=False),
    MessageKind(message=LeaderMessage, topics=("actions",), is_read=False),
    MessageKind(message=RoundMessage, topics=("audit",), is_read=False),
    MessageKind(message=SkippedMessage, topics=("audit",), is_read=False),
    MessageKind(message=RejectedMessage, topics=("dead_letter",), is_read=False),
)
