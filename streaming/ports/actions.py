"""The actions topic as an executor sees it: each action at least once and in order, and whose actions are out of date."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["LOOKBACK_S", "ActionRecord", "Actions", "Epochs"]


LOOKBACK_S = 3600.0
"""How far back a first start reads actions: those that have not expired are younger, the others get their result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """A record of the actions topic."""

    value: bytes
    epoch_header: bytes | None


@dataclass(slots=True)
class Epochs:
    """The highest epoch heard of each source: an older controller's actions are not obeyed any more."""

    highest: dict[str, int] = field(default_factory=dict)

    def observe(self, source: str, epoch: int) -> bool:
        """Whether the epoch is the highest so far; remembers it if so."""
        if epoch < self.highest.get(source, 0):
            return False
        self.highest[source] = epoch
        return True

    def merge(self, others: Mapping[str, int]) -> None:
        """Learn what was heard before."""
        for source, epoch in others.items():
            self.observe(source, epoch)


class Actions(Protocol):
    """Actions, each at least once and in order. Methods raise ``PublishError``; after it ``drop``."""

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order, partition by partition."""

    def stay(self) -> None:
        """Say that what was polled is still worked on; to be called every few seconds. Fails once it is another's."""

    def commit(self) -> None:
        """All records polled so far are dealt with."""

    def drop(self) -> None:
        """Forget what was polled and not committed: it comes again, here or elsewhere. Raises nothing."""

    def is_at_end(self) -> bool:
        """Whether nothing there was at this moment is left to poll, once what was polled is committed."""
