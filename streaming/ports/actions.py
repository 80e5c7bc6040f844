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
    partition: int = 0


@dataclass(slots=True)
class Epochs:
    """The highest epoch heard of each source in each partition: it counts for what follows there.

    What an older controller said before it stays valid, also where that is carried out later.
    """

    _highest: dict[int, dict[str, int]] = field(default_factory=dict)

    def hear(self, partition: int, source: str, epoch: int) -> int:
        """The highest epoch of the source so far, with this one, which the next record of the partition has."""
        heard = self._highest.setdefault(partition, {})
        heard[source] = max(epoch, heard.get(source, epoch))
        return heard[source]

    def heard(self, partition: int) -> Mapping[str, int]:
        """The highest epoch of each source in a partition."""
        return self._highest.get(partition, {})

    def forget(self) -> None:
        """Everything is read again from before."""
        self._highest.clear()

    def begin(self, partition: int, heard: Mapping[str, int]) -> None:
        """Reading of a partition begins (again) at a place before which this was heard."""
        self._highest[partition] = dict(heard)


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
